"""The steps of processes that a launcher started. They write them into files, which the launcher reads: it alone speaks
with the coordinator.

A file has one line: STEP [RECORDS [LEFT]], as in `echo 4180 > "$LOCKSTEP_STEP_FILE"`. Each process that uses this
package has a file of its own beside that one, so that the records of several processes add up. Such a process adds
the milliseconds in which it waited for no other one, and writes - for an unknown LEFT."""

from __future__ import annotations

import contextlib
import operator
import os
import re
import sys
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from .generation_lease import GenerationLease
from .standstill import VARIABLE

STEP_FILE = "LOCKSTEP_STEP_FILE"  # variable
SAVING, IN_TURN = "saving", "turn"  # kinds of marks
STOP_WAIT_S, SAVE_WAIT_S = (
    30.0,
    600.0,
)  # how long a launcher waits for its processes, and for a save under way
FORM = "STEP [RECORDS [LEFT]]"
_LINE = re.compile(rb"\s*(\d{1,15})(?: +(\d{1,15})(?: +(\d{1,15}|-)(?: +(\d{1,15}))?)?)?\s*")
_MOST_BYTES = 256
_WIDTH = 64  # bytes of a line, so that one overwrites the one before
_MOST_FILES = 1025  # lockstep-launch starts at most 1,024 processes


class Progress(NamedTuple):
    """step: taken in all. records: that these processes took in this generation. left: records that all ranks together
    have left in the epoch; None: not known. own_s: in which a process waited for no other, in this generation, of
    several the most; 0: not known."""

    step: int
    records: int = 0
    left: int | None = None
    own_s: float = 0.0


def parse(line: bytes) -> Progress | None:
    """Parses a line; None if it has another form."""
    found = _LINE.fullmatch(line) if len(line) <= _MOST_BYTES else None
    if found is None:
        return None
    step, records, left, own_ms = found.groups()
    remaining = None if left in (None, b"-") else int(left)
    return Progress(int(step), int(records or 0), remaining, int(own_ms or 0) / 1000)


class StepFile:
    """The steps of one generation's processes, as their launcher sees them."""

    def __init__(self, path: Path, generation: int, lease: GenerationLease) -> None:
        self.generation = generation
        self._path, self._lease = path, lease
        self._seen = self._mark()
        self._used = False  # a process has touched it: without that nothing is known of steps
        self._complained = False

    @classmethod
    def begin(cls, folder: str, generation: int, lease: GenerationLease) -> StepFile:
        """Creates the file for the processes of a generation that starts now: they inherit its name."""
        path = Path(folder, f"generation-{generation}", "step")
        path.parent.mkdir(exist_ok=True)
        path.touch()
        os.environ[STEP_FILE] = str(path)
        os.environ.setdefault(VARIABLE, f"{lease.hang_s:g}")
        lease.begin()
        return cls(path, generation, lease)

    def saves(self) -> bool:
        """Returns whether a process writes a checkpoint."""
        return _marked(self._path.parent, SAVING)

    def turns(self) -> bool:
        """Returns whether a process has yet to reach the end of its turn. Scripts that do not call over() never say
        so."""
        return _marked(self._path.parent, IN_TURN)

    def ask_to_stop(self) -> None:
        """The processes end their turn as they do after SIGTERM, and then wait for it."""
        Path(f"{self._path.parent}-stop").touch()

    def cut_off(self) -> bool:
        """Reads the files. Returns whether processes that took steps have stopped, and the coordinator is silent."""
        self.refresh()
        return self._used and self._lease.expired()

    def refresh(self) -> None:
        if (mark := self._mark()) != self._seen:
            self._seen, self._used = mark, True
            self._lease.worked()

    def progress(self) -> Progress | None:
        """The most steps of a process, and the records of all of them; None: no process has said it."""
        found = [each for each in map(self._read, self._files()) if each is not None]
        if not found:
            return None
        first = max(found, key=lambda one: one.step)
        own_s = max(one.own_s for one in found)
        return first._replace(records=sum(one.records for one in found), own_s=own_s)

    def _read(self, path: Path) -> Progress | None:
        try:
            with path.open("rb") as file:
                line = file.read(_MOST_BYTES + 1)
        except OSError:
            return None
        found = parse(line)
        if found is None and line.strip() and not self._complained:
            self._complained = True
            sys.stderr.write(
                f"lockstep: {STEP_FILE}: {line[:40]!r} is not {FORM} in whole numbers, so the steps of this member are "
                "unknown\n"
            )
        return found

    def _files(self) -> list[Path]:
        """Returns the file of the variable, and those of processes by their local rank."""
        try:
            with os.scandir(self._path.parent) as entries:
                return [Path(each.path) for each in islice(entries, _MOST_FILES)]
        except OSError:
            return []

    def _mark(self) -> int:
        return max(map(_changed_ns, self._files()), default=0)


def asked_to_stop() -> bool:
    """Returns whether the launcher of this process wants its turn to end."""
    path = os.environ.get(STEP_FILE)
    return bool(path) and Path(f"{Path(str(path)).parent}-stop").exists()


def mark(kind: str) -> Callable[[], None]:
    """Shows the launcher that this process is in the middle of something, SAVING or IN_TURN, until the result is
    called. Does nothing without a launcher."""
    path = os.environ.get(STEP_FILE)
    if not path:
        return _nothing
    made = Path(f"{Path(path).parent}-{kind}", f"{os.getpid()}-{time.monotonic_ns()}")
    with contextlib.suppress(OSError):
        made.parent.mkdir(exist_ok=True)
        made.touch()
    return lambda: made.unlink(missing_ok=True)


def _nothing() -> None:
    """Removes no mark, because there is none."""


def _marked(folder: Path, kind: str) -> bool:
    """Returns whether a living process has such a mark."""
    with contextlib.suppress(OSError), os.scandir(f"{folder}-{kind}") as entries:
        return any(_lives(int(each.name.partition("-")[0])) for each in entries)
    return False


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def _changed_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def write_step(step: int, records: int = 0, left: int | None = None, own_s: float = 0.0) -> None:
    """Writes the step, in a process that a launcher started, after each step. Does nothing without a launcher."""
    path = os.environ.get(STEP_FILE)
    if not path:
        return
    line = f"{step} {records} {'-' if left is None else left} {1000 * own_s:.0f}"
    try:
        mine = os.open(
            f"{path}.{os.environ.get('LOCAL_RANK', '0')}", os.O_WRONLY | os.O_CREAT, 0o644
        )
        try:
            os.write(mine, line.ljust(_WIDTH - 1).encode() + b"\n")
        finally:
            os.close(mine)
    except OSError:
        with contextlib.suppress(OSError):  # a full disk: a step was taken all the same
            os.utime(path)


def progress(step: int, records: int = 0) -> None:
    """Say how many steps were taken, for scripts under lockstep-launch or torchrun that do not call `world.over()`,
    which says it as well. `records`: that this process took since it started. Costs no wait; elsewhere nothing happens.
    Raises ValueError."""
    write_step(_count("step", step), _count("records", records))


def _count(name: str, value: int) -> int:
    try:
        found = operator.index(value)
    except TypeError:
        raise ValueError(f"progress: {name} must be a whole number, not {value!r}") from None
    if not 0 <= found < 10**15:
        raise ValueError(f"progress: {name} must be from 0 to 10^15, not {value!r}")
    return found
