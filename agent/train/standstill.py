"""Notices that this process lives and takes no step, and describes what it does instead.

A step begins when a batch is asked for and ends with world.over(). What lies between two steps, such as an evaluation,
may take ten times as long, and so may the first step of a generation.

Design: docs/design/training.md"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .environment import seconds

LEAST_S = 60.0  # where the coordinator does not say
VARIABLE = "LOCKSTEP_HANG_AFTER"  # seconds; 0: never
BEGINS, LOADS, STEPS, BETWEEN = (
    "has taken no step of this generation yet",
    "waits for its loader",
    "is within a step",
    "is between two steps",
)
_USUAL, _LONGEST, _PATIENT = 10.0, 2.0, 10.0  # times a usual step, the longest one, the limit
_WEIGHT = 0.2  # of the newest step in the mean
_AGAIN_S = 30.0
_present: list[StepWatch] = []  # of the turn that trains
_FRAMES, _FRAME = 24, 160  # innermost ones; characters


class StepWatch:
    """The progress of one process. tell: gets the description, again while the process stands still."""

    def __init__(
        self, tell: Callable[[dict[str, Any]], None], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._tell, self._clock = tell, clock
        self.least_s = seconds(VARIABLE, LEAST_S)
        self._usual_s = self._longest_s = 0.0
        self._busy, self._loads = 0, False
        self.begin()

    def begin(self) -> None:
        """A generation begins, in the thread that trains."""
        self._phase, self._first, self._thread = BEGINS, True, threading.get_ident()
        self._since, self._told_s = self._clock(), 0.0
        self.own_s = 0.0  # in which this process waited for no other, in the steps after the first
        self._own_since: float | None = None
        _present[:] = [self]

    def enter(self, phase: str) -> None:
        now, before, self._phase = self._clock(), self._phase, phase
        self._loads = self._loads or phase == LOADS
        if phase == STEPS and self._own_since is not None:
            self._count_own(now)
        else:  # the first batch of a step counts, after the first step
            begins = phase == LOADS and before == BETWEEN
            self._own_since = now if begins else None
        if phase == BETWEEN:
            took = now - self._since
            if not self._first:
                self._usual_s += (_WEIGHT if self._usual_s else 1.0) * (took - self._usual_s)
                self._longest_s = max(self._longest_s, took)
            self._first = False
        if BETWEEN in (phase, before):
            self._since, self._told_s = now, 0.0

    def computed(self) -> None:
        """The first gradient of a step is there: until now the process has waited for no other."""
        if self._phase == STEPS and self._own_since is not None:
            self._count_own(self._clock())
            self._own_since = None

    def _count_own(self, now: float) -> None:
        self.own_s += now - (self._own_since or now)
        self._own_since = now

    @contextlib.contextmanager
    def busy(self) -> Iterator[None]:
        """Suspends the watch; the time does not count."""
        self._busy, began = self._busy + 1, self._clock()
        try:
            yield
        finally:
            self._busy -= 1
            if not self._busy:
                self._since += self._clock() - began

    def limit_s(self) -> float:
        patient = self._first or (self._phase == BETWEEN and self._loads)
        least = max(self.least_s, _USUAL * self._usual_s, _LONGEST * self._longest_s)
        return least * (_PATIENT if patient else 1.0)

    def look(self) -> None:
        """Tells if the process stands still. Called from another thread."""
        still_s = self._clock() - self._since
        if self._busy or not self.least_s or still_s < max(self.limit_s(), self._told_s):
            return
        self._told_s = still_s + _AGAIN_S
        self._tell({"phase": self._phase, "seconds": still_s, "stack": stack(self._thread)})


def computed(_: object) -> None:
    """Tells the watch of this turn that a gradient is there."""
    for watch in _present:
        watch.computed()


def stack(thread: int) -> str:
    """Returns the innermost frames of a thread, one in a line, the innermost last: files, lines and functions, no
    values."""
    found: list[str] = []
    frame = sys._current_frames().get(thread)
    while frame is not None and len(found) < _FRAMES:
        code = frame.f_code
        found.append(f"{code.co_filename}:{frame.f_lineno} {code.co_name}"[-_FRAME:])
        frame = frame.f_back
    return "\n".join(reversed(found))
