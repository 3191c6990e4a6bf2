"""The leases of one queue's tasks: by task, by owner, and by when they end. None of these looks at all of them: 512 members may hold
131,072."""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

Owner = tuple[int, int]  # member, incarnation
_SPARE = 64  # entries of the heap beyond twice the leases


@dataclass(slots=True)
class TaskLease:
    """Times in seconds. ended: it is no lease any more."""

    task: int
    owner: Owner
    attempt: int
    since: float
    until: float
    ended: bool = False


@dataclass(slots=True)
class TaskLeases:
    """A task may have two: one of a straggler, and one of who is asked instead."""

    _by_task: dict[int, list[TaskLease]] = field(default_factory=dict)
    _held: Counter[Owner] = field(default_factory=Counter)
    # (end, number, lease). A lease that was renewed is still there with its earlier end, one that has ended as well.
    _ends: list[tuple[float, int, TaskLease]] = field(default_factory=list)
    _numbers: Iterator[int] = field(default_factory=count)

    def __len__(self) -> int:
        """Tasks that are leased."""
        return len(self._by_task)

    def __contains__(self, task: int) -> bool:
        return task in self._by_task

    def __iter__(self) -> Iterator[TaskLease]:
        return (one for held in self._by_task.values() for one in held)

    def of(self, task: int) -> list[TaskLease]:
        return self._by_task.get(task, [])

    def held_by(self, owner: Owner) -> int:
        return self._held[owner]

    def add(self, lease: TaskLease) -> None:
        self._by_task.setdefault(lease.task, []).append(lease)
        self._held[lease.owner] += 1
        self._note_end(lease)

    def renew(self, lease: TaskLease, until: float) -> None:
        is_earlier, lease.until = until < lease.until, until
        if is_earlier:
            self._note_end(lease)

    def end(self, lease: TaskLease) -> None:
        held = self._by_task[lease.task]
        held.remove(lease)
        if not held:
            del self._by_task[lease.task]
        self._ended(lease)

    def end_all_of(self, task: int) -> None:
        for lease in self._by_task.pop(task, ()):
            self._ended(lease)

    def due(self, now: float) -> Iterator[TaskLease]:
        """Those that end by now, the first one first. The caller ends each."""
        while (first := self.first()) is not None and first.until <= now:
            yield first

    def first(self) -> TaskLease | None:
        """The one that ends first."""
        while self._ends:
            until, _, lease = self._ends[0]
            if lease.ended:
                heapq.heappop(self._ends)
            elif lease.until > until:
                heapq.heapreplace(self._ends, (lease.until, next(self._numbers), lease))
            else:
                return lease
        return None

    def _note_end(self, lease: TaskLease) -> None:
        heapq.heappush(self._ends, (lease.until, next(self._numbers), lease))
        if len(self._ends) > 2 * len(self._by_task) + _SPARE:
            self._ends = [(one.until, next(self._numbers), one) for one in self]
            heapq.heapify(self._ends)

    def _ended(self, lease: TaskLease) -> None:
        lease.ended = True
        self._held[lease.owner] -= 1
        if not self._held[lease.owner]:
            del self._held[lease.owner]
