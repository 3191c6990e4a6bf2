"""Queues: whose turn it is, and which queue a gang is in."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NamespaceSeen, PriorityGone, PrioritySeen, QueueGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.queues.queued_gangs import (
    bound,
    gang,
    gangs,
    nodes,
    played,
    queue,
    used,
    waits,
)

# --- whose turn --------------------------------------------------------------------


@pytest.mark.parametrize(("first", "second"), [(1, 2), (1, 3), (2, 3), (1, 1)])
def test_endless_demand_converges_to_the_weights(first: int, second: int) -> None:
    scheduler, _ = played(
        *nodes(48),
        queue("a", weight=first),
        queue("b", weight=second),
        *gangs(60, "a"),
        *gangs(60, "b"),
    )
    assert used(scheduler, "a") + used(scheduler, "b") == 48
    assert abs(used(scheduler, "a") - 48 * first / (first + second)) <= 1


def test_the_published_experiment() -> None:
    """Weights 1:3, demands 8 and 80, room for 16: 4 and 12; the demand does not tell, the weights do."""
    scheduler, _ = played(
        *nodes(16), queue("a"), queue("b", weight=3), *gangs(8, "a"), *gangs(80, "b")
    )
    assert (used(scheduler, "a"), used(scheduler, "b")) == (4, 12)


def test_what_one_does_not_ask_for_the_other_has() -> None:
    scheduler, _ = played(
        *nodes(16), queue("a", weight=9), queue("b"), *gangs(3, "a"), *gangs(80, "b")
    )
    assert (used(scheduler, "a"), used(scheduler, "b")) == (3, 13)


@pytest.mark.long
def test_shares_hold_while_gangs_come_and_go() -> None:
    """Two queues 1:2 of unlike gangs; what ends is followed by whoever is lowest, for many turns."""
    scheduler = new_scheduler(factories.LEVELS)
    facts = [*nodes(48), queue("a"), queue("b", weight=2)]
    schedule_once(scheduler, [*facts, *gangs(80, "a", pods=2), *gangs(80, "b", pods=3)], 0.0)
    for now in range(1, 40):
        running = sorted(
            (pod for pod in scheduler.state.pods.values() if pod.node and pod.alive),
            key=lambda pod: pod.seen.name,
        )
        oldest = {pod.seen.gang for pod in running[:: max(1, len(running) // 2)]}
        ended: list[Fact] = [
            factories.pod(pod.seen.name, 1, pod.seen.gang, node=pod.node, phase="Succeeded")
            for pod in running
            if pod.seen.gang in oldest
        ]
        schedule_once(scheduler, ended, float(now))
        check_invariants(scheduler)
        if len(scheduler.state.pending.waiting) > 20:
            assert used(scheduler, "a") + used(scheduler, "b") >= 46
            assert abs(used(scheduler, "b") - 2 * used(scheduler, "a")) <= 6, (
                "more than one gang off"
            )


def test_inside_a_queue_priority_then_age_then_name() -> None:
    _, decisions = played(
        *nodes(8),
        queue("a"),
        *gang("old", "a", created=1.0),
        *gang("y", "a", created=2.0),
        *gang("x", "a", created=2.0),
        *gang("urgent", "a", created=3.0, priority=5),
    )
    assert bound(decisions) == ["urgent", "old", "x", "y"]


@pytest.mark.long
def test_the_hierarchy_is_served_level_by_level() -> None:
    """Half for one team with two queues, half for the other, whatever number of queues it has."""
    scheduler, _ = played(
        *nodes(48),
        *(queue(name) for name in ("left", "right")),
        *(queue(name, parent="left") for name in ("l1", "l2")),
        *(queue(name, parent="right", weight=weight) for name, weight in (("r1", 1), ("r2", 3))),
        *(fact for name in ("l1", "l2", "r1", "r2") for fact in gangs(48, name)),
    )
    assert {name: used(scheduler, name) for name in ("l1", "l2", "r1", "r2")} == {
        "l1": 12,
        "l2": 12,
        "r1": 6,
        "r2": 18,
    }
    assert used(scheduler, "left") == used(scheduler, "right") == 24
    apply(scheduler, QueueGone("r2"))
    assert "r2" in scheduler.queues.by_name, "its gangs still run"


@pytest.mark.parametrize("others", [(), (queue("other"),)])
def test_no_gang_of_a_deleted_queue_starts_and_what_runs_goes_on(others: tuple[Fact, ...]) -> None:
    """Whether other queues exist or not. It starts once the queue is created again."""
    scheduler = new_scheduler(factories.LEVELS)
    facts = [*nodes(8), *others, queue("a", capability=1), *gangs(3, "a")]
    assert bound(schedule_once(scheduler, facts, 0.0)) == ["a000"]
    gone = [QueueGone("a"), *gang("late", "a"), *gang("unqueued")]
    assert bound(schedule_once(scheduler, gone, 1.0)) == ["unqueued"]
    assert used(scheduler, "a") == 1
    waiting = scheduler.state.pending.waiting.values()
    assert {one.attempt.reason for one in waiting} == {"queue a does not exist"}
    assert len(bound(schedule_once(scheduler, [queue("a")], 4.0))) == 3


def test_the_dominant_resource_counts() -> None:
    """A gang of one queue takes an eighth of all processors, of the other a sixteenth of all GPUs:
    they are served one to two."""
    heavy = [factories.pod(f"c{i:03}-0", 0, f"c{i:03}", cpu=8000) for i in range(4)]
    groups = [factories.gang(f"c{i:03}", 1, queue="cpu") for i in range(4)]
    _, decisions = played(
        *(factories.node(f"n{i}", cpu=32_000) for i in range(2)),
        queue("cpu"),
        queue("gpu"),
        *groups,
        *heavy,
        *gangs(40, "gpu"),
    )
    assert sum(name.startswith("c") for name in bound(decisions)[:9]) == 3


def test_what_a_queue_deserves_comes_before_anybodys_weight() -> None:
    scheduler, _ = played(
        *nodes(24),
        queue("a", deserved=16),
        queue("b", weight=100),
        *gangs(40, "a"),
        *gangs(40, "b"),
    )
    assert (used(scheduler, "a"), used(scheduler, "b")) == (16, 8)


@pytest.mark.parametrize(("half_life_s", "strictly"), [(0.0, "ababaaaa"), (604800.0, "aaaaaabb")])
def test_the_queues_own_priority_goes_before_the_level(half_life_s: float, strictly: str) -> None:
    """It leaves the shares alone; the strict one does not, and the past does not come before it."""
    served: list[tuple[str, int, int]] = []
    for fields in ({}, {"priority": 1}, {"strict_priority": 1}):
        scheduler, decisions = played(
            *nodes(8),
            *(queue("a", **fields), queue("b")),
            *(*gangs(6, "a"), *gangs(20, "b")),
            half_life_s=half_life_s,
        )
        names = "".join(name[0] for name in bound(decisions))
        served.append((names, used(scheduler, "a"), used(scheduler, "b")))
    assert served == [("abababab", 4, 4), ("aaaabbbb", 4, 4), (strictly, 6, 2)]


def test_without_queues_gangs_of_the_default_one_start_in_order() -> None:
    """Those that name another queue wait until it exists."""
    facts = [*nodes(8), *gang("g", "nowhere", created=2.0), *gang("h", created=1.0)]
    scheduler, decisions = played(*facts, *gang("i", "default", created=3.0))
    assert bound(decisions) == ["h", "i"]
    assert not scheduler.queues.enabled


# --- which queue -------------------------------------------------------------------


def test_pods_and_namespaces_name_a_queue_where_the_group_does_not() -> None:
    single = factories.pod("single", 1, queue="b")
    scheduler, _ = played(
        *nodes(8), queue("a"), queue("b"), NamespaceSeen("ns", queue="a"), *gang("g"), single
    )
    assert (used(scheduler, "a"), used(scheduler, "b")) == (1, 1)
    schedule_once(scheduler, [NamespaceSeen("ns")], 1.0)
    check_invariants(scheduler)
    assert (used(scheduler, "a"), used(scheduler, "default")) == (0, 1)


def test_the_class_of_the_group_is_its_priority() -> None:
    facts = [*nodes(8), *gang("plain", gpus=8), *gang("classy", gpus=8, priority_class="high")]
    _, decisions = played(*facts, PrioritySeen("high", 10))
    assert bound(decisions) == ["classy"]
    scheduler, decisions = played(*facts)
    assert bound(decisions) == ["plain"]
    why = "spec.priorityClassName: PriorityClass high does not exist"
    assert waits(decisions) == {"classy": why}
    ended = factories.pod("plain-0", 8, "plain", node="n0", phase="Succeeded")
    assert bound(schedule_once(scheduler, [PrioritySeen("high", 1), ended], 1.0)) == ["classy"]
    schedule_once(scheduler, [PriorityGone("high")], 2.0)
    check_invariants(scheduler)
