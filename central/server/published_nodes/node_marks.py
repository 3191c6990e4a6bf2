"""Marks of nodes for tools outside Lockstep: labels that describe the GPUs, and whether a GPU or MIG
slice of the node is unhealthy. Pure.

Design: docs/design/gpu-health.md
"""

import re
from typing import NamedTuple

from central.scheduler.inventory.cluster_node import ClusterNode
from central.server.published_nodes import node_labels
from protos import slicing
from protos.topology import NodeTopology

SHOWN = 3  # unhealthy devices that the message names
LONGEST = 1024  # characters of the message
XID = re.compile(r"\bXID (\d{1,4})\b", re.ASCII)
# Reasons of the condition. One for an XID is that of the EKS node monitoring agent, which its repair knows.
HEALTHY, SLOW, UNHEALTHY, SILENT, XID_REASON = (
    "GpusHealthy",
    "GpuSlow",
    "GpuUnhealthy",
    "AgentSilent",
    "NvidiaXID%sError",
)


class NodeMarks(NamedTuple):
    labels: dict[str, str]
    problem: bool | None  # None: unknown, because the agent is silent
    reason: str  # CamelCase
    message: str


def marks_of(node: ClusterNode) -> NodeMarks | None:
    """Returns None for a node that stays as it is: one without GPUs, or whose agent has not reported yet."""
    if node.seen is None or node.report is None or not node.report.topology.gpus:
        return None
    topology = node.report.topology
    labels = node_labels.labels_of(topology)
    if node.silent:
        return NodeMarks(
            labels, None, SILENT, "Lockstep's agent on this node has stopped reporting"
        )
    found = unhealthy(topology)
    if not found:
        slow = [f"GPU {index} is slow: {why}" for index, why in topology.slow().items()]
        return NodeMarks(labels, False, SLOW if slow else HEALTHY, _message(slow))
    xid = XID.search(" ".join(found))
    reason = XID_REASON % xid[1] if xid else UNHEALTHY
    return NodeMarks(labels, True, reason, _message(found))


def _message(found: list[str]) -> str:
    message = "; ".join(found[:SHOWN])
    if len(found) > SHOWN:
        message += f"; and {len(found) - SHOWN} more"
    return message[:LONGEST]


def unhealthy(topology: NodeTopology) -> list[str]:
    """One clause for each unhealthy GPU, then for each unhealthy slice of another GPU."""
    bad = [gpu for gpu in topology.gpus if not gpu.healthy]
    gpus = [f"GPU {gpu.index} ({gpu.uuid}): {gpu.why or 'no cause reported'}" for gpu in bad]
    parts = [(gpu, part) for gpu, part in slicing.of(topology) if gpu.healthy and not part.healthy]
    return gpus + [
        f"{slicing.words(gpu, part)}: {part.why or 'no cause reported'}" for gpu, part in parts
    ]
