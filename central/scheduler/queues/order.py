"""The order in which gangs are tried.

Inside a queue: priority; gangs below their minimum, then those with the fewest surplus members; age; name.
Between queues: those whose next gang leaves them within their fair share come first, because they could take back
what others got above theirs: so no gang is placed and evicted by one state. Of those that would exceed theirs the one
that has received least for its weight (turns.py). Then the lowest usage level (quota.usage_level), then the level with
the next gang, then the priority and the age of that gang. When a gang is placed, only the levels of its queue and that
queue's ancestors change.

A gang that got a part of its pods comes back at its new rank. So minima go before surplus, and the surplus
is shared evenly.

Behind the first gang of a queue that is refused, those of equal priority go by their run time, shortest
first. They fill what the head can't use yet, and short ones leave the most of it to others. The head itself
is always the oldest, so nobody is overtaken for ever.

Design: docs/design/queues.md, docs/design/pending-gangs.md
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heapreplace
from math import inf
from operator import attrgetter

import numpy as np

from central.model.arrays import Ints
from central.model.resources import Sums
from central.scheduler.inventory.pods import Pod
from central.scheduler.queues.queue_tree import Queues, sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.turns import FairShares, Level, QueueTurns
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.pending_columns import PendingColumns

NEEDS_KEPT = 8
# of a queue; the lowest is served first
Turn = tuple[Level, int, float, str]


# Of the next gangs, as rows in their order: how many of the first ones need not be tried, as far as the condition
# holds.
Skip = Callable[[Ints, Callable[[Gang], bool]], int]


def in_order(
    queues: Queues,
    columns: PendingColumns,
    asked: Ints,
    again: list[Gang],
    *,
    shares: FairShares | None = None,
    skip: Skip | None = None,
) -> "GangOrder":
    """Yields one gang at a time. The caller places or refuses it before it takes the next one. asked: rows of the
    columns, by rank. again: if pods of the gang are left for another turn, the caller adds it. shares: of a round in
    slices, found so far. skip: asked behind the first refused gang of a queue; those that it takes are not
    yielded."""
    rows_of, by_name = dict(_by_queue(columns, asked)) if queues.enabled else {}, queues.by_name
    leaves = {name for name in rows_of if not by_name[name].error and not by_name[name].children}
    by_leaf = {by_name[name]: _QueuedGangs(columns, rows_of[name], skip) for name in leaves}
    # refused, or replacing members of started gangs
    first = [_QueuedGangs(columns, rows_of[name], None) for name in sorted(rows_of.keys() - leaves)]
    if not queues.enabled:
        first = [_QueuedGangs(columns, asked, skip)]
    return GangOrder(queues, first, by_leaf, again, {} if shares is None else shares)


def _by_queue(columns: PendingColumns, rows: Ints) -> Iterator[tuple[str, Ints]]:
    """The rows of each queue, in their order."""
    rows = rows[columns.queue[rows] >= 0]
    if not len(rows):
        return
    rows = rows[np.argsort(columns.queue[rows], kind="stable")]
    numbers = columns.queue[rows]
    ends = np.flatnonzero(np.diff(numbers)) + 1
    for part in np.split(rows, ends):
        yield columns.queue_names[columns.queue[part[0]]], part


def rank(gang: Gang) -> tuple[int, int, float, GangKey]:
    """The order inside a queue. Cached as gang.attempt.rank until the gang changes."""
    placed = len(gang.counts.placed)
    surplus = placed - gang.minimum + 1 if placed and not gang.missing() else 0
    if gang.object is not None and gang.object.min_resources:
        surplus = 0  # its members create the others as they run: these are no less needed
    turn = gang.preemption.turn
    return (-gang.priority, surplus, gang.created if turn is None else turn, gang.key)


def backfill_time_s(gang: Gang) -> float:
    """Returns the run time by which the gang is ordered behind the first refused gang, in seconds; inf: by its rank."""
    return run_time_s(gang) if gang.preemption.turn is None else inf


def run_time_s(gang: Gang) -> float:
    """Returns how long the gang's pending pods run at most, in seconds; inf: unknown."""
    times = {*map(_runs_for_s, gang.counts.waiting)}
    return inf if None in times else max(times, default=inf)


def need(queues: Queues, gang: Gang, missing: int) -> Sums:
    """The requests of the pods that the gang would start with, or of one more. Cached as gang.attempt.need until the
    gang's account changes. missing: Gang.missing()"""
    waiting = gang.counts.waiting
    if missing == len(waiting) and gang.account is not None:
        return gang.account.demand
    return queues.currency.counted(sums_of(waiting[: max(1, missing)]))


_runs_for_s: Callable[[Pod], float] = attrgetter("seen.runs_for_s")  # or None


def _always(_: Gang) -> bool:
    return True


def _rank(gang: Gang) -> tuple[object, ...]:
    return gang.attempt.rank


def _backfill_rank(gang: Gang) -> tuple[object, ...]:
    return (*gang.attempt.rank[:2], gang.attempt.run_time_s, *gang.attempt.rank[2:])


class _QueuedGangs:
    """The gangs of one queue, as rows in their order, from the next one on."""

    __slots__ = ("_at", "_columns", "_is_backfill", "_rows", "_skip", "_taken")

    def __init__(self, columns: PendingColumns, rows: Ints, skip: Skip | None) -> None:
        self._columns = columns
        self._rows, self._at = rows, 0
        self._skip = skip
        self._is_backfill = False  # the first one was refused
        self._taken: Gang | None = None

    def __bool__(self) -> bool:
        return self._at < len(self._rows)

    @property
    def next(self) -> Gang:
        return self._columns.at(self._rows.item(self._at))

    def take(self) -> Gang:
        """The next gang. The caller places or refuses it, and calls settle()."""
        self._taken = gang = self.next
        self._at += 1
        return gang

    def settle(self, again: list[Gang]) -> None:
        """Puts back the gangs that have another turn."""
        taken, self._taken = self._taken, None
        if taken is not None and taken.attempt.reason and not self._is_backfill:
            self._is_backfill = True
            self._sort_by_run_time()
        while again:
            self._insert(again.pop())

    def skip(self, goes_on: Callable[[Gang], bool]) -> None:
        """Drops those of the next gangs that need not be tried, as far as goes_on() holds. The first one that is
        refused decides the order of the others, so it is always tried."""
        if self._skip is None or not self._is_backfill or not self:
            return
        self._at += self._skip(self._rows[self._at :], goes_on)

    def _sort_by_run_time(self) -> None:
        columns, rows = self._columns, self._rows[self._at :]
        run_times = columns.run_time_s[rows]
        if len(rows) and run_times.min() < inf:
            # Stable: then by age and name, as before.
            self._rows, self._at = rows[np.lexsort((run_times, columns.tier[rows]))], 0

    def _insert(self, gang: Gang) -> None:
        gang.attempt.rank = rank(gang)
        of = _backfill_rank if self._is_backfill else _rank
        new, left, columns = of(gang), self._rows[self._at :], self._columns
        place = bisect_left(left, True, key=lambda row: of(columns.at(int(row))) >= new)
        self._rows, self._at = np.insert(left, place, gang.attempt.row), 0


class GangOrder:
    """The gangs of the first lines, one line after the other, then those of leaf queues. Every inner queue has a heap
    of its children with pending gangs below them. Plain data: a round keeps it between two slices, where the state may
    be written."""

    def __init__(
        self,
        queues: Queues,
        first: list[_QueuedGangs],
        by_leaf: dict[Queue, _QueuedGangs],
        again: list[Gang],
        shares: FairShares,
    ) -> None:
        """again: as in in_order(). shares: as QueueTurns has them."""
        self._again, self._first = again, first
        self._root = queues.root
        self._by_leaf = by_leaf
        self.turns = QueueTurns(queues, shares, compares=len(by_leaf) > 1)
        self._heaps: dict[Queue, list[tuple[Turn, Queue]]] = {}
        inside = {above for leaf in by_leaf for above in leaf.path[:-1]}
        for queue in sorted(inside, key=lambda queue: (-len(queue.path), queue.name)):
            assert queue.parent is not None
            heapify(self._heaps.get(queue, []))  # complete: deeper queues come first
            self._heaps.setdefault(queue.parent, []).append(self._entry(queue))
        heapify(self._heaps.get(self._root, []))
        self._served: _Served | None = None

    def __iter__(self) -> "GangOrder":
        return self

    def __next__(self) -> Gang:
        while self._first:
            line = self._first[0]
            line.settle(self._again)
            line.skip(_always)
            if line:
                return line.take()
            del self._first[0]
        if self._served is not None:
            self._settle(self._served)
        if self._served is None:
            heap = self._heaps.get(self._root)
            if not heap:
                raise StopIteration
            queue = self._leaf(heap[0][1])
            self._served = _Served(self, queue, self._by_leaf[queue].next)
        return self._by_leaf[self._served.queue].take()

    def _settle(self, served: "_Served") -> None:
        queue, line = served.queue, self._by_leaf[served.queue]
        line.settle(self._again)
        # a refusal leaves the order as it is, but for what the next gang needs
        if queue.usage_version == served.version:
            line.skip(served.goes_on)
            if line and served.goes_on(line.next):
                return
        self._served = None
        self._reorder(queue)

    def _leaf(self, queue: Queue) -> Queue:
        """The queue below this one that is served next."""
        while inner := self._heaps.get(queue):
            queue = inner[0][1]
        return queue

    def _reorder(self, queue: Queue) -> None:
        """Updates the entries of the queue and of its ancestors, each the first of its heap."""
        done = not self._by_leaf[queue]
        for inner, outer in zip(queue.path, queue.path[1:], strict=False):
            heap = self._heaps[outer]
            if done:
                heappop(heap)
                done = not heap
            else:
                heapreplace(heap, self._entry(inner))

    def _entry(self, queue: Queue) -> tuple[Turn, Queue]:
        gang = self._by_leaf[self._leaf(queue)].next
        level = self.turns.level(queue, gang.attempt.need)
        return ((level, -gang.priority, gang.created, queue.name), queue)


class _Served:
    """The queue that is served. After a refusal it goes on, unless the next gang would take it, or a queue above it,
    beyond its share and the one before would not, or the other way round."""

    __slots__ = ("_excess", "_known", "_order", "queue", "version")

    def __init__(self, order: GangOrder, queue: Queue, first: Gang) -> None:
        """first: the next gang of the queue."""
        self._order, self.queue, self.version = order, queue, queue.usage_version
        self._excess = self._excesses(first.attempt.need)
        # By need: there are few.
        self._known: list[tuple[Sums, bool]] = [(first.attempt.need, True)]

    def goes_on(self, gang: Gang) -> bool:
        """Returns whether the queue is still served if this gang is its next one, as long as all are refused."""
        if not self._order.turns.compares_shares:
            return True
        need = gang.attempt.need
        for other, same in self._known:
            if other is need or other == need:
                return same
        same = self._excesses(need) == self._excess
        if len(self._known) < NEEDS_KEPT:
            self._known.append((need, same))
        return same

    def _excesses(self, need: Sums) -> list[bool]:
        return [self._order.turns.exceeds(above, need) for above in self.queue.path[:-1]]
