"""NetworkTree: built from HyperNodes if any exist, from node labels otherwise; and the level of a tier."""

from dataclasses import replace

import pytest

from central.model.facts import HyperNodeGone, HyperNodeSeen, Member
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.network_tree import NetworkTree
from protos.names import NODE
from tests.central import factories


@pytest.fixture
def nodes() -> list[ClusterNode]:
    made = [ClusterNode(name) for name in ("a", "b")]
    for node in made:
        node.seen = factories.node(node.name, rack="r1", block="b1")
    return made


@pytest.fixture
def snapshot(nodes: list[ClusterNode]) -> Snapshot:
    made = Snapshot(factories.LEVELS)
    for node in nodes:
        row = node.merged()
        assert row is not None
        made.put_node(row)
    return made


@pytest.fixture
def tree() -> NetworkTree:
    return NetworkTree(factories.LEVELS)


def switch(name: str, tier: int, *nodes: str) -> HyperNodeSeen:
    return HyperNodeSeen(name, tier, tuple(Member("Node", exact=node) for node in nodes))


def test_hypernodes_replace_node_labels_until_the_last_is_gone(
    tree: NetworkTree, nodes: list[ClusterNode], snapshot: Snapshot
) -> None:
    tree.apply(switch("s1", 1, "a", "b"))
    assert tree.rebuild(nodes, snapshot)
    assert "tier-1" in snapshot.columns.domains.levels
    assert tree.built.sizes == {"s1": 2}
    tree.apply(HyperNodeGone("s1"))
    assert tree.rebuild(nodes, snapshot)
    assert snapshot.columns.domains.levels == factories.LEVELS


def test_it_is_rebuilt_only_after_a_change(
    tree: NetworkTree, nodes: list[ClusterNode], snapshot: Snapshot
) -> None:
    assert not tree.rebuild(nodes, snapshot)
    tree.put_node(factories.node("a"))  # no HyperNode selects it
    tree.apply(HyperNodeGone("unknown"))
    assert not tree.rebuild(nodes, snapshot)
    tree.apply(switch("s1", 1, "a"))
    assert tree.rebuild(nodes, snapshot)
    tree.apply(switch("s1", 1, "a"))
    assert not tree.rebuild(nodes, snapshot)
    tree.put_node(factories.node("c"))
    assert not tree.rebuild(nodes, snapshot)
    tree.drop_node("a")
    assert tree.rebuild(nodes, snapshot) == ["s1"]
    assert not snapshot.columns.domains.levels
    tree.put_node(factories.node("a"))
    assert tree.rebuild(nodes, snapshot) == ["s1"]
    assert snapshot.columns.domains.levels == ("tier-1",)
    tree.apply(switch("s1", 2, "a"))
    assert tree.rebuild(nodes, snapshot)


def test_tiers_count_label_levels_from_the_narrowest(tree: NetworkTree) -> None:
    levels = ("zone", "block", "rack")
    tiers = [tree.level_of_tier(tier, levels) for tier in range(5)]
    assert tiers == [NODE, "rack", "block", "zone", ""]


def test_a_tier_of_hypernodes_is_the_widest_level_within_it(tree: NetworkTree) -> None:
    tree.apply(switch("s1", 2, "a"))
    tree.apply(switch("s2", 5, "a"))
    levels = ("tier-5", "tier-2")
    tiers = [tree.level_of_tier(tier, levels) for tier in (0, 1, 2, 4, 5, 9)]
    assert tiers == [NODE, NODE, "tier-2", "tier-2", "tier-5", ""]  # above the widest: no limit


def test_a_level_may_be_named_by_its_tier_name(
    tree: NetworkTree, nodes: list[ClusterNode], snapshot: Snapshot
) -> None:
    tree.apply(replace(switch("s1", 1, "a", "b"), tier_name="leaf"))
    tree.apply(HyperNodeSeen("s2", 3, (Member("HyperNode", exact="s1"),), tier_name="spine"))
    assert tree.rebuild(nodes, snapshot)
    levels = snapshot.columns.domains.levels
    named = [tree.level_named(name, levels) for name in ("leaf", "spine", "tier-1", "island", "x")]
    assert named == ["tier-1", "tier-3", "tier-1", "island", "x"]


def test_a_tier_name_belongs_to_one_tier(
    tree: NetworkTree, nodes: list[ClusterNode], snapshot: Snapshot
) -> None:
    tree.apply(replace(switch("s2", 2, "a"), tier_name="leaf"))
    tree.apply(replace(switch("s1", 1, "b"), tier_name="leaf"))
    tree.rebuild(nodes, snapshot)
    assert tree.level_named("leaf", snapshot.columns.domains.levels) == "tier-1"
    assert tree.built.errors == {"s2": "tierName leaf is the name of tier 1 too"}
