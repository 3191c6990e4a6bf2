"""Nodes with less than nothing free, because their allocatable shrank or other schedulers bind there: what the filters
say of them follows each change, for victims and for reasons."""

from dataclasses import replace

from central.model.facts import PodSeen
from tests.central import factories
from tests.central.scheduler.small_cluster import World

BEFORE, AFTER = factories.node("a", cpu=8_000), factories.node("a", cpu=4_000)


def single(name: str, cpu: int, **other: object) -> PodSeen:
    return replace(factories.pod(name, cpu=cpu), **other)  # type: ignore[arg-type]  # a test's shorthand


def test_pods_of_a_shrunken_node_give_way_when_it_is_uncordoned() -> None:
    """Found by tests/simulation/mixed_day.py, seed 156: the node kept the filters' answer of the time before."""
    world = World(BEFORE)
    world.step(1.0, single("low", 8_000))
    urgent = single("urgent", 3_000, created=2.0, priority=5)
    world.step(2.0, replace(BEFORE, unschedulable=True), urgent)
    assert "1 node: cordoned" in world.told["urgent"]
    world.step(3.0, AFTER)
    for now in range(4, 14):
        world.step(float(now))
    assert world.evicted == ["low"]
    assert "urgent" in world.began


def test_pods_of_a_shrunken_node_stay_when_it_is_cordoned() -> None:
    world = World(BEFORE)
    world.step(1.0, single("low", 8_000, cooldown_s=5.0))
    world.step(2.0, single("urgent", 3_000, created=2.0, priority=5))
    world.step(3.0, replace(AFTER, unschedulable=True))
    for now in range(4, 14):
        world.step(float(now))
    assert world.evicted == []
    assert "(1 node: cordoned, lacks 3 of 3 cpu)" in world.told["urgent"]
