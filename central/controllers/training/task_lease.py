"""The leases of one queue's tasks: by task, by owner, and by when they end. None of these looks at all of them: 512
members may hold 131,072, so a lease is four numbers in its owner's arrays."""

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

Owner = tuple[int, int]  # member, incarnation
_SPARE = 64  # entries of the heap beyond twice the owners


class TaskLease(NamedTuple):
    """A lease as it was when it was requested. Times in seconds."""

    task: int
    owner: Owner
    attempt: int
    since: float
    until: float


class HeldLeases:
    """The leases of one owner, in the order in which they were added: at most one of a task."""

    __slots__ = ("attempts", "owner", "since", "tasks", "until")

    def __init__(self, owner: Owner) -> None:
        self.owner = owner
        self.tasks, self.attempts = array("q"), array("q")
        self.since, self.until = array("d"), array("d")

    def add(self, lease: TaskLease) -> None:
        self.tasks.append(lease.task)
        self.attempts.append(lease.attempt)
        self.since.append(lease.since)
        self.until.append(lease.until)

    def drop(self, task: int) -> None:
        index = self.tasks.index(task)
        for column in (self.tasks, self.attempts, self.since, self.until):
            del column[index]

    def of(self, task: int) -> TaskLease:
        return self.at(self.tasks.index(task))

    def at(self, index: int) -> TaskLease:
        times = (self.since[index], self.until[index])
        return TaskLease(self.tasks[index], self.owner, self.attempts[index], *times)


class TaskLeases:
    """A task may have two: one of a straggler, and one of who is asked instead."""

    def __init__(self) -> None:
        self._held: dict[Owner, HeldLeases] = {}
        self._first: dict[int, Owner] = {}  # by task
        self._second: dict[int, Owner] = {}  # by task; who is asked instead
        # (end, number, owner): before it ends no lease of this owner that was noted with this end or a later one.
        self._ends: list[tuple[float, int, Owner]] = []
        self._numbers = count()
        self._noted: dict[Owner, float] = {}  # the earliest end in the heap, by owner

    def __len__(self) -> int:
        """Tasks that are leased."""
        return len(self._first)

    def __contains__(self, task: int) -> bool:
        return task in self._first

    def __iter__(self) -> Iterator[TaskLease]:
        return (one for task in self._first for one in self.of(task))

    def of(self, task: int) -> tuple[TaskLease, ...]:
        owners = (self._first.get(task), self._second.get(task))
        return tuple(self._held[owner].of(task) for owner in owners if owner is not None)

    def of_owner(self, owner: Owner) -> list[TaskLease]:
        """Returns the owner's leases in the order in which they were added."""
        held = self._held.get(owner)
        return [] if held is None else [held.at(index) for index in range(len(held.tasks))]

    def owners(self) -> list[Owner]:
        return list(self._held)

    def held(self) -> Iterable[HeldLeases]:
        return self._held.values()

    def held_by(self, owner: Owner) -> int:
        held = self._held.get(owner)
        return 0 if held is None else len(held.tasks)

    def oldest_of_others(self, owner: Owner) -> TaskLease | None:
        """Returns the oldest lease of other owners that no third owner was asked to repeat."""
        oldest: TaskLease | None = None
        for held in self._held.values():
            if held.owner == owner or (oldest is not None and min(held.since) >= oldest.since):
                continue
            for index, task in enumerate(held.tasks):
                if task in self._second:
                    continue
                if oldest is None or held.since[index] < oldest.since:
                    oldest = held.at(index)
        return oldest

    def add(self, lease: TaskLease) -> None:
        """The owner has none of this task."""
        held = self._held.get(lease.owner)
        if held is None:
            held = self._held[lease.owner] = HeldLeases(lease.owner)
        owners = self._second if lease.task in self._first else self._first
        owners[lease.task] = held.owner
        held.add(lease)
        self._note_end(held.owner, lease.until)

    def renew(self, lease: TaskLease, until: float) -> None:
        held = self._held[lease.owner]
        held.until[held.tasks.index(lease.task)] = until
        self._note_end(held.owner, until)

    def end(self, lease: TaskLease) -> None:
        second = self._second.pop(lease.task, None)
        if second is None:
            del self._first[lease.task]
        elif lease.owner != second:
            self._first[lease.task] = second
        self._ended(lease.task, lease.owner)

    def end_all_of(self, task: int) -> None:
        for owners in (self._first, self._second):
            if (owner := owners.pop(task, None)) is not None:
                self._ended(task, owner)

    def due(self, now: float) -> Iterator[TaskLease]:
        """Yields the leases that end by now, the earliest first. The caller ends each."""
        while self._ends and self._ends[0][0] <= now:
            if (first := self.first()) is not None and first.until <= now:
                yield first

    def first(self) -> TaskLease | None:
        """The one that ends first."""
        while self._ends:
            until, _, owner = self._ends[0]
            held = self._held.get(owner)
            if held is None or self._noted[owner] != until:
                heapq.heappop(self._ends)
                continue
            end = min(held.until)
            if end <= until:
                return held.at(held.until.index(end))
            self._noted[owner] = end
            heapq.heapreplace(self._ends, (end, next(self._numbers), owner))
        return None

    def _note_end(self, owner: Owner, until: float) -> None:
        """Notes the earliest end of an owner's leases: those of one request end together."""
        if until >= self._noted.get(owner, math.inf):
            return
        self._noted[owner] = until
        heapq.heappush(self._ends, (until, next(self._numbers), owner))
        if len(self._ends) > 2 * len(self._noted) + _SPARE:
            self._ends = [(end, next(self._numbers), owner) for owner, end in self._noted.items()]
            heapq.heapify(self._ends)

    def _ended(self, task: int, owner: Owner) -> None:
        held = self._held[owner]
        held.drop(task)
        if not held.tasks:
            del self._held[owner], self._noted[owner]
