"""Who grows next, and when: pools in turn, holds, seats that settle, needs that surplus alone does not serve."""

import pytest

from central.controllers.composite import new_scheduler
from central.scheduler.apply import apply
from central.scheduler.elastic.autoscaler import SETTLE_S, Autoscaler
from central.scheduler.elastic.pools import Pool
from central.scheduler.elastic.resize_history import ResizeHistory
from central.scheduler.state.gangs import Gang, GangKey
from tests.central import factories
from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, priority, rigid, sizes
from tests.central.scheduler.elastic.test_gain import gang
from tests.experiments.elastic import Json, simulate, template

KEY: GangKey = ("ns", "g", True)


def ends(job: Json, after_s: float) -> Json:
    notes = job["spec"]["tasks"][0]["template"]["metadata"]["annotations"]
    notes["lockstep.dev/runs-for"] = f"{after_s:g}s"
    return job


def wide(name: str, most: int, at_s: float) -> Json:
    """Members of 2 CPU."""
    job = elastic(name, 1, most, at_s)
    job["spec"]["tasks"][0]["template"] = template(2.0, "1Gi", 2.0)
    return job


@pytest.mark.parametrize(("most_of_y", "expected"), [(4, [4, 2]), (2, [4, 2]), (1, [6, 1])])
def test_the_pool_with_the_least_surplus_grows_first(most_of_y: int, expected: list[int]) -> None:
    """Two seats of 1 CPU become free, or one of 2 CPU. x is first in line and has 4 of 1 to 16 members."""
    story = [machine(0), ends(rigid("r", 2, 0.0), 98.0), elastic("x", 1, 16, 5.0)]
    run = simulate([*story, wide("y", most_of_y, 50.0)], 300)
    assert sizes(run, "x", "y", at_s=95) == [4, 1]
    assert sizes(run, "x", "y", at_s=200) == expected


def test_what_surplus_does_not_serve_is_served_by_preemption_at_once() -> None:
    """Surplus of two seats is less than four, and with a rigid Job of less priority it is enough."""
    story = [machine(0), priority("high", 9), rigid("r", 5, 0.0), elastic("e", 1, 3, 5.0)]
    run = simulate([*story, rigid("h", 4, 100.0, priorityClassName="high")], 300)
    assert sizes(run, "r", "e", "h", at_s=99) == [5, 3, 0]
    assert sizes(run, "h", at_s=104) == [4]


@pytest.mark.parametrize("late_s", [0.0, 1.0])
def test_a_gang_may_change_when_its_hold_is_over(late_s: float) -> None:
    scaler, held = Autoscaler(), gang("g", 3, hold_s=60.0, cost_s=1.0)
    scaler.histories[held.key] = ResizeHistory(0.0, last=1000.0)
    assert scaler._ready([held], 1059.0) == []
    assert scaler.due() == [1060.0]
    assert scaler._ready([held], 1060.0 + late_s) == [held]


def test_a_gang_whose_members_have_not_started_is_not_ready() -> None:
    scaler, held = Autoscaler(), gang("g", 3)
    scaler.histories[held.key] = ResizeHistory(0.0)
    held.unready = {0: "ImagePullBackOff"}
    assert scaler._ready([held], 1000.0) == []
    assert scaler.due() == []


def settled(
    free: int, *waiting: str, at: tuple[float, ...] = (100.0,)
) -> tuple[list[bool], Autoscaler]:
    """Of the pool of gang g, while these gangs wait."""
    made, scaler = new_scheduler(), Autoscaler()
    own = gang("g", 2)
    for name in waiting:
        key = ("ns", name, True)
        made.state.pending.waiting[key] = Gang(key)
    pool = Pool(factories.spec(), [own], free=free)
    return [scaler._settled(made.preemption, pool, now) for now in at], scaler


def test_seats_are_given_at_once_if_nobody_else_waits() -> None:
    found, scaler = settled(3, "g")
    assert (found, scaler.due()) == ([True], [])


def test_nothing_settles_where_nothing_is_free() -> None:
    found, scaler = settled(0, "g", "other")
    assert (found, scaler.due()) == ([True], [])


def test_free_seats_settle_while_others_wait() -> None:
    at = (100.0, 109.9, 100.0 + SETTLE_S)
    found, scaler = settled(3, "other", at=at)
    assert (found, scaler.due()) == ([False, False, True], [100.0 + SETTLE_S])


def test_no_seats_are_settled_while_a_pod_leaves() -> None:
    made, scaler = new_scheduler(), Autoscaler()
    apply(made, factories.node("n"))
    apply(made, factories.pod("p", node="n", phase="Running", deleting=True))
    pool = Pool(factories.spec(), [gang("g", 2)], free=3)
    assert not scaler._settled(made.preemption, pool, 100.0)
    assert scaler.due() == []
