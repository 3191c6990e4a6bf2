"""The sharing configuration of a node, as text. Pure.

Each line (or part between semicolons) names GPUs and a mode: `0-3: mps`, `4,5: kernel`, `6: watch
timeslice=long`, `7: whole`. `all` means every GPU. If several lines name a GPU, the last one
counts. A GPU that no line names is allocated whole only. Without a colon, the GPUs are shared with
the best enforcement that the node supports: `all`, `0,1`. `none`: no GPU is shared.

Design: docs/design/gpu-sharing.md
"""

from dataclasses import dataclass

WHOLE, AUTO = "whole", "auto"
LEVELS = ("kernel", "mps", "watch", "none")
WORDS = (WHOLE, AUTO, *LEVELS)
TIME_SLICES = (
    "default",
    "short",
    "medium",
    "long",
)  # index: the number for nvidia-smi compute-policy


@dataclass(frozen=True, slots=True)
class SharingMode:
    by: str = WHOLE  # of WORDS
    time_slice: str = ""  # of TIME_SLICES; empty: the driver's default


@dataclass(frozen=True, slots=True)
class SharingModes:
    rows: tuple[tuple[frozenset[int] | None, SharingMode], ...] = ()  # None: every GPU

    def of(self, index: int) -> SharingMode:
        found = [mode for gpus, mode in self.rows if gpus is None or index in gpus]
        return found[-1] if found else SharingMode()


def checked(text: str) -> str:
    """Returns the text. Raises ValueError as parse()."""
    parse(text)
    return text


def parse(text: str) -> SharingModes:
    """Raises ValueError, naming the part."""
    lines = (line.partition("#")[0].strip() for line in text.replace(";", "\n").splitlines())
    parts = [line for line in lines if line]
    if not parts:
        raise ValueError(f"{text.strip()!r} names no GPU; use all, none, or indices")
    if parts == ["none"]:
        return SharingModes()
    return SharingModes(tuple(map(_row, parts)))


def _row(part: str) -> tuple[frozenset[int] | None, SharingMode]:
    names, colon, mode = part.partition(":")
    return _gpus(names, part), _mode(mode, part) if colon else SharingMode(AUTO)


def _gpus(names: str, part: str) -> frozenset[int] | None:
    if names.strip() == "all":
        return None
    found: set[int] = set()
    for name in names.split(","):
        first, dash, last = (end.strip() for end in name.partition("-"))
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdigit() and len(end) < 4 for end in ends):
            raise ValueError(f"{part!r}: {name.strip()!r} is neither a GPU index nor all")
        found.update(range(int(first), int(ends[-1]) + 1))
    return frozenset(found)


def _mode(text: str, part: str) -> SharingMode:
    words = text.split()
    slices = [word.removeprefix("timeslice=") for word in words if word.startswith("timeslice=")]
    levels = [word for word in words if not word.startswith("timeslice=")]
    if len(levels) != 1 or levels[0] not in WORDS:
        raise ValueError(f"{part!r}: use one of {', '.join(WORDS)} after the colon")
    if len(slices) > 1 or any(each not in TIME_SLICES for each in slices):
        raise ValueError(f"{part!r}: timeslice= takes one of {', '.join(TIME_SLICES)}")
    if slices and levels[0] in (WHOLE, "mps"):
        raise ValueError(f"{part!r}: time slices apply only to kernel, watch, none and auto")
    return SharingMode(levels[0], slices[0] if slices else "")
