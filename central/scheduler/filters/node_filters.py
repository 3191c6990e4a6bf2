"""Node filters: whether a node can run a pod of a class, by its state, taints, labels and devices, as Kubernetes
defines it. Free capacity is counted in the snapshot, and rules between pods in interpod.py.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf
from typing import NamedTuple

from central.model import wording
from central.model.facts import NodeSeen, PodSpec
from central.model.selectors import CORDON, inside, meets, tolerates
from central.scheduler.filters import gpu_model
from protos.gpu_sharing import RANKS
from protos.names import SLOW_GPU

BLOCKING = ("NoSchedule", "NoExecute")
CONDITION_TAINTS = "node.kubernetes.io/"  # Kubernetes sets and removes them by itself


def untolerated_taint(spec: PodSpec, node: NodeSeen) -> str:
    """Names all such taints, those of node conditions only if there are no others. The value is named where the pod
    tolerates the key with another one."""
    if not node.taints:
        return ""
    tolerated = {each.key for each in spec.tolerations}
    keys = [
        f"{taint.key}={taint.value}" if taint.key in tolerated and taint.value else taint.key
        for taint in node.taints
        if taint.effect in BLOCKING and not any(tolerates(t, taint) for t in spec.tolerations)
    ]
    keys = [key for key in keys if not key.startswith(CONDITION_TAINTS)] or keys
    return f"{wording.plural(len(keys), 'taint')} {', '.join(keys)}" if keys else ""


def feature_missing(spec: PodSpec, node: NodeSeen) -> str:
    lacks = [name for name in spec.features if name not in node.features]
    return f"kubelet lacks {', '.join(lacks)}" if lacks else ""


def nics_unreachable(spec: PodSpec, node: NodeSeen) -> str:
    """Refuses pods with NICs in the pod network on nodes in exclusive mode: there, RDMA NICs can be opened only from
    the network namespace that they are in."""
    if node.rdma_exclusive and spec.nics_in_pod_network:
        return "RDMA NICs need hostNetwork (exclusive network namespaces)"
    return ""


def rdma_limits_refused(spec: PodSpec, node: NodeSeen) -> str:
    """Returns why the node refuses the pod's RDMA limits, in a few words: one exceeds that of every NIC, or the agent
    sets no limits; empty if it does not."""
    if not spec.rdma_limits:
        return ""
    if node.rdma_most is None:
        return "sets no RDMA limits"
    for key, limit in spec.rdma_limits:
        at_most = dict(node.rdma_most).get(key, -1)
        if at_most >= 0 and not 0 <= limit <= at_most:
            return f"at most {wording.quantity(key, at_most)}"
    return ""


def enforcement_too_weak(spec: PodSpec, node: NodeSeen) -> str:
    if RANKS[node.memory_level] >= RANKS[spec.memory_level]:
        return ""
    return f"GPU memory enforcement is {node.memory_level}"


def slow_gpu(spec: PodSpec, node: NodeSeen) -> str:
    slow = spec.full_speed and any(taint.key == SLOW_GPU for taint in node.taints)
    return "slow GPU" if slow else ""


def affinity_mismatch(spec: PodSpec, node: NodeSeen) -> str:
    """Names what the node lacks by the pod's nodeSelector, or else the required node affinity that it does not meet."""
    for key, value in spec.node_selector:
        if node.labels.get(key) != value:
            labels = node.labels
            return _selector_words(
                tuple([pair for pair in spec.node_selector if labels.get(pair[0]) != pair[1]])
            )
    if spec.node_terms is not None and not meets(spec.node_terms, node):
        return _affinity_words(spec)
    return ""


@lru_cache(maxsize=1 << 10)  # thousands of nodes are refused alike
def _selector_words(unmet: tuple[tuple[str, str], ...]) -> str:
    return f"node selector {wording.some(f'{key}={value}' for key, value in unmet)}"


@lru_cache(maxsize=1 << 10)
def _affinity_words(spec: PodSpec) -> str:
    named = spec.node_terms or ()
    terms = " or ".join(filter(None, map(wording.labels, named[:2])))
    return f"node affinity {terms}{' or ...' * (len(named) > 2)}".strip()


def reaches_volumes(spec: PodSpec, node: NodeSeen) -> bool:
    """Returns whether all volumes of the pod are reachable from the node."""
    return spec.volumes is None or inside(spec.volumes.places, node)


def not_ready(spec: PodSpec, node: NodeSeen) -> str:
    return "" if node.ready else "not ready"


def cordoned(spec: PodSpec, node: NodeSeen) -> str:
    if node.unschedulable and not any(tolerates(each, CORDON) for each in spec.tolerations):
        return "cordoned"
    return ""


class NodeFilter(NamedTuple):
    """refusal(spec, node): why the node cannot run such a pod, in a few words; empty if it can.

    reads: the fields of PodSpec that the filter reads. Pod classes that are equal in the fields of all filters
    share one result, so a field that is missing here would give wrong placements. A test with a recording
    proxy finds it (tests/central/scheduler/filters/test_filter_table.py).
    period(spec, node): the times at which the refusal begins and ends, in seconds since the epoch; inf: never. Called
    only where the filter refuses. None: the refusal holds at all times."""

    refusal: Callable[[PodSpec, NodeSeen], str]
    reads: tuple[str, ...]
    period: Callable[[PodSpec, NodeSeen], tuple[float, float]] | None = None


# In order: the first refusal is the reason. docs/contributing.md shows how to add a filter.
NODE_FILTERS = (
    NodeFilter(not_ready, ()),
    NodeFilter(cordoned, ("tolerations",)),
    NodeFilter(untolerated_taint, ("tolerations",)),
    NodeFilter(affinity_mismatch, ("node_selector", "node_terms")),
    NodeFilter(feature_missing, ("features",)),
    NodeFilter(nics_unreachable, ("nics_in_pod_network",)),
    NodeFilter(rdma_limits_refused, ("rdma_limits",)),
    NodeFilter(slow_gpu, ("full_speed",)),
    NodeFilter(enforcement_too_weak, ("memory_level",)),
    NodeFilter(gpu_model.mismatch, ("gpu_models", "gpu_memory")),
)
REFUSALS = tuple(each.refusal for each in NODE_FILTERS)
PERIODS = {each.refusal: each.period for each in NODE_FILTERS if each.period is not None}
READS = sorted({field for each in NODE_FILTERS for field in each.reads})


class NodeFilterFailed(Exception):
    """A filter raised the cause, a bug; the message names the filter and the node."""


class FilterResult(NamedTuple):
    refusal: str  # empty: the node can run such a pod
    until: float  # when it may change though the node does not


def result(spec: PodSpec, node: NodeSeen, now: float) -> FilterResult:
    """The first refusal of NODE_FILTERS that holds now. Raises NodeFilterFailed."""
    until = inf
    for why, begin, end in _refusals(spec, node):
        if begin <= now < end:
            return FilterResult(why, min(until, end))
        if now < begin < end:
            until = min(until, begin)
    return FilterResult("", until)


def _refusals(spec: PodSpec, node: NodeSeen) -> Iterator[tuple[str, float, float]]:
    """Yields each refusal of NODE_FILTERS, and from when until when it holds. Raises NodeFilterFailed."""
    for refuses in REFUSALS:
        try:
            why = refuses(spec, node)
            period = PERIODS.get(refuses) if why else None
            begin, end = period(spec, node) if period is not None else (-inf, inf)
        except Exception as error:
            where = f"{refuses.__name__} on node {node.name}"
            raise NodeFilterFailed(f"{where}: {type(error).__name__}: {error}") from error
        if why:
            yield why, begin, end


def refusal(spec: PodSpec, node: NodeSeen, now: float) -> str:
    """Returns why the node cannot run such a pod now; empty if it can. Raises NodeFilterFailed."""
    return result(spec, node, now).refusal


def refusals(spec: PodSpec, node: NodeSeen, now: float) -> list[str]:
    """Returns every refusal that holds now. Kubernetes marks nodes that are not ready or cordoned with taints of its
    own, which are not named beside that. Raises NodeFilterFailed."""
    found = [why for why, begin, end in _refusals(spec, node) if begin <= now < end]
    own = [why for why in found if not _is_of_condition(why)]
    return own or found


def _is_of_condition(why: str) -> bool:
    return why.startswith("taint") and why.split(" ")[1].startswith(CONDITION_TAINTS)


def lasting_refusal(spec: PodSpec, node: NodeSeen) -> str:
    """Returns why the node will not run such a pod until somebody changes its labels, its taints or the
    pod; empty: it may, perhaps after it is ready or uncordoned or its agent has reported."""
    taint = untolerated_taint(spec, node) if node.taints else ""
    model = gpu_model.mismatch(spec, node)
    found = [
        taint if taint and not _is_of_condition(taint) else "",
        affinity_mismatch(spec, node),
        model if model not in (gpu_model.UNKNOWN, gpu_model.MEMORY_UNKNOWN) else "",
    ]
    return ", ".join([why for why in found if why])
