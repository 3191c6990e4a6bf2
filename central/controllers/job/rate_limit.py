"""How often counts are written, over all Jobs together: while hundreds of Jobs move at once, the API
server has their pods to make. A Job's state is never held back, nor what few Jobs have to tell."""

PER_S = 20.0
BURST = 20
LATE_S = 10.0  # no Job's counts wait longer


class StatusRateLimiter:
    def __init__(self) -> None:
        self._next = 0.0

    def reserve(self, now: float) -> float:
        """When the next one may write; the turn is taken."""
        step = 1.0 / PER_S
        at = max(self._next, now - BURST * step) + step
        self._next = min(at, now + LATE_S)
        return max(now, self._next)
