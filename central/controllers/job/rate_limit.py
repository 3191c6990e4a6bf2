"""Limits how often pod counts are written to Job statuses, over all Jobs together. While hundreds of Jobs change
at once, the API server's capacity belongs to their pods. A change of phase is never delayed, and neither are
the counts while few Jobs change."""

PER_S = 20.0
BURST = 20
LATE_S = 10.0  # the longest delay of a Job's counts


class StatusRateLimiter:
    def __init__(self) -> None:
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """Reserves the next write and returns its time."""
        step = 1.0 / PER_S
        at = max(self._next, now - BURST * step) + step
        self._next = min(at, now + LATE_S)
        return max(now, self._next)
