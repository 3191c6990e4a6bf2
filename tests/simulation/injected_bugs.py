"""Bugs that are put into any function of a package at run time, to show that what they stop is contained."""

import random
import sys
from collections.abc import Callable
from itertools import count
from types import FrameType
from typing import TypeVar

ERRORS = (KeyError, TypeError, ZeroDivisionError, AssertionError, MemoryError, RecursionError)
FENCE = (
    "containment.py",
    "rebuild.py",
    "quarantine.py",
    "cycle.py",
    "scheduler.py",
    "composite.py",
    "job_watch.py",
    "object_fence.py",
    "pending_calls.py",
    # A node filter is a function of a pod class and a node: if it raises, the node is excluded until either changes.
    "node_filters.py",
    "gpu_model.py",
)
# Where a bug is contained: another one at that moment, or in the look-ups before, is not what the fence is for.
AT_WORK = {
    "_fact_failed",
    "_report_set_aside",
    "_set_aside",
    "content_of",
    "cycle_failed",
    "forget_pod",
    "gang_failed",
    "record_pod",
    "restore",
    "skip_answer",
    "undo",
}
LOOKUPS = {
    "_asks_queue",
    "_contained",
    "_recomputed",
    "answered",
    "drop_held_pod",
    "hold_pod",
    "job_of",
    "key",
    "spec",
    "take_asked",
}
SERIAL = count()
Result = TypeVar("Result")


class Bug:
    """Raises at the start of the n-th call of a function of the package, which is a part of a path."""

    def __init__(self, package: str, countdown: int, error: type[Exception]) -> None:
        self._package, self._left, self._error = package, countdown, error
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event != "call" or self._package not in path or path.endswith(FENCE):
            return
        name = frame.f_code.co_name
        if name.startswith("<") or name in LOOKUPS or _is_contained(frame):
            return
        self._left -= 1
        if self._left == 0:
            self.where = f"{path.rpartition('/')[2]}:{name}"
            sys.setprofile(None)
            # Each is a bug of its own: a failure that comes back ends the process.
            raise type(f"Bug{next(SERIAL)}", (self._error,), {})(f"injected into {self.where}")


def _is_contained(frame: FrameType) -> bool:
    """Whether the fence is at work already: a second bug at that moment is another one's fault."""
    up: FrameType | None = frame
    while up is not None:
        path, name = up.f_code.co_filename, up.f_code.co_name
        if path.endswith("rebuild.py") or name in AT_WORK:
            return True
        if "contextlib" in path and name == "__exit__":
            return True
        up = up.f_back
    return False


class Injector:
    """Calls a function with a bug in the package, most of the times."""

    def __init__(self, package: str, seed: int, most_calls: int) -> None:
        """most_calls: the bug raises within so many calls of functions, in the first ones more often."""
        self._package, self._chance, self._most = package, random.Random(seed), most_calls
        self.where: list[str] = []

    def call(self, function: Callable[[], Result]) -> Result:
        if self._chance.random() < 0.6:
            return function()
        countdown = int(self._most ** self._chance.random())
        bug = Bug(self._package, countdown, self._chance.choice(ERRORS))
        sys.setprofile(bug)
        try:
            return function()
        finally:
            sys.setprofile(None)
            if bug.where:
                self.where.append(bug.where)
