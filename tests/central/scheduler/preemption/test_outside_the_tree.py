"""Nodes that no HyperNode has are preempted on as others are."""

import random

import pytest

from central.model.facts import Fact, HyperNodeSeen, Member
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples


def switches(dice: random.Random, nodes: list[str]) -> list[Fact]:
    """One or two HyperNodes that have some of the nodes, and perhaps one above them."""
    inside = dice.sample(nodes, dice.randint(1, len(nodes) - 1))
    cut = dice.randint(1, len(inside))
    parts = [part for part in (inside[:cut], inside[cut:]) if part]
    found: list[Fact] = [
        HyperNodeSeen(f"s{i}", 1, tuple(Member("Node", exact=name) for name in part))
        for i, part in enumerate(parts)
    ]
    if dice.random() < 0.5:
        below = tuple(Member("HyperNode", exact=f"s{i}") for i in range(len(parts)))
        found.append(HyperNodeSeen("top", 2, below))
    return found


def played(seed: int, *, tree: bool) -> int:
    """How many urgent pods run in the end."""
    dice = random.Random(seed)
    names = [f"n{i}" for i in range(dice.randint(2, 5))]
    facts = switches(dice, names)
    world = World(*(factories.node(name) for name in names), *(facts if tree else ()))
    for number in range(len(names)):
        world.step(float(number), *job(f"low-{number}", 1, 8, created=float(number)))
    size, gpus = dice.randint(1, len(names)), dice.choice((4, 8))
    soft = dice.choice((None, 1, 2))
    count = dice.randint(1, 3)
    bound: list[str] = []
    for number in range(count):
        urgent = job(
            f"urgent-{number}", size, gpus, priority=9, created=50.0 + number, preferred_tier=soft
        )
        bound += world.step(50.0 + number, *urgent)
    for now in range(60, 120, 6):
        bound += world.step(float(now))
    return sum(name.startswith("urgent") for name in bound)


@pytest.mark.parametrize("seed", range(examples(80)))
def test_as_many_are_placed_as_without_a_tree(seed: int) -> None:
    with_tree = played(seed, tree=True)
    without = played(seed, tree=False)
    assert with_tree == without
    assert without > 0


def test_where_only_nodes_outside_have_victims() -> None:
    world = World(
        *(factories.node(name) for name in "abcd"),
        HyperNodeSeen("s", 1, (Member("Node", exact="a"),)),
    )
    world.step(0.0, *job("high", 1, 8, priority=9))
    for number in range(3):
        world.step(1.0 + number, *job(f"low-{number}", 1, 8, created=1.0 + number))
    world.step(50.0, *job("urgent", 3, 8, priority=5, created=50.0))
    assert len(world.evicted) == 3
    assert len(world.step(56.0)) == 3


def test_a_hard_topology_keeps_to_the_hypernodes() -> None:
    """The fullest node, a, is in none of them; its place is for gangs without the constraint."""
    world = World(
        *(factories.node(name) for name in "abc"),
        HyperNodeSeen("s0", 1, (Member("Node", exact="b"),)),
        HyperNodeSeen("s1", 1, (Member("Node", exact="c"),)),
        HyperNodeSeen("top", 2, (Member("HyperNode", exact="s1"),)),
    )
    world.step(1.0, factories.pod("used", 4, node="a"))
    assert world.step(2.0, *job("g", 2, 2, required_tier=1)) == ["g-0", "g-1"]
    assert {world.running[f"uid-g-{i}"].node for i in range(2)} <= {"b", "c"}
    world.step(3.0, *job("wide", 1, 8, required_tier=2))
    assert world.running["uid-wide-0"].node in ("b", "c")
    assert world.step(4.0, *job("none", 1, 8, required_tier=1)) == []
    assert "best candidate" in world.told["none"]
    world.step(5.0, *job("free", 2, 2))
    assert {world.running[f"uid-free-{i}"].node for i in range(2)} == {"a"}
