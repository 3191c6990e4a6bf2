"""Random days of elastic Jobs: Jobs come and go, services breathe, rigid gangs wait, nodes come and vanish. What
may cost no Job more than its budget, and what nobody may wait for, is computed here from what happened."""

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import pytest

from central.controllers.composite import new_scheduler
from central.scheduler.scheduler import Scheduler
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation import Simulation
from central.simulator.simulation_result import SimulationResult
from tests.central.scheduler.invariants import check_invariants
from tests.experiments.elastic import Json, service, template
from tests.experiments.pollux.workload import PRODUCT

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "3"))
FIRST_DAY = int(os.environ.get("LOCKSTEP_FIRST_DAY", "0"))
DAY_S = 3600.0
BUDGET, START_S = 0.05, 10.0
GAIN = ("its share is smaller", "there is room for more", "faster on one node")


@dataclass(frozen=True, slots=True)
class Range:
    least: int
    most: int
    step: int
    cost_s: float

    @property
    def hold_s(self) -> float:
        return max(10.0, 20 * self.cost_s)


class Day:
    """models: nodes have GPUs of two models, and Jobs say how fast they are on both."""

    def __init__(self, seed: int, *, models: bool = False) -> None:
        self.dice = random.Random(seed)
        self.speed_dice = random.Random(seed + 1)
        self.model_dice = random.Random(seed + 2)
        self.models = ("A100", "T4") if models else ()
        self.ranges: dict[str, Range] = {}
        self.checked = 0  # moments at which a service waited
        documents = [*self._classes(), *self._nodes(), *self._jobs(), *self._service()]
        placed = [(SourceLocation("day", index), raw) for index, raw in enumerate(documents)]
        read = scenario.read(placed, ("lockstep",), ())
        self.scheduler = new_scheduler()
        self.simulation = Simulation(read, self.scheduler, seed=seed, until_s=DAY_S)

    def live(self) -> SimulationResult:
        return self.simulation.run(self._look)

    def _look(self, simulation: Simulation) -> None:
        check_invariants(simulation.scheduler)
        for name, request in waiting_services(simulation.scheduler):
            self.checked += 1
            assert not could_be_served(simulation.scheduler, request), (
                f"{name} waits at {simulation.now} s, nobody leaves, and surplus would do"
            )

    # --- what happens ------------------------------------------------------------

    def _classes(self) -> Iterator[Json]:
        for name, value in (("batch", 1), ("online", 9)):
            yield {
                "apiVersion": "scheduling.k8s.io/v1",
                "kind": "PriorityClass",
                "metadata": {"name": name},
                "value": value,
            }

    def _nodes(self) -> Iterator[Json]:
        dice = self.dice
        for index in range(dice.randint(3, 6)):
            times = {}
            if dice.random() < 0.3:
                times["lockstep.dev/arrives-at"] = f"{dice.randint(0, 2000)}s"
            if dice.random() < 0.2:
                times["lockstep.dev/leaves-at"] = f"{dice.randint(2001, 3500)}s"
            yield {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": f"n{index}", "annotations": times, "labels": self._model()},
                "status": {"allocatable": {"cpu": "16", "memory": "64Gi", "pods": "50"}},
            }

    def _model(self) -> dict[str, str]:
        return {PRODUCT: self.model_dice.choice(self.models)} if self.models else {}

    def _jobs(self) -> Iterator[Json]:
        dice = self.dice
        for index in range(dice.randint(2, 6)):
            name, step = f"j{index}", dice.choice((1, 1, 2))
            least = dice.randint(1, 4)
            given = Range(least, least + step * dice.randint(0, 10), step, dice.choice((1, 5, 30)))
            self.ranges[name] = given
            times = {
                "lockstep.dev/arrives-at": f"{dice.randint(0, 2500)}s",
                "lockstep.dev/resize-cost": f"{given.cost_s:g}s",
            }
            objective = self.speed_dice.choice(("even", "even", "fill", "goodput"))
            if self.speed_dice.random() < 0.5:
                times["lockstep.dev/speed"] = self._speeds(given)
            if dice.random() < 0.4:
                times["lockstep.dev/leaves-at"] = f"{dice.randint(2600, 3500)}s"
            grace_s = dice.choice((0, 5, 20))
            task = {
                "name": "w",
                "replicas": given.most,
                "minAvailable": given.least,
                "template": template(dice.choice((2, 2, 3, 4)), "1Gi", grace_s),
            }
            yield {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "metadata": {"name": name, "namespace": "default", "annotations": times},
                "spec": {
                    "schedulerName": "lockstep",
                    "priorityClassName": "batch",
                    "plugins": {"elastic": [f"--step={step}", f"--objective={objective}"]},
                    "tasks": [task],
                },
            }

    def _speeds(self, given: Range) -> str:
        """Some are as fast on several nodes, others far slower."""
        dice = self.speed_dice
        apart = dice.choice((1.0, 0.8, 0.3))
        known = []
        speed = 1.0
        for size in range(1, max(given.most, 2) + 1):
            known += [f"{size}/1:{speed:.4f}", f"{size}/2:{apart * speed:.4f}"]
            speed += dice.uniform(0.0, 1.0)
        if self.models:
            faster = self.model_dice.choice((0.5, 1.2, 3.0, 10.0))
            known += [f"A100=1:{faster}", f"A100={max(given.most, 2)}:{faster * speed:.4f}"]
        return " ".join(known)

    def _service(self) -> Iterator[Json]:
        dice, cpu = self.dice, self.dice.choice((1, 3, 5))
        for index in range(dice.randint(0, 8)):
            at_s = float(index * 400 + dice.randint(0, 300))
            yield service("web", dice.randint(0, 8), at_s, template(cpu, "1Gi", 1.0))


def waiting_services(scheduler: Scheduler) -> Iterator[tuple[str, int]]:
    """Names and CPU of pods of the service without a node."""
    for pod in scheduler.state.pods.values():
        if pod.seen.name.startswith("web") and pod.waiting:
            yield pod.seen.name, dict(pod.spec.requests)["cpu"]


def could_be_served(scheduler: Scheduler, request: int) -> bool:
    """Whether some node would have the CPUs without surplus members on it, though no pod leaves."""
    state = scheduler.state
    if any(pod.node and pod.leaving for pod in state.pods.values()):
        return False
    spare: dict[tuple[str, str], int] = {}
    for pod in state.pods.values():
        part = pod.seen.part
        if part is not None and pod.node and pod.alive:
            key = (pod.seen.namespace, part.job)
            spare[key] = spare.get(key, 0) + 1
    for (_, name), job in scheduler.controllers.jobs.by_name.items():  # type: ignore[attr-defined]
        spare["default", name] = spare.get(("default", name), 0) - job.seen.spec.elastic.least
    for node in state.nodes.values():
        free = dict(node.seen.allocatable)["cpu"] if node.seen is not None else 0
        given = dict(spare)
        for pod in node.pods.values():
            part = pod.seen.part
            key = (pod.seen.namespace, part.job if part is not None else "")
            if not pod.alive:
                continue
            if given.get(key, 0) > 0:
                given[key] -= 1
            else:
                free -= dict(pod.spec.requests)["cpu"]
        if free >= request:
            return True
    return False


def started_at(result: SimulationResult, name: str, least: int) -> float:
    have = 0.0
    for at, job, change in result.ran:
        have += change if job == f"default/{name}" else 0
        if have >= least:
            return at
    return DAY_S


def assert_budget_is_kept(result: SimulationResult, name: str, given: Range) -> None:
    """Seats that it gives so that another Job comes onto one node cost it too, but it may grow again at once."""
    start = started_at(result, name, given.least)
    own = [
        resized
        for resized in result.resized
        if resized.name == name and resized.at_s > start + START_S
    ]
    changes = [resized.at_s for resized in own if resized.reason in GAIN]
    gifts = [resized.at_s for resized in own if resized.reason.endswith("on one node")]
    for number, at_s in enumerate(sorted({*changes, *gifts}), 1):
        spent = number * given.cost_s
        assert spent <= BUDGET * (at_s - start) + 1e-6, f"{name} has lost {spent} s at {at_s}"
    for before, after in pairwise(changes):
        assert after - before >= given.hold_s - 1e-6, f"{name} changed at {before} and {after}"


@pytest.mark.parametrize("seed", range(FIRST_DAY, FIRST_DAY + DAYS))
def test_day(seed: int) -> None:
    assert_sizes_kept(seed)


@pytest.mark.parametrize("seed", range(FIRST_DAY, FIRST_DAY + DAYS))
def test_a_day_of_two_gpu_models(seed: int) -> None:
    assert_sizes_kept(seed, models=True)


def test_a_hold_begins_when_the_change_happens() -> None:
    """Not when others were asked to make room for it."""
    assert_sizes_kept(1883)


def test_a_change_that_is_decided_in_the_start_and_happens_later_is_paid_for() -> None:
    """Others leave in the first ten seconds of a gang, so that it comes onto one node: after that it needs its
    budget."""
    assert_sizes_kept(30183)


def assert_sizes_kept(seed: int, *, models: bool = False) -> None:
    """Lives a day of elastic Jobs: sizes stay in range, and changes within the budget."""
    day = Day(seed, models=models)
    result = day.live()
    for name, given in day.ranges.items():
        assert_budget_is_kept(result, name, given)
        sizes = [resized.members for resized in result.resized if resized.name == name]
        assert all(given.least <= size <= given.most for size in sizes), (name, sizes)


@pytest.mark.slow
def test_days_have_what_they_are_for() -> None:
    """Growth, shrinking for an even share and for needs, gathering, losses, and services that wait occur."""
    reasons: list[str] = []
    waited = 0
    for seed in (0, 1, 2, 3, 25, 41):
        day = Day(seed)
        reasons += [resized.reason for resized in day.live().resized]
        waited += day.checked
    assert waited
    for kind in (*GAIN, "room for ", "lost"):
        assert any(kind in reason for reason in reasons), kind
