"""The rows of the pending gangs: which gangs wait, and in which order.

The row of a gang that no longer exists is given to another one only after recycle(), so that arrays of rows which
somebody still reads stay true.

Design: docs/design/pending-gangs.md
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from central.model.arrays import Bools, Ints
from central.scheduler.state.attempt import DUE, NEW_ROW, AttemptColumns, Outcome, Rank
from central.scheduler.state.gangs import Gang

NAMES_KEPT = 1_000  # of queues, before those that no gang has are dropped
TRIED = (Outcome.SET_ASIDE, Outcome.REFUSED, Outcome.BOUND, Outcome.LONG, Outcome.PARTLY)
FEW = 30  # with fewer moved gangs by one that stayed, each is put in its place


class PendingColumns(AttemptColumns):
    def __init__(self) -> None:
        super().__init__()
        self.queue_names: list[str] = []
        self._queue_numbers: dict[str, int] = {}
        self._released: list[int] = []
        self._in_order: Ints = np.zeros(0, dtype=np.int64)  # all waiting rows but the moved ones

    # --- rows ----------------------------------------------------------------------------

    def set_waiting(self, gang: Gang) -> None:
        """The gang has pods that need a node. Updates what its row says of its queue and its owner."""
        row, account = gang.attempt.row, gang.account
        if not self.waiting[row]:
            self.waiting[row], self.reason_turn[row] = True, -1
            self.set_rank(row, gang.attempt.rank)
        self.owned[row] = bool(gang.owner)
        self.queue[row] = -1 if account is None else self._queue_number(account.queue)

    def release(self, gang: Gang) -> None:
        """The gang no longer exists."""
        self.refused_at[gang.attempt.row] = -1
        self._released.append(gang.attempt.row)

    def recycle(self) -> None:
        """Frees the rows of gangs that no longer exist for other gangs. Called when no array of rows is read any
        more."""
        for row in self._released:
            self.at(row).attempt.row = 0
        for name, value in NEW_ROW.items() if self._released else ():
            getattr(self, name)[self._released] = value
        self._free += self._released
        self._released = []
        if len(self.queue_names) > max(NAMES_KEPT, 2 * len(self._in_order)):
            self._queue_numbers, self.queue_names = {}, []
            for gang in self.of(np.flatnonzero(self.waiting)):
                self.set_waiting(gang)

    def at(self, row: int) -> Gang:
        gang: Gang | None = self.gangs[row]
        assert gang is not None, f"row {row} has no gang"
        return gang

    def of(self, rows: Ints) -> list[Gang]:
        return [self.at(row) for row in rows.tolist()]

    def rows_of(self, gangs: Iterable[Gang]) -> Ints:
        """Returns the rows of those gangs that wait."""
        rows = np.array([gang.attempt.row for gang in gangs], dtype=np.int64)
        return rows[self.waiting[rows]]

    def mask(self, rows: Ints | Sequence[int] = ()) -> Bools:
        """True at these rows."""
        made = np.zeros(len(self.waiting), dtype=np.bool_)
        if len(rows):
            made[rows] = True
        return made

    # --- outcomes --------------------------------------------------------------------------

    def due(self) -> Ints:
        """The rows that are still to be tried in this round, by rank."""
        due = (self.outcome >= DUE) & self.waiting
        rows = due.nonzero()[0]
        return self.in_rank_order(due) if len(rows) > 1 else rows

    def is_due(self, gang: Gang) -> bool:
        outcome: int = self.outcome.item(gang.attempt.row)
        return outcome >= DUE

    def were_tried(self, rows: Ints) -> Bools:
        """Returns for each of the rows whether the round has tried its gang."""
        tried: Bools = np.isin(self.outcome[rows], TRIED)
        return tried

    def drop_left(self) -> bool:
        """Drops those that were due and no longer wait. Returns whether there were any."""
        gone = (self.outcome >= Outcome.DUE) & ~self.waiting
        self.outcome[gone] = Outcome.NOT_DUE
        return bool(gone.any())

    # --- order -----------------------------------------------------------------------------

    def in_rank_order(self, among: Bools | None = None) -> Ints:
        """The rows of waiting gangs, of those where among is true, by rank. Only gangs with a new rank are sorted."""
        if self._moved:
            self._sort_moved()
        rows = self._in_order[self.waiting[self._in_order]]
        if among is None:
            return rows
        rows = rows[rows < len(among)]  # who came later is in no older mask
        return rows[among[rows]]

    def _sort_moved(self) -> None:
        moved, rank = [row for row in self._moved if self.waiting[row]], self._rank
        stays = self._in_order[~self.mask([*self._moved])[self._in_order]]
        stays = stays[self.waiting[stays]]
        if len(moved) * FEW < len(stays):
            moved.sort(key=rank)
            places = [bisect_left(stays, rank(row), key=rank) for row in moved]
            self._in_order = np.insert(stays, places, moved)
        else:
            both = [*stays.tolist(), *moved]
            self._in_order = np.array(sorted(both, key=rank), dtype=np.int64)
        self._moved = {}

    def _rank(self, row: int) -> Rank:
        return self.at(row).attempt.rank

    def _queue_number(self, name: str) -> int:
        number = self._queue_numbers.get(name)
        if number is None:
            number = self._queue_numbers[name] = len(self.queue_names)
            self.queue_names.append(name)
        return number
