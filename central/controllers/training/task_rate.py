"""The number of tasks of a queue that were lately done in a second."""

from collections import deque

WINDOW_S = 300.0
_SLOT_S = 10.0


class TaskRate:
    """Times in seconds. Bounded: counts by slots of ten seconds."""

    def __init__(self) -> None:
        self._slots: deque[list[float]] = deque(maxlen=int(WINDOW_S / _SLOT_S))  # start, tasks
        self._since = 0.0  # when the first task of all was done; none: no slots

    def add(self, now: float) -> None:
        if not self._slots:
            self._since = now
        if not self._slots or now >= self._slots[-1][0] + _SLOT_S:
            self._slots.append([now, 0])
        self._slots[-1][1] += 1

    def per_s(self, now: float) -> float:
        """0: unknown, or none was done for the whole window. The first task of all only starts the clock."""
        within = [one for one in self._slots if one[0] > now - WINDOW_S]
        if not within:
            return 0.0
        start = max(self._since, now - WINDOW_S)
        count = sum(one[1] for one in within) - (start == self._since)
        return count / (now - start) if now > start else 0.0
