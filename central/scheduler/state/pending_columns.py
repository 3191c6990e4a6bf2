"""What the scheduling cycle reads of all pending gangs at once, as columns with one row for each gang.

After capacity is freed every pending gang is tried again, and most are refused like an equal one before. With thousands of
gangs the cycle's time was that of reading an object for each. So what decides which gangs are due, in which order they are
tried and who is refused alike is in arrays, and Attempt reads and writes its row (attempt.py).

    row 0: gang a, refused in epoch 7, request 3, need 0, queue 0
    row 1: gang b, refused in epoch 7, request 3, need 0, queue 1   -> both are refused alike, as one array operation

A row is given to another gang only after recycle(), so that arrays of rows which somebody still reads stay true.

Design: docs/design/pending-gangs.md
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.resources import Sums
from central.scheduler.state.attempt_columns import AttemptColumns, Rank
from central.scheduler.state.gangs import Gang

NUMBERS_KEPT = 1_000  # of needs and queues, before those that no gang has are dropped
FEW = 30  # with fewer moved gangs by one that stayed, each is put in its place


class PendingColumns:
    """The columns have as many entries as there is space for; `gangs` holds as many gangs as rows are used."""

    def __init__(self) -> None:
        self.attempts = AttemptColumns()
        size = self.attempts.size
        self.gangs: list[Gang | None] = []
        self.waiting: Bools = np.zeros(size, dtype=np.bool_)  # false: the row's gang has left
        # By an object whose status gives the reason too.
        self.owned: Bools = np.zeros(size, dtype=np.bool_)
        self.queue: Ints = np.zeros(size, dtype=np.int64)  # numbers of names; -1: none is charged
        self.queue_names: list[str] = []
        # See PendingGangs.reasons_changed(); -1: none.
        self.reason_turn: Ints = np.zeros(size, dtype=np.int64)
        self._queue_numbers: dict[str, int] = {}
        self._free: list[int] = []
        self._released: list[int] = []
        self._in_order: Ints = np.zeros(0, dtype=np.int64)

    # --- rows ----------------------------------------------------------------------------

    def add(self, gang: Gang) -> None:
        """Gives the gang a row, with what its attempt holds."""
        if self._free:
            row = self._free.pop()
            self.gangs[row] = gang
        else:
            row = len(self.gangs)
            self.gangs.append(gang)
            if row == len(self.waiting):
                self._grow()
        self.waiting[row], self.reason_turn[row] = True, -1
        gang.attempt.attach(self.attempts, row)
        self.describe(gang)

    def release(self, gang: Gang) -> None:
        """The gang has left. Its attempt keeps what the row says."""
        row = gang.attempt.row
        gang.attempt.detach()
        self.waiting[row] = False
        self.attempts.moved.pop(row, None)
        self._released.append(row)

    @property
    def released(self) -> Ints:
        """Rows of gangs that have left since recycle()."""
        return np.array(self._released, dtype=np.int64)

    def recycle(self) -> None:
        """Nobody reads rows of gangs that have left any more: others may get them."""
        if self._released:
            for row in self._released:
                self.gangs[row] = None
                self.attempts.clear(row)
            self._free += self._released
            self._released = []
        numbers = self.attempts.different_needs + len(self.queue_names)
        if numbers > max(NUMBERS_KEPT, 2 * len(self.gangs)):
            self._number_again()

    def describe(self, gang: Gang) -> None:
        """Updates what does not belong to the attempt: the queue that is charged, and whether somebody owns the
        gang."""
        row, account = gang.attempt.row, gang.account
        self.owned[row] = bool(gang.owner)
        self.queue[row] = -1 if account is None else self._queue_number(account.queue)

    def at(self, row: int) -> Gang:
        gang = self.gangs[row]
        assert gang is not None, f"row {row} has no gang"
        return gang

    def of(self, rows: Ints) -> list[Gang]:
        return [self.at(row) for row in rows.tolist()]

    def rows_of(self, gangs: Iterable[Gang]) -> Ints:
        """Without those that have no row."""
        rows = (gang.attempt.row for gang in gangs)
        return np.array([row for row in rows if row >= 0], dtype=np.int64)

    def mask(self, rows: Ints | Sequence[int] = ()) -> Bools:
        """True at these rows."""
        made = np.zeros(len(self.waiting), dtype=np.bool_)
        if len(rows):
            made[rows] = True
        return made

    # --- order -----------------------------------------------------------------------------

    def in_rank_order(self, among: Bools) -> Ints:
        """The rows of waiting gangs, of those where among is true, by rank. Only gangs with a new rank are sorted."""
        if self.attempts.moved:
            self._sort_moved()
        rows = self._in_order[self.waiting[self._in_order]]
        rows = rows[rows < len(among)]  # who came later is in no older mask
        return rows[among[rows]]

    def _sort_moved(self) -> None:
        moved, rank = [*self.attempts.moved], self._rank
        stays = self._in_order[~self.mask(moved)[self._in_order]]
        stays = stays[self.waiting[stays]]
        if len(moved) * FEW < len(stays):
            moved.sort(key=rank)
            places = [bisect_left(stays, rank(row), key=rank) for row in moved]
            self._in_order = np.insert(stays, places, moved)
        else:
            both = [*stays.tolist(), *moved]
            self._in_order = np.array(sorted(both, key=rank), dtype=np.int64)
        self.attempts.moved = {}

    def _rank(self, row: int) -> Rank:
        return self.at(row).attempt.rank

    # --- numbers and space -----------------------------------------------------------------

    def _queue_number(self, name: str) -> int:
        number = self._queue_numbers.get(name)
        if number is None:
            number = self._queue_numbers[name] = len(self.queue_names)
            self.queue_names.append(name)
        return number

    def _number_again(self) -> None:
        """Without the needs and the queues of gangs that have left."""
        self._queue_numbers, self.queue_names = {}, []
        gangs = self.of(np.flatnonzero(self.waiting))
        self.attempts.number_needs({gang.attempt.row: gang.attempt.need for gang in gangs})
        for gang in gangs:
            self.describe(gang)

    def _grow(self) -> None:
        self.attempts.grow()
        more = np.zeros(self.attempts.size - len(self.waiting), dtype=np.int64)
        self.waiting = np.concatenate([self.waiting, more > 0])
        self.owned = np.concatenate([self.owned, more > 0])
        self.queue = np.concatenate([self.queue, more])
        self.reason_turn = np.concatenate([self.reason_turn, more])

    # --- invariant -----------------------------------------------------------------------

    def check(self, waiting: Iterable[Gang]) -> None:
        """The columns say what the waiting gangs say."""
        gangs, columns = list(waiting), self.attempts
        assert {*np.flatnonzero(self.waiting).tolist()} == {gang.attempt.row for gang in gangs}
        needs = dict[int, Sums]()
        for gang in gangs:
            row, attempt = gang.attempt.row, gang.attempt
            assert self.gangs[row] is gang, f"{gang.name} is in no row"
            need = needs.setdefault(int(columns.need[row]), attempt.need)
            assert need == attempt.need, f"{gang.name}: another need"
            assert columns.run_time_s[row] == attempt.run_time_s, f"{gang.name}: another run time"
            failed = attempt.bind_failures != attempt.failures_handled
            assert columns.bind_failed[row] == failed, f"{gang.name}: other failed bindings"
            of_rank = (columns.priority_rank[row], columns.surplus_rank[row])
            assert of_rank == attempt.rank[:2], f"{gang.name}: another rank"
            queue = self.queue_names[self.queue[row]] if self.queue[row] >= 0 else None
            charged = gang.account.queue if gang.account is not None else None
            assert queue == charged, f"{gang.name}: {queue} is charged instead of {charged}"
        assert len(needs) == len({tuple(sorted(need.items())) for need in needs.values()})
        stay = [row for row in self._in_order.tolist() if self.waiting[row]]
        stay = [row for row in stay if row not in columns.moved]
        assert stay == sorted(stay, key=self._rank), "the gangs are not in order"
        assert {*stay, *columns.moved} == {gang.attempt.row for gang in gangs}, (
            "the order lacks gangs"
        )
