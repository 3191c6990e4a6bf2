"""What one pass does for gangs that do not fit: claims beside a quota, what their start gives back, and better
places."""

from dataclasses import replace
from math import inf

import pytest

from central.model.facts import Fact, PodSeen, QueueSeen
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reserved_capacity import REPLAN_S
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def limited(gpus: int) -> QueueSeen:
    return QueueSeen("q", capability=((GPU, gpus),))


def claiming(*more: Fact, nodes: int = 1) -> World:
    """Queue q has all of its 4 GPUs in two gangs. An urgent gang of 2 GPUs evicts the younger one, though capacity is
    free."""
    world = World(*(factories.node(f"n{i}") for i in range(nodes)), limited(4), *more)
    world.step(1.0, *job("old", 1, 2, queue="q"))
    world.step(1.5, *job("young", 1, 2, queue="q", created=1.5))
    world.step(10.0, *job("urgent", 1, 2, queue="q", priority=5, created=10.0))
    assert world.evicted == ["young-0"]
    return world


def free_something(world: World, now: float, node: str) -> list[str]:
    """A pod ends there, so that gangs that were refused are tried again. What was bound."""
    tick = factories.pod(f"tick-{now:.0f}", 0, node=node, phase="Running", started=now - 1.0)
    bound = world.step(now - 0.5, tick)
    return bound + world.step(now, replace(tick, phase="Succeeded"))


def held(world: World, name: str) -> Reservation:
    [found] = [each for each in world.cluster.reservations.values() if each.gang.name == name]
    return found


def test_who_lacks_quota_waits_for_its_victims_and_evicts_no_others() -> None:
    world = claiming()
    first = held(world, "urgent")
    for now in (11.0, 12.0, 13.5, 14.5):
        assert free_something(world, now, "n0") == []
        assert held(world, "urgent") is first
        assert world.evicted == ["young-0"]
    assert world.step(15.0) == ["urgent-0"]
    assert not world.cluster.reservations
    assert world.evicted == ["young-0"]


@pytest.mark.parametrize("at_s", [11.0, 15.0])
def test_a_quota_that_shrinks_under_a_claim_costs_one_more_victim(at_s: float) -> None:
    """It does so while the first victim terminates, or as it goes. As long as it terminates, nobody else is evicted."""
    world = claiming()
    if at_s < 15.0:
        world.step(at_s, limited(2))
        assert world.evicted == ["young-0"]
        world.step(15.0)
    else:
        world.step(at_s, limited(2))
    assert world.evicted == ["young-0", "old-0"]
    assert world.step(21.0) == ["urgent-0"]


@pytest.mark.parametrize("size", [1, 2])
def test_a_claim_for_another_request_is_made_again(size: int) -> None:
    """The gang gets a second member while the victim of the first terminates, or its objects change in nothing."""
    world = claiming()
    world.step(11.0, *job("urgent", size, 2, queue="q", priority=5, created=10.0))
    kept = [
        count for each in world.cluster.reservations.values() for _, count in each.request.groups
    ]
    assert kept == [size]
    started = [name for now in (15.0, 16.0, 21.0, 22.0) for name in world.step(now)]
    assert started == [f"urgent-{i}" for i in range(size)]
    assert world.evicted == ["young-0", "old-0"][:size]


def test_a_place_that_is_lost_is_claimed_again_though_victims_terminate() -> None:
    """The node of the victim, where the claim has its place, is cordoned; on the other node is the other gang."""
    world = World(*(factories.node(f"n{i}", gpus=2) for i in range(2)), limited(4))
    world.step(1.0, *job("a", 1, 2, queue="q"), *job("b", 1, 2, queue="q"))
    world.step(10.0, *job("urgent", 1, 2, queue="q", priority=5, created=10.0))
    [first] = world.evicted
    place = world.running[f"uid-{first}"].node
    world.step(11.0)
    assert world.evicted == [first]
    world.step(12.0, factories.node(place, gpus=2, ready=False))
    assert sorted(world.evicted) == ["a-0", "b-0"]
    assert world.step(17.0) == ["urgent-0"]
    assert world.running["uid-urgent-0"].node != place


def test_who_no_victims_help_keeps_no_reservation() -> None:
    """The victim has gone, and the queue is closed to all that the gang needs."""
    world = claiming()
    world.step(15.0, limited(1))
    assert not world.cluster.reservations
    world.step(20.0, limited(2))
    assert world.step(26.0) == ["urgent-0"]


def test_a_claim_beside_a_quota_leaves_what_is_reserved_for_others() -> None:
    """Two GPUs of the first node are free, and kept for a gang whose victim there takes its time; queue q lacks quota
    alone."""
    world = World(factories.node("n0"), factories.node("n1", gpus=2), limited(2), QueueSeen("p"))
    slow = factories.pod("slow", 6, node="n0", queue="p", phase="Running")
    low = factories.pod("low", 2, node="n1", queue="q", phase="Running")
    world.step(1.0, slow, low)
    world.step(2.0, *job("wide", 1, 8, queue="p", priority=5, created=2.0))
    assert world.evicted == ["slow"]
    world.leaving["uid-slow"] = 100.0
    world.step(10.0, *job("urgent", 1, 2, queue="q", priority=5, created=10.0))
    assert world.evicted == ["slow", "low"]
    rows = world.cluster.state.snapshot.columns.row
    assert [*held(world, "urgent").place.rows] == [rows["n1"]]
    assert world.step(16.0) == ["urgent-0"]
    assert world.running["uid-urgent-0"].node == "n1"
    assert world.step(100.0) == ["wide-0"]


def test_a_gang_that_gets_what_its_victims_left_leaves_it_to_whom_it_is_owed() -> None:
    """Queue b gets its half before the binding is sent, so that nobody is placed and evicted by one state."""
    world = World(factories.node("n"), QueueSeen("a"), QueueSeen("b"), half_life_s=0.0)
    world.step(1.0, *job("old", 1, 8, queue="a"))
    world.step(2.0, *job("next", 1, 8, queue="a", created=2.0, priority=5))
    assert world.evicted == ["old-0"]
    assert world.step(3.0, *job("owed", 1, 4, queue="b", created=3.0)) == []
    assert [world.step(now) for now in (7.0, 8.0, 9.0, 20.0)] == [[], ["owed-0"], [], []]
    assert world.evicted == ["old-0"]


@pytest.mark.parametrize("limit", [8, 4], ids=["of the node", "of the queue"])
def test_a_gang_grows_by_one_claim_at_a_time(limit: int) -> None:
    """It has its minimum, and evicts for each further member when the victim of the one before has gone."""
    world = World(
        factories.node("n", gpus=limit) if limit < 8 else factories.node("n"), limited(limit)
    )
    lows = limit // 2 - 1
    for number in range(lows):
        world.step(1.0, *job(f"low{number}", 1, 2, queue="q", created=float(number)))
    urgent = job("urgent", lows + 1, 2, least=1, queue="q", priority=5, created=2.0)
    started = world.step(2.0, *urgent)
    while len(started) <= lows:
        assert len(world.leaving) == 1, "nobody else is evicted for it before"
        now = min(world.leaving.values())
        first = held(world, "urgent")
        assert free_something(world, now - 2.0, "n") == []
        assert held(world, "urgent") is first
        started += world.step(now)
    assert sorted(started) == [f"urgent-{number}" for number in range(lows + 1)]
    assert len(world.evicted) == lows
    assert not world.cluster.reservations


def test_what_is_bound_in_a_pass_counts_for_the_start_of_a_reservation_in_it() -> None:
    """The first head has run times counted before anything is bound; the second one waits for what was bound since."""
    nodes = factories.node("big"), factories.node("small", gpus=4, rack="r")
    world = World(
        *nodes,
        *(QueueSeen(name, priority=9 - i, strict_priority=9 - i) for i, name in enumerate("abc")),
    )
    rock = factories.pod(
        "rock", 8, node="big", phase="Running", queue="a", runs_for_s=500.0, started=0.0
    )
    world.step(0.5, rock)
    facts = [
        *job("first", 1, 8, queue="a", created=1.0),
        *job("bound", 1, 4, 60.0, queue="b", created=1.0),
        *job("second", 1, 4, queue="c", created=1.0, rack="r"),
    ]
    assert world.step(1.0, *facts) == ["bound-0"]
    assert held(world, "first").start == pytest.approx(500.0)
    assert held(world, "second").start == pytest.approx(61.0)


def test_a_gang_that_starts_is_no_head_any_more() -> None:
    """Its second wait begins when its pods are pending again."""
    world = World(factories.node("n"))
    world.step(1.0, *job("rock", 1, 8, 50.0))
    world.step(2.0, *job("head", 1, 8, created=2.0))
    gang = held(world, "head").gang
    assert gang.preemption.head_since == 2.0
    assert world.step(51.0) == ["head-0"]
    standing = gang.preemption
    assert (standing.head_since, standing.latest_start, standing.overrun) == (None, inf, 1.0)
    assert not world.cluster.reservations


@pytest.mark.parametrize("ends_at_s", [30.0, 90.0])
def test_a_better_place_is_looked_for_now_and_then(ends_at_s: float) -> None:
    """What ends early on another node makes the gang's start earlier there, but only if the rest there ends before."""

    def running(name: str, gpus: int, node: str, runs_for_s: float) -> PodSeen:
        pod = factories.pod(name, gpus, node=node, phase="Running", started=0.0)
        return replace(pod, runs_for_s=runs_for_s)

    world = World(factories.node("one"), factories.node("two"))
    other = running("other", 4, "two", 200.0)
    world.step(0.5, running("rock", 8, "one", 60.0), running("rest", 4, "two", ends_at_s), other)
    world.step(1.0, *job("head", 1, 8, created=1.0))
    first = held(world, "head")
    assert first.start == pytest.approx(60.0)
    world.step(2.0, replace(other, phase="Succeeded"))
    assert held(world, "head") is first
    for now in (REPLAN_S, 1.0 + REPLAN_S):
        free_something(world, now, "two")
        assert held(world, "head") is first or now > REPLAN_S
    own = held(world, "head")
    assert (own is first) == (ends_at_s > 60.0)
    assert own.start == pytest.approx(min(ends_at_s, 60.0))
