"""How far the search for a gang's subgroups has come, so that a long attempt goes on in the next cycle.

Design: docs/design/unlike-pods.md
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from central.model.arrays import Ints
from central.scheduler.snapshot.draft import Assignment
from central.scheduler.work_meter import SearchProgress

Remainder = tuple[object, ...]  # what is left to place, and what is taken
NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Choice:
    """Where one subgroup is; or the rows of the domain of a bundle of subgroups, by its number."""

    assigned: Sequence[Assignment]
    bundle: int | None = None
    rows: Ints = field(default_factory=lambda: NO_ROWS)


@dataclass(slots=True)
class SubgroupPath:
    """A slice that goes on makes the same choices again, and tries what was not tried."""

    attempts_left: int
    made: list[Choice] = field(default_factory=list)
    tried: list[int] = field(default_factory=list)  # domains, for these choices and the next one
    entered: list[int] = field(default_factory=list)  # with that many attempts left
    failed: dict[Remainder, int] = field(default_factory=dict)
    has_failed: bool = False

    def enter(self, attempts_left: int) -> None:
        self.tried.append(0)
        self.entered.append(attempts_left)

    def count(self, attempts_left: int, progress: SearchProgress | None) -> None:
        """A domain was tried for the next choice."""
        self.attempts_left = attempts_left
        self.tried[-1] += 1
        if progress is not None:
            progress.grew = True

    def leave(self, attempts_left: int) -> Choice | None:
        """Nothing is left to try for the next choice: takes the last one back and returns it. None: all has failed."""
        self.attempts_left = attempts_left
        self.tried.pop()
        self.entered.pop()
        if self.made:
            return self.made.pop()
        self.has_failed = True
        return None
