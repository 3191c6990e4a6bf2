"""A gang on unhealthy devices: its owner gets one warning, and the gang keeps running."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Decision, EmitWarning, Evict, UpdateGangStatus
from central.model.facts import GangSeen, NodeGone, NodeReported
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from protos.topology import NodeTopology
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants

HALVES = ((0, 1, 2, 3), (4, 5, 6, 7))


def report(generation: int, why: dict[int, str], holders: bool = True) -> NodeReported:
    topology = factories.topology(8, HALVES)
    gpus = tuple(
        replace(gpu, healthy=gpu.index not in why, why=why.get(gpu.index, ""))
        for gpu in topology.gpus
    )
    grants = (factories.grant("train-0", 0, 1), factories.grant("train-1", 2, 3)) if holders else ()
    return factories.report("a", NodeTopology(gpus, (), topology.links, HALVES), generation, grants)


@pytest.fixture
def scheduler() -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    pods = [factories.pod(f"train-{i}", 2, "train") for i in range(2)]
    group = GangSeen("ns", "train", 2, uid="uid-of-train")
    schedule_once(made, [factories.node("a"), report(1, {}, holders=False), group, *pods], 0.0)
    bound = [replace(pod, node="a", phase="Running") for pod in pods]
    schedule_once(made, [report(2, {}), *bound], 1.0)
    return made


def warnings(decisions: list[Decision]) -> list[EmitWarning]:
    return [each for each in decisions if isinstance(each, EmitWarning)]


def reason(scheduler: Scheduler) -> str:
    return gang_status.describe(scheduler.state, scheduler.state.gangs["ns", "train", True])


def test_the_warning_names_the_gpu_the_pod_and_the_cause(scheduler: Scheduler) -> None:
    decisions = schedule_once(scheduler, [report(3, {3: "XID 79: it has fallen off the bus"})], 2.0)
    words = "GPU 3 of node a, held by train-1, is unhealthy: XID 79: it has fallen off the bus"
    assert warnings(decisions) == [
        EmitWarning("ns", "train", "uid-of-train", "uid-train-1", "train-1", words)
    ]
    assert reason(scheduler) == f"2 of 2 pods placed in one island of node a; {words}"
    assert [each.reason for each in decisions if isinstance(each, UpdateGangStatus)] == [
        reason(scheduler)
    ]
    assert not [each for each in decisions if isinstance(each, Evict)]
    check_invariants(scheduler)


def test_one_warning_until_the_gpu_was_healthy_again(scheduler: Scheduler) -> None:
    assert len(warnings(schedule_once(scheduler, [report(3, {3: "bad"})], 2.0))) == 1
    assert not warnings(schedule_once(scheduler, [report(4, {3: "bad (over; held back)"})], 3.0))
    assert "held back" in reason(scheduler)
    assert len(warnings(schedule_once(scheduler, [report(5, {3: "bad", 0: "worse"})], 4.0))) == 1
    schedule_once(scheduler, [report(6, {})], 5.0)
    assert "unhealthy" not in reason(scheduler)
    assert len(warnings(schedule_once(scheduler, [report(7, {3: "bad"})], 6.0))) == 1


def test_unhealthy_gpus_of_others_do_not_matter(scheduler: Scheduler) -> None:
    assert schedule_once(scheduler, [report(3, {7: "bad"})], 2.0) == []
    assert "unhealthy" not in reason(scheduler)


def test_the_reason_lists_three_devices_at_most(scheduler: Scheduler) -> None:
    decisions = schedule_once(
        scheduler, [report(3, dict.fromkeys(range(8), "the driver is gone"))], 2.0
    )
    assert len(warnings(decisions)) == 4
    assert reason(scheduler).endswith("; and 1 more of its devices")


def test_a_deleted_node_is_not_unhealthy(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [report(3, {3: "bad"})], 2.0)
    schedule_once(scheduler, [NodeGone("a")], 3.0)
    check_invariants(scheduler)
    assert scheduler.state.node_sets.unhealthy == set()
    assert "unhealthy" not in reason(scheduler)


def test_unhealthy_nodes_are_an_invariant(scheduler: Scheduler) -> None:
    schedule_once(scheduler, [report(3, {3: "bad"})], 2.0)
    scheduler.state.node_sets.unhealthy.clear()
    with pytest.raises(AssertionError, match="unhealthy nodes"):
        check_invariants(scheduler)


def test_no_new_pod_uses_an_unhealthy_gpu(scheduler: Scheduler) -> None:
    sick = dict.fromkeys((4, 5, 6), "bad")
    schedule_once(scheduler, [report(3, sick), factories.pod("late", 2)], 2.0)
    assert "uid-late" not in scheduler.state.nodes["a"].pods
    schedule_once(scheduler, [report(4, {})], 3.0)
    assert "uid-late" in scheduler.state.nodes["a"].pods


@pytest.mark.parametrize("left", [1, 2, 3])
@pytest.mark.parametrize("holders", [(), ("train-0",), ("train-0", "train-1")])
def test_gpus_that_the_agent_stopped_reporting(
    scheduler: Scheduler, left: int, holders: tuple[str, ...]
) -> None:
    """A GPU that fell off the bus may be missing from the report, and with it what the pods hold."""
    reported = report(3, {0: "XID 79"})
    gpus = reported.topology.gpus[:left]
    grants = [factories.grant(pod, *((0, 1), (2, 3))[pod == "train-1"]) for pod in holders]
    halves = (tuple(range(left)),)
    fewer = NodeTopology(
        gpus, (), tuple(row[:left] for row in reported.topology.links[:left]), halves
    )
    decisions = schedule_once(scheduler, [factories.report("a", fewer, 3, tuple(grants))], 2.0)
    check_invariants(scheduler)
    assert "GPU 0 of node a, held by train-0, is unhealthy: XID 79" in reason(scheduler)
    assert len(warnings(decisions)) >= 1
    if not holders:
        last = f"GPU {max(left, 1)} of node a, held by "
        assert last in reason(scheduler)
        assert "is unhealthy: its agent does not report it any more" in reason(scheduler)


def carded(generation: int, down: dict[int, str], *held: int) -> NodeReported:
    what = factories.carded(factories.topology(4), 64)
    hcas = tuple(
        replace(hca, why=down.get(place, ""))
        for place, hca in enumerate(what.hcas)
        if down.get(place) != ""
    )
    links = what.links
    if len(hcas) < len(what.hcas):  # the last is gone
        links = tuple(row[:-1] for row in links[:-1])
    grants = tuple(factories.grant_card("one", card) for card in held)
    return factories.report("a", replace(what, hcas=hcas, links=links), generation, grants)


def test_a_pod_with_a_nic_that_went_down_gets_a_warning() -> None:
    made = new_scheduler(factories.LEVELS)
    pods = [
        factories.wishing(factories.pod("one", 1, "train"), -1),
        factories.pod("two", 1, "train"),
    ]
    group = GangSeen("ns", "train", 2, uid="uid-of-train")
    schedule_once(made, [factories.node("a", gpus=4), carded(1, {}), group, *pods], 0.0)
    bound = [replace(pod, node="a", phase="Running") for pod in pods]
    schedule_once(made, [carded(2, {}, 1), *bound], 1.0)
    assert not warnings(schedule_once(made, [carded(3, {0: "no port is ACTIVE"}, 1)], 2.0))
    down = schedule_once(made, [carded(4, {1: "no port is ACTIVE: 1 is DOWN"}, 1)], 3.0)
    words = "NIC mlx5_1 of node a, held by one, is unhealthy: no port is ACTIVE: 1 is DOWN"
    assert warnings(down) == [
        EmitWarning("ns", "train", "uid-of-train", "uid-one", "one", words, "NicUnhealthy")
    ]
    assert reason(made).endswith(words)
    assert not warnings(schedule_once(made, [carded(5, {1: "it has no port"}, 1)], 4.0))
    schedule_once(made, [carded(6, {}, 1)], 5.0)
    assert not made.state.node_sets.unhealthy
    assert "unhealthy" not in reason(made)
    gone = warnings(schedule_once(made, [carded(7, {1: ""}, 1)], 6.0))
    assert [each.why.rpartition(": ")[2] for each in gone] == ["it is gone"]
    check_invariants(made)
