"""What a queue has above its share is protected by what queues grant, not by what its pods and budgets say."""

from dataclasses import replace

import pytest

from central.model.decisions import Evict
from central.model.facts import PodSeen, QueueSeen
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

QUEUES = QueueSeen("lends"), QueueSeen("borrows")
LABELS = (("app", "x"),)
Marks = dict[str, object]
MARKS: list[Marks] = [{"preemptable": False}, {"cooldown_s": 3.6e8}, {"labels": LABELS}]


def full(marks: Marks, *queues: QueueSeen, gangs: int = 4) -> World:
    """Four nodes of eight GPUs, one for each gang of the queue `borrows`."""
    nodes = [factories.node(f"n{number}") for number in range(4)]
    world = World(*nodes, *queues, half_life_s=0.0)
    world.step(0.0, factories.budget("x", 0))
    for number in range(gangs):
        world.step(0.0, *job(f"b{number}", 1, queue="borrows", **marks))  # type: ignore[arg-type]  # a test's shorthand
    return world


@pytest.mark.parametrize("marks", MARKS)
def test_a_queue_gets_its_share_whatever_the_pods_of_others_say(marks: Marks) -> None:
    world = full(marks, *QUEUES)
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    for now in (101.0, 102.0, 110.0, 120.0):
        world.step(now)
    assert len(world.evicted) == 2
    assert len([pod for pod in world.running.values() if pod.gang == "mine" and pod.node]) == 2


@pytest.mark.parametrize("marks", MARKS)
def test_inside_its_share_such_marks_hold(marks: Marks) -> None:
    """The queue has 16 of its 16 GPUs in marked gangs, and 16 above it in others."""
    world = full(marks, *QUEUES, gangs=2)
    world.step(1.0, *job("plain", 2, queue="borrows", created=-5.0, priority=5))
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    for now in (101.0, 110.0, 120.0):
        world.step(now)
    assert not {name for name in world.evicted if name.startswith("b")}


@pytest.mark.parametrize("marks", MARKS)
def test_in_its_own_queue_they_hold(marks: Marks) -> None:
    world = full(marks, *QUEUES)
    world.step(100.0, *job("urgent", 1, queue="borrows", created=100.0, priority=9))
    world.step(110.0)
    assert not world.evicted


@pytest.mark.parametrize("marks", MARKS)
def test_a_queue_that_may_not_be_reclaimed_keeps_them(marks: Marks) -> None:
    world = full(marks, QUEUES[0], replace(QUEUES[1], reclaimable=False))
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    world.step(110.0)
    assert not world.evicted


def test_a_queues_own_least_run_time_holds() -> None:
    world = full(MARKS[0], QUEUES[0], replace(QUEUES[1], min_runtime_s=500.0))
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    world.step(499.0)
    assert not world.evicted
    world.step(500.0)
    assert len(world.evicted) == 2


def test_only_pods_that_budgets_cover_are_deleted_past_them() -> None:
    world = full(MARKS[2], *QUEUES)
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    found = [each for each in world.decisions if isinstance(each, Evict)]
    assert len(found) == 2
    assert all(each.beyond_budgets and not each.trial for each in found)
    world = full(MARKS[0], *QUEUES)
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0))
    found = [each for each in world.decisions if isinstance(each, Evict)]
    assert len(found) == 2
    assert not any(each.beyond_budgets for each in found)


def test_a_budget_of_the_claimants_own_queue_holds_beside_it() -> None:
    """Less urgent work of its own queue is covered, and what the other queue has above its share does not suffice."""
    queues = [QueueSeen("lends", deserved=((GPU, 24),)), QueueSeen("borrows", deserved=((GPU, 8),))]
    world = World(*(factories.node(f"n{number}") for number in range(4)), *queues)
    own = job("own", 2, queue="lends", labels=LABELS)
    world.step(0.0, factories.budget("x", 0), *own)
    world.step(0.0, *job("b0", 1, queue="borrows"), *job("b1", 1, queue="borrows"))
    world.step(100.0, *job("mine", 2, queue="lends", created=100.0, priority=9))
    world.step(110.0)
    assert not world.evicted


def test_a_victim_ends_within_the_longest_grace_of_an_eviction() -> None:
    """Its own, where that is shorter."""
    for own_s, said_s in ((3.15e8, 600), (600, 0), (30, 0)):
        world = World(factories.node("n"))
        world.step(
            0.0,
            *(
                replace(each, grace_s=int(own_s)) if isinstance(each, PodSeen) else each
                for each in job("b", 1)
            ),
        )
        world.step(100.0, *job("urgent", 1, created=100.0, priority=9))
        (found,) = [each for each in world.decisions if isinstance(each, Evict)]
        assert found.grace_s == said_s
