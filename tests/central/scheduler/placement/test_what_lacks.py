"""A reason names, for each node, the first resource that stops one more pod there, and counts only nodes that could
serve such a pod."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import UpdateGangStatus
from central.model.facts import Fact, PodSeen
from central.scheduler.cycle import schedule_once
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


def test_the_first_resource_by_name_counts_a_node_once() -> None:
    a = node("a", cpu=8 * CORES, pods=1)
    assert details(a, runs("a", 0, 7), waits(1, 4)) == (
        "8 of 8 GPUs free on 1 node; 1 node has GPUs free and lacks 3 of 4 cpu"
    )


def test_a_node_without_gpus_left_is_not_counted_for_its_cpu() -> None:
    a = node("a", cpu=8 * CORES)
    assert details(a, runs("a", 8, 8), waits(1, 4)) == "0 of 8 GPUs free on 1 node"


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
        "24 of 24 GPUs free on 3 nodes; 2 nodes have GPUs free and lack 1 of 1 pod; "
        "1 node has GPUs free and lacks 3 of 4 cpu for one more pod"
    )
