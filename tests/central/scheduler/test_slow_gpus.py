"""Slow GPUs are allocated last, and not at all to pods that refuse them."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import PodSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from central.server.published_nodes import node_labels
from central.server.published_nodes.node_marks import marks_of
from protos.topology import NodeTopology, Weak, indices_of
from tests.central import factories

ALONE = tuple((gpu,) for gpu in range(8))


def slow(islands: tuple[tuple[int, ...], ...] | None = None) -> NodeTopology:
    """GPU 0 is slow: the one that is chosen first where all are alike."""
    return replace(factories.topology(8, islands), weak=(Weak(0, 0, "too hot"), Weak(1, 2, "pair")))


def cluster(**nodes: NodeTopology) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    facts = [factories.node(name) for name in nodes]
    schedule_once(made, [*facts, *(factories.report(n, t) for n, t in nodes.items())], 0.0)
    return made


def placed(made: Scheduler, *pods: PodSeen) -> dict[str, tuple[str, list[int]]]:
    binds = [each for each in schedule_once(made, pods, 1.0) if isinstance(each, Bind)]
    return {each.name: (each.node, list(indices_of(each.gpus))) for each in binds}


def full_speed(pod: PodSeen) -> PodSeen:
    return replace(pod, spec=replace(pod.spec, full_speed=True))


def test_a_node_with_a_slow_gpu_is_used_last() -> None:
    made = cluster(a=slow(), b=factories.topology(8))
    assert placed(made, factories.pod("p-0", 8))["p-0"][0] == "b"
    assert placed(made, factories.pod("p-1", 8))["p-1"][0] == "a"


@pytest.mark.parametrize("islands", [None, ALONE])
def test_inside_a_node_the_others_come_first(islands: tuple[tuple[int, ...], ...] | None) -> None:
    made = cluster(a=slow(islands))
    found = placed(made, factories.pod("p-0", 1))
    assert found["p-0"] == ("a", [1])
    found = placed(made, *(factories.pod(f"p-{number}", 1) for number in range(1, 8)))
    assert sorted(gpus for _, gpus in found.values()) == [[0], *([n] for n in range(2, 8))]


def test_a_pod_that_needs_full_speed_waits_and_says_why() -> None:
    made = cluster(a=slow())
    assert placed(made, full_speed(factories.pod("p-0", 8))) == {}
    (gang,) = made.state.gangs.values()
    assert "slow GPU" in gang_status.describe(made.state, gang)
    schedule_once(made, [factories.report("a", factories.topology(8), 2)], 2.0)
    assert made.state.nodes["a"].pods


def test_the_node_says_so() -> None:
    made = cluster(a=slow(), b=factories.topology(8))
    found = marks_of(made.state.nodes["a"])
    assert found is not None
    assert found[1:] == (False, "GpuSlow", "GPU 0 is slow: too hot")
    assert found.labels["lockstep.dev/slow-gpu"] == "1"
    before = node_labels.labels_of(slow())
    after = node_labels.labels_of(factories.topology(8))
    assert node_labels.changes(before, after) == {"lockstep.dev/slow-gpu": None}
