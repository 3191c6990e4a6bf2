"""What starting on a model costs, compared with a count of seats node by node; and for whom there is a choice."""

import random
from collections.abc import Sequence

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import PodSpec
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.goodput import SpeedCurve, curve
from central.scheduler.elastic.model_choice import ModelChoices, _Candidate, _ChosenModel
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.state.gangs import Gang, GangKey
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from tests.central.scheduler.elastic.test_autoscaler import rigid
from tests.central.scheduler.elastic.test_model_choice import FAST, SLOW, job, on
from tests.experiments.elastic import Json

CPU = 8  # of a node; each pod has 1, and nothing else is scarce


class Compared(ModelChoices):
    """Counts anew what each choice was made by."""

    def __init__(self, headroom: float) -> None:
        super().__init__(headroom)
        self.share_free = headroom
        self.gangs: Sequence[ElasticGang] = ()
        self.coming: dict[
            GangKey, tuple[ElasticGang, frozenset[str], float]
        ] = {}  # who chose, and what
        self.wrong: list[tuple[object, ...]] = []  # a failure here would only leave the choice out
        self.compared = self.beside_newcomers = self.without_a_seat = 0

    def look(self, gangs: Sequence[ElasticGang]) -> None:
        super().look(gangs)
        self.gangs = gangs
        several = {gang.key for gang in gangs if gang.task.speeds and gang.task.speeds.by_model}
        for gang in gangs:
            free_to_choose = gang.key in several and not any(
                pod.node for pod in gang.placed.values()
            )
            if self.concerns(gang.gang) != free_to_choose:
                self.wrong.append((gang.key, free_to_choose))
            if not free_to_choose:
                self.coming.pop(gang.key, None)

    def _choose(
        self, context: PreemptionContext, elastic: ElasticGang, spec: PodSpec
    ) -> _ChosenModel | None:
        found = super()._choose(context, elastic, spec)
        if found is not None:
            self.coming[elastic.key] = elastic, frozenset(found.models), found.until
        return found

    def _cost(
        self,
        context: PreemptionContext,
        gang: Gang,
        spec: PodSpec,
        candidate: _Candidate,
        slowest: float,
    ) -> float | None:
        found = super()._cost(context, gang, spec, candidate, slowest)
        if context.reservations:  # which take seats as well, in their own tests
            return found
        expected = self._counted(context, gang, spec, candidate, slowest)
        if found != (expected if expected is None else pytest.approx(expected, rel=1e-6)):
            self.wrong.append((gang.key, sorted(candidate.models), found, expected))
        self.compared += 1
        self.without_a_seat += found is None
        return found

    def _counted(
        self,
        context: PreemptionContext,
        gang: Gang,
        spec: PodSpec,
        candidate: _Candidate,
        slowest: float,
    ) -> float | None:
        state = context.state
        nodes = {
            name
            for name, node in state.nodes.items()
            if node.seen is not None
            and node.seen.labels["nvidia.com/gpu.product"] in candidate.models
        }
        used = [pod for pod in state.pods.values() if pod.node in nodes and pod.alive]
        there = [
            each
            for each in self.gangs
            if each.placed
            and each.spec == spec
            and not each.ending
            and {pod.node for pod in each.placed.values()} <= nodes
            and each.started
        ]
        members = sum(len(each.placed) for each in there)
        free = CPU * len(nodes) - len(used)
        kept = -int(-CPU * len(nodes) * self.share_free // 1)
        coming = [
            other
            for key, (other, models, until) in self.coming.items()
            if key != gang.key and models & candidate.models and state.now < until
        ]
        self.beside_newcomers += bool(coming)
        least = candidate.task.least + sum(each.task.least for each in (*there, *coming))
        seats = free - kept + members - least
        if seats < 0:
            return None
        own = curve(candidate.task)
        worth = _worth_of_one_more([*(curve(each.task) for each in (*there, *coming)), own], seats)
        return min(
            harm / slowest + worth * size for size, harm in zip(own.sizes, own.harms, strict=True)
        )


def _worth_of_one_more(curves: list[SpeedCurve], seats: int) -> float:
    """By how much one more seat lowers the least sum of harms, each in units of that at the least size."""
    least = [0.0] * (seats + 2)  # with so many seats beside the least sizes
    for one in curves:
        least = [
            min(
                least[have - (size - one.sizes[0])] + harm / one.harms[0]
                for size, harm in zip(one.sizes, one.harms, strict=True)
                if size - one.sizes[0] <= have
            )
            for have in range(seats + 2)
        ]
    return least[seats] - least[seats + 1]


def drawn(dice: random.Random) -> list[Json]:
    """Gangs that come one by one or together, of two kinds of pods, on some nodes of two models."""
    models = [FAST] * dice.randint(1, 2) + [SLOW] * dice.randint(1, 2)
    documents = [on(model, index, CPU) for index, model in enumerate(models)]
    for index in range(dice.randint(4, 8)):
        at_s = dice.choice((0.0, 1.0, 100.0, 100.0, 101.0))
        name, least = f"e{index}", dice.randint(1, 3)
        if dice.random() < 0.2:
            documents.append(rigid(name, least, at_s))
            continue
        slow, fast, gain = dice.uniform(1.5, 8), dice.uniform(1.5, 8), dice.uniform(0.5, 10)
        speed = f"{least}:1 8:{slow:.2f}"
        if dice.random() < 0.8:
            speed += f" A100={least}:{gain:.2f} A100=8:{gain * fast:.2f}"
        gang = job(name, speed, at_s, least, most=dice.randint(least + 1, 8))
        if dice.random() < 0.2:
            [task] = gang["spec"]["tasks"]
            [container] = task["template"]["spec"]["containers"]
            container["resources"]["requests"]["memory"] = "2Gi"
        documents.append(gang)
    return documents


@pytest.mark.long
@pytest.mark.parametrize("headroom", [0.0, 0.2])
def test_the_cost_of_a_model_is_what_its_seats_are_worth_to_those_there(headroom: float) -> None:
    counts = [0, 0, 0]
    for seed in range(30):
        documents = drawn(random.Random(seed))
        placed = [(SourceLocation("t", index), raw) for index, raw in enumerate(documents)]
        scheduler = new_scheduler((), elastic_headroom=headroom)
        scheduler.elastic.models = compared = Compared(headroom)
        read = scenario.read(placed, ("lockstep",), ())
        Simulation(read, scheduler, seed=seed, until_s=200.0).run()
        assert compared.wrong == [], seed
        assert not scheduler.quarantine.total
        each = compared.compared, compared.beside_newcomers, compared.without_a_seat
        counts = [sum(pair) for pair in zip(counts, each, strict=True)]
    assert min(counts) > 5, counts
