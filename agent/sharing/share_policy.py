"""Which GPUs of this node may be used in shares, and how: as the flag says, or as a folder does that is
read at every look (a ConfigMap, mounted): a file by the node's name goes before one named default."""

import logging
from pathlib import Path

from agent.backoff import StateLogger
from agent.sharing.sharing_mode import SharingModes, parse

log = logging.getLogger(__name__)


class SharePolicy:
    def __init__(self, folder: Path | None, node: str, otherwise: str) -> None:
        self._folder, self._node, self._otherwise = folder, node, otherwise
        self._last = parse(otherwise)  # that could be read
        self._said = otherwise
        self._log = StateLogger(log)

    def current(self) -> SharingModes:
        """What can't be read changes nothing."""
        try:
            text, where = self._read()
            ways = parse(text)
        except (OSError, ValueError) as error:
            self._log.failed(f"GPUs in shares stay as they were ({self._said}): {error}")
            return self._last
        if ways != self._last:
            self._log.ok(f"GPUs in shares: {_line(text)} ({where})")
        self._last, self._said = ways, _line(text)
        return ways

    def _read(self) -> tuple[str, str]:
        """What is said, and where."""
        for name in (self._node, "default") if self._folder else ():
            assert self._folder is not None
            file = self._folder / name
            if file.is_file():
                text = file.read_text(encoding="utf-8")
                try:
                    parse(text)
                except ValueError as error:
                    raise ValueError(f"{file}: {error}") from None
                return text, str(file)
        return self._otherwise, "by the flag"


def _line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines())
