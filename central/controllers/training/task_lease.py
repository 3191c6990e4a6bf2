"""The leases of one queue's tasks: by task, by owner, and by when they end. None of these looks at all of them: 512 members may hold
131,072."""

import heapq
import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

Owner = tuple[int, int]  # member, incarnation
_SPARE = 64  # entries of the heap beyond twice the owners


@dataclass(slots=True, eq=False)
class TaskLease:
    """Times in seconds."""

    task: int
    owner: Owner
    attempt: int
    since: float
    until: float


class TaskLeases:
    """A task may have two: one of a straggler, and one of who is asked instead."""

    def __init__(self) -> None:
        self._by_task: dict[int, tuple[TaskLease, ...]] = {}
        self._by_owner: dict[Owner, dict[TaskLease, None]] = {}
        # (end, number, owner): before it ends no lease of this owner that was noted with this end or a later one.
        self._ends: list[tuple[float, int, Owner]] = []
        self._numbers = count()
        self._noted: dict[Owner, float] = {}  # the earliest end in the heap, by owner

    def __len__(self) -> int:
        """Tasks that are leased."""
        return len(self._by_task)

    def __contains__(self, task: int) -> bool:
        return task in self._by_task

    def __iter__(self) -> Iterator[TaskLease]:
        return (one for held in self._by_task.values() for one in held)

    def of(self, task: int) -> tuple[TaskLease, ...]:
        return self._by_task.get(task, ())

    def of_owner(self, owner: Owner) -> list[TaskLease]:
        """In the order in which they were added."""
        return list(self._by_owner.get(owner, ()))

    def owners(self) -> list[Owner]:
        return list(self._by_owner)

    def held_by(self, owner: Owner) -> int:
        return len(self._by_owner.get(owner, ()))

    def add(self, lease: TaskLease) -> None:
        self._by_task[lease.task] = (*self._by_task.get(lease.task, ()), lease)
        self._by_owner.setdefault(lease.owner, {})[lease] = None
        self._note_end(lease)

    def renew(self, lease: TaskLease, until: float) -> None:
        lease.until = until
        self._note_end(lease)

    def end(self, lease: TaskLease) -> None:
        held = tuple(one for one in self._by_task[lease.task] if one is not lease)
        if held:
            self._by_task[lease.task] = held
        else:
            del self._by_task[lease.task]
        self._ended(lease)

    def end_all_of(self, task: int) -> None:
        for lease in self._by_task.pop(task, ()):
            self._ended(lease)

    def due(self, now: float) -> Iterator[TaskLease]:
        """Those that end by now, the first one first. The caller ends each."""
        while self._ends and self._ends[0][0] <= now:
            if (first := self.first()) is not None and first.until <= now:
                yield first

    def first(self) -> TaskLease | None:
        """The one that ends first."""
        while self._ends:
            until, _, owner = self._ends[0]
            held = self._by_owner.get(owner)
            if held is None or self._noted[owner] != until:
                heapq.heappop(self._ends)
                continue
            first = min(held, key=_until)
            if first.until <= until:
                return first
            self._noted[owner] = first.until
            heapq.heapreplace(self._ends, (first.until, next(self._numbers), owner))
        return None

    def _note_end(self, lease: TaskLease) -> None:
        """Of an owner's leases the earliest end alone: those of one request end together."""
        if lease.until >= self._noted.get(lease.owner, math.inf):
            return
        self._noted[lease.owner] = lease.until
        heapq.heappush(self._ends, (lease.until, next(self._numbers), lease.owner))
        if len(self._ends) > 2 * len(self._noted) + _SPARE:
            self._ends = [(end, next(self._numbers), owner) for owner, end in self._noted.items()]
            heapq.heapify(self._ends)

    def _ended(self, lease: TaskLease) -> None:
        held = self._by_owner[lease.owner]
        del held[lease]
        if not held:
            del self._by_owner[lease.owner], self._noted[lease.owner]


def _until(lease: TaskLease) -> float:
    return lease.until
