"""What a queue has used lately above what it deserves: a mean over time in which the past counts half as
much for each half-life that it is back. Pure arithmetic."""

from collections.abc import Iterable, Mapping

Sums = Mapping[str, int]

_LEAST = 1e-6


class DecayedUsage:
    __slots__ = ("_at", "_past")

    def __init__(self) -> None:
        self._past: dict[str, float] = {}
        self._at = 0.0

    def pass_to(self, now: float, used: Sums, deserved: Sums, half_life_s: float) -> None:
        """used: since it was last asked, until now."""
        passed_s = now - self._at
        self._at = now
        if passed_s <= 0:
            return
        kept: float = 0.5 ** (passed_s / half_life_s)
        past = {}
        for resource in {*self._past, *used}:
            above = max(0, used.get(resource, 0) - deserved.get(resource, 0))
            mean = self._past.get(resource, 0.0) * kept + above * (1 - kept)
            if mean > _LEAST:
                past[resource] = mean
        self._past = past

    def beside(self, used: Sums) -> Iterable[str]:
        """The resources that are used, or were."""
        return {**used, **self._past} if self._past else used

    def of(self, resource: str) -> float:
        return self._past.get(resource, 0.0)
