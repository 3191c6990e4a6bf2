"""The sharing policy of this node's GPUs: from the flag, or from a directory that is read at each survey (a mounted
ConfigMap). A file named after the node takes precedence over one named default."""

import logging
from pathlib import Path

from agent.backoff import StateLogger
from agent.bounded_files import is_file, read_text
from agent.sharing.sharing_mode import SharingModes, parse

log = logging.getLogger(__name__)


class SharePolicy:
    def __init__(self, folder: Path | None, node: str, flag: str) -> None:
        self._folder, self._node, self._flag = folder, node, flag
        self._last = parse(flag)  # the last valid configuration
        self._text = flag
        self._log = StateLogger(log)

    def current(self) -> SharingModes:
        """The present configuration; the last valid one if it is unreadable."""
        try:
            text, where = self._read()
            modes = parse(text)
        except (OSError, ValueError) as error:
            self._log.failed(f"keeping the last sharing configuration ({self._text}): {error}")
            return self._last
        if modes != self._last:
            self._log.ok(f"sharing configuration: {_line(text)} ({where})")
        self._last, self._text = modes, _line(text)
        return modes

    def _read(self) -> tuple[str, str]:
        """The text and its source."""
        for name in (self._node, "default") if self._folder else ():
            assert self._folder is not None
            file = self._folder / name
            if is_file(file):
                text = read_text(file)
                try:
                    parse(text)
                except ValueError as error:
                    raise ValueError(f"{file}: {error}") from None
                return text, str(file)
        return self._flag, "--share-gpus"


def _line(text: str) -> str:
    return "; ".join(line.strip() for line in text.strip().splitlines())
