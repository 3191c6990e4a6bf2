"""Unhealthy GPUs, MIG slices and RDMA NICs that running gangs hold, in reasons and warnings.

The scheduler evicts nothing for them: only the owner of a job knows whether it survives the error.
"""

from collections.abc import Iterator
from typing import NamedTuple

from central.model.decisions import EmitWarning
from central.model.event_reasons import GPU_UNHEALTHY, NIC_UNHEALTHY
from central.scheduler.inventory import mig, nics
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.status.pod_warning import pod_warning
from protos.topology import Gpu, indices_of

SHOWN = 3  # unhealthy devices that a gang's reason lists


class UnhealthyDevice(NamedTuple):
    pod: Pod
    node: str
    what: str  # GPU 3, GPU 3's 1g.10gb, NIC mlx5_0
    why: str
    reason: str  # of the Event

    @property
    def name(self) -> tuple[str, str, str]:
        return self.pod.seen.uid, self.node, self.what

    @property
    def message(self) -> str:
        why = self.why or "no cause reported"
        return f"{self.what} of node {self.node}, held by {self.pod.seen.name}, is unhealthy: {why}"


def unhealthy_devices(state: ClusterState, gang: Gang) -> list[UnhealthyDevice]:
    """The unhealthy devices that the gang's pods hold according to pod-resources."""
    if not state.node_sets.unhealthy:
        return []
    found: list[UnhealthyDevice] = []
    for pod in gang.counts.placed:
        node = state.nodes.get(pod.node)
        if node is None or node.name not in state.node_sets.unhealthy or not pod.alive:
            continue
        found += [UnhealthyDevice(pod, node.name, *each) for each in _held(pod, node)]
    return found


def _held(pod: Pod, node: ClusterNode) -> Iterator[tuple[str, str, str]]:
    """The pod's unhealthy devices on its node: what it is, why, and the reason of the Event."""
    gpus = {gpu.index: gpu for gpu in node.report.topology.gpus} if node.report else {}
    for index in indices_of(pod.gpus & ~node.reported.healthy if pod.observed else 0):
        yield f"GPU {index}", _why(gpus.get(index)), GPU_UNHEALTHY
    down = node.unhealthy_nics() if pod.spec.has_nics else {}
    mine = nics.shares_of_pod(pod, node.reported.held_nics, node.reported.held_rails)
    for name in sorted(mine.keys() & down.keys()):
        yield f"NIC {name}", down[name], NIC_UNHEALTHY
    slices = node.reported.slices
    for uuid in slices.held.get((pod.seen.namespace, pod.seen.name), ()):
        if uuid in slices.unhealthy:
            yield mig.describe(node.report, uuid), slices.unhealthy[uuid], GPU_UNHEALTHY


def describe(state: ClusterState, gang: Gang) -> str:
    """A clause for the gang's reason; empty if all its devices are healthy."""
    if not state.node_sets.unhealthy:
        return ""
    found = unhealthy_devices(state, gang)
    clauses = [each.message for each in found[:SHOWN]]
    if len(found) > SHOWN:
        clauses.append(f"and {len(found) - SHOWN} more of its devices")
    return "; ".join(clauses)


def new_warnings(state: ClusterState, gang: Gang) -> list[EmitWarning]:
    """One warning for each device that became unhealthy while the gang holds it."""
    if not state.node_sets.unhealthy and not gang.published.warned:
        return []
    found = unhealthy_devices(state, gang)
    fresh = [each for each in found if each.name not in gang.published.warned]
    gang.published.warned = frozenset(each.name for each in found)
    return [pod_warning(gang, each.pod, each.message, each.reason) for each in fresh]


def _why(gpu: Gpu | None) -> str:
    """Returns why the GPU is unhealthy; empty: unknown. gpu: None if it has fallen off the bus, so that its agent
    does not report it any more"""
    if gpu is None:
        return "its agent does not report it any more"
    return gpu.why or ("it is now in MIG mode" if gpu.mig else "")
