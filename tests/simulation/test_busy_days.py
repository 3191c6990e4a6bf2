"""Seeded busy days. Safety holds at every step; when nothing breaks any more, every gang gets its
turn. A day counts what it exercised, because a day without faults proves nothing."""

import os

import pytest

from central.model.facts import GangGone
from central.scheduler.apply import apply
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.simulation.busy_day import SHORT, TODAYS, Day, broken, live

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "4"))  # make sim runs more
EXERCISED = {
    "queue changed",
    "bound",
    "bind failed",
    "other GPUs",
    "waits",
    "node lost",
    "reserved",
    "made room",
    "rules",
    "subgroups",
    "roles",
    "shares",
    "slices",
    "sure",
    "limits",
    "other card",
    "volumes",
}


def assert_healed(day: Day) -> None:
    """Every gang had its turn, and nothing is left of any."""
    pending = day.cluster.state.pending.waiting.values()
    assert not [f"{gang.name}: {gang.attempt.reason}" for gang in pending]
    assert all(pod.phase == "Succeeded" for pod in day.pods.values())
    for name in sorted({gang for *_, gang in day.cluster.state.gangs}, key=str):
        apply(day.cluster, GangGone("ns", str(name)))
    check_invariants(day.cluster)


@pytest.mark.timeout(240)  # on a machine that is busy with other things
@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.slow if seed else ()) for seed in range(DAYS)]
)
def test_a_day_that_breaks_and_heals(seed: int) -> None:
    day = live(seed, TODAYS)
    assert_healed(day)
    assert TODAYS is SHORT or {name for name, times in day.seen.items() if times} >= EXERCISED


def quiet_day() -> Day:
    """All nodes are up, and no gang arrives but the test's."""
    day = Day(0)
    for now in range(150, 153):
        day.step(now, faults=False)
    return day


def arrive(day: Day, name: str, pods: int, *, priority: int = 0, minimum: int = 0) -> None:
    """A gang of pods with 8 GPUs each, at the next step."""
    apply(day.cluster, factories.gang(name, minimum or pods, created=float(day.now)))
    day.remade[day.now + 1] = [
        factories.pod(
            f"{name}-{rank}",
            8,
            gang=name,
            labels=(("app", name),),
            created=float(day.now),
            priority=priority,
        )
        for rank in range(pods)
    ]


def test_a_budget_is_asked_before_a_pod_is_evicted() -> None:
    day = quiet_day()
    day.budgets["low"] = 8
    arrive(day, "low", 8, minimum=1)
    day.step(day.now + 1, faults=False)
    assert day.seen["bound"] == 8
    arrive(day, "urgent", 1, priority=5)
    while not day.seen["evicted"]:
        day.step(day.now + 1, faults=False)
        assert day.now < 158, "the first of the others ends by itself"
    assert day.seen["asked"]
    day.step(day.now + 1, faults=False)
    assert day.pods["uid-urgent-0"].phase == "Running"


def test_a_gang_that_cannot_be_completed_is_undone() -> None:
    day = quiet_day()
    day.unlucky = {"half-1"}
    arrive(day, "half", 2)
    day.step(day.now + 1, faults=False)
    assert (day.seen["bound"], day.seen["bind failed"]) == (1, 1)
    day.ends = dict.fromkeys(day.ends, 400)  # the member that is bound runs for long
    while not day.seen["evicted"]:
        day.step(day.now + 1, faults=False)
        assert day.now < 190, "the lost member is made again only then"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_same_seed_same_story() -> None:
    assert broken(3, TODAYS).trace == broken(3, TODAYS).trace
