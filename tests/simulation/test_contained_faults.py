"""Busy days in which any function of the scheduler or of the controllers may raise at any time: no half change
remains, and everybody is served in the end."""

import os

import pytest

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import cycle, rebuild
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central.scheduler.invariants import check_invariants
from tests.simulation import test_days_of_jobs
from tests.simulation.busy_day import TODAYS, Day, Size
from tests.simulation.injected_bugs import Injector
from tests.simulation.test_busy_days import assert_healed

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "3"))


class FaultyDay(Day):
    def __init__(self, seed: int, size: Size) -> None:
        super().__init__(seed, size)
        self._injector = Injector("/central/scheduler/", seed, 10_000)
        self.bugs: list[str] = []
        self._stopped = False  # whether a bug was in the last cycle

    def schedule(self, facts: list[Fact], now: float) -> list[Decision]:
        if now >= self.size.faults_end:
            return schedule_once(self.cluster, facts, now)
        known = len(self._injector.where)
        decisions = self._injector.call(lambda: schedule_once(self.cluster, facts, now))
        self.bugs += [f"{now:g} s: {where}" for where in self._injector.where[known:]]
        self._stopped = len(self._injector.where) > known
        return decisions

    def check_reasons(self) -> None:
        """A cycle that a bug stopped leaves the numbers of the one before. They stay until those whose turn was still
        to come have been tried again."""
        if not (self._stopped or self.cluster.state.pending.retrying):
            super().check_reasons()


# A bug in the end of a generator that nobody reads on has nobody to reach: Python says so, and goes on.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_a_day_with_bugs_everywhere(seed: int) -> None:
    assert_contained(seed, TODAYS)


def assert_contained(seed: int, size: Size) -> None:
    """Lives a day with bugs: no half change remains, and everybody is served in the end."""
    day = FaultyDay(seed, size)
    for now in range(size.faults_end):
        try:
            day.step(now, faults=True)
        except AssertionError as error:
            raise AssertionError(f"after {day.bugs[-3:]}: {error}") from error
    assert len(day.bugs) > 20
    for now in range(size.faults_end, 6000, 10):
        day.step(now, faults=False)
        if not day.cluster.state.pending.waiting and not day.ends:
            break
    assert_healed(day)


def test_a_state_that_is_built_again_is_the_same() -> None:
    day, plans = Day(5), 0
    for now in range(60):
        day.step(now, faults=True)
        if now % 7 == 0:
            before, planned = facts_of(day), planned_nics(day)
            rebuild.rebuild(day.cluster)
            assert facts_of(day) == before
            assert planned_nics(day) == planned
            plans += sum(map(len, planned.values()))
    check_invariants(day.cluster)
    assert plans


def planned_nics(day: Day) -> dict[str, dict[tuple[str, str, str], tuple[str, ...]]]:
    return {name: dict(node.planned_nics) for name, node in day.cluster.state.nodes.items()}


def facts_of(day: Day) -> dict[str, tuple[object, ...]]:
    return {
        uid: (pod.seen, pod.node, pod.gpus, pod.life.stage, pod.life.observed)
        for uid, pod in sorted(day.cluster.state.pods.items())
    }


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_a_day_of_jobs_with_bugs_in_the_controllers(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    injector, day = Injector("/central/controllers/", seed, 300), test_days_of_jobs.Day(seed)

    def schedule(scheduler: Scheduler, facts: list[Fact], now: float) -> list[Decision]:
        if not day.faults:
            return schedule_once(scheduler, facts, now)
        return injector.call(lambda: schedule_once(scheduler, facts, now))

    monkeypatch.setattr(cycle, "schedule_once", schedule)
    day.live()
    api = day.api
    for _ in range(400):  # the longest backoff of what was set aside is an hour
        day.kubelets()
        day.resume()
        api.step(30.0)
    assert len(injector.where) > 20
    assert not {
        name: api.status(name)
        for name in api.names("Job")
        if api.phase(name) not in test_days_of_jobs.FINISHED
    }
