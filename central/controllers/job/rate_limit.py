"""Limits how often pod counts are written to Job statuses, and the files of members to their pods, over all Jobs
together. While hundreds of Jobs change at once, the API server's capacity belongs to their pods. A change of phase is
never delayed, and neither are the counts while few Jobs change."""

from dataclasses import dataclass

PER_S = 20.0
BURST = 20
LATE_S = 10.0  # the longest delay of a Job's counts


@dataclass(slots=True, eq=False)
class StatusRateLimiter:
    _next: float = 0.0

    def reserve(self, now: float) -> float:
        """Reserves the next write and returns its time."""
        step = 1.0 / PER_S
        at = max(self._next, now - BURST * step) + step
        self._next = min(at, now + LATE_S)
        return max(now, self._next)


FILES_PER_S = 20.0
FILES_BATCH = 20  # pods of a Job that are written at once
FILES_AHEAD = 100  # writes that members who leave may take before the time of all others


@dataclass(slots=True, eq=False)
class MemberFilesLimiter:
    """A limit of FILES_PER_S writes in the mean. Jobs take turns; members that leave precede."""

    _left: float = float(FILES_BATCH)  # writes that may be done now; negative: taken ahead
    _left_at: float = 0.0
    _next_turn: float = 0.0

    def turn(self, now: float, count: int) -> float:
        """Returns the time at which a Job may write the files of `count` members that stay."""
        at = max(now, self._next_turn)
        self._next_turn = at + count / FILES_PER_S
        return at

    def take(self, now: float, count: int, *, urgent: bool = False) -> int:
        """Allocates as many of these writes as may be done now, and returns their number."""
        passed_s = max(0.0, now - self._left_at)
        self._left = min(float(FILES_BATCH), self._left + passed_s * FILES_PER_S)
        self._left_at = max(now, self._left_at)
        granted = min(count, max(0, int(self._left + (FILES_AHEAD if urgent else 0))))
        self._left -= granted
        return granted
