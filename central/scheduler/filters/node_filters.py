"""May a pod run on a node at all? The filters that depend on the node's labels, taints and state
alone, as Kubernetes defines them; what depends on room is the snapshot's arithmetic."""

from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import CORDON, inside, meets, tolerates
from central.scheduler.filters import gpu_model
from protos.gpu_sharing import RANKS

BLOCKING = ("NoSchedule", "NoExecute")


def refusal(spec: PodSpec, node: NodeSeen) -> str:
    """Why the node can't take such a pod, in two or three words; empty: it can."""
    if not node.ready:
        return "not ready"
    if node.unschedulable and not any(tolerates(t, CORDON) for t in spec.tolerations):
        return "cordoned"
    return (
        untolerated(spec, node)
        or unsuited(spec, node)
        or apart(spec, node)
        or unlimited(spec, node)
        or unenforced(spec, node)
        or gpu_model.unequipped(spec, node)
    )


def untolerated(spec: PodSpec, node: NodeSeen) -> str:
    for taint in node.taints:
        if taint.effect in BLOCKING and not any(tolerates(t, taint) for t in spec.tolerations):
            return f"taint {taint.key}"
    return ""


def apart(spec: PodSpec, node: NodeSeen) -> str:
    """Whether its network cards could not be opened by the pod."""
    if node.rdma_exclusive and spec.rdma_containers and not spec.on_host:
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
    """Whether the pod's volumes can be used there."""
    return spec.volumes is None or inside(spec.volumes.places, node)
