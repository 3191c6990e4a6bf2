"""Bounds the work of one gang's decision, so that no pending gang holds up a cycle.

The core has no clock. Searches count what they look at, and end when the decision's limit is reached: a search that
has an answer by then returns the best one, any other raises WorkLimitReached with everything undone. So equal facts
get equal decisions, live, simulated and replayed.

A unit is one pod or choice that is looked at one by one, or ROWS_PER_UNIT rows of an array: a few microseconds. The
gang is tried again with twice the limit, up to MAX_FACTOR times the first one.

Design: docs/design/0061-work-limit.md
"""

from math import inf

FIRST_LIMIT = 150_000  # units of one decision
MAX_FACTOR = 2  # of the first limit, after attempts that were not enough
ROWS_PER_UNIT = 4


class WorkLimitReached(Exception):
    """A search ended without an answer."""


class WorkMeter:
    """Without a limit outside of decisions. longest: the most units of one decision so far."""

    def __init__(self, first_limit: int = FIRST_LIMIT) -> None:
        self.first_limit = first_limit
        self.used = self.longest = 0
        self.is_spent = False  # nothing more is searched
        self.was_short = False  # in this decision a limit was reached
        self._extent = self._limit = inf

    def begin(self, factor: int = 1) -> None:
        """A new decision."""
        self.end()
        self.used, self._extent = 0, self.first_limit * factor
        self._limit = self._extent

    def extend(self) -> None:
        """Allows as much work again."""
        self._limit, self.is_spent = self.used + self._extent, False

    def end(self) -> None:
        self._extent = self._limit = inf
        self.is_spent = self.was_short = False

    def spend(self, units: int) -> None:
        """Before the work. Raises WorkLimitReached."""
        if self.count(units):
            raise WorkLimitReached

    def spend_rows(self, rows: int) -> None:
        """For one operation on arrays of so many rows. Raises WorkLimitReached."""
        self.spend(1 + rows // ROWS_PER_UNIT)

    def count(self, units: int) -> bool:
        """The same for work that can end with what it has. Returns whether it must."""
        self.used += units
        self.longest = max(self.longest, self.used)
        if self.used > self._limit:
            self.is_spent = self.was_short = True
        return self.is_spent
