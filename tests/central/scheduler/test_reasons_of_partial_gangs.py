"""What a gang that runs in part is told: where its other members are, and what is free there and not elsewhere. What
others are told of nodes that are of no use to them."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import (
    Fact,
    NodeSeen,
    PodGone,
    PodSeen,
    QueueSeen,
    SubGroupLayer,
    SubGroups,
    Taint,
)
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from protos.names import BLOCK, GPU, RACK
from tests.central import factories
from tests.simulation.reason_checker import assert_reasons_true

RING = "ring"


def cluster_with(*nodes: NodeSeen) -> Scheduler:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, [*nodes], 0.0)
    return scheduler


def member(name: str, gpus: int, node: str = "") -> PodSeen:
    labels = ((RING, name.rpartition("-")[2]), ("stage", "0"))
    phase = "Running" if node else "Pending"
    return factories.pod(name, gpus, name.partition("-")[0], labels=labels, node=node, phase=phase)


def reason(scheduler: Scheduler, facts: list[Fact], name: str = "g") -> str:
    schedule_once(scheduler, facts, 1.0)
    assert_reasons_true(scheduler)
    return scheduler.state.pending.waiting["ns", name, True].attempt.reason


def rack(name: str, number: int, **other: object) -> NodeSeen:
    return factories.node(name, rack=f"r{number}", block="b0", **other)  # type: ignore[arg-type]


def test_new_subgroups_must_join_the_rack_of_the_gang() -> None:
    """Rack r2 is empty, and of no use."""
    scheduler = cluster_with(rack("a", 1), rack("b", 2), rack("c", 2))
    policy = SubGroups("s", 1, 2, keys=(RING,), required="node")
    facts: list[Fact] = [
        factories.gang("g", 2, subgroups=(policy,), topology_required=RACK),
        member("g-0", 6, node="a"),
        member("g-1", 6),
    ]
    assert reason(scheduler, facts).startswith(
        "needs 1 subgroup of 1 pod x 6 GPUs, each in one node, all in one rack; "
        "rack r1, where the rest of the gang is, fits 0 of 1 subgroup (2 of 8 GPUs free on 1 node)"
    )


@pytest.mark.parametrize("subgroups", [(), (SubGroups("s", 1, 2, keys=(RING,), required="node"),)])
def test_a_gang_whose_members_are_in_two_racks(subgroups: tuple[SubGroups, ...]) -> None:
    """Its nodes were labelled otherwise after it had started. Both racks have GPUs free."""
    scheduler = cluster_with(rack("a", 1), rack("b", 2))
    facts: list[Fact] = [
        factories.gang("g", 3, subgroups=subgroups, topology_required=RACK),
        *(member("g-0", 1, node="a"), member("g-1", 1, node="b"), member("g-2", 1)),
    ]
    said = reason(scheduler, facts)
    assert said.endswith("in one rack; the rest of the gang is in 2 racks: r1, r2")


def test_a_gang_on_one_node_outside_of_all_racks() -> None:
    """What is on one node is in one rack."""
    scheduler = cluster_with(factories.node("a"), rack("b", 2))
    gang = factories.gang("g", 2, topology_required=RACK)
    facts: list[Fact] = [gang, member("g-0", 8, node="a"), member("g-1", 1)]
    assert reason(scheduler, facts).startswith(
        "needs 1 pod x 1 GPU in one rack; node a, where the rest of the gang is, fits 0 of 1 "
        "(0 of 8 GPUs free on 1 node)"
    )


def test_a_gang_with_a_member_outside_of_all_racks() -> None:
    scheduler = cluster_with(factories.node("a"), rack("b", 2))
    gang = factories.gang("g", 3, topology_required=RACK)
    running = [member("g-0", 1, node="a"), member("g-1", 1, node="b")]
    assert reason(scheduler, [gang, *running, member("g-2", 1)]) == (
        "needs 1 pod x 1 GPU in one rack; the rest of the gang is on node a, which is in no rack"
    )


def test_a_gang_in_one_rack_that_is_in_no_block() -> None:
    scheduler = cluster_with(*(factories.node(name, rack="r1") for name in "ab"), rack("c", 2))
    gang = factories.gang("g", 3, topology_required=BLOCK)
    running = [member("g-0", 8, node="a"), member("g-1", 8, node="b")]
    assert reason(scheduler, [gang, *running, member("g-2", 1)]).startswith(
        "needs 1 pod x 1 GPU in one block; rack r1, where the rest of the gang is, fits 0 of 1 "
        "(0 of 16 GPUs free on 2 nodes)"
    )


def test_members_on_two_nodes_where_one_is_required() -> None:
    scheduler = cluster_with(rack("a", 1), rack("b", 1))
    gang = factories.gang("g", 3, topology_required="node")
    facts: list[Fact] = [
        gang,
        member("g-0", 1, node="a"),
        member("g-1", 1, node="b"),
        member("g-2", 1),
    ]
    assert reason(scheduler, facts) == (
        "needs 1 pod x 1 GPU in one node; the rest of the gang is on 2 nodes: a, b"
    )


def test_rules_are_not_blamed_where_the_members_are_apart() -> None:
    scheduler = cluster_with(rack("a", 1), rack("b", 2))
    gang = factories.gang("g", 4, topology_required=RACK)
    rules = factories.apart("x", factories.HOST)
    apart = [
        factories.pod(f"g-{i}", 1, "g", rules=rules, labels=(("app", "x"),)) for i in range(2, 4)
    ]
    facts: list[Fact] = [gang, member("g-0", 1, node="a"), member("g-1", 1, node="b"), *apart]
    said = reason(scheduler, facts)
    assert said.endswith("the rest of the gang is in 2 racks: r1, r2")


def test_a_subgroup_is_not_called_the_gang() -> None:
    """The rest of the gang is on both nodes, that of the subgroup on one."""
    scheduler = cluster_with(rack("a", 1), rack("b", 1))
    policy = SubGroups("s", 2, 2, keys=("set",), required="node")
    pods = [
        replace(member(name, gpus, node=node), labels=(("set", part),))
        for name, gpus, node, part in (
            ("g-0", 5, "a", "x"),
            ("g-1", 4, "", "x"),
            ("g-2", 1, "b", "y"),
            ("g-3", 1, "b", "y"),
        )
    ]
    said = reason(scheduler, [factories.gang("g", 4, subgroups=(policy,)), *pods])
    assert said.startswith(
        "one subgroup needs 1 pod x 4 GPUs in one node; node a, where the rest of the subgroup is, "
        "fits 0 of 1 (3 of 8 GPUs free on 1 node)"
    )


def test_a_group_of_subgroups_is_not_called_the_gang() -> None:
    scheduler = cluster_with(rack("a", 1), rack("b", 2))
    layer = SubGroupLayer(("stage",), RACK)
    policy = SubGroups("s", 1, 2, keys=("stage", RING), required="node", layers=(layer,))
    facts: list[Fact] = [
        factories.gang("g", 2, subgroups=(policy,)),
        *(member("g-0", 6, node="a"), member("g-1", 6)),
    ]
    said = reason(scheduler, facts)
    assert said.startswith(
        "one group of subgroups needs 1 subgroup of 1 pod x 6 GPUs, each in one node, all in one rack; "
        "rack r1, where the rest of the group is, fits 0 of 1 subgroup (2 of 8 GPUs free on 1 node)"
    )


def test_only_refused_nodes_of_its_domain_are_listed() -> None:
    cordoned = [rack(name, 2, unschedulable=True) for name in "bcd"]
    scheduler = cluster_with(rack("a", 1, unschedulable=True), *cordoned)
    gang = factories.gang("g", 2, topology_required=RACK)
    facts: list[Fact] = [gang, member("g-0", 1, node="a"), member("g-1", 1)]
    assert reason(scheduler, facts) == (
        "needs 1 pod x 1 GPU in one rack; rack r1, where the rest of the gang is, fits 0 of 1 "
        "(1 node: cordoned)"
    )


def test_the_pods_that_are_short_are_named_and_not_those_that_fit() -> None:
    """The small ones are short in the cluster, compared with their number, but each rack takes them; the large one has
    no rack."""
    scheduler = cluster_with(rack("a", 1), rack("b", 2), rack("c", 3), rack("d", 4))
    gang = factories.gang("g", 18, topology_required=RACK)
    large = [factories.pod(f"g-{i}", 4, "g", cpu=30_000) for i in range(2)]
    small = [factories.pod(f"g-{i}", 0, "g", cpu=1000) for i in range(2, 18)]
    busy = [factories.pod(f"o-{n}", 3, node=n, phase="Running") for n in "abcd"]
    said = reason(scheduler, [*busy, gang, *large, *small])
    assert "fits 1 of 2 pods x 4 GPUs (5 of 8 GPUs free on 1 node)" in said


def test_never_counts_a_node_outside_of_all_racks() -> None:
    """A gang fits one node, whether it is in a rack or not: only that the pod there ends lets it start."""
    scheduler = cluster_with(rack("a", 1), rack("b", 2), factories.node("c", gpus=16))
    gang = factories.gang("g", 2, topology_required=RACK)
    busy = member("o-0", 16, node="c")
    pods = [factories.pod(f"g-{i}", 8, "g") for i in range(2)]
    assert "never" not in reason(scheduler, [busy, gang, *pods])
    schedule_once(scheduler, [PodGone(busy.uid)], 2.0)
    assert {pod.node for pod in scheduler.state.gangs["ns", "g", True].members.values()} == {"c"}


def test_a_rack_that_lost_its_nodes_is_no_candidate() -> None:
    scheduler = cluster_with(rack("a", 1))
    schedule_once(scheduler, [rack("a", 2)], 0.5)
    gang = factories.gang("g", 2, topology_required=RACK)
    busy = factories.pod("o-0", 8, node="a", phase="Running")
    said = reason(scheduler, [busy, gang, *(factories.pod(f"g-{i}", 4, "g") for i in range(2))])
    assert "best candidate r2 fits 0 of 2 (0 of 8 GPUs free on 1 node)" in said


@pytest.mark.parametrize(("count", "said"), [(3, "no rack fits more than 2 subgroups"), (2, "")])
def test_subgroups_that_no_empty_rack_takes(count: int, said: str) -> None:
    """A rack has GPUs for ten pods, but a subgroup of three must be on one node of five."""
    nodes = [rack(name, number, gpus=5) for name, number in (("a", 1), ("b", 1), ("c", 2))]
    scheduler = cluster_with(*nodes)
    busy = [factories.pod(f"o-{n.name}", 4, node=n.name, phase="Running") for n in nodes]
    policy = SubGroups("s", 3, count, keys=("set",), required="node")
    gang = factories.gang("g", 3 * count, subgroups=(policy,), topology_required=RACK)
    pods = [
        factories.pod(f"g-{i}", 1, "g", labels=(("set", str(i // 3)),)) for i in range(3 * count)
    ]
    found = reason(scheduler, [*busy, gang, *pods])
    assert ("can never start: even if empty, " + said in found) if said else "never" not in found


@pytest.mark.parametrize("level", ["node", RACK])
def test_subgroups_where_there_are_no_nodes(level: str) -> None:
    policy = SubGroups("s", 1, 2, keys=("set",), required=level)
    gang = factories.gang("g", 2, subgroups=(policy,), topology_required=RACK)
    pods = [factories.pod(f"g-{i}", 1, "g", labels=(("set", str(i)),)) for i in range(2)]
    said = reason(cluster_with(), [gang, *pods])
    assert said.endswith(
        "; can never start: no node has label lockstep.dev/rack, so there is no rack"
    )


def test_what_others_reserve_is_said_beside_never() -> None:
    """The number of what fits now leaves out what is reserved."""
    scheduler = cluster_with(rack("a", 1), rack("b", 2))
    running = [
        factories.pod("o-0", 8, node="a", phase="Running", runs_for_s=600.0, started=0.0),
        factories.pod("o-1", 4, node="b", phase="Running", runs_for_s=600.0, started=0.0),
    ]
    facts: list[Fact] = [*running, factories.gang("head", 4, created=1.0, topology_required=BLOCK)]
    facts += [factories.pod(f"head-{i}", 4, "head", created=1.0) for i in range(4)]
    facts += [factories.gang("g", 3, created=2.0, topology_required=RACK)]
    facts += [factories.pod(f"g-{i}", 4, "g", created=2.0) for i in range(3)]
    said = reason(scheduler, facts)
    assert "can never start: even if empty, no rack fits more than 2" in said
    assert "reserved for ns/head" in said


@pytest.mark.parametrize(
    ("level", "unknown"), [("island", "islands unknown"), ("numa", "NUMA nodes unknown")]
)
@pytest.mark.parametrize("subgroups", [(), (SubGroups("s", 1, 1, keys=(RING,), required="node"),)])
def test_nodes_without_an_agent_are_no_riddle(
    level: str, unknown: str, subgroups: tuple[SubGroups, ...]
) -> None:
    """All GPUs are free, and nobody knows which of them are close."""
    scheduler = cluster_with(rack("a", 1), rack("b", 1))
    gang = factories.gang("g", 1, topology_required=level, subgroups=subgroups)
    said = reason(scheduler, [gang, member("g-0", 4)])
    assert said.endswith(f"(16 of 16 GPUs free on 2 nodes; 2 nodes: {unknown})")


def test_pods_that_keep_apart_need_a_node_each() -> None:
    scheduler = cluster_with(rack("a", 1), rack("b", 1))
    rules = factories.apart("x", factories.HOST)
    pods = [factories.pod(f"g-{i}", 1, "g", rules=rules, labels=(("app", "x"),)) for i in range(3)]
    said = reason(scheduler, [factories.gang("g", 3), *pods])
    assert "fits 2 of 3 (16 of 16 GPUs free on 2 nodes; at most one of them per node" in said
    assert "ports or volumes: enough for 2)" in said


@pytest.mark.parametrize(
    ("count", "gpus", "never"), [(3, 8, "fit 2"), (1, 9, "has 9 GPUs, the most is 8"), (2, 8, "")]
)
def test_never_is_said_before_what_a_queue_lacks(count: int, gpus: int, never: str) -> None:
    """Whatever the other queue has, the nodes that the pods may use do not take them."""
    taint = Taint("dedicated", "x", "NoSchedule")
    nodes = [rack("a", 1), rack("b", 1), rack("c", 2, taints=(taint,))]
    scheduler = cluster_with(*nodes)
    sure = QueueSeen("sure", guarantee=((GPU, 16),))
    pods = [factories.pod(f"g-{i}", gpus, "g") for i in range(count)]
    said = reason(scheduler, [sure, QueueSeen("default"), factories.gang("g", count), *pods])
    assert ("can never start" in said and never in said) if never else "guaranteed to" in said
