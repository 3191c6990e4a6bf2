"""Usage history of a queue (`--usage-half-life`, docs/design/queues.md). Pure arithmetic."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from central.model.amounts import Resources

_NEGLIGIBLE = 1e-6


@dataclass(slots=True, eq=False)
class DecayedUsage:
    """The mean use above the deserved amount, by resource. The past counts half for each
    half-life."""

    _mean: dict[str, float] = field(default_factory=dict)
    _at: float = 0.0

    @classmethod
    def kept(cls, at: float, means: Iterable[tuple[str, float]]) -> "DecayedUsage":
        """Returns a history with these means, as it was at that time."""
        return cls(dict(means), at)

    def means(
        self, now: float, used: Resources, deserved: Resources, half_life_s: float
    ) -> Mapping[str, float]:
        """Returns the means as advance() would leave them; nothing changes."""
        copy = DecayedUsage.kept(self._at, self._mean.items())
        copy.advance(now, used, deserved, half_life_s)
        return copy._mean

    def advance(self, now: float, used: Resources, deserved: Resources, half_life_s: float) -> None:
        """used: what was used all the time since the last call."""
        elapsed_s = now - self._at
        self._at = now
        if elapsed_s <= 0:
            return
        decay: float = 0.5 ** (elapsed_s / half_life_s)
        means = {}
        for resource in {*self._mean, *used}:
            above = max(0, used.get(resource, 0) - deserved.get(resource, 0))
            mean = self._mean.get(resource, 0.0) * decay + above * (1 - decay)
            if mean > _NEGLIGIBLE:
                means[resource] = mean
        self._mean = means

    def of(self, resource: str) -> float:
        return self._mean.get(resource, 0.0)
