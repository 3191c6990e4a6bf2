"""The journal: all facts and decisions as JSON lines, for `lockstep replay`.

    {"journal": 2, "version": "0.1.0", "settings": {...}}    how the cluster state was created
    {"learn": [now, [fact, ...]]}                            applied before the initial sync was complete
    {"turn": [now, [fact, ...]]}                             written before the scheduling cycle
    {"cut": attempts}                                        the cycle ended after that many more than one, if others
    are left {"interrupted": units}                                   a long attempt ended after that much work, because
    others waited {"decided": [decision, ...]}                             its decisions, if there were any

A journal above its size becomes FILE.1. The new file continues with the cluster state in its second line
(checkpoint.py), at the end of a round unless that takes too long. What the last run has left becomes FILE.1 at a start
and FILE.2 after that, so its newest file survives two starts, and there are never more than three files.
"""

import errno
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import IO, Any

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.scheduler import Scheduler
from central.server import checkpoint, codec
from central.server.version import version

log = logging.getLogger(__name__)

FORMAT = 2
MOST_BYTES = 256 << 20


class Journal:
    """A journal that ends at its first error, a full disk or a bug, while the scheduler continues."""

    def __init__(
        self, path: str | Path, scheduler: Scheduler, most_bytes: int = MOST_BYTES
    ) -> None:
        """Raises OSError if the file can't be created."""
        self._path = Path(path)
        self._scheduler = scheduler
        self._most_bytes = most_bytes
        self._bytes = 0
        self._is_rotated = False  # so FILE.1 is of this run
        self._file: IO[bytes] | None = self._open()

    def learn(self, now: float, facts: Sequence[Fact]) -> None:
        """Facts that are about to be applied without a decision."""
        if facts:
            self._write({"learn": [now, codec.tagged(facts)]})

    def turn(self, now: float, facts: Sequence[Fact]) -> None:
        """Records the facts before the cycle, so that they are kept even if the cycle fails. Cycles without facts are
        recorded too: some decisions follow from the time alone."""
        in_round = self._scheduler.state.pending.round is not None
        if self._bytes > self._most_bytes * (2 if in_round else 1):
            self._contained(self._rotate)
        self._write({"turn": [now, codec.tagged(facts)]})

    def cut(self, more: int) -> None:
        """The cycle is a slice: gangs are left to the next one. more: attempts after the first."""
        self._write({"cut": more})

    def interrupted(self, units: int) -> None:
        """A long attempt of the cycle ended after that many units of work."""
        self._write({"interrupted": units})

    def decided(self, decisions: Sequence[Decision]) -> None:
        if decisions:
            self._write({"decided": codec.tagged(decisions)})

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # all is written
                file.close()

    def _open(self) -> IO[bytes]:
        if self._path.is_file() and _has_entries(self._path):
            first, second = (self._path.with_name(f"{self._path.name}.{n}") for n in (1, 2))
            if first.exists() and not self._is_rotated:
                first.replace(second)
            self._path.replace(first)
            self._is_rotated = self._bytes > 0  # 0: it starts
        self._bytes = 0
        file = self._path.open("wb", buffering=0)
        header = {"journal": FORMAT, "version": version(), "settings": settings(self._scheduler)}
        try:
            self._append(file, codec.dumps(header))
        except BaseException:
            file.close()
            raise
        return file

    def _rotate(self) -> None:
        """The scheduler goes on with what a replay of the new file begins with."""
        taken = checkpoint.take(self._scheduler)
        self.close()
        self._file = self._open()
        self._append(self._file, b'{"checkpoint":' + taken.text + b"}")
        self._scheduler.adopt(taken.folded)
        # the checkpoint may exceed the limit
        self._most_bytes = max(self._most_bytes, 2 * self._bytes)

    def _write(self, line: dict[str, Any]) -> None:
        self._contained(lambda: self._append(self._file, codec.dumps(line)))

    def _append(self, file: IO[bytes] | None, line: bytes) -> None:
        data = line + b"\n"
        written = file.write(data) if file is not None else len(data)
        if written < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._bytes += written

    def _contained(self, act: Callable[[], None]) -> None:
        if self._file is None:
            return
        try:
            act()
        except Exception as error:
            known = isinstance(error, OSError) and error.strerror
            why = known or f"a bug ({type(error).__name__}: {error})"
            log.warning("journal %s: %s; recording stopped", self._path, why, exc_info=not known)
            self.close()


def _has_entries(path: Path) -> bool:
    """Returns whether any entry follows the first line. A start that recorded nothing replaces no older file."""
    with path.open("rb") as file:
        file.readline()
        return bool(file.read(1))


def settings(scheduler: Scheduler) -> dict[str, Any]:
    """The arguments of new_scheduler()."""
    policy = scheduler.policy
    return {
        "levels": list(scheduler.state.snapshot.columns.domains.levels),
        "half_life_s": scheduler.queues.half_life_s,
        **{each.name: getattr(policy, each.name) for each in fields(policy)},
        "share_by_weight": sorted(policy.share_by_weight),
        "mig_fractions": {name: str(part) for name, part in policy.mig_fractions},
    }
