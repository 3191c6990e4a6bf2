"""Whose turn it is. Inside a queue: priority, then age, then name. Between queues: the one that
stands lowest (queues.level), looked at again whenever one of them was given something."""

from collections.abc import Iterable, Iterator
from heapq import heapify, heappop, heapreplace
from operator import attrgetter

from central.scheduler.queues import quota
from central.scheduler.queues.queue_tree import Queue, Queues
from central.scheduler.queues.quota import Level
from central.scheduler.state.gangs import Gang, GangKey


def in_order(queues: Queues, asked: Iterable[Gang]) -> Iterator[Gang]:
    """The gangs one by one, each when those before it have been placed or refused."""
    if not queues.on:
        yield from sorted(asked, key=_RANK)
        return
    lines: dict[str, list[Gang]] = {}
    for gang in asked:
        if gang.account is not None:
            lines.setdefault(gang.account.queue, []).append(gang)
    for line in lines.values():
        line.sort(key=_RANK, reverse=True)
    by_name = queues.by_name
    leaves = {name for name in lines if not by_name[name].error and not by_name[name].children}
    for name in sorted(lines.keys() - leaves):  # they get a refusal, or what they had once
        yield from reversed(lines[name])
    yield from _Turns(queues, {by_name[name]: lines[name] for name in leaves})


def rank(gang: Gang) -> tuple[int, float, GangKey]:
    """Its place inside its queue; kept in gang.rank while the gang does not change."""
    return (-gang.priority, gang.created, gang.key)


_RANK = attrgetter("attempt.rank")


class _Turns:
    """One heap for the children of each queue that somebody waits below."""

    def __init__(self, queues: Queues, lines: dict[Queue, list[Gang]]) -> None:
        self._queues = queues
        self._root = queues.root
        self._lines = lines
        self._heaps: dict[Queue, list[tuple[Level, Queue]]] = {}
        for queue in {above for leaf in lines for above in leaf.path[:-1]}:
            assert queue.parent is not None
            self._heaps.setdefault(queue.parent, []).append(self._entry(queue))
        for heap in self._heaps.values():
            heapify(heap)

    def __iter__(self) -> Iterator[Gang]:
        while heap := self._heaps.get(self._root):
            queue = heap[0][1]
            while inner := self._heaps.get(queue):
                queue = inner[0][1]
            line, moved = self._lines[queue], queue.moved
            while line and queue.moved == moved:  # who gets nothing leaves it where it stands
                yield line.pop()
            self._settle(queue)

    def _settle(self, queue: Queue) -> None:
        """What it was given changes its own place and those of all above it, each the first of its
        heap; nobody else's."""
        done = not self._lines[queue]
        for inner, outer in zip(queue.path, queue.path[1:], strict=False):
            heap = self._heaps[outer]
            if done:
                heappop(heap)
                done = not heap
            else:
                heapreplace(heap, self._entry(inner))

    def _entry(self, queue: Queue) -> tuple[Level, Queue]:
        self._queues.remember(queue)
        return (quota.level(queue, self._queues.total), queue)
