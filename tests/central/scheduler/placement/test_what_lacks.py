"""A reason names, for each node, the resources that stop one more pod there, and counts only nodes that could serve
such a pod."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import UpdateGangStatus
from central.model.facts import Fact, PodSeen, Taint
from central.scheduler.cycle import schedule_once
from protos.names import RACK
from tests.central import factories
from tests.central.factories import node, pod

CORES = 1000


def details(*facts: Fact) -> str:
    """What stands in brackets in the reason of the pods that wait."""
    decisions = schedule_once(new_scheduler(factories.LEVELS), list(facts), 0.0)
    updates = [each for each in decisions if isinstance(each, UpdateGangStatus)]
    (reason,) = (each.reason for each in updates if each.phase == "Pending")
    return reason.partition("(")[2].partition(")")[0]


def runs(where: str, gpus: int, cores: float) -> PodSeen:
    return pod(f"on-{where}", gpus, cpu=int(cores * CORES), node=where)


def waits(gpus: int, cores: int) -> PodSeen:
    return pod("w", gpus, cpu=cores * CORES)


def test_a_node_without_gpus_hides_no_lack_of_cpu() -> None:
    gpu, cpu = node("gpu", cpu=8 * CORES), node("cpu", gpus=0)
    assert details(gpu, cpu, runs("gpu", 1, 7), waits(1, 4)) == (
        "7 of 8 GPUs free on 1 node; 1 node has GPUs free and lacks 3 of 4 cpu"
    )


def test_one_node_lacks_gpus_and_another_cpu() -> None:
    a, b = node("a", cpu=8 * CORES), node("b", cpu=8 * CORES)
    assert details(a, b, runs("a", 8, 1), runs("b", 1, 7), waits(2, 4)) == (
        "7 of 16 GPUs free on 2 nodes; 1 node has GPUs free and lacks 3 of 4 cpu"
    )


def test_no_single_node_has_the_gpus() -> None:
    a, b = node("a"), node("b")
    assert details(a, b, runs("a", 3, 1), runs("b", 1, 1), waits(8, 4)) == (
        "12 of 16 GPUs free on 2 nodes, at most 7 on one"
    )


def test_enough_gpus_on_one_node_are_not_counted_as_few() -> None:
    a, b = node("a", cpu=8 * CORES), node("b", cpu=8 * CORES)
    assert details(a, b, runs("a", 0, 7), runs("b", 0, 6), waits(8, 4)) == (
        "16 of 16 GPUs free on 2 nodes; 2 nodes have GPUs free and lack at least 2 of 4 cpu"
    )


def test_a_node_that_lacks_two_resources_is_counted_once() -> None:
    a = node("a", cpu=8 * CORES, pods=1)
    assert details(a, runs("a", 0, 7), waits(1, 4)) == (
        "8 of 8 GPUs free on 1 node; 1 node has GPUs free and lacks 3 of 4 cpu and 1 of 1 place for pods"
    )


def test_a_node_without_gpus_left_also_lacks_cpu() -> None:
    a, b = node("a", cpu=8 * CORES), node("b", cpu=8 * CORES)
    assert details(a, b, runs("a", 8, 8), runs("b", 8, 6), waits(1, 4)) == (
        "0 of 16 GPUs free on 2 nodes; 2 nodes also lack at least 2 of 4 cpu"
    )


def test_a_refused_node_says_all_that_stops_a_pod_there() -> None:
    taints = (Taint("a", "", "NoSchedule"), Taint("b", "", "NoSchedule"))
    a, b = node("a", cpu=8 * CORES, taints=taints, unschedulable=True), node("b", gpus=2)
    c = node("c", cpu=8 * CORES, unschedulable=True, gpus=0)
    assert details(a, b, c, runs("a", 7, 7), runs("b", 1, 1), waits(2, 4)) == (
        "1 of 2 GPUs free on 1 node; "
        "1 node: cordoned, taints a, b, lacks 3 of 4 cpu and 1 of 2 GPUs"
    ), "c could never serve it"


def test_taints_of_conditions_are_not_named_beside_the_condition() -> None:
    taints = (Taint("node.kubernetes.io/not-ready", "", "NoSchedule"),)
    assert details(node("a", ready=False, taints=taints), waits(1, 4)) == "1 node: not ready"


@pytest.mark.parametrize("nodes", [1, 3])
def test_pods_without_gpus_that_fit_in_part(nodes: int) -> None:
    facts: list[Fact] = [node(f"n{number}", gpus=0, cpu=10 * CORES) for number in range(nodes)]
    facts.append(factories.gang("g", 2 * nodes))
    facts += [pod(f"g-{rank}", 0, "g", cpu=4 * CORES) for rank in range(2 * nodes)]
    said = "1 node lacks 1 of 4 cpu" if nodes == 1 else "3 nodes lack at least 1 of 4 cpu"
    assert details(*facts, runs("n0", 0, 3)) == f"{said} for one more pod"


def test_the_resource_that_stops_most_nodes_is_first() -> None:
    facts: list[Fact] = [node("a", cpu=10 * CORES), node("b", pods=1), node("c", pods=1)]
    facts += [runs("b", 0, 1), runs("c", 0, 1), runs("a", 0, 5), factories.gang("g", 2)]
    facts += [pod(f"g-{rank}", 1, "g", cpu=4 * CORES) for rank in range(2)]
    assert details(*facts) == (
        "24 of 24 GPUs free on 3 nodes; 2 nodes have GPUs free and lack 1 of 1 place for pods; "
        "1 node has GPUs free and lacks 3 of 4 cpu for one more pod"
    )


def never(*facts: Fact) -> str:
    decisions = schedule_once(new_scheduler(factories.LEVELS), list(facts), 0.0)
    updates = [each for each in decisions if isinstance(each, UpdateGangStatus)]
    (reason,) = (each.reason for each in updates if each.phase == "Pending")
    return reason.partition("can never start: ")[2]


TAINTED = (Taint("a", "", "NoSchedule"),)


def test_nodes_that_refuse_a_pod_and_are_too_small_say_their_size() -> None:
    small, large = node("a", gpus=2, taints=TAINTED), node("b", taints=TAINTED)
    assert never(small, waits(4, 4)) == "no node has 4 GPUs, the most is 2"
    assert never(small, large, waits(4, 4)) == "no node may run such a pod (1 node: taint a)"
    least = node("c", gpus=1)
    said = "no node that they may use has 4 GPUs, the most is 1"
    assert never(small, least, waits(4, 4)) == said
    assert never(small, large, least, waits(4, 4)) == f"{said} (1 node: taint a)"


def test_every_resource_that_no_node_has_enough_of_is_named() -> None:
    said = "no node has 100 cpu, the most is 64; no node has 9 GPUs, the most is 8"
    assert never(node("a"), waits(9, 100)) == said
    mixed = never(node("a", cpu=3 * CORES), node("b", gpus=1, cpu=4 * CORES), waits(2, 4))
    assert mixed == "no node has all that one pod requests; a has 3 of 4 cpu"


def test_of_slices_and_shares_no_size_is_certain() -> None:
    part = factories.part("w", 50)
    assert never(node("a", taints=TAINTED), part) == "no node may run such a pod"


def test_the_candidate_is_a_domain_that_suits_the_gang_when_empty() -> None:
    """Rack r1 fits one pod now and never two; r0 fits two once its pod has ended."""
    facts = [node("a", rack="r0"), node("b", rack="r0"), node("c", rack="r1")]
    group = factories.gang("g", 2, topology_required=RACK)
    pods = [pod(f"g-{rank}", 8, "g") for rank in range(2)]
    busy = [runs("a", 1, 1), runs("b", 1, 1)]
    decisions = schedule_once(new_scheduler(factories.LEVELS), [*facts, group, *pods, *busy], 0.0)
    updates = [each for each in decisions if isinstance(each, UpdateGangStatus)]
    (reason,) = (each.reason for each in updates if each.phase == "Pending")
    assert (
        "best candidate r0 fits 0 of 2 (14 of 16 GPUs free on 2 nodes, at most 7 on one)" in reason
    )
