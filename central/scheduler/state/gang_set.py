"""A set of pending gangs, as a mask over their rows."""

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.state.gangs import Gang
from central.scheduler.state.pending_columns import PendingColumns


class GangSet:
    """A gang that no longer waits is in no set."""

    def __init__(self, columns: PendingColumns | None = None, rows: Ints | None = None) -> None:
        """columns: None: of a set that stays empty."""
        self._columns = columns
        self._mask: Bools = np.zeros(0, dtype=np.bool_)
        if rows is not None:
            self.add_rows(rows)

    @property
    def mask(self) -> Bools:
        """By row, with an entry for every row there is space for."""
        columns = self._columns
        if columns is not None and len(self._mask) < len(columns.waiting):
            grown = np.zeros(len(columns.waiting), dtype=np.bool_)
            grown[: len(self._mask)] = self._mask
            self._mask = grown
        return self._mask

    @property
    def rows(self) -> Ints:
        if self._columns is None:
            return np.zeros(0, dtype=np.int64)
        return np.flatnonzero(self.mask & self._columns.waiting)

    def gangs(self) -> list[Gang]:
        return [] if self._columns is None else self._columns.of(self.rows)

    def add(self, gang: Gang) -> None:
        if gang.attempt.row >= 0:
            self.mask[gang.attempt.row] = True

    def add_rows(self, rows: Ints) -> None:
        self.mask[rows] = True

    def discard(self, gang: Gang) -> None:
        if gang.attempt.row >= 0:
            self.mask[gang.attempt.row] = False

    def discard_rows(self, rows: Ints) -> None:
        if len(rows):
            self.mask[rows] = False

    def __contains__(self, gang: Gang) -> bool:
        row = gang.attempt.row
        return 0 <= row < len(self._mask) and bool(self._mask[row])

    def __len__(self) -> int:
        return len(self.rows)

    def __bool__(self) -> bool:
        return self._columns is not None and bool((self.mask & self._columns.waiting).any())
