"""The order in which gangs are tried.

Inside a queue: priority; gangs below their minimum, then those with the fewest surplus members; age; name.
Between queues: the lowest usage level first (quota.usage_level). When a gang is placed, only the levels of
its queue and that queue's ancestors change.

A gang that got a part of its pods comes back at its new rank. So minima go before surplus, and the surplus
is shared evenly.

Design: docs/design/0015-queues.md
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from central.scheduler.queues import quota
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.quota import UsageLevel
from central.scheduler.state.gangs import Gang, GangKey


def in_order(queues: Queues, asked: Iterable[Gang], again: list[Gang]) -> Iterator[Gang]:
    """Yields one gang at a time. The caller places or refuses it before it takes the next one. again: if
    pods of the gang are left for another turn, the caller adds it."""
    if not queues.enabled:
        yield from _one_by_one(sorted(asked, key=_RANK, reverse=True), again)
        return
    by_queue: dict[str, list[Gang]] = {}
    for gang in asked:
        if gang.account is not None:
            by_queue.setdefault(gang.account.queue, []).append(gang)
    for gangs in by_queue.values():
        gangs.sort(key=_RANK, reverse=True)
    by_name = queues.by_name
    leaves = {name for name in by_queue if not by_name[name].error and not by_name[name].children}
    for name in sorted(by_queue.keys() - leaves):  # refused, or replacing members of started gangs
        yield from _one_by_one(by_queue[name], again)
    yield from FairShareOrder(queues, {by_name[name]: by_queue[name] for name in leaves}, again)


def rank(gang: Gang) -> tuple[int, int, float, GangKey]:
    """The order inside a queue. Cached as gang.attempt.rank until the gang changes."""
    placed = len(gang.counts.placed)
    surplus = placed - gang.minimum + 1 if placed and not gang.missing() else 0
    if gang.object is not None and gang.object.min_resources:
        surplus = 0  # its members create the others as they run: these are no less needed
    return (-gang.priority, surplus, gang.created, gang.key)


_RANK = attrgetter("attempt.rank")


def _one_by_one(gangs: list[Gang], again: list[Gang]) -> Iterator[Gang]:
    """gangs: in reverse order."""
    while gangs:
        yield gangs.pop()
        _come_back(gangs, again)


def _come_back(gangs: list[Gang], again: list[Gang]) -> None:
    """Inserts the gangs that have another turn. gangs: in reverse order."""
    while again:
        gang = again.pop()
        new = gang.attempt.rank = rank(gang)
        place = bisect_left(gangs, True, key=lambda other: other.attempt.rank < new)
        gangs.insert(place, gang)


class FairShareOrder:
    """Gangs of leaf queues, lowest usage level first. Every inner queue has a heap of its children
    with pending gangs below them. by_leaf: gangs in reverse order. again: as in in_order()."""

    def __init__(self, queues: Queues, by_leaf: dict[Queue, list[Gang]], again: list[Gang]) -> None:
        self._again = again
        self._queues = queues
        self._root = queues.root
        self._by_leaf = by_leaf
        self._heaps: dict[Queue, list[tuple[UsageLevel, Queue]]] = {}
        for queue in {above for leaf in by_leaf for above in leaf.path[:-1]}:
            assert queue.parent is not None
            self._heaps.setdefault(queue.parent, []).append(self._entry(queue))
        for heap in self._heaps.values():
            heapify(heap)

    def __iter__(self) -> Iterator[Gang]:
        while heap := self._heaps.get(self._root):
            queue = heap[0][1]
            while inner := self._heaps.get(queue):
                queue = inner[0][1]
            gangs, version = self._by_leaf[queue], queue.usage_version
            while gangs and queue.usage_version == version:  # a refusal leaves the order as it is
                yield gangs.pop()
                _come_back(gangs, self._again)
            self._reorder(queue)

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

    def _entry(self, queue: Queue) -> tuple[UsageLevel, Queue]:
        self._queues.record_usage(queue)
        return (quota.usage_level(queue, self._queues.total), queue)
