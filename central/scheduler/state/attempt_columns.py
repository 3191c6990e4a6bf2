"""The attempts of all pending gangs as columns, with one entry for each row of PendingColumns."""

from math import inf

import numpy as np
import numpy.typing as npt

from central.model.arrays import Bools, Floats, Ints
from central.model.resources import Sums

Objects = npt.NDArray[np.object_]
Rank = tuple[int, int, float, tuple[str, str, bool]]  # queues/order.py; ends with the gang's key

FIRST_ROWS = 16


class AttemptColumns:
    """What the entries mean is said in attempt.py. There is space for `size` rows."""

    def __init__(self) -> None:
        self.equivalence: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.refused_at: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.retry_at: Floats = np.zeros(FIRST_ROWS)
        self.reason: Objects = np.full(FIRST_ROWS, "", dtype=object)
        self.refusal: Objects = np.full(FIRST_ROWS, None, dtype=object)
        self.listed: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)
        self.bind_failed: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)  # not handled yet
        self.long: Bools = np.zeros(FIRST_ROWS, dtype=np.bool_)  # due for a long attempt
        self.run_time_s: Floats = np.full(FIRST_ROWS, inf)
        # numbers: equal needs have equal ones
        self.need: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.priority_rank: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)  # the first two of its rank
        self.surplus_rank: Ints = np.zeros(FIRST_ROWS, dtype=np.int64)
        self.moved: dict[int, None] = {}  # rows with a new rank, since their order was made
        self._need_numbers: dict[tuple[tuple[str, int], ...], int] = {}

    @property
    def size(self) -> int:
        return len(self.need)

    @property
    def different_needs(self) -> int:
        """That have a number, though no gang may have them any more."""
        return len(self._need_numbers)

    def grow(self) -> None:
        """Space for twice as many rows."""
        for name, column in vars(self).items():
            if isinstance(column, np.ndarray):
                setattr(self, name, np.concatenate([column, np.zeros_like(column)]))

    def clear(self, row: int) -> None:
        """Nobody reads the row any more."""
        self.reason[row], self.refusal[row] = "", None

    def set_rank(self, row: int, rank: Rank) -> None:
        self.priority_rank[row], self.surplus_rank[row] = rank[:2]
        self.moved[row] = None

    def set_need(self, row: int, need: Sums) -> None:
        key = tuple(sorted(need.items()))
        self.need[row] = self._need_numbers.setdefault(key, len(self._need_numbers))

    def number_needs(self, by_row: dict[int, Sums]) -> None:
        """Anew, without those that none of these rows has."""
        self._need_numbers = {}
        for row, need in by_row.items():
            self.set_need(row, need)
