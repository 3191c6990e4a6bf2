"""Pods that may not share a node, a rack or a zone can never start where there are fewer of these than pods."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, NodeSeen, PodSpec, SubGroups, Taint
from central.model.pod_rules import Port, Rules
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World

APART, BY_RACK = factories.apart("x", factories.HOST), factories.apart("x", RACK)
PORT = Rules(ports=(Port("TCP", 80),))


def nodes(count: int, **other: object) -> list[NodeSeen]:
    """Two in each rack, four in each block."""
    made = [factories.node(f"n{i}", rack=f"r{i // 2}", block=f"b{i // 4}") for i in range(count)]
    return [replace(node, **other) for node in made]  # type: ignore[arg-type]  # a test's shorthand


def reason(where: list[NodeSeen], pods: int, rules: Rules, **group: object) -> str:
    world = World(*where)
    made = [
        factories.pod(f"g-{i}", 1, "g", rules=rules, labels=(("app", "x"), ("ring", str(i // 2))))
        for i in range(pods)
    ]
    world.step(1.0, factories.gang("g", pods, **group), *made)
    return "" if "g" in world.began else world.told["g"]


NEVER = "; can never start: by their anti-affinity no two of 3 pods may share a "


@pytest.mark.parametrize(("rules", "why"), [(APART, "anti-affinity"), (PORT, "host port")])
def test_more_pods_than_nodes(rules: Rules, why: str) -> None:
    said = reason(nodes(2), 3, rules)
    never = f"; can never start: by their {why} no two of 3 pods may share a node, and they may use 2 nodes"
    assert said.endswith(never)
    assert reason(nodes(3), 3, rules) == ""


def test_a_cluster_without_nodes_may_get_some() -> None:
    assert reason([], 3, APART) == "needs 3 pods x 1 GPU; the cluster has no nodes"


def test_more_pods_than_racks() -> None:
    assert reason(nodes(4), 3, BY_RACK).endswith(f"{NEVER}rack, and they may use 2 racks")
    assert reason(nodes(6), 3, BY_RACK) == ""


def test_nodes_outside_every_rack_bind_no_rule() -> None:
    bare = [*nodes(2), factories.node("bare")]
    assert reason(bare, 3, BY_RACK) == ""


def test_only_nodes_that_they_may_use_count() -> None:
    kept = [*nodes(3)[:2], *nodes(3, taints=(Taint("job", "", "NoSchedule"),))[2:]]
    assert f"{NEVER}node, and they may use 2 nodes" in reason(kept, 3, APART)


def test_cordoned_nodes_and_nodes_in_use_count() -> None:
    closed = [*nodes(3)[:2], *nodes(3, unschedulable=True)[2:]]
    said = reason(closed, 3, APART)
    assert "fits 2 of 3" in said
    assert "never" not in said


def test_inside_the_level_that_they_require() -> None:
    said = reason(nodes(6), 3, APART, topology_required=RACK)
    assert said.endswith(f"{NEVER}node, and no rack has more than 2 nodes that they may use")
    said = reason(nodes(6), 3, APART, topology_required="node")
    assert said.endswith(f"{NEVER}node, and all must be in one node")
    said = reason(nodes(8), 3, BY_RACK, topology_required=BLOCK)
    assert said.endswith(f"{NEVER}rack, and no block has more than 2 racks that they may use")
    assert reason(nodes(4), 3, APART, topology_required=BLOCK) == ""


def test_subgroups_whose_pods_may_not_share_a_node() -> None:
    pairs = (SubGroups("pair", 2, 2, (), ("ring",), "node"),)
    said = reason(nodes(6), 4, APART, subgroups=pairs)
    assert "no two of 2 pods may share a node, and all must be in one node" in said


def test_kinds_that_may_not_share_a_node_are_counted_together() -> None:
    world = World(*nodes(2))
    labels = (("app", "x"),)
    pods = [
        factories.pod(f"g-{i}", gpus, "g", rules=APART, labels=labels)
        for i, gpus in enumerate((1, 1, 2))
    ]
    world.step(1.0, factories.gang("g", 3), *pods)
    assert f"{NEVER}node, and they may use 2 nodes" in world.told["g"]


def test_pods_that_their_own_rule_does_not_match_may_share_a_node() -> None:
    world = World(*nodes(2))
    others = [
        factories.pod(f"g-{i}", 1, "g", rules=APART, labels=(("app", "y"),)) for i in range(3)
    ]
    world.step(1.0, factories.gang("g", 3), *others)
    assert "g" in world.began


def test_a_resource_that_may_grow_changes_nothing() -> None:
    """Shares of GPUs may come, further nodes not."""
    share = factories.part("of", 20).spec
    spec = PodSpec(share.requests, share_containers=share.share_containers, rules=APART)
    pods = [
        replace(factories.pod(f"g-{i}", gang="g", labels=(("app", "x"),)), spec=spec)
        for i in range(3)
    ]
    world = World(*nodes(2))
    world.step(1.0, factories.gang("g", 3), *pods)
    assert f"{NEVER}node, and they may use 2 nodes" in world.told["g"]


def busy(gpus: int, *others: str) -> list[Fact]:
    """Pods of other schedulers that use so many GPUs of these nodes."""
    return [
        factories.pod(f"o-{node}", gpus, node=node, phase="Running", ours=False) for node in others
    ]


def test_a_node_outside_every_rack_may_come_free() -> None:
    world = World(*nodes(2), factories.node("bare"), *busy(8, "bare"))
    pods = [
        factories.pod(f"g-{i}", 1, "g", rules=BY_RACK, labels=(("app", "x"),)) for i in range(3)
    ]
    world.step(1.0, factories.gang("g", 3), *pods)
    assert "g" not in world.began
    assert "never" not in world.told["g"]


def test_nodes_that_are_too_small_do_not_count() -> None:
    small = [*nodes(2), factories.node("small", gpus=0)]
    assert f"{NEVER}node, and they may use 2 nodes" in reason(small, 3, APART)


def test_pods_that_no_own_rule_keeps_apart_wait_for_others_to_end() -> None:
    world = World(*nodes(2), *busy(7, "n0", "n1"))
    pods = [factories.pod(f"g-{i}", 1, "g", rules=APART, labels=(("app", "y"),)) for i in range(3)]
    world.step(1.0, factories.gang("g", 3), *pods)
    assert "g" not in world.began
    assert "never" not in world.told["g"]
