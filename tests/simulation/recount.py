"""Plain counts of a gang's pods and of what a node has, for reason_checker.py: without the scheduler's code for
them."""

import re
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction

from central.model import wording
from central.model.facts import PodSpec, Taint
from central.model.selectors import CORDON, meets, tolerates
from central.scheduler.filters import gpu_model, node_filters
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang
from protos.names import GPU, GPU_SHARE, MIG

UNITS = {"Mi": 2**20, "Gi": 2**30, "Ti": 2**40}


def waiting(gang: Gang) -> list[Pod]:
    return [pod for pod in gang.members.values() if pod.waiting and not pod.bind_error]


def subgroups(gang: Gang) -> dict[tuple[str, ...], list[Pod]]:
    """The pods that wait or run by the name of the first policy that takes them, and its labels."""
    found: dict[tuple[str, ...], list[Pod]] = {}
    for pod in gang.members.values():
        if pod.seen.deleting or not (pod.node or pod.waiting):
            continue
        labels = dict(pod.seen.labels)
        for policy in gang.subgroups:
            name = tuple(labels.get(key, "") for key in policy.keys)
            if all(name) and all(each.matches(labels) for each in policy.labels):
                found.setdefault((policy.name, *name), []).append(pod)
                break
    return found


def refusal(spec: PodSpec, node: ClusterNode) -> str:
    """Why the node cannot be used now, by its own state; empty if it can."""
    return ", ".join(refusals(spec, node))


def refusals(spec: PodSpec, node: ClusterNode) -> list[str]:
    """In the order of the scheduler's sentences."""
    seen, found = node.merged(), []
    assert seen is not None
    if not seen.ready:
        found.append("not ready")
    closed = seen.unschedulable or node.report_failed
    if closed and not any(tolerates(each, CORDON) for each in spec.tolerations):
        found.append("cordoned")
    every = [taint.key for taint in _untolerated(spec, node)]
    keys = [key for key in every if not key.startswith("node.kubernetes.io/")]
    found += _taints(keys) + _affinity(spec, node)
    for each in node_filters.NODE_FILTERS[4:]:  # of devices: counted, not recomputed
        found += [why] if (why := each.refusal(spec, seen)) else []
    return found or _taints(every)


def _untolerated(spec: PodSpec, node: ClusterNode) -> list[Taint]:
    seen = node.merged()
    assert seen is not None
    return [
        taint
        for taint in seen.taints
        if taint.effect != "PreferNoSchedule"
        and not any(tolerates(each, taint) for each in spec.tolerations)
    ]


def _taints(keys: list[str]) -> list[str]:
    return [f"taint{'s' if len(keys) > 1 else ''} {', '.join(keys)}"] if keys else []


def _affinity(spec: PodSpec, node: ClusterNode) -> list[str]:
    seen = node.merged()
    assert seen is not None
    pairs = {f"{key}={value}" for key, value in spec.node_selector} - {
        f"{key}={value}" for key, value in seen.labels.items()
    }
    if pairs:
        return [f"node selector {wording.some(pairs)}"]
    if spec.node_terms is None or meets(spec.node_terms, seen):
        return []
    return [f"node affinity {' or '.join(map(wording.labels, spec.node_terms))}".strip()]


def lasting(spec: PodSpec, node: ClusterNode) -> str:
    """Why only a change of the node's labels or taints would let it run such a pod."""
    seen = node.merged()
    assert seen is not None
    keys = [taint.key for taint in _untolerated(spec, node)]
    keys = [key for key in keys if not key.startswith("node.kubernetes.io/")]
    model = gpu_model.mismatch(spec, seen)
    found = _taints(keys) + _affinity(spec, node)
    return ", ".join([*found, *([model] if model not in ("", "GPU model unknown") else [])])


def most(node: ClusterNode, name: str) -> int:
    """What the node can offer at most."""
    most = node.allocatable().get(name, 0)
    if name == GPU and node.report is not None:
        most = max(most, sum(not gpu.mig for gpu in node.report.topology.gpus))
    return most


def when_empty(spec: PodSpec, node: ClusterNode) -> int:
    return min(most(node, name) // asked for name, asked in spec.requests if asked)


def may_fit_empty(spec: PodSpec, node: ClusterNode) -> bool:
    """Shares, slices and NIC limits may change, so that nothing is certain of them."""
    sure = [
        (name, asked)
        for name, asked in spec.requests
        if asked and not name.startswith((MIG, "hca_")) and name != GPU_SHARE
    ]
    changes = len(sure) < len(spec.requests)
    return changes or all(most(node, name) >= asked for name, asked in sure)


def able(spec: PodSpec, nodes: Sequence[ClusterNode]) -> Sequence[ClusterNode]:
    """The nodes that take such a pod when nothing else runs there; all, where that may change."""
    return nodes if changes(spec) else [node for node in nodes if when_empty(spec, node)]


def changes(spec: PodSpec) -> bool:
    """Whether agents change what nodes offer of what the pod requests."""
    return any(name.startswith((MIG, "hca_")) or name == GPU_SHARE for name, _ in spec.requests)


def resource(words: str) -> str:
    names = {
        "GPU": GPU,
        "RDMA handle": "hca_handle",
        "RDMA object": "hca_object",
        "pod": "pods",
        "place": "pods",
    }
    one = words.removesuffix("s")
    if one.endswith(" slice"):
        return MIG + one.removesuffix(" slice")
    return names.get(one, words)


def is_of_kind(spec: PodSpec, words: str) -> bool:
    """Whether the pod requests what the words say, as in "2 pods x 8 GPUs + 4 cpu", and no other devices."""
    requested = re.sub(r"^(\d+ )?pods?( x )?| with .*", "", words)
    said = dict[str, int]()
    for each in filter(None, requested.split(" + ")):
        number, name = each.split(" ", 1)
        if name == "hundredths of a GPU":
            said[GPU_SHARE] = int(number)
            continue
        said[resource(name)] = amount(resource(name), number)
    devices = {
        name for name, _ in spec.requests if name in (GPU, GPU_SHARE) or name.startswith(MIG)
    }
    asked = {name: spec.request(name) for name in devices | said.keys() if spec.request(name)}
    return asked == said


def lacks_switches(node: ClusterNode) -> bool:
    """Whether it has GPUs that are below no known PCIe switch."""
    if node.report is None:
        return bool(node.allocatable().get(GPU, 0))
    topology = node.report.topology
    known = {gpu for switch in topology.pcie_switches for gpu in switch}
    return any(gpu.index not in known for gpu in topology.gpus)


def unknown_parts(node: ClusterNode, level: str) -> str:
    """What is not known of the node's GPUs for the level; empty: nothing."""
    unreported = node.report is None and bool(node.allocatable().get(GPU, 0))
    if level == "PCIe switch":
        return "PCIe switches unknown" if lacks_switches(node) else ""
    return f"{level}s unknown" if unreported and level in ("island", "NUMA node") else ""


def parts(node: ClusterNode, level: str) -> list[int]:
    """The sizes of its NUMA nodes or PCIe switches, in GPUs; without a report all are in one."""
    if node.report is None:
        return [node.allocatable().get(GPU, 0)]
    topology = node.report.topology
    if level == "NUMA node":
        return list(Counter(gpu.numa for gpu in topology.gpus).values())
    return [len(switch) for switch in topology.pcie_switches]


def gpus(spec: PodSpec) -> Fraction:
    """Whole GPUs, hundredths of one, and slices by their sevenths."""
    worth = Fraction(spec.request(GPU)) + Fraction(spec.request(GPU_SHARE), 100)
    for name, amount in spec.requests:
        if sevenths := re.match(re.escape(MIG) + r"(\d)g\.", name):
            worth += amount * Fraction(int(sevenths[1]), 7)
    return worth


def said(name: str, value: int | Fraction) -> str:
    """As a reason says it: GPUs to a hundredth."""
    if name == GPU:
        return f"{float(value):.2f}".rstrip("0").rstrip(".")
    return wording.amount(name, int(value))


def amount(name: str, words: str) -> int:
    if name == "cpu":
        return round(float(words) * 1000)
    if words[-2:] in UNITS:
        return round(float(words[:-2]) * UNITS[words[-2:]])
    return int(words)
