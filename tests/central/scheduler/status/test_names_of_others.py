"""A reason on an object names no gang of another namespace, because the object's readers may not see that. The answer
to explain has the names, and the query service leaves out what its asker may not see."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact, GangSeen, NamespaceSeen, PodSeen, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.status import gang_status
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

TWO_NODES = [factories.node("a", rack="r1"), factories.node("b", rack="r1")]
NAMESPACES = [NamespaceSeen("ns"), NamespaceSeen("team-b")]


def moved(facts: list[Fact], namespace: str) -> list[Fact]:
    return [
        replace(each, namespace=namespace) if isinstance(each, PodSeen | GangSeen) else each
        for each in facts
    ]


def described(world: World, namespace: str, name: str) -> str:
    state = world.cluster.state
    return gang_status.describe(state, state.gangs[namespace, name, True])


def test_who_holds_what_a_gang_needs() -> None:
    world = World(*TWO_NODES, *NAMESPACES)
    world.step(0.0, *moved(job("secret", 1, runs_for_s=600), "team-b"))
    world.step(1.0, *job("big", 2, created=1.0))
    assert world.told["big"].endswith("expected in about 10 min when another namespace ends")
    assert "when team-b/secret ends" in described(world, "ns", "big")


def test_for_whom_capacity_is_reserved() -> None:
    world = World(*TWO_NODES, *NAMESPACES)
    world.step(0.0, *job("long", 1, runs_for_s=600))
    world.step(1.0, *moved(job("secret", 2, created=1.0, owner="job/hidden"), "team-b"))
    world.step(2.0, *job("late", 1, created=2.0))
    assert "reserved for another namespace" in world.told["late"]
    assert "secret" not in world.told["late"]
    assert "hidden" not in world.told["late"]
    assert "reserved for job team-b/hidden" in described(world, "ns", "late")


def test_names_of_the_own_namespace_stay() -> None:
    world = World(*TWO_NODES, *NAMESPACES)
    world.step(0.0, *job("long", 1, runs_for_s=600))
    world.step(1.0, *job("big", 2, created=1.0), *job("late", 1, created=2.0))
    assert "when long ends" in world.told["big"]
    assert "reserved for ns/big" in world.told["late"]


@pytest.mark.parametrize("names_all", [False, True])
def test_for_whom_a_pod_is_evicted(*, names_all: bool) -> None:
    """The decision has the name, for the log; the Event on the pod has it only if all may be named."""
    scheduler = new_scheduler(factories.LEVELS, names_all=names_all)
    schedule_once(scheduler, [*TWO_NODES[:1], *NAMESPACES, *job("low", 1)], 0.0)
    urgent = moved([*job("secret", 1, priority=5, created=1.0)], "team-b")
    decisions = schedule_once(scheduler, urgent, 1.0)
    (evict,) = [each for each in decisions if isinstance(each, Evict)]
    assert evict.why == "preempted by team-b/secret (priority 5 > 0)"
    shown = evict.public or evict.why
    assert shown == (evict.why if names_all else "preempted by another namespace (priority 5 > 0)")


def test_who_is_first_in_a_fifo_queue() -> None:
    world = World(*TWO_NODES, *NAMESPACES, QueueSeen("q", fifo=True))
    world.step(0.0, *moved(job("secret", 3, queue="q"), "team-b"))
    world.step(1.0, *job("late", 1, created=2.0, queue="q"))
    assert world.told["late"] == "queue q is first in, first out; another namespace is ahead of it"
