"""Bounds the work of one gang's decision, so that no pending gang holds up a cycle.

The core has no clock. Searches count what they look at, and end when the decision's limit is reached: a search that
has an answer by then returns the best one, any other raises WorkLimitReached with everything undone. So equal facts
get equal decisions, live, simulated and replayed.

A unit is one pod or choice that is looked at one by one, or ROWS_PER_UNIT rows of an array: a few microseconds. The
gang is tried again with twice the limit, and after that in a long attempt of LONG_FACTOR times the first limit. It has
a cycle of its own, and the caller may end it because other gangs wait: then it is made again from its beginning.

Design: docs/design/budgets.md
"""

from collections.abc import Callable
from math import inf

FIRST_LIMIT = 150_000  # units of one decision
MAX_FACTOR = 2  # of the first limit, in a cycle with others
LONG_FACTOR = 64  # ... in a cycle of its own
ASK_UNITS = 10_000  # of a long attempt, between two questions whether others wait
UNDISTURBED_MOST = 32 * FIRST_LIMIT  # ... before the first question, however often it was ended
ROWS_PER_UNIT = 4

Interrupt = Callable[[int], bool]  # asked with the units so far; true: the attempt ends


class WorkLimitReached(Exception):
    """A search ended without an answer."""


class WorkMeter:
    """The work of one decision, and its limit. Outside of decisions there is no limit. longest: the most units of one
    decision so far."""

    def __init__(self, first_limit: int = FIRST_LIMIT) -> None:
        self.first_limit = first_limit
        self.used = self.longest = 0
        self.is_spent = False  # nothing more is searched
        self.was_short = False  # in this decision a limit was reached
        self.was_interrupted = False
        self._extent = self._limit = inf
        self._interrupt: Interrupt | None = None
        self._ask_at = inf

    @property
    def is_largest(self) -> bool:
        """Returns whether the decision has the largest limit, and others have not ended it."""
        return self._extent >= self.first_limit * LONG_FACTOR and not self.was_interrupted

    @property
    def left(self) -> float:
        return max(0, self._limit - self.used)

    def begin(
        self, factor: int = 1, interrupt: Interrupt | None = None, undisturbed: int = 0
    ) -> None:
        """A new decision. interrupt: may end it before its limit, but not before so many undisturbed units."""
        self.end()
        self._interrupt, self._ask_at = interrupt, max(ASK_UNITS, undisturbed)
        self.used, self._extent = 0, self.first_limit * factor
        self._limit = self._extent

    def extend(self) -> None:
        """Allows as much work again, unless the attempt was interrupted."""
        if self.was_interrupted:
            return
        self._limit, self.is_spent = self.used + self._extent, False

    def end(self) -> None:
        self._extent = self._limit = self._ask_at = inf
        self._interrupt = None
        self.is_spent = self.was_short = self.was_interrupted = False

    def spend(self, units: int) -> None:
        """Counts the work, before it is done. Raises WorkLimitReached."""
        if self.count(units):
            raise WorkLimitReached

    def spend_rows(self, rows: int) -> None:
        """Counts one operation on arrays of that many rows. Raises WorkLimitReached."""
        self.spend(1 + rows // ROWS_PER_UNIT)

    def count(self, units: int) -> bool:
        """Counts work that can end with what it has. Returns whether it must end."""
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
