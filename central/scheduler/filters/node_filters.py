"""Which nodes may run a pod at all, by their labels, taints, devices and state, as Kubernetes defines it.

What depends on free capacity is the snapshot's arithmetic; what depends on the pods beside it is in
interpod.py."""

from collections.abc import Callable
from typing import NamedTuple

from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import CORDON, inside, meets, tolerates
from central.scheduler.filters import gpu_model
from protos.gpu_sharing import RANKS

BLOCKING = ("NoSchedule", "NoExecute")


def untolerated(spec: PodSpec, node: NodeSeen) -> str:
    for taint in node.taints:
        if taint.effect in BLOCKING and not any(tolerates(t, taint) for t in spec.tolerations):
            return f"taint {taint.key}"
    return ""


def apart(spec: PodSpec, node: NodeSeen) -> str:
    """Whether its network cards could not be opened by the pod."""
    if node.rdma_exclusive and spec.nics_in_pod_network:
        return "network cards for hostNetwork only (RDMA in exclusive namespaces)"
    return ""


def unlimited(spec: PodSpec, node: NodeSeen) -> str:
    """Whether the limits that the pod wishes can be set there."""
    if not spec.rdma_limits:
        return ""
    if node.rdma_most is None:
        return "sets no RDMA limits"
    for key, wished in spec.rdma_limits:
        at_most = dict(node.rdma_most).get(key, -1)
        if at_most >= 0 and not 0 <= wished <= at_most:
            return f"{key} of at most {at_most}"
    return ""


def unenforced(spec: PodSpec, node: NodeSeen) -> str:
    """Whether its cap of GPU memory holds there as surely as it wishes."""
    if RANKS[node.memory_level] >= RANKS[spec.memory_level]:
        return ""
    return f"enforces GPU memory by {node.memory_level} at most"


def unsuited(spec: PodSpec, node: NodeSeen) -> str:
    """What the pod's own choice of nodes says."""
    if any(node.labels.get(key) != value for key, value in spec.node_selector):
        return "node selector"
    if spec.node_terms is not None and not meets(spec.node_terms, node):
        return "node affinity"
    return ""


def reaches(spec: PodSpec, node: NodeSeen) -> bool:
    """Whether the pod's volumes can be used on the node."""
    return spec.volumes is None or inside(spec.volumes.places, node)


def not_ready(spec: PodSpec, node: NodeSeen) -> str:
    return "" if node.ready else "not ready"


def cordoned(spec: PodSpec, node: NodeSeen) -> str:
    tolerated = any(tolerates(toleration, CORDON) for toleration in spec.tolerations)
    return "cordoned" if node.unschedulable and not tolerated else ""


class NodeFilter(NamedTuple):
    """refusal(spec, node): why the node cannot take such a pod, in a few words; empty: it can.

    reads: the fields of PodSpec that it looks at. They are the key under which pod classes share
    filter results, so a field that is missing here gives wrong placements: a test with a recording
    proxy fails then."""

    refusal: Callable[[PodSpec, NodeSeen], str]
    reads: tuple[str, ...]


# In the order in which they are asked: the first refusal is the reason. To add a filter, add its
# function and its row (docs/contributing.md).
NODE_FILTERS = (
    NodeFilter(not_ready, ()),
    NodeFilter(cordoned, ("tolerations",)),
    NodeFilter(untolerated, ("tolerations",)),
    NodeFilter(unsuited, ("node_selector", "node_terms")),
    NodeFilter(apart, ("nics_in_pod_network",)),
    NodeFilter(unlimited, ("rdma_limits",)),
    NodeFilter(unenforced, ("memory_level",)),
    NodeFilter(gpu_model.unequipped, ("gpu_models", "gpu_memory")),
)
READS = sorted({field for each in NODE_FILTERS for field in each.reads})


def refusal(spec: PodSpec, node: NodeSeen) -> str:
    """Why the node cannot take such a pod, in a few words; empty: it can."""
    for each in NODE_FILTERS:
        if why := each.refusal(spec, node):
            return why
    return ""
