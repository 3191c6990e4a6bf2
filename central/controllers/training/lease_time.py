"""How long a task may be held: from how long the last ones took."""

from collections import deque

LEAST_S, MOST_S = 60.0, 1200.0
_SAMPLES = 100


class LeaseTime:
    """Durations in seconds."""

    def __init__(self) -> None:
        self._durations: deque[float] = deque(maxlen=_SAMPLES)

    def add(self, duration_s: float) -> None:
        self._durations.append(max(0.0, duration_s))

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
