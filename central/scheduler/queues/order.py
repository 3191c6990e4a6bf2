"""The order in which gangs are tried.

Inside a queue: priority; gangs below their minimum, then those with the fewest surplus members; age; name.
Between queues: those whose next gang leaves them within their fair share come first, because they could take back
what others got above theirs: so no gang is placed and evicted by one state. Then the lowest usage level
(quota.usage_level), then the level with the next gang, then the age of that gang. When a gang is placed, only the
levels of its queue and that queue's ancestors change.

A gang that got a part of its pods comes back at its new rank. So minima go before surplus, and the surplus
is shared evenly.

Behind the first gang of a queue that is refused, those of equal priority go by their run time, shortest
first. They fill what the head can't use yet, and short ones leave the most of it to others. The head itself
is always the oldest, so nobody is overtaken for ever.

Design: docs/design/0015-queues.md
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from math import inf
from operator import attrgetter

from central.model.resources import Sums
from central.scheduler.queues import quota
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues, sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang, GangKey

NEEDS_KEPT = 8
FairShares = dict[str, dict[str, int]]  # by resource and queue
Level = tuple[bool, bool, int, float, float, float, str]  # of a queue; the lowest is served first


def in_order(
    queues: Queues, asked: Iterable[Gang], again: list[Gang], shares: FairShares | None = None
) -> Iterator[Gang]:
    """Yields one gang at a time. The caller places or refuses it before it takes the next one. again: if
    pods of the gang are left for another turn, the caller adds it. shares: of a round in slices, found so far."""
    if not queues.enabled:
        everybody = _Line(asked)
        while everybody.gangs:
            yield from everybody.take(again)
        return
    of_queue: dict[str, list[Gang]] = {}
    for gang in asked:
        if gang.account is not None:
            of_queue.setdefault(gang.account.queue, []).append(gang)
    by_queue = {name: _Line(gangs) for name, gangs in of_queue.items()}
    by_name = queues.by_name
    leaves = {name for name in by_queue if not by_name[name].error and not by_name[name].children}
    for name in sorted(by_queue.keys() - leaves):  # refused, or replacing members of started gangs
        while by_queue[name].gangs:
            yield from by_queue[name].take(again)
    lines = {by_name[name]: by_queue[name] for name in leaves}
    yield from FairShareOrder(queues, lines, again, {} if shares is None else shares)


def rank(gang: Gang) -> tuple[int, int, float, GangKey]:
    """The order inside a queue. Cached as gang.attempt.rank until the gang changes."""
    placed = len(gang.counts.placed)
    surplus = placed - gang.minimum + 1 if placed and not gang.missing() else 0
    if gang.object is not None and gang.object.min_resources:
        surplus = 0  # its members create the others as they run: these are no less needed
    return (-gang.priority, surplus, gang.created, gang.key)


def run_time_s(gang: Gang) -> float:
    """How long the gang's pending pods run at most; inf: unknown."""
    times = [pod.seen.runs_for_s for pod in gang.counts.waiting]
    return max((inf if one is None else one for one in times), default=inf)


_RANK = attrgetter("attempt.rank")


def _backfill_rank(gang: Gang) -> tuple[int, int, float, float, GangKey]:
    return (*gang.attempt.rank[:2], gang.attempt.run_time_s, *gang.attempt.rank[2:])


class _Line:
    """The gangs of one queue in reverse order: the next one is the last."""

    __slots__ = ("_rank", "gangs")

    def __init__(self, gangs: Iterable[Gang]) -> None:
        self._rank: Callable[[Gang], tuple[object, ...]] = _RANK
        self.gangs = sorted(gangs, key=_RANK, reverse=True)

    def take(self, again: list[Gang]) -> Iterator[Gang]:
        """Yields the next gang, and puts back those that have another turn."""
        gang = self.gangs.pop()
        yield gang
        if gang.attempt.reason and self._rank is _RANK:
            self._rank = _backfill_rank
            if any(other.attempt.run_time_s < inf for other in self.gangs):
                self.gangs.sort(key=_backfill_rank, reverse=True)
        while again:
            self._insert(again.pop())

    def _insert(self, gang: Gang) -> None:
        gang.attempt.rank = rank(gang)
        new = self._rank(gang)
        place = bisect_left(self.gangs, True, key=lambda other: self._rank(other) < new)
        self.gangs.insert(place, gang)


class FairShareOrder:
    """Gangs of leaf queues. Every inner queue has a heap of its children with pending gangs below them."""

    def __init__(
        self, queues: Queues, by_leaf: dict[Queue, _Line], again: list[Gang], shares: FairShares
    ) -> None:
        """again: as in in_order(). shares: by resource; a pass does not change what queues use and request together,
        so the first finding holds."""
        self._again = again
        self._queues = queues
        self._root = queues.root
        self._by_leaf = by_leaf
        self._shares = shares
        self._heaps: dict[Queue, list[tuple[Level, Queue]]] = {}
        inside = {above for leaf in by_leaf for above in leaf.path[:-1]}
        for queue in sorted(inside, key=lambda queue: (-len(queue.path), queue.name)):
            assert queue.parent is not None
            heapify(self._heaps.get(queue, []))  # complete: deeper queues come first
            self._heaps.setdefault(queue.parent, []).append(self._entry(queue))
        heapify(self._heaps.get(self._root, []))

    def __iter__(self) -> Iterator[Gang]:
        while heap := self._heaps.get(self._root):
            queue = self._leaf(heap[0][1])
            line, version = self._by_leaf[queue], queue.usage_version
            need = self._need(line.gangs[-1])
            excess = [entry[0][0] for entry in self._path(queue)]
            known: list[tuple[Sums, list[bool]]] = []  # of other needs: there are few
            known_at = self._queues.version
            while True:
                yield from line.take(self._again)
                # a refusal leaves the order as it is, but for what the next gang needs
                if not line.gangs or queue.usage_version != version:
                    break
                if (following := self._need(line.gangs[-1])) != need:
                    need = following
                    if known_at != self._queues.version:
                        known, known_at = [], self._queues.version
                    if self._excess_of(queue, need, known) != excess:
                        break
            self._reorder(queue)

    def _leaf(self, queue: Queue) -> Queue:
        """The queue below this one that is served next."""
        while inner := self._heaps.get(queue):
            queue = inner[0][1]
        return queue

    def _path(self, queue: Queue) -> list[tuple[Level, Queue]]:
        """The entries of the queue and of its ancestors, each the first of its heap."""
        return [self._heaps[outer][0] for outer in queue.path[1:]]

    def _reorder(self, queue: Queue) -> None:
        """Updates the entries of the queue and of its ancestors, each the first of its heap."""
        done = not self._by_leaf[queue].gangs
        for inner, outer in zip(queue.path, queue.path[1:], strict=False):
            heap = self._heaps[outer]
            if done:
                heappop(heap)
                done = not heap
            else:
                heapreplace(heap, self._entry(inner))

    def _entry(self, queue: Queue) -> tuple[Level, Queue]:
        self._queues.record_usage(queue)
        gang, total = self._by_leaf[self._leaf(queue)].gangs[-1], self._queues.total
        need = self._need(gang)
        level, then = quota.usage_level(queue, total), quota.usage_level(queue, total, need)
        exceeds = self._exceeds(queue, need)
        return ((exceeds, *level[:3], then[2], gang.created, queue.name), queue)

    def _excess_of(
        self, queue: Queue, need: Sums, known: list[tuple[Sums, list[bool]]]
    ) -> list[bool]:
        """Which of the queue and those above it would exceed their shares. known: as long as nothing changes."""
        for other, excess in known:
            if other == need:
                return excess
        excess = [self._exceeds(above, need) for above in queue.path[:-1]]
        if len(known) < NEEDS_KEPT:
            known.append((need, excess))
        return excess

    def _exceeds(self, queue: Queue, need: Sums) -> bool:
        """Whether the queue would use more than its fair share."""
        if len(self._by_leaf) == 1 or self._queues.half_life_s:
            return False  # nobody waits behind it; or the past decides, which shares do not know
        for resource, amount in need.items():
            if self._queues.is_shared(resource):
                shares = self._shares.get(resource)
                if shares is None:
                    shares = self._shares[resource] = fair_shares(self._queues, resource)
                if queue.used.get(resource, 0) + amount > shares.get(queue.name, 0):
                    return True
        return False

    def _need(self, gang: Gang) -> Sums:
        """The requests of the pods that the gang would start with, or of one more."""
        missing, waiting = gang.missing(), gang.counts.waiting
        if missing == len(waiting) and gang.account is not None:
            return gang.account.demand
        return self._queues.currency.counted(sums_of(waiting[: max(1, missing)]))
