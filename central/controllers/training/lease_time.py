"""The time for which a task may be held, from the durations of the last ones."""

from bisect import bisect_left
from collections import deque

LEAST_S, MOST_S = 60.0, 1200.0
BOUNDS_S = (1.0, 5.0, 15.0, 60.0, 300.0, 1200.0)  # of the histogram of durations
_SAMPLES = 100


class LeaseTime:
    """Durations in seconds."""

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=_SAMPLES)
        # by the first bound that is not exceeded, since the start
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def add(self, duration_s: float) -> None:
        duration_s = max(0.0, duration_s)
        self._durations.append(duration_s)
        self.counts[bisect_left(BOUNDS_S, duration_s)] += 1
        self.sum_s += duration_s

    @property
    def lease_s(self) -> float:
        """Three times the 95th percentile of the last 100, within bounds."""
        if not self._durations:
            return LEAST_S
        ordered = sorted(self._durations)
        slow = ordered[min(len(ordered) - 1, len(ordered) * 95 // 100)]
        return min(MOST_S, max(LEAST_S, 3 * slow))

    @property
    def straggling_s(self) -> float | None:
        """A lease that is older is slow: three times the median. None: nothing is known yet."""
        if not self._durations:
            return None
        return 3 * sorted(self._durations)[len(self._durations) // 2]
