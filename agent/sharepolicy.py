"""Which GPUs of this node may be used in shares: as the flag says, or as a folder does that is read at
every look (a ConfigMap, mounted): a file by the node's name goes before one named default."""

import logging
from pathlib import Path

from agent.backoff import Voice

log = logging.getLogger(__name__)

Wanted = tuple[str, ...]


def parse(text: str) -> Wanted:
    """Indices, comma separated, or one word: all, none. Raises ValueError."""
    parts = tuple(part.strip() for part in text.split(",") if part.strip())
    numbers = all(part.isascii() and part.isdigit() for part in parts)
    if parts not in (("all",), ("none",)) and not (parts and numbers):
        raise ValueError(f"{text.strip()!r} is neither indices of GPUs nor all nor none")
    return parts


class SharePolicy:
    def __init__(self, folder: Path | None, node: str, otherwise: Wanted) -> None:
        self._folder, self._node, self._otherwise = folder, node, otherwise
        self._last = otherwise  # that could be read
        self._voice = Voice(log)

    def now(self) -> Wanted:
        """What can't be read changes nothing."""
        try:
            wanted, file = self._read()
        except (OSError, ValueError) as error:
            self._voice.bad(f"GPUs in shares stay {','.join(self._last)}: {error}")
            return self._last
        if wanted != self._last:
            self._voice.good(f"GPUs in shares: {','.join(wanted)} ({file or 'by the flag'})")
        self._last = wanted
        return wanted

    def _read(self) -> tuple[Wanted, Path | None]:
        for name in (self._node, "default") if self._folder else ():
            assert self._folder is not None
            file = self._folder / name
            if file.is_file():
                try:
                    return parse(file.read_text(encoding="utf-8")), file
                except ValueError as error:
                    raise ValueError(f"{file}: {error}") from None
        return self._otherwise, None
