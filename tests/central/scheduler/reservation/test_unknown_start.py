"""Where no run times are known, the wait of the head is weighed against GPUs that are held idle."""

import pytest

from central.model import defaults
from central.model.facts import Fact, QueueSeen
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def racks(count: int, nodes: int = 4) -> list[Fact]:
    return [factories.node(f"{r}{n}", rack=f"r{r}") for r in "abcd"[:count] for n in range(nodes)]


def a_rack_less_four_gpus(**terms: float) -> World:
    """Of two racks of 32 GPUs one is taken, of the other 4 GPUs. Nobody says how long."""
    world = World(*racks(2), **terms)
    world.step(0.0, *job("train", 4, topology_required=RACK), *job("chat", 1, gpus=4, created=0.5))
    world.step(1.0, *job("giant", 4, created=1.0, topology_required=RACK))
    assert "start time unknown (chat has no expected run time)" in world.told["giant"]
    return world


@pytest.mark.parametrize("now", [2.0, 59.0, 61.0, 700.0])
def test_a_small_job_starts_at_once_beside_a_head_without_a_known_start(now: float) -> None:
    world = a_rack_less_four_gpus(reserve_after_s=60.0, reserve_idle=0.25)
    world.step(now - 0.5)
    assert world.step(now, *job("first", 1, gpus=1, created=now)) == ["first-0"]


def test_by_default_a_head_holds_half_of_the_gpus_once_it_waited_for_two_hours() -> None:
    world = a_rack_less_four_gpus(
        reserve_after_s=defaults.RESERVE_AFTER_S, reserve_idle=defaults.RESERVE_IDLE
    )
    for now in (5.0, 7199.0):  # longer than --patience, and nothing is held
        assert len(world.step(now, *job(f"s{now:.0f}", 1, gpus=1, created=now))) == 1
    assert world.step(7201.0, *job("late", 1, gpus=1, created=7201.0)) == []
    (held,) = world.cluster.reservations.values()
    assert held.idle == 26


def test_at_most_the_share_is_held_idle_and_whole_nodes_first() -> None:
    """28 GPUs are free, a quarter of 64 is 16: two whole nodes. Twelve are for others."""
    world = a_rack_less_four_gpus(reserve_idle=0.25)
    (held,) = world.cluster.reservations.values()
    assert sorted(held.withheld[:, 0].tolist()) == [0, 0, 8, 8]
    small = [fact for n in range(13) for fact in job(f"s{n}", 1, gpus=1, created=2.0 + n)]
    assert len(world.step(20.0, *small)) == 12


@pytest.mark.parametrize(("days", "idle"), [(0.0, 16), (0.49, 16), (0.51, 24), (1.0, 28)])
def test_as_much_again_is_held_after_each_day(days: float, idle: int) -> None:
    """28 GPUs are free, and may be held when half of 64 may."""
    world = a_rack_less_four_gpus(reserve_idle=0.25)
    world.step(1.0 + days * 86400)
    (held,) = world.cluster.reservations.values()
    assert held.idle == idle


def test_nothing_is_held_before_reserve_after() -> None:
    world = a_rack_less_four_gpus(reserve_after_s=60.0, reserve_idle=1.0)
    small = job("small", 1, created=2.0)
    assert world.step(60.9, *small) == ["small-0"]
    assert world.step(61.0, *job("late", 1, created=61.0)) == []


def test_all_may_be_held_with_a_share_of_one() -> None:
    world = a_rack_less_four_gpus(reserve_idle=1.0)
    assert world.step(2.0, *job("small", 1, gpus=1, created=2.0)) == []


def test_two_heads_share_the_limit() -> None:
    queues = [QueueSeen("p"), QueueSeen("q")]
    world = World(*racks(3), *queues, reserve_idle=0.25)
    for number in range(3):
        world.step(0.0, *job(f"old{number}", 1, gpus=4, queue="p", topology_required=RACK))
        world.step(0.0, *job(f"own{number}", 3, topology_required=RACK, queue="q"))
    for name, queue in (("one", "p"), ("two", "q")):
        world.step(1.0, *job(name, 4, created=1.0, topology_required=RACK, queue=queue))
    assert len(world.cluster.reservations) == 2
    assert sum(held.idle for held in world.cluster.reservations.values()) <= 24


def test_a_queue_may_do_without_reservations() -> None:
    """Whatever fits starts, however long the head has waited."""
    world = World(*racks(1, 2), QueueSeen("best", reserves=False), patience_s=10.0)
    world.step(0.0, *job("old", 1, queue="best"))
    world.step(1.0, *job("big", 2, created=1.0, queue="best"))
    assert not world.cluster.reservations
    assert world.step(100.0, *job("small", 1, created=100.0, queue="best")) == ["small-0"]


def test_a_queue_that_stops_to_reserve_gives_up_what_it_holds() -> None:
    world = World(*racks(1, 2), QueueSeen("best"))
    world.step(0.0, *job("old", 1, queue="best"))
    world.step(1.0, *job("big", 2, created=1.0, queue="best"), *job("small", 1, created=2.0))
    assert len(world.cluster.reservations) == 1
    world.step(2.0, QueueSeen("best", reserves=False))
    assert not world.cluster.reservations


def test_work_that_the_head_may_evict_fills_what_is_held_for_it() -> None:
    world = World(*racks(1, 2), reserve_idle=1.0)
    world.lasts = {"old": 50.0}
    world.step(0.0, *job("old", 1, priority=5))
    world.step(1.0, *job("big", 2, created=1.0, priority=5))
    assert world.step(2.0, *job("equal", 1, created=2.0, priority=5)) == []
    assert world.step(3.0, *job("less", 1, created=3.0, priority=1)) == ["less-0"]
    world.step(50.0)
    assert world.evicted == ["less-0"]
    assert world.step(55.0) == ["big-0", "big-1"]


@pytest.mark.parametrize(("reserve_after_s", "rack"), [(1000.0, "rack rb"), (0.0, "rack ra")])
def test_a_head_that_holds_nothing_yet_goes_where_fewer_gpus_lack(
    reserve_after_s: float, rack: str
) -> None:
    """--patience is over. Only once something is held for it, the head waits for no pod that came later."""
    world = World(*racks(2, 2), patience_s=10.0, reserve_after_s=reserve_after_s)
    for name, node in (("a-long", "a0"), ("b-one", "b0"), ("b-two", "b1")):
        world.step(0.0, factories.pod(name, 8, node=node, phase="Running", ours=True))
    world.step(1.0, *job("big", 2, created=1.0, topology_required=RACK))
    (held,) = world.cluster.reservations.values()
    assert held.place.name == "rack ra"
    taken = factories.pod("other", 8, node="a1", phase="Running", started=20.0)
    newer = factories.pod("newer", 4, node="b1", phase="Running", started=20.0)
    world.step(20.0, taken, newer, *_ended("b-one", "b0"), *_ended("b-two", "b1"))
    world.step(40.0, factories.node("z", gpus=0))
    (held,) = world.cluster.reservations.values()
    assert held.place.name == rack


def _ended(name: str, node: str) -> list[Fact]:
    return [factories.pod(name, 8, node=node, phase="Succeeded")]


def test_a_reservation_follows_to_the_place_that_lacks_less() -> None:
    """The rack that was best is lost to longer work, another one becomes nearly free: the head goes there,
    and the smaller gang that comes later does not."""
    world = World(*racks(2, 2))
    for name, node in (("a-long", "a0"), ("b-one", "b0"), ("b-two", "b1")):
        world.step(0.0, factories.pod(name, 8, node=node, phase="Running", ours=True))
    world.step(1.0, *job("big", 2, created=1.0, topology_required=RACK))
    (held,) = world.cluster.reservations.values()
    assert held.place.name == "rack ra"
    taken = factories.pod("other", 4, node="a1", phase="Running", ours=False)
    freed = [
        factories.pod(f"b-{n}", 8, node=f"b{i}", phase="Succeeded") for i, n in enumerate(("one",))
    ]
    world.step(20.0, taken, *freed)
    world.step(31.0, factories.node("z", gpus=0))
    (held,) = world.cluster.reservations.values()
    assert held.place.name == "rack rb"
    assert world.step(32.0, *job("small", 1, created=32.0)) == []


def test_of_more_than_eight_queues_those_that_come_first_have_reservations() -> None:
    names = [f"q{number}" for number in range(8)]
    queues = [QueueSeen(name) for name in (*names, "late")]
    world = World(*(factories.node(f"n{number}") for number in range(9)), *queues)
    world.step(0.0, *(fact for name in names for fact in job(f"{name}-old", 1, 5, queue=name)))
    world.step(0.0, *job("rest", 1, 5, queue="q0"))
    world.step(1.0, *(fact for name in names for fact in job(name, 1, queue=name, created=1.0)))
    world.step(2.0, *job("behind", 1, queue="q0", created=2.0))
    held = {reservation.queue for reservation in world.cluster.reservations.values()}
    assert held == {*names}
    world.step(3.0, *job("first", 1, queue="late", created=3.0))
    held = {reservation.queue for reservation in world.cluster.reservations.values()}
    assert len(held) == len(world.cluster.reservations) == 8
    assert "late" in held
