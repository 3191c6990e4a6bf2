"""What queues are entitled to, from what they and the queues below them use and ask for."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, QueueGone
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from central.scheduler.cycle import schedule_once
from central.scheduler.queues.entitlement import fair_shares, scarce_shares, would_be_reclaimed
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.queues.queued_gangs import gangs, nodes, played, queue, used


def shares(scheduler: Scheduler) -> dict[str, float]:
    """In GPUs."""
    found = fair_shares(scheduler.queues, GPU_EQUIVALENTS)
    return {name: share / GPU_UNITS for name, share in found.items()}


@pytest.mark.long
def test_what_children_use_is_part_of_their_parents_demand_once() -> None:
    scheduler, _ = played(
        *nodes(16), queue("p"), queue("c", parent="p"), queue("b"), *gangs(4, "c"), *gangs(16, "b")
    )
    assert used(scheduler, "c") == 4
    assert shares(scheduler) == {"root": 16, "p": 4, "c": 4, "b": 12, "default": 0}


def test_what_started_before_a_queue_had_children_counts_for_it() -> None:
    scheduler, _ = played(*nodes(16), queue("p"), queue("b"), *gangs(6, "p"))
    later: list[Fact] = [queue("c", parent="p"), *gangs(8, "c"), *gangs(16, "b")]
    schedule_once(scheduler, later, 1.0)
    found = shares(scheduler)
    assert found["p"] == found["b"] == 8
    assert found["c"] == 8, "its own demand, of what its parent has"


def test_only_shares_below_the_demand_are_scarce() -> None:
    """Queue a uses 8 GPUs and asks for 4 more; half of 16 is its share while b asks for as much."""
    scheduler, _ = played(*nodes(16), queue("a"), queue("b"), *gangs(8, "a"))
    schedule_once(scheduler, [factories.gang("later", 4, queue="a", created=9.0)], 1.0)
    pods = [factories.pod(f"later-{rank}", 1, "later", created=9.0) for rank in range(4)]
    schedule_once(scheduler, [*gangs(16, "b"), *pods[:3]], 2.0)
    later = scheduler.state.gangs["ns", "later", True]
    gpus = {name: row for name, *row in scarce_shares(scheduler.queues, later)}
    assert gpus[GPU_EQUIVALENTS] == [8 * GPU_UNITS, 8 * GPU_UNITS]
    assert "cpu" not in gpus, "there is enough for everybody"


def test_a_demand_that_is_met_is_not_scarce() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*nodes(16), queue("a"), *gangs(8, "a")], 0.0)
    schedule_once(scheduler, [factories.gang("later", 4, queue="a", created=9.0)], 1.0)
    pods = [factories.pod(f"later-{rank}", 1, "later", created=9.0) for rank in range(3)]
    schedule_once(scheduler, pods, 2.0)
    assert scarce_shares(scheduler.queues, scheduler.state.gangs["ns", "later", True]) == []


def test_shares_follow_the_terms_of_an_idle_queue() -> None:
    """A parent deserves what its children do together."""
    scheduler, _ = played(
        *nodes(16),
        *(queue("p"), queue("idle", parent="p"), queue("busy", parent="p"), queue("b")),
        *(*gangs(16, "busy"), *gangs(16, "b")),
    )
    assert shares(scheduler)["p"] == 8
    schedule_once(scheduler, [queue("idle", parent="p", deserved=12)], 1.0)
    assert shares(scheduler)["p"] == 14


def test_what_is_shared_is_what_the_cluster_has() -> None:
    """To the last unit, and of GPUs in use as shares what is free on nodes that take pods."""
    idle, _ = played(*nodes(16), queue("a"))
    assert idle.queues.total[GPU_EQUIVALENTS] == 16 * GPU_UNITS
    parts = [factories.part(f"part-{name}", 50, node=name, phase="Running") for name in "ab"]
    shared = [factories.node(name, gpus=2, shares=True) for name in "ab"]
    hardware = factories.topology(2, shares=True)
    reports = [
        factories.report(name, hardware, grants=(factories.grant_part(f"part-{name}", 0, 50),))
        for name in "ab"
    ]
    scheduler, _ = played(*shared, *reports, queue("q"), *parts)
    assert scheduler.queues.total[GPU_EQUIVALENTS] == 4 * GPU_UNITS
    closed = factories.node("b", gpus=2, shares=True, unschedulable=True)
    schedule_once(scheduler, [closed], 1.0)
    assert scheduler.queues.total[GPU_EQUIVALENTS] == 2.5 * GPU_UNITS, "and what runs on the other"


def test_a_queue_that_says_the_same_again_changes_nothing() -> None:
    scheduler, _ = played(*nodes(16), queue("a"), *gangs(4, "a"))
    version, tree = scheduler.queues.version, scheduler.queues.by_name["a"]
    schedule_once(scheduler, [queue("a"), QueueGone("never-seen")], 1.0)
    assert scheduler.queues.version == version
    assert scheduler.queues.by_name["a"] is tree


def test_what_others_keep_of_their_deserved_amounts_is_not_left_for_a_reclaimer() -> None:
    """Of 16 GPUs queue b uses the 8 that it deserves, and asks for none. If the gang of queue q got 8, where 4 are
    deserved, the gang of queue a would reclaim the 4 that it deserves from q."""
    scheduler, _ = played(
        *(*nodes(16), queue("x"), queue("b", deserved=8), *gangs(1, "x", 1, 8)),
        *gangs(1, "b", 1, 8),
    )
    assert (used(scheduler, "b"), used(scheduler, "x")) == (8, 8)
    schedule_once(
        scheduler,
        [
            *(queue("x", reclaimable=False), queue("q", deserved=4), queue("a", deserved=4)),
            *(*gangs(1, "q", 1, 8), *gangs(1, "a", 1, 4)),
        ],
        1.0,
    )
    assert would_be_reclaimed(scheduler.queues, scheduler.state.gangs["ns", "q000", True])
    assert not would_be_reclaimed(scheduler.queues, scheduler.state.gangs["ns", "a000", True])
