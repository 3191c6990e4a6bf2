"""Whether a node has a problem, and in which words."""

from dataclasses import replace

from central.scheduler.inventory.cluster_node import ClusterNode
from central.server.published_nodes.node_marks import NodeMarks, marks_of
from protos.topology import NodeTopology, Slice
from tests.central import factories


def node(topology: NodeTopology | None = None) -> ClusterNode:
    made = ClusterNode("a")
    made.seen = factories.node("a")
    if topology:
        made.apply_report(factories.report("a", topology))
    return made


def sick(*why: str) -> NodeTopology:
    topology = factories.topology(8)
    gpus = tuple(
        replace(gpu, healthy=not text, why=text)
        for gpu, text in zip(topology.gpus, (*why, *[""] * (8 - len(why))), strict=True)
    )
    return replace(topology, gpus=gpus)


def marks(topology: NodeTopology) -> NodeMarks:
    found = marks_of(node(topology))
    assert found is not None
    return found


def test_a_node_without_report_or_gpus_is_left_alone() -> None:
    assert marks_of(node()) is None
    assert marks_of(node(NodeTopology())) is None
    unknown = node(sick())
    unknown.seen = None
    assert marks_of(unknown) is None


def test_healthy() -> None:
    found = marks(sick())
    assert (found.problem, found.reason, found.message) == (False, "GpusHealthy", "")
    assert found.labels["nvidia.com/gpu.count"] == "8"


def test_the_reason_is_the_xid_and_the_message_names_devices() -> None:
    found = marks(sick("NVLink 3 is down", "XID 79: the GPU has fallen off the bus"))
    assert found[1:] == (
        True,
        "NvidiaXID79Error",
        "GPU 0 (GPU-0): NVLink 3 is down; GPU 1 (GPU-1): XID 79: the GPU has fallen off the bus",
    )
    assert marks(sick("NVLink 3 is down")).reason == "GpuUnhealthy"
    assert marks(sick("XID 123456789")).reason == "GpuUnhealthy"


def test_the_message_is_bounded() -> None:
    found = marks(sick(*["x"] * 8))
    assert found.message.endswith("; and 5 more")
    assert len(marks(sick("y" * 5000)).message) == 1024


def test_an_unhealthy_slice_is_a_problem() -> None:
    topology = factories.topology(1)
    part = Slice("MIG-1", "1g.10gb", 7, 0, healthy=False, why="XID 94: contained memory error")
    gpu = replace(topology.gpus[0], mig=True, slices=(part,))
    found = marks(replace(topology, gpus=(gpu,)))
    assert (found.problem, found.reason) == (True, "NvidiaXID94Error")
    assert found.message == "GPU 0's 1g.10gb (gi 7, ci 0): XID 94: contained memory error"


def test_nobody_knows_how_the_gpus_of_a_silent_agent_are() -> None:
    silent = node(sick("broken"))
    silent.silent = True
    found = marks_of(silent)
    assert found is not None
    assert (found.problem, found.reason) == (None, "AgentSilent")
