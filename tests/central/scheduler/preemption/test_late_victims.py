"""The time until a victim is gone: it is part of what its eviction costs, and a claim does not wait for it for ever."""

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from central.model.facts import Fact, PodGone, PodSeen, QueueSeen
from central.scheduler.preemption.victim_table import LEAVES
from central.scheduler.reservation.reservation import LATE_S
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

GRACE_S = 30
LATE_AT = 100.0 + GRACE_S + LATE_S


def graceful(facts: list[Fact], grace_s: int = GRACE_S) -> list[Fact]:
    return [replace(each, grace_s=grace_s) if isinstance(each, PodSeen) else each for each in facts]


def stuck_world(
    nodes: int = 2, *queues: QueueSeen, grace_s: int = GRACE_S, **other: object
) -> World:
    """Of one gang for each node, the youngest is evicted at 100 s for a claim, and does not end."""
    there = [factories.node(f"n{number}") for number in range(nodes)]
    world = World(*there, *queues, half_life_s=0.0)
    for number in range(nodes):
        at = float(number)
        world.step(
            at, *graceful(job(f"g{number}", 1, created=at, queue=other.get("of", "")), grace_s)
        )
    world.grace_s = inf
    terms = {"priority": 9, **{key: each for key, each in other.items() if key != "of"}}
    world.step(100.0, *job("mine", 1, created=100.0, **terms))  # type: ignore[arg-type]  # a test's shorthand
    assert world.evicted == [f"g{nodes - 1}-0"]
    world.grace_s = GRACE_S
    return world


def test_a_claim_whose_victim_does_not_end_is_planned_anew_elsewhere() -> None:
    world = stuck_world()
    world.step(101.0)
    assert LATE_AT in world.cluster.state.pending.retry_times(101.0)
    world.step(LATE_AT - 0.1)
    assert len(world.evicted) == 1
    world.step(LATE_AT)
    assert world.evicted == ["g1-0", "g0-0"]
    assert world.step(LATE_AT + GRACE_S) == ["mine-0"]
    assert world.running["uid-mine-0"].node == "n0"


def test_what_comes_free_late_is_for_everybody() -> None:
    world = stuck_world()
    world.step(LATE_AT)
    world.step(LATE_AT + 1.0, *job("next", 1, created=LATE_AT + 1.0))
    assert world.step(LATE_AT + 2.0, PodGone("uid-g1-0")) == ["mine-0"]
    assert world.running["uid-mine-0"].node == "n1"
    assert world.step(LATE_AT + GRACE_S) == ["next-0"]


def test_a_claim_without_another_place_stays() -> None:
    world = stuck_world(1)
    world.step(LATE_AT)
    world.step(LATE_AT + 10.0, *job("other", 1, created=150.0))
    assert "waiting for pod ns/g0-0 to terminate, deleted about 2 min ago" in world.told["mine"]
    assert world.step(LATE_AT + 20.0, PodGone("uid-g0-0")) == ["mine-0"]


def test_of_a_grace_of_ten_years_as_much_counts_as_an_eviction_allows() -> None:
    world = stuck_world(grace_s=3 * 10**8)
    world.step(100.0 + 600.0 + LATE_S - 0.1)
    assert world.evicted == ["g1-0"]
    world.step(100.0 + 600.0 + LATE_S)
    assert world.evicted == ["g1-0", "g0-0"]


def test_a_claim_that_stays_still_counts_for_its_queue() -> None:
    world = stuck_world(1, QueueSeen("lends"), QueueSeen("borrows"), of="borrows", queue="borrows")
    (key,) = world.cluster.queues.claims
    world.step(LATE_AT)
    assert key in world.cluster.queues.claims


def test_nothing_counts_on_the_end_of_a_late_pod() -> None:
    world = stuck_world()
    table, pod = world.cluster.preemption.candidates.table, world.cluster.state.pods["uid-g1-0"]
    every = np.ones(2, dtype=np.bool_)
    assert table.refresh().leaving(every) == [pod]
    assert LEAVES in table.entries.state
    assert pod.ends(LATE_AT) == LATE_AT
    world.step(LATE_AT)
    world.step(LATE_AT + GRACE_S)
    assert table.refresh().leaving(every) == []
    assert LEAVES not in table.entries.state
    assert pod.ends(LATE_AT) == inf


def test_a_victim_that_is_in_time_is_waited_for() -> None:
    world = stuck_world()
    assert world.step(LATE_AT - 1.0, PodGone("uid-g1-0")) == ["mine-0"]
    world.step(LATE_AT + 10.0)
    assert world.evicted == ["g1-0"]


def test_what_a_late_pod_holds_is_not_counted_as_given() -> None:
    queues = QueueSeen("lends"), QueueSeen("borrows")
    world = stuck_world(3, *queues, of="borrows", queue="lends", priority=0)
    world.step(LATE_AT)
    assert world.evicted == ["g2-0", "g1-0"]
    assert world.step(LATE_AT + GRACE_S) == ["mine-0"]


@pytest.mark.parametrize(
    ("graces_s", "evicted"),
    [((30, 600), "g0-0"), ((600, 30), "g1-0"), ((30, 31), "g1-0"), ((30, 33), "g0-0")],
)
def test_the_time_until_it_is_gone_is_part_of_what_a_victim_costs(
    graces_s: tuple[int, int], evicted: str
) -> None:
    """The second gang has run two seconds less."""
    world = World(factories.node("n0"), factories.node("n1"))
    for number, grace_s in enumerate(graces_s):
        at = 2.0 * number
        world.step(at, *graceful(job(f"g{number}", 1, created=at), grace_s))
    world.step(100.0, *job("mine", 1, created=100.0, priority=9))
    assert world.evicted == [evicted]


def test_a_grace_counts_only_as_far_as_an_eviction_allows_it() -> None:
    """The second gang has run 700 seconds less, and says that it takes ten years to end."""
    world = World(factories.node("n0"), factories.node("n1"))
    world.step(0.0, *graceful(job("g0", 1)))
    world.step(700.0, *graceful(job("g1", 1, created=700.0), 3 * 10**8))
    world.step(800.0, *job("mine", 1, created=800.0, priority=9))
    assert world.evicted == ["g1-0"]
