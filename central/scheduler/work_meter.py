"""Bounds the work of one gang's decision, so that no pending gang holds up a cycle.

The core has no clock. Searches count what they look at, and end when the decision's limit is reached: a search that
has an answer by then returns the best one, any other raises WorkLimitReached with everything undone. So equal facts
get equal decisions, live, simulated and replayed.

A unit is one pod or choice that is looked at one by one, or ROWS_PER_UNIT rows of an array: a few microseconds. The
gang is tried again with twice the limit each time. Beyond MAX_FACTOR times the first one its attempts are long: each
has a cycle of its own, and the caller may end it, because other gangs wait.

A long attempt that is ended leaves its SearchProgress. The next cycle makes the attempt again: steps that are
finished are not repeated, and the step that was cut goes on. A step is found by all that it reads, so one that would
read something else by now begins again, and nothing that was found is ever out of date.

Design: docs/design/budgets.md
"""

from collections.abc import Callable, Hashable
from math import inf
from typing import Any, TypeVar

FIRST_LIMIT = 150_000  # units of one decision
MAX_FACTOR = 2  # of the first limit, in a cycle with others
MAX_LONG_FACTOR = 64  # ... in a cycle of its own
ASK_UNITS = 10_000  # of a long attempt, between two questions whether others wait
ROWS_PER_UNIT = 4
MAX_SLICES = 64  # in which a search may go on; then it waits as one that found nothing

Step = TypeVar("Step")

Interrupt = Callable[[int], bool]  # asked with the units so far; true: the attempt ends


class WorkLimitReached(Exception):
    """A search ended without an answer."""


class SearchProgress:
    """What a long attempt has found. began: its time, as of which victims are compared. slices: cycles that it had
    so far."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.slices = 0
        self.grew = False  # in this slice a step was finished or went on
        self._steps: dict[Hashable, Any] = {}  # in the order of their last use
        self._used: dict[Hashable, Any] = {}  # of these, in this slice

    def begin_slice(self) -> None:
        """The slice walks the same way as the one before, so what that did not come to is out of date."""
        self._steps, self._used = (self._used or self._steps), {}
        self.slices, self.grew = self.slices + 1, False

    def step(self, reads: Hashable, make: Callable[[], Step]) -> Step:
        """The step that reads this, as it was left; a new one if there is none."""
        if reads not in self._used:
            self._used[reads] = self._steps[reads] if reads in self._steps else make()
        found: Step = self._used[reads]
        return found


class WorkMeter:
    """Without a limit outside of decisions. longest: the most units of one decision so far."""

    def __init__(self, first_limit: int = FIRST_LIMIT) -> None:
        self.first_limit = first_limit
        self.used = self.longest = 0
        self.is_spent = False  # nothing more is searched
        self.was_short = False  # in this decision a limit was reached
        self.was_interrupted = False
        self.progress: SearchProgress | None = None  # of a long attempt
        self._extent = self._limit = inf
        self._interrupt: Interrupt | None = None
        self._ask_at = inf

    @property
    def left(self) -> float:
        return max(0, self._limit - self.used)

    @property
    def keeps_progress(self) -> bool:
        """Whether the attempt may go on in another slice, and loses little if it is ended now."""
        progress = self.progress
        return progress is not None and progress.grew and progress.slices < MAX_SLICES

    def begin(
        self,
        factor: int = 1,
        interrupt: Interrupt | None = None,
        progress: SearchProgress | None = None,
    ) -> None:
        """A new decision. interrupt: may end it before its limit. progress: of the attempt that this one continues."""
        self.end()
        if progress is not None:
            progress.begin_slice()
        self.progress = progress
        self._interrupt, self._ask_at = interrupt, ASK_UNITS
        self.used, self._extent = 0, self.first_limit * factor
        self._limit = self._extent

    def extend(self) -> None:
        """Allows as much work again, unless the attempt was interrupted."""
        if self.was_interrupted:
            return
        self._limit, self.is_spent = self.used + self._extent, False

    def end(self) -> None:
        self._extent = self._limit = self._ask_at = inf
        self._interrupt = self.progress = None
        self.is_spent = self.was_short = self.was_interrupted = False

    def spend(self, units: int) -> None:
        """Before the work. Raises WorkLimitReached."""
        if self.count(units):
            raise WorkLimitReached

    def spend_rows(self, rows: int) -> None:
        """For one operation on arrays of that many rows. Raises WorkLimitReached."""
        self.spend(1 + rows // ROWS_PER_UNIT)

    def count(self, units: int) -> bool:
        """The same for work that can end with what it has. Returns whether it must."""
        self.used += units
        self.longest = max(self.longest, self.used)
        if self.used >= self._ask_at:
            self._ask()
        if self.used > self._limit:
            self.is_spent = self.was_short = True
        return self.is_spent

    def _ask(self) -> None:
        self._ask_at = self.used + ASK_UNITS
        if self._interrupt is not None and self._interrupt(self.used):
            self.was_interrupted, self._limit, self._ask_at = True, 0, inf
