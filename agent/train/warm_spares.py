"""Processes that import a program's slow modules before the next generation needs them, because `import torch` takes
most of a restart. There is one per rank, with nothing on a GPU. Other commands than `python SCRIPT.py` and
`python -m MODULE` have none.

Design: docs/design/training.md
"""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Memory that the container may still use, for each process; else there are none.
LEAST_BYTES = 2 << 30
DEFAULT = "torch"  # module
_FIND = """import sys
from importlib.util import find_spec
names = [each for each in sys.argv[1].split(",") if each]
tops = [each.partition(".")[0] for each in names]
print(*(each for each, top in zip(names, tops) if find_spec(top) is None), sep=", ")"""
_PLAIN_OPTIONS = {"-u", "-O", "-OO", "-B", "-s", "-E", "-q"}  # of the interpreter


class _Program(NamedTuple):
    interpreter: list[str]  # with its options
    arguments: list[str]  # the first is the script, or the module's name
    is_module: bool


class WarmSpares:
    """The spares of one member. What cannot run in a spare is left to the caller, so no method raises an error."""

    def __init__(
        self,
        command: Sequence[str],
        modules: str,
        count: int,
        cgroup: Path = Path("/sys/fs/cgroup"),
    ) -> None:
        """modules: names with commas between; empty: no spares. count: how many are kept."""
        self._cgroup = cgroup
        self._program = _parse(command) if modules else None
        self._modules, self._count = modules, count
        self._spares: list[
            tuple[subprocess.Popen[bytes], int]
        ] = []  # and where each waits for its line

    def unknown(self) -> str:
        """Returns the modules that the command's interpreter does not find. The default may be missing."""
        if self._program is None or self._modules == DEFAULT:
            return ""
        asked = [*self._program.interpreter, "-c", _FIND, self._modules]
        try:
            found = subprocess.run(asked, check=False, stdout=subprocess.PIPE, text=True)
        except OSError:
            return ""
        return found.stdout.strip()

    @property
    def complete(self) -> bool:
        return self._program is None or len(self._spares) >= self._count

    def prepare(self) -> None:
        """Starts the missing spares; none at all any more where memory or processes are short."""
        if self._program is None:
            return
        text = pkgutil.get_data(__package__, "warm_process.py")
        assert text is not None
        try:
            while not self.complete:
                if usable_bytes(self._cgroup) < LEAST_BYTES:
                    raise MemoryError
                self._spares.append(self._start(self._program, text.decode()))
        except (OSError, MemoryError):
            self._program = None

    def _start(self, program: _Program, text: str) -> tuple[subprocess.Popen[bytes], int]:
        """Raises OSError."""
        there, here = os.pipe()
        try:
            made = subprocess.Popen(
                [*program.interpreter, "-c", text, str(there), self._modules],
                pass_fds=(there,),
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError:
            os.close(here)
            raise
        finally:
            os.close(there)
        return made, here

    def take(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Runs the command in a spare, with the whole environment. None: there is none."""
        while self._spares and self._program is not None:
            spare, here = self._spares.pop()
            given = {
                "program": self._program.arguments,
                "is_module": self._program.is_module,
                "environment": dict(environment),
            }
            try:
                with os.fdopen(here, "wb") as lines:
                    lines.write(json.dumps(given).encode() + b"\n")
            except OSError:  # it has died
                _end(spare)
            else:
                return spare
        return None

    def close(self) -> None:
        for spare, here in self._spares:
            os.close(here)
            _end(spare)
        self._spares.clear()


def _end(spare: subprocess.Popen[bytes]) -> None:
    spare.kill()
    spare.communicate()


def _parse(command: Sequence[str]) -> _Program | None:
    """Returns the parts of a command that runs Python. None: it runs something else, or not as a spare could."""
    if not Path(command[0]).name.startswith("python") or os.environ.get("PYTHONSAFEPATH"):
        return None
    at = 1
    while at < len(command) and command[at] in _PLAIN_OPTIONS:
        at += 1
    interpreter, rest = list(command[:at]), list(command[at:])
    if rest[:1] == ["-m"] and len(rest) > 1:
        return _Program(interpreter, rest[1:], is_module=True)
    if rest and rest[0].endswith(".py"):
        return _Program(interpreter, rest, is_module=False)
    return None


def usable_bytes(cgroup: Path) -> float:
    """Returns the bytes that the container may still use; inf: no limit is known."""
    try:
        most = (cgroup / "memory.max").read_text()
        return int(most) - int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return float("inf")
