"""Measures how fast a Job trains with so many members on so many nodes, by reports of steps alone.

Records count where processes report them, else steps. What stops a Job for a while, such as a checkpoint or an
evaluation, counts as well, so that a speed is what the Job really does there.

Design: docs/design/elastic-speeds.md
"""

from central.controllers.training.generation import Generation, SizePlan
from central.model import limits
from central.model.json_types import Json, ReadOnlyJson

SPAN_S, STEPS = 20.0, 5  # of one measurement, at least
_WEIGHT = 0.3  # of the newest measurement in the mean
_NEWS = 0.05  # a speed that changed by less is reported as before


class MeasuredSpeeds:
    """told: what is reported, per second by members and nodes. Times by the coordinator's clock."""

    def __init__(self) -> None:
        self.told: dict[tuple[int, int], float] = {}
        self._means: dict[tuple[int, int], float] = {}
        self._generation = self._first = self._step = 0
        self._at = self._records = 0.0  # since when, and of all members since then

    def report(
        self, now: float, live: Generation, plan: SizePlan | None, step: int, records: float
    ) -> None:
        """A member of the live generation has taken so many steps, and so many records since its last report."""
        if live.number != self._generation:
            self._generation, self._step = live.number, step
            self._begin(now)  # the first step of a generation is not like the others
            return
        self._step, self._records = max(self._step, step), self._records + records
        steps, span_s = self._step - self._first, now - self._at
        if steps < STEPS or span_s < SPAN_S:
            return
        place = (len(live.processes), _nodes(live, plan))
        found = (self._records or steps) / span_s
        mean = self._means.pop(place, found)
        self._means[place] = mean = mean + _WEIGHT * (found - mean)  # the newest place last
        if abs(mean - self.told.get(place, 0.0)) > _NEWS * mean:
            self.told[place] = float(f"{mean:.3g}")
        if len(self._means) > limits.MEASURED_SPEEDS:
            oldest = next(iter(self._means))
            del self._means[oldest], self.told[oldest]
        self._begin(now)

    def _begin(self, now: float) -> None:
        self._first, self._at, self._records = self._step, now, 0.0

    def snapshot(self) -> Json:
        return {"told": [[*place, per_s] for place, per_s in self.told.items()]}

    @classmethod
    def restore(cls, data: ReadOnlyJson) -> "MeasuredSpeeds":
        made = cls()
        made.told = {(int(size), int(nodes)): float(per_s) for size, nodes, per_s in data["told"]}
        made._means = dict(made.told)
        return made


def _nodes(live: Generation, plan: SizePlan | None) -> int:
    """Returns on how many nodes the members are; one whose node is unknown counts as being alone."""
    places = plan.places if plan is not None else {}
    found = set()
    for one in live.processes:
        place = places.get(one.member)
        found.add(place.path[-1] if place and place.path else one.node or f"{one.member}")
    return len(found)
