"""A queue of future events by time. Events of the same time keep their order of insertion."""

import heapq
from typing import Generic, TypeVar

Thing = TypeVar("Thing")


class EventQueue(Generic[Thing]):
    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Thing]] = []
        self._noted = 0

    def note(self, at: float, thing: Thing) -> None:
        heapq.heappush(self._heap, (at, self._noted, thing))
        self._noted += 1

    def __len__(self) -> int:
        return len(self._heap)

    def next_at(self) -> float:
        return self._heap[0][0]

    def take(self, until: float) -> list[Thing]:
        """Removes and returns everything up to the time, in order."""
        found = []
        while self._heap and self._heap[0][0] <= until:
            found.append(heapq.heappop(self._heap)[2])
        return found
