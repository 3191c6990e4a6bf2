"""In which way each GPU of a node may be shared, as people write it down. Pure.

A line (or what is between semicolons) names GPUs and says how: `0-3: mps`, `4,5: kernel`,
`6: watch timeslice=long`, `7: whole`. `all` is every GPU; where two lines name a GPU the later one
counts; a GPU that no line names is given whole only. Without a colon GPUs are shared as well as the node can:
`all`, `0,1`; `none`: no GPU is shared."""

from dataclasses import dataclass

WHOLE, AUTO = "whole", "auto"
LEVELS = ("kernel", "mps", "watch", "none")
WORDS = (WHOLE, AUTO, *LEVELS)
TIME_SLICES = (
    "default",
    "short",
    "medium",
    "long",
)  # by their numbers in nvidia-smi compute-policy


@dataclass(frozen=True, slots=True)
class SharingMode:
    mode: str = WHOLE  # a word of WORDS
    time_slice: str = ""  # of TIME_SLICES; empty: as the driver has it


@dataclass(frozen=True, slots=True)
class SharingModes:
    rows: tuple[tuple[frozenset[int] | None, SharingMode], ...] = ()  # None: every GPU

    def of(self, index: int) -> SharingMode:
        found = [way for gpus, way in self.rows if gpus is None or index in gpus]
        return found[-1] if found else SharingMode()


def parse(text: str) -> SharingModes:
    """Raises ValueError, naming the part."""
    lines = (line.partition("#")[0].strip() for line in text.replace(";", "\n").splitlines())
    parts = [line for line in lines if line]
    if not parts:
        raise ValueError(f"{text.strip()!r} names no GPU: all, none, or indices")
    if parts == ["none"]:
        return SharingModes()
    return SharingModes(tuple(map(_row, parts)))


def _row(part: str) -> tuple[frozenset[int] | None, SharingMode]:
    names, colon, said = part.partition(":")
    return _gpus(names, part), _way(said, part) if colon else SharingMode(AUTO)


def _gpus(names: str, part: str) -> frozenset[int] | None:
    if names.strip() == "all":
        return None
    found: set[int] = set()
    for name in names.split(","):
        first, dash, last = (end.strip() for end in name.partition("-"))
        ends = [first, last] if dash else [first]
        if not all(end.isascii() and end.isdigit() and len(end) < 4 for end in ends):
            raise ValueError(f"{part!r}: {name.strip()!r} is neither an index of a GPU nor all")
        found.update(range(int(first), int(ends[-1]) + 1))
    return frozenset(found)


def _way(said: str, part: str) -> SharingMode:
    words = said.split()
    slices = [word.removeprefix("timeslice=") for word in words if word.startswith("timeslice=")]
    levels = [word for word in words if not word.startswith("timeslice=")]
    if len(levels) != 1 or levels[0] not in WORDS:
        raise ValueError(f"{part!r}: say one of {', '.join(WORDS)} after the colon")
    if len(slices) > 1 or any(each not in TIME_SLICES for each in slices):
        raise ValueError(f"{part!r}: timeslice= takes one of {', '.join(TIME_SLICES)}")
    if slices and levels[0] in (WHOLE, "mps"):
        raise ValueError(f"{part!r}: only pods that take turns on a GPU have time slices")
    return SharingMode(levels[0], slices[0] if slices else "")
