"""A reason on an object names no gang of another namespace, because the object's readers may not see that. The answer
to explain has the names, and the query service leaves out what its asker may not see."""

from dataclasses import replace

from central.model.facts import Fact, GangSeen, NamespaceSeen, PodSeen
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
