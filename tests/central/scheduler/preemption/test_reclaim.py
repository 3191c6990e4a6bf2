"""What a queue may not take from another, nor a gang from the one for which it was freed."""

import pytest

from central.model.facts import Fact, PodGone, QueueSeen
from protos.names import GPU, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

HALF = ((GPU, 4),)
RACKS = {"n1": "r1", "n2": "r1", "n3": "r2"}


@pytest.mark.parametrize("queue", ["", "q"])
def test_equals_do_not_evict_equals(queue: str) -> None:
    """A less urgent gang elsewhere, so that a search for victims is not skipped at once."""
    nodes = (factories.node("cpu", gpus=0), factories.node("n"))
    world = World(*nodes, *([QueueSeen(queue)] if queue else []))
    world.step(1.0, *job("low", 1, gpus=0, queue=queue, priority=-1))
    world.step(2.0, *job("old", 1, queue=queue), *job("new", 1, queue=queue, created=2.0))
    assert world.running["uid-old-0"].node == "n"
    world.step(9.0, *job("other", 1, gpus=4, queue=queue, created=9.0))
    assert world.evicted == []


@pytest.mark.parametrize(("pods", "victims"), [((2, 2), 0), ((3, 1), 0), ((2, 1), 1)])
def test_a_queue_gives_one_of_its_gangs_and_keeps_the_other(
    pods: tuple[int, ...], victims: int
) -> None:
    """Queue a uses 6 GPUs, 3 on each node, and may have 2. Without both gangs it would have a smaller part of them than
    queue b, of its 6, has already."""
    nodes = (factories.node("n", gpus=4), factories.node("m", gpus=4))
    world = World(*nodes, QueueSeen("a"), QueueSeen("b", weight=3), half_life_s=0.0)
    for name in ("x", "y"):
        world.step(1.0, *job(f"{name}3", 1, gpus=3, queue="a"))
        world.step(1.0, *job(f"{name}1", 1, gpus=1, queue="b"))
    group = factories.gang("new", len(pods), queue="b", created=2.0)
    new = [factories.pod(f"new-{i}", n, "new", queue="b", created=2.0) for i, n in enumerate(pods)]
    world.step(2.0, group, *new)
    assert len(world.evicted) == victims


def test_of_many_candidates_no_queue_gives_more_than_it_has_above_its_share() -> None:
    """Queues a, b and c use 17 of 51 GPUs each, and the share of each is 15. The pods of queue a are the youngest, so
    that they would do the least harm."""
    nodes = [factories.node(f"n{i}", gpus=3) for i in range(17)]
    world = World(*nodes, *map(QueueSeen, "abcd"), half_life_s=0.0)
    for number, queue in enumerate("cba", 1):
        old = [job(f"{queue}{i}", 1, gpus=1, queue=queue) for i in range(17)]
        world.step(100.0 * number, *(fact for one in old for fact in one))
    world.step(400.0, *job("new", 6, gpus=1, queue="d", created=400.0))
    assert sorted(name[0] for name in world.evicted) == [*"aabbcc"]


@pytest.mark.parametrize("guaranteed", ["b", "org"])
def test_no_queue_is_reclaimed_below_its_guarantee(guaranteed: str) -> None:
    """Queue b uses twice its fair share in one gang. Without it, it would use nothing."""
    org = QueueSeen("org", guarantee=HALF if guaranteed == "org" else ())
    b = QueueSeen("b", parent="org", guarantee=HALF if guaranteed == "b" else ())
    world = World(factories.node("n"), QueueSeen("a"), org, b, half_life_s=0.0)
    world.step(1.0, *job("old", 1, queue="b"))
    world.step(2.0, *job("new", 1, gpus=4, queue="a", created=2.0))
    assert world.evicted == []
    world.step(9.0, QueueSeen("org"), QueueSeen("b", parent="org"))
    assert world.evicted == ["old-0"]


@pytest.mark.parametrize(
    ("sizes", "guarantee", "victims"),
    [
        *(((3, 3, 2), 0, 2), ((3, 3, 2), 3, 2), ((3, 3, 2), 4, 0)),  # two must go: 3 are left
        *(((5, 3), 0, 1), ((5, 3), 3, 1), ((5, 3), 4, 0)),
    ],
)
def test_a_guarantee_counts_all_that_a_claim_takes(
    sizes: tuple[int, ...], guarantee: int, victims: int
) -> None:
    """Of 8 GPUs queue a claims its half, and b has all in gangs of these sizes."""
    b = QueueSeen("b", guarantee=((GPU, guarantee),) if guarantee else ())
    world = World(factories.node("n"), QueueSeen("a"), b, half_life_s=0.0)
    old = [fact for i, gpus in enumerate(sizes) for fact in job(f"o{i}", 1, gpus, queue="b")]
    world.step(1.0, *old)
    world.step(2.0, *job("new", 1, gpus=4, queue="a", created=2.0))
    assert len(world.evicted) == victims


@pytest.mark.parametrize(("guarantee", "victims"), [(3999, ["big"]), (4000, [])])
def test_a_guarantee_holds_to_the_last_unit(guarantee: int, victims: list[str]) -> None:
    """Without the big pod the queue has 3999 thousandths of a CPU."""
    b = QueueSeen("b", guarantee=(("cpu", guarantee),))
    world = World(factories.node("n", gpus=0, cpu=8000), QueueSeen("a"), b, half_life_s=0.0)
    old = [
        factories.pod(name, cpu=cpu, queue="b") for name, cpu in (("big", 4001), ("small", 3999))
    ]
    world.step(1.0, *old)
    world.step(2.0, factories.pod("new", cpu=4000, queue="a", created=2.0))
    assert world.evicted == victims


def test_capacity_freed_for_a_gang_is_closed_to_more_urgent_ones_of_other_queues() -> None:
    """Priorities compare inside a queue. The other queue is served first."""
    world = World(factories.node("n"), QueueSeen("a"), QueueSeen("b", weight=3))
    world.step(1.0, *job("old", 1, queue="a"))
    world.step(2.0, *job("next", 1, queue="a", created=2.0, priority=5))
    assert world.evicted == ["old-0"]
    world.step(3.0, *job("other", 1, queue="b", created=3.0, priority=9))
    assert world.step(7.0) == ["next-0"]


def test_capacity_freed_for_a_gang_is_closed_to_an_older_one_of_equal_priority() -> None:
    world = World(factories.node("n"))
    world.step(1.0, *job("old", 1))
    world.step(3.0, *job("next", 1, created=3.0, priority=5))
    assert world.evicted == ["old-0"]
    world.step(4.0, *job("older", 1, created=2.0, priority=5))
    assert world.step(8.0) == ["next-0"]


def test_two_gangs_with_victims_each_get_their_own() -> None:
    """The victim of the second gang ends later; the second gang is served first."""
    nodes = (factories.node("n1"), factories.node("n2"))
    world = World(*nodes, QueueSeen("a"), QueueSeen("b", priority=1))
    world.step(1.0, *job("old", 1, queue="a"), *job("past", 1, queue="b"))
    freed = {name: world.cluster.state.pods[f"uid-{name}-0"].node for name in ("old", "past")}
    world.step(2.0, *job("first", 1, queue="a", created=2.0, priority=5))
    world.step(4.0, *job("second", 1, queue="b", created=4.0, priority=9))
    assert world.evicted == ["old-0", "past-0"]
    assert world.step(7.0) == ["first-0"]
    assert world.step(9.0) == ["second-0"]
    places = [world.running[f"uid-{name}-0"].node for name in ("first", "second")]
    assert places == [freed["old"], freed["past"]]


def test_a_gang_with_victims_leaves_the_place_of_a_more_urgent_one() -> None:
    """Its own capacity is not free yet, and a node that is reserved for the more urgent gang is."""
    rock = factories.pod("rock", 8, node="n1", phase="Running", priority=9, runs_for_s=100.0)
    low = factories.pod("low", 8, node="n3", phase="Running")
    world = World(*(factories.node(node, rack=rack) for node, rack in RACKS.items()), rock, low)
    world.step(1.0, *job("urgent", 2, topology_required=RACK, priority=9, created=1.0))
    world.step(2.0, *job("next", 1, priority=5, created=2.0))
    assert world.evicted == ["low"]
    assert world.step(3.0) == []
    assert world.step(7.0) == ["next-0"]
    assert world.running["uid-next-0"].node == "n3"


@pytest.mark.parametrize(
    ("queue", "priority", "has_victims"),
    [("q", 5, True), ("q", 9, True), ("p", 5, True), ("p", 9, True), ("p", 9, False)],
)
def test_a_gang_that_awaits_victims_does_not_start_where_a_plan_waits_for_others(
    queue: str, priority: int, *, has_victims: bool
) -> None:
    """Node n2 is free and kept for "wide" until the rock on n1 ends; the victim on n3 takes its time."""
    rock = factories.pod(
        "rock", 8, node="n1", phase="Running", priority=9, queue="p", runs_for_s=99
    )
    low = factories.pod(
        "low", 8, node="n3", phase="Running", queue="q", priority=0 if has_victims else 9
    )
    tick = factories.pod("tick", 0, node="n4", phase="Running", queue="q")
    nodes = [factories.node(name, rack=rack) for name, rack in RACKS.items()]
    queues = QueueSeen("q"), QueueSeen("p")
    facts: list[Fact] = [*nodes, factories.node("n4", gpus=0), *queues, rock, low, tick]
    world = World(*facts, patience_s=0.0, half_life_s=0.0)
    world.grace_s = 1000.0
    wide = job("wide", 2, topology_required=RACK, priority=priority, queue=queue, created=1.0)
    world.step(1.0, *wide)
    assert world.step(2.0, *job("next", 1, priority=5, queue="q", created=2.0)) == []
    assert world.evicted == ["low"] * has_victims
    assert world.step(3.0, PodGone("uid-tick")) == []
    if has_victims:
        assert world.step(1003.0) == ["next-0"]
        assert world.running["uid-next-0"].node == "n3"


def test_each_victim_of_one_claim_reads_its_own_reason() -> None:
    """Two of the claimant's queue, of different priorities, and one of another queue with one of these priorities."""
    world = World(factories.node("n"), QueueSeen("a", deserved=((GPU, 8),)), QueueSeen("b"))
    world.step(1.0, *job("low", 1, 2, queue="a"), *job("some", 1, 2, queue="a", priority=1))
    world.step(2.0, *job("other", 1, 4, queue="b", priority=1))
    world.step(3.0, *job("new", 1, 8, queue="a", created=3.0, priority=5))
    assert dict(zip(world.evicted, world.whys, strict=True)) == {
        "low-0": "preempted by ns/new (priority 5 > 0)",
        "some-0": "preempted by ns/new (priority 5 > 1)",
        "other-0": "reclaimed for ns/new; queue a is below what it deserves",
    }
    (claim,) = world.cluster.queues.claims.values()
    assert {pod.seen.name: amounts[GPU] for _, pod, amounts in claim.victims} == {
        "low-0": 2,
        "some-0": 2,
        "other-0": 4,
    }


def test_claims_on_one_node_are_decided_together() -> None:
    """Each evicts what it needs beside the other, and less than the node's other pods where these are larger."""
    world = World(factories.node("n"))
    world.step(1.0, *job("one", 1, 4), *job("two", 1, 4))
    world.step(2.0, *job("first", 1, 4, created=2.0, priority=5))
    world.step(3.0, *job("second", 1, 4, created=3.0, priority=4))
    assert world.evicted == ["one-0", "two-0"]
    world.step(8.0)
    assert {"first", "second"} <= {*world.began}


def test_each_claimant_on_a_node_starts_when_enough_is_free_for_it() -> None:
    """It does not wait for the victims of the others."""
    world = World(factories.node("n"))
    world.step(1.0, *(fact for n in range(8) for fact in job(f"low{n}", 1, 1)))
    gangs = [job(f"urgent{n}", 1, 1, created=2.0 + n, priority=5) for n in range(3)]
    world.step(5.0, *(fact for gang in gangs for fact in gang))
    assert len(world.evicted) == 3
    for at, uid in zip((7.0, 9.0, 11.0), [*world.leaving], strict=True):
        world.leaving[uid] = at
    started = []
    for now in (6.5, 7.5, 9.5, 11.5):
        world.step(now)
        started.append(sum(name.startswith("urgent") for name in world.began))
    assert started == [0, 1, 2, 3]


def test_what_a_victim_leaves_beyond_its_claim_is_claimed_by_the_next_gang() -> None:
    """It evicts nobody, also where other pods could go, and its reason says what it waits for."""
    world = World(factories.node("n"))
    world.step(1.0, *job("one", 1, 7), *job("other", 1, 1))
    world.step(2.0, *job("first", 1, 2, created=2.0, priority=5))
    world.step(
        3.0, *(fact for n in range(2) for fact in job(f"next{n}", 1, 2, created=3.0, priority=5))
    )
    assert world.evicted == ["one-0"]
    assert "reserved: node n; waiting for pods to terminate" in world.told["next1"]
    world.step(8.0)
    assert {"first", "next0", "next1"} <= {*world.began}


@pytest.mark.long
@pytest.mark.parametrize(
    ("deserved", "given"), [((8, 8), 4), ((8, 2), 2), ((6, 2), 2), ((16, 8), 3), ((8, 0), 0)]
)
def test_queues_that_deserve_more_than_there_is_give_each_other_their_parts(
    deserved: tuple[int, int], given: int
) -> None:
    """Of 8 GPUs, which a uses alone until b sends as much work: all that b is to get is decided in one cycle."""
    queues = [
        QueueSeen(name, deserved=((GPU, n),) if n else ())
        for name, n in zip("ab", deserved, strict=True)
    ]
    world = World(factories.node("n"), *queues)
    for name, now in (("a", 1.0), ("b", 2.0)):
        ones = [job(f"{name}{number}", 1, 1, queue=name, created=now) for number in range(8)]
        world.step(now, *(fact for facts in ones for fact in facts))
    assert len(world.evicted) == given
    for now in range(3, 60):
        world.step(float(now))
    assert len(world.evicted) == given
    running = [seen.gang[0] for seen in world.running.values() if seen.node]
    assert sorted(running) == ["a"] * (8 - given) + ["b"] * given
