"""Room is kept for the head of the line: others fill what it does not need, or what they bring back
in time, and nobody starves."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, NodeGone, PodGone, QueueGone, QueueSeen
from central.scheduler.apply import apply
from central.scheduler.reservation.reservation import Reservation, rough_duration
from central.scheduler.state.gangs import GangKey
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import World, job


def two_nodes() -> list[Fact]:
    return [factories.node("a", rack="r1"), factories.node("b", rack="r1")]


def test_who_ends_in_time_may_use_the_room_and_who_does_not_may_not() -> None:
    world = World(*two_nodes())
    assert world.step(0.0, *job("long", 1, runs_for_s=600)) == ["long-0"]
    assert world.step(1.0, *job("big", 2, runs_for_s=600, created=1.0)) == []
    assert world.told["big"].endswith("reserved: rack r1, expected in about 10 min when long ends")
    assert world.step(2.0, *job("late", 1, runs_for_s=599, created=2.0)) == []
    assert world.told["late"].endswith(
        "on 2 nodes, 8 of them reserved for ns/big); a gang with lockstep.dev/runs-for of at most"
        " 8 min may use that before"
    )
    assert world.step(2.0, *job("silent", 1, created=3.0)) == []
    assert world.step(2.0, *job("brief", 1, runs_for_s=500, created=4.0)) == ["brief-0"]
    world.step(550.0)
    assert world.step(600.0) == ["big-0", "big-1"]


@pytest.mark.parametrize("patience_s", [10.0, 600.0], ids=["strict", "not strict"])
@pytest.mark.parametrize(("runs_for_s", "starts"), [(570.0, True), (570.5, False)])
def test_who_ends_in_the_moment_of_the_start_is_in_time(
    patience_s: float, runs_for_s: float, *, starts: bool
) -> None:
    world = World(*two_nodes(), patience_s=patience_s)
    world.step(0.0, *job("long", 1, runs_for_s=600))
    world.step(1.0, *job("big", 2, created=1.0))
    brief = job("brief", 1, runs_for_s=runs_for_s, created=30.0)
    assert world.step(30.0, *brief) == ["brief-0"] * starts


@pytest.mark.parametrize(("now", "priority"), [(50.0, 0), (50.0, 1), (101.0, 0), (101.0, 1)])
def test_a_reservation_binds_a_queue_that_has_received_as_much_unless_its_gang_is_more_urgent(
    now: float, priority: int
) -> None:
    """Before patience ends too. The other queue has no gang until then, so it begins level with the first one."""
    world = World(
        *two_nodes(), QueueSeen("q"), QueueSeen("other"), patience_s=100.0, half_life_s=0.0
    )
    world.step(0.0, *job("long", 1, queue="q", runs_for_s=600))
    world.step(1.0, *job("big", 2, queue="q", created=1.0))
    found = world.step(now, *job("c", 1, queue="other", created=now, priority=priority))
    assert found == ["c-0"] * (priority > 0)


def test_what_the_head_does_not_need_is_free_for_all() -> None:
    first = factories.pod("first", 8, node="a", phase="Running", runs_for_s=300.0)
    long = factories.pod("long", 4, node="c", phase="Running")
    world = World(*two_nodes(), factories.node("c", rack="r2"), first, long)
    world.step(1.0, *job("big", 2, topology_required=RACK, created=1.0))
    assert "reserved: rack r1, expected in about 5 min when first ends" in world.told["big"]
    small = job("small", 2, gpus=4, created=2.0)
    assert world.step(2.0, *small) == []
    assert world.step(3.0, *job("tiny", 1, gpus=4, created=3.0)) == ["tiny-0"]
    assert world.cluster.state.pods["uid-tiny-0"].node == "c"


def test_without_run_times_what_becomes_free_is_kept() -> None:
    world = World(*two_nodes())
    world.lasts = {"one": 100.0, "two": 200.0}
    world.step(0.0, *job("one", 1), *job("two", 1, created=1.0))
    world.step(2.0, *job("big", 2, created=2.0), *job("small", 1, created=3.0))
    assert "reserved: rack r1; start time unknown" in world.told["big"]
    assert world.step(100.0) == []
    assert world.step(200.0) == ["big-0", "big-1"]


@pytest.mark.parametrize("says", [None, 50.0, 5.0], ids=["says nothing", "true", "lies"])
def test_a_stream_of_small_gangs_does_not_starve_a_big_one(says: float | None) -> None:
    """The bound: patience, and then the longest run of those who are there."""
    began, patience_s = stream(says)
    assert began <= 20.0 + patience_s + 50.0


@pytest.mark.long
def test_without_reservation_it_would_starve() -> None:
    assert stream(None, reserve=False)[0] == float("inf")


class Forgetful(dict[GangKey, Reservation]):
    """Nothing stays reserved."""

    def __setitem__(self, key: GangKey, kept: Reservation) -> None:
        pass


def stream(says: float | None, reserve: bool = True) -> tuple[float, float]:
    """When the big gang starts among small ones that come faster than they go; they run for 50 s."""
    world = World(*two_nodes(), patience_s=100.0)
    if not reserve:
        world.cluster.reservations = Forgetful()
    for now in range(0, 1000, 10):
        facts = job(f"s{now}", 1, runs_for_s=says, created=float(now))
        world.lasts[f"s{now}"] = 50.0
        if now == 20:
            facts = [*job("big", 2, created=20.0), *facts]
        world.step(float(now), *facts)
        if "big" in world.began:
            return world.began["big"], world.cluster.policy.patience_s
    return float("inf"), world.cluster.policy.patience_s


@pytest.mark.parametrize("patience_s", [600.0, 0.0], ids=["not strict", "strict"])
def test_the_more_urgent_takes_the_reserved_room_and_becomes_the_head(patience_s: float) -> None:
    world = World(*two_nodes(), patience_s=patience_s)
    world.step(0.0, *job("long", 1, runs_for_s=600))
    world.step(1.0, *job("big", 2, created=1.0))
    assert world.step(2.0, *job("urgent", 1, created=2.0, priority=5)) == ["urgent-0"]
    world.step(3.0, *job("bigger", 2, created=3.0, priority=5))
    assert list(world.cluster.reservations) == [("ns", "bigger", True)]


def test_a_gang_that_never_fits_takes_no_reservation_away() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("long", 1))
    world.step(1.0, *job("big", 2, created=1.0))
    (held,) = world.cluster.reservations.values()
    epoch = world.cluster.state.pending.epoch
    world.step(2.0, *job("huge", 3, created=2.0, priority=5))
    assert list(world.cluster.reservations.values()) == [held]
    assert world.cluster.state.pending.epoch == epoch, "nothing was freed"


def test_a_gang_is_called_after_the_job_that_made_it() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("long", 1, owner="job/chat"))
    world.step(1.0, *job("big", 2, created=1.0, owner="job/sweep"), *job("late", 1, created=2.0))
    assert "start time unknown (job chat has no expected run time)" in world.told["big"]
    assert "8 of them reserved for job ns/sweep)" in world.told["late"]


def test_a_reservation_ends_with_its_gang() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("long", 1, runs_for_s=600))
    world.step(1.0, *job("big", 2, created=1.0), *job("small", 1, created=2.0))
    gone = [PodGone("uid-big-0"), PodGone("uid-big-1")]
    world.step(2.0, *gone)
    assert not world.cluster.reservations
    assert "small" in world.began or world.step(3.0) == ["small-0"]


def test_a_lost_node_moves_the_reservation() -> None:
    nodes = [factories.node("c", rack="r2"), factories.node("d", rack="r2")]
    world = World(*two_nodes(), *nodes)
    for name, lasts in (("one", 100.0), ("two", 150.0), ("three", 200.0), ("four", 250.0)):
        world.step(0.0, *job(name, 1, runs_for_s=lasts))
    world.step(1.0, *job("big", 2, topology_required=RACK, created=1.0))
    (kept,) = world.cluster.reservations.values()
    lost = world.cluster.state.snapshot.columns.names[int(kept.place.rows[0])]
    before = kept.place
    world.step(2.0, NodeGone(lost))
    (kept,) = world.cluster.reservations.values()
    assert kept.place != before


def test_nothing_is_reserved_for_what_can_never_fit() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("long", 1, runs_for_s=600), *job("giant", 3, created=1.0))
    assert not world.cluster.reservations
    assert world.step(1.0, *job("small", 1, created=2.0)) == ["small-0"]


def test_room_that_was_given_away_is_noticed() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("one", 1))
    world.step(1.0, *job("big", 2, created=1.0), *job("small", 1, created=2.0))
    apply(world.cluster, replace(world.cluster.state.pods["uid-small-0"].seen, node="b"))
    with pytest.raises(AssertionError, match="capacity reserved for big is in use"):
        check_invariants(world.cluster)


def test_room_for_nobody_is_noticed() -> None:
    world = World(*two_nodes())
    world.step(0.0, *job("one", 1))
    world.step(1.0, *job("big", 2, created=1.0))
    world.cluster.state.pending.waiting.clear()
    with pytest.raises(AssertionError, match="has a reservation and is not waiting"):
        check_invariants(world.cluster)


def test_a_head_that_moves_to_another_queue_reserves_nothing_beside_its_head() -> None:
    """No start is known, so the heads of two queues do not compete. And heads of queues that are deleted reserve
    nothing at all."""
    world = World(*two_nodes(), *(QueueSeen(name, reclaimable=False) for name in "pqr"))
    world.step(0.5, *job("rock", 2, queue="r"))
    world.step(1.0, *job("one", 1, created=1.0, queue="p"))
    two = job("two", 1, created=2.0, queue="q")
    world.step(2.0, *two)
    assert len(world.cluster.reservations) == 2
    world.step(3.0, replace(two[0], queue="p"))  # type: ignore[arg-type]  # a PodGroup
    assert [kept.gang.name for kept in world.cluster.reservations.values()] == ["one"]
    world.step(4.0, QueueGone("p"), QueueGone("q"))
    assert not world.cluster.reservations


def heads(world: World) -> list[str]:
    return sorted(held.gang.name for held in world.cluster.reservations.values())


def rocks(**lasts: float) -> list[Fact]:
    """A pod that fills each of these nodes for so long."""
    return [
        factories.pod(
            f"rock-{name}", 8, node=name, phase="Running", ours=False, runs_for_s=s, started=0.0
        )
        for name, s in lasts.items()
    ]


def test_of_gangs_that_could_use_the_same_nodes_one_has_a_reservation() -> None:
    """A gang for other nodes has its own, also in the same queue; one that could use nodes of both has none."""
    nodes = [factories.node(f"{rack}{i}", rack=rack) for rack in "ab" for i in (1, 2)]
    queues = [QueueSeen(name, reclaimable=False) for name in "pqr"]
    world = World(*nodes, *queues, *rocks(a1=50.0, a2=90.0, b1=60.0, b2=99.0))
    world.step(1.0, *job("on-a", 2, created=1.0, queue="p", rack="a"))
    world.step(2.0, *job("on-b", 2, created=2.0, queue="p", rack="b"))
    world.step(3.0, *job("both", 2, created=3.0, queue="q"))
    world.step(4.0, *job("small", 1, 1, created=4.0, queue="r", rack="a"))
    assert heads(world) == ["on-a", "on-b"]
    gone = [PodGone("uid-rock-a1"), PodGone("uid-rock-a2")]
    assert world.step(90.0, *gone) == ["on-a-0", "on-a-1"]


def test_whose_turn_comes_first_takes_over_the_reservation_and_the_other_begins_anew() -> None:
    world = World(
        *two_nodes(),
        *(QueueSeen(name, strict_priority=n) for n, name in enumerate("pq")),
        patience_s=10.0,
    )
    world.step(0.5, *rocks(a=50.0, b=60.0))
    world.step(1.0, *job("first", 2, created=1.0, queue="p"))
    world.step(20.0)
    assert [held.strict for held in world.cluster.reservations.values()] == [True]
    world.step(21.0, *job("higher", 2, created=21.0, queue="q"))
    assert heads(world) == ["higher"]
    world.step(22.0, PodGone("uid-higher-0"), PodGone("uid-higher-1"))
    assert heads(world) == ["first"]
    assert [held.strict for held in world.cluster.reservations.values()] == [False]


@pytest.mark.parametrize(("pods", "gpus", "head"), [(2, 8, "first"), (1, 4, "other")])
def test_priority_of_a_queue_takes_over_reservations_within_its_fair_share(
    pods: int, gpus: int, head: str
) -> None:
    """A third of 16 GPUs."""
    world = World(*two_nodes(), QueueSeen("p"), QueueSeen("q", priority=1), QueueSeen("r"))
    world.step(0.5, *job("rock", 2, 8, 50.0, queue="r"))
    world.step(1.0, *job("first", 2, created=1.0, queue="p"))
    world.step(2.0, *job("other", pods, gpus, created=2.0, queue="q"))
    assert heads(world) == [head]


def test_a_reservation_that_ends_frees_its_place_in_the_same_cycle() -> None:
    """The gang that it kept out was refused before, and nothing else changes."""
    queues = (QueueSeen("a"), QueueSeen("b"))
    world = World(
        factories.node("n1"), factories.node("n2"), *queues, patience_s=10.0, half_life_s=0.0
    )
    world.step(1.0, *job("old", 1, queue="b"))
    world.step(2.0, *job("big", 2, queue="b", created=2.0))
    assert world.step(20.0, *job("small", 1, queue="a", created=20.0)) == []
    assert "8 of them reserved for ns/big)" in world.told["small"]
    assert world.step(21.0, PodGone("uid-big-1")) == ["small-0"]


def test_gangs_refused_alike_are_all_tried_again_when_something_is_freed() -> None:
    world = World(factories.node("n"))
    world.lasts["old"] = 5.0
    world.step(1.0, *job("old", 1))
    gangs = [fact for name in "abcd" for fact in job(name, 1, gpus=2, created=2.0)]
    world.step(2.0, *gangs)
    world.step(3.0, factories.node("m", gpus=0))  # all are tried again, of equal ones the first
    pending = world.cluster.state.pending
    assert {gang.attempt.refused_at for gang in pending.waiting.values()} == {pending.epoch}
    assert world.step(6.0) == ["a-0", "b-0", "c-0", "d-0"]


def test_after_patience_an_older_gang_of_equal_priority_delays_nobody() -> None:
    """Its pods come late, so that it is served before the head of the queue."""
    world = World(*two_nodes(), patience_s=10.0)
    world.step(1.0, *job("long", 1))
    world.step(5.0, *job("big", 2, created=5.0))
    assert world.step(30.0, *job("small", 1, created=2.0), *job("large", 2, created=3.0)) == []
    assert list(world.cluster.reservations) == [("ns", "big", True)]
    assert "8 of them reserved for ns/big)" in world.told["small"]
    assert world.step(31.0, *job("urgent", 1, created=31.0, priority=1)) == ["urgent-0"]


def test_after_patience_who_surely_ends_in_time_is_let_in_and_nobody_else() -> None:
    world = World(*two_nodes(), patience_s=10.0)
    world.step(1.0, *job("long", 1, runs_for_s=600))
    world.step(5.0, *job("big", 2, created=5.0))
    late = [*job("late", 1, runs_for_s=602, created=30.0), *job("silent", 1, created=30.0)]
    assert world.step(30.0, *late) == []
    assert world.step(40.0, *job("brief", 1, runs_for_s=100, created=40.0)) == ["brief-0"]
    assert world.step(140.0) == []
    assert world.step(601.0) == ["big-0", "big-1"]


def test_after_patience_nobody_is_let_in_for_a_start_that_moves() -> None:
    """The new place is free later than the first one would have been. Its start is no reason to wait longer."""
    world = World(*two_nodes(), patience_s=10.0)
    world.step(1.0, *job("long", 1, runs_for_s=100))
    world.step(5.0, *job("big", 2, created=5.0))
    world.step(20.0)
    [other] = {"a", "b"} - {world.cluster.state.pods["uid-long-0"].node}
    busy = factories.pod("busy", 8, node="c", phase="Running", runs_for_s=500.0)
    world.step(30.0, NodeGone(other), factories.node("c", rack="r1"), busy)
    (held,) = world.cluster.reservations.values()
    assert held.start > 500.0
    assert world.step(101.0, *job("brief", 1, runs_for_s=50, created=101.0)) == []


def test_who_lied_is_not_believed_a_second_time() -> None:
    """After a run time that was exceeded tenfold, 10 s may be 200 s."""
    world = World(*two_nodes(), patience_s=10.0)
    world.lasts["liar"] = 100.0
    world.step(0.0, *job("long", 1, runs_for_s=300), *job("liar", 1, runs_for_s=10))
    world.step(1.0, *job("big", 2, created=1.0))
    world.step(99.0)
    assert world.step(100.0, *job("brief", 1, runs_for_s=12, created=100.0)) == []
    assert world.step(101.0, *job("tiny", 1, runs_for_s=5, created=101.0)) == ["tiny-0"]


@pytest.mark.parametrize(
    ("minutes", "text"),
    [
        *((0.75, "less than a minute"), (0.76, "about 1 min"), (1.1, "about 1 min")),
        *((6.1, "about 6 min"), (7.2, "about 8 min"), (33, "about 30 min"), (46, "about 50 min")),
        *((90, "about 90 min"), (90.1, "about 2 h"), (47 * 60, "about 47 h")),
        *((48 * 60, "about 2 days"), (72 * 60, "about 3 days")),
    ],
)
def test_durations_are_rounded_to_the_nearest_step(minutes: float, text: str) -> None:
    assert rough_duration(60 * minutes) == text
