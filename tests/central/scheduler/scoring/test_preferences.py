"""What pods would rather have decides where all else is equal, and never stands in the way."""

from collections import Counter
from dataclasses import replace

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeSeen, PodSeen, Taint, Toleration
from central.model.pod_rules import Nearer, Requirement, Rules, Spread
from central.scheduler.cycle import schedule_once
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

ZONE = "zone"
FAST = (Requirement("disk", "In", ("fast",)),)
SPREAD = Rules(even=(Spread(factories.mates("web", leaving=False), ZONE, 1),))
LONELY = Rules(nearer=(Nearer(factories.mates("web"), factories.HOST, -10),))


def node(name: str, zone: str = "", **other: object) -> NodeSeen:
    return factories.node(name, rack="r", labels={ZONE: zone} if zone else None, **other)  # type: ignore[arg-type]  # a test's shorthand


def web(name: str, rules: Rules | None, gpus: int = 0) -> PodSeen:
    return factories.pod(name, gpus, rules=rules, labels=(("app", "web"),))


def placed(*facts: Fact) -> dict[str, str]:
    scheduler = new_scheduler(factories.LEVELS)
    schedule_once(scheduler, facts, 0.0)
    check_invariants(scheduler)
    return {pod.seen.name: pod.node for pod in scheduler.state.pods.values()}


def test_preferred_nodes_go_before_full_ones() -> None:
    nodes = [factories.node("a"), factories.node("b", labels={"disk": "fast"})]
    full = factories.pod("used", 1, node="a")
    assert placed(*nodes, full, factories.pod("p", 1))["p"] == "a"
    likes = Rules(nodes=((5, FAST),))
    assert placed(*nodes, full, factories.pod("p", 1, rules=likes))["p"] == "b"
    taken = factories.pod("other", 8, node="b")
    assert placed(*nodes, full, taken, factories.pod("p", 1, rules=likes))["p"] == "a"


def test_replicas_that_would_rather_be_alone() -> None:
    nodes = [node(name) for name in "abc"]
    found = placed(*nodes, *(web(f"w{i}", LONELY, 1) for i in range(6)))
    assert Counter(found.values()) == {"a": 2, "b": 2, "c": 2}
    together = placed(*nodes, *(web(f"w{i}", None, 1) for i in range(6)))
    assert set(together.values()) == {"a"}


def test_soft_spread_evens_out_and_never_refuses() -> None:
    nodes = [node("a1", "a"), node("a2", "a"), node("b1", "b", pods=1), node("c1", "c")]
    found = placed(*nodes, *(web(f"w{i}", SPREAD, 1) for i in range(6)))
    zones = Counter(name[0] for name in found.values())
    assert zones in ({"a": 3, "b": 1, "c": 2}, {"a": 2, "b": 1, "c": 3})


def test_near_others() -> None:
    nodes = [node("a"), node("b", gpus=16)]
    store = factories.pod("store", 0, node="b", labels=(("app", "store"),))
    likes = Rules(nearer=(Nearer(factories.mates("store"), factories.HOST, 1),))
    assert placed(*nodes, store, factories.pod("p", 1))["p"] == "a"
    assert placed(*nodes, store, factories.pod("p", 1, rules=likes))["p"] == "b"


def test_taints_that_only_discourage() -> None:
    spot = Taint("spot", "", "PreferNoSchedule")
    nodes = [node("a", taints=(spot,), gpus=4), node("b")]
    assert placed(*nodes, factories.pod("p", 1))["p"] == "b"
    tolerant = factories.pod("p", 1)
    bears = replace(tolerant.spec, tolerations=(Toleration("spot", "Exists", "", ""),))
    assert placed(*nodes, replace(tolerant, spec=bears))["p"] == "a"
    assert placed(nodes[0], factories.pod("p", 1))["p"] == "a"


def test_closeness_comes_first_and_equal_racks_by_preference() -> None:
    fast = {"disk": "fast"}
    nodes = [
        *(factories.node(f"a{i}", rack="a", gpus=2) for i in range(2)),
        *(factories.node(f"b{i}", rack="b", gpus=2, labels=fast) for i in range(2)),
        *(factories.node(f"c{i}", rack="c", gpus=1, labels=fast) for i in range(4)),
    ]
    likes = Rules(nodes=((1, FAST),))
    members = [factories.pod(f"g-{i}", 1, "g", rules=likes) for i in range(4)]
    gang = factories.gang("g", 4, topology_required=RACK)
    assert set(placed(*nodes, gang, *members).values()) == {"b0", "b1"}
    plain = [factories.pod(f"g-{i}", 1, "g") for i in range(4)]
    assert set(placed(*nodes, gang, *plain).values()) == {"a0", "a1"}
