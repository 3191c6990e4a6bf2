"""Packing and spreading as policies: of the cluster, of a gang, of a pod."""

from collections import Counter

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from protos.names import PACK, RACK, SPREAD
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants


def placed(*facts: Fact, policy: str = PACK) -> dict[str, str]:
    scheduler = new_scheduler(factories.LEVELS, placement=policy)
    schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)
    return {pod.seen.name: pod.node for pod in scheduler.state.pods.values()}


def members(count: int, gpus: int = 1) -> list[Fact]:
    return [factories.pod(f"g-{i}", gpus, "g") for i in range(count)]


NODES = [
    *(factories.node(f"a{i}", rack="a", gpus=4) for i in range(4)),
    *(factories.node(f"b{i}", rack="b", gpus=4) for i in range(4)),
]


@pytest.mark.parametrize(("own", "policy"), [(SPREAD, PACK), ("", SPREAD)])
def test_a_gang_spreads_over_the_nodes_of_one_rack(own: str, policy: str) -> None:
    """The closest domain comes first: no other rack is opened."""
    found = placed(*NODES, factories.gang("g", 8, placement=own), *members(8), policy=policy)
    assert Counter(found.values()) == dict.fromkeys(("a0", "a1", "a2", "a3"), 2)


@pytest.mark.parametrize(("own", "policy"), [(PACK, SPREAD), ("", PACK)])
def test_a_gang_packs_onto_the_fewest(own: str, policy: str) -> None:
    found = placed(*NODES, factories.gang("g", 8, placement=own), *members(8), policy=policy)
    assert Counter(found.values()) == {"a0": 4, "a1": 4}


def test_single_pods_go_to_the_emptiest_or_the_fullest() -> None:
    used = factories.pod("used", 1, node="a1")
    pods = [factories.pod(f"p{i}", 1, created=float(i)) for i in range(3)]
    nodes = NODES[:3]
    search = placed(*nodes, used, *pods)
    assert {node for name, node in search.items() if name != "used"} == {"a1"}
    spread = placed(*nodes, used, *pods, policy=SPREAD)
    assert Counter(spread.values()) == {"a0": 1, "a1": 1, "a2": 1} | {spread["p2"]: 2}


def test_a_required_node_holds_all_of_a_gang_that_would_spread() -> None:
    gang = factories.gang("g", 4, placement=SPREAD, topology_required="node")
    assert len(set(placed(*NODES, gang, *members(4)).values())) == 1
    gang = factories.gang("g", 5, placement=SPREAD, topology_required=RACK)
    found = Counter(placed(*NODES, gang, *members(5)).values())
    assert sorted(found.values()) == [1, 1, 1, 2]
