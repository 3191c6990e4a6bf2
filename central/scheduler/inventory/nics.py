"""Which RDMA NICs the pods of a node have and should get, those closest to their GPUs, and with which limits.

Design: docs/design/0027-rdma-nics.md
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from central.model.facts import NodeReported, PodSpec
from central.scheduler.inventory import nic_limits
from central.scheduler.inventory.nic_limits import KEYS, PLENTY, NicCapacity
from central.scheduler.inventory.pods import Pod
from protos import slicing
from protos.names import GPU, RDMA
from protos.nearest import device_of, nearest
from protos.topology import Grant, NodeTopology, mask_of

Container = tuple[str, str, str]  # namespace, pod, container
Nics = Mapping[Container, tuple[str, ...]]  # a NIC name for each share
NO_POD = PodSpec(())


def observed(report: NodeReported) -> dict[Container, tuple[str, ...]]:
    """The NICs that containers have, from the report."""
    return {
        (grant.namespace, grant.pod, grant.container): tuple(map(device_of, grant.device_ids))
        for grant in report.grants
        if grant.resource == RDMA
    }


def unhealthy(topology: NodeTopology, held: Nics) -> dict[str, str]:
    """Reasons by name, of NICs that are offered or that a container holds."""
    here = {hca.name: hca.why for hca in topology.hcas}
    offered = (hca.name for hca in topology.hcas if hca.shares)
    mine = (name for names in held.values() for name in names)
    found = {name: here.get(name, "it is gone") for name in {*offered, *mine}}
    return {name: why for name, why in found.items() if why}


def gpu_masks(report: NodeReported, planned: Mapping[Container, int]) -> dict[Container, int]:
    """The GPU mask of each container: observed, else planned."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    index |= {part.uuid: gpu.index for gpu, part in slicing.of(report.topology)}
    found = dict(planned)
    for grant in report.grants:
        if grant.resource == GPU or slicing.is_slice(grant.resource):
            mask = mask_of(index[uuid] for uuid in grant.device_ids if uuid in index)
            found[grant.namespace, grant.pod, grant.container] = mask
    return found


def unassigned_shares(pod: Pod, known: Nics) -> int:
    """The shares of the pod for which no NIC is known."""
    name = (pod.seen.namespace, pod.seen.name)
    return sum(count for each, count in pod.spec.rdma_containers if (*name, each) not in known)


def shares_of_pod(pod: Pod, known: Nics) -> Counter[str]:
    """The shares that the pod has of each NIC, as far as known."""
    name = (pod.seen.namespace, pod.seen.name)
    found: Counter[str] = Counter()
    for each, _ in pod.spec.rdma_containers:
        found.update(known.get((*name, each), ()))
    return found


def free_capacity(topology: NodeTopology, pods: Iterable[Pod], known: Nics) -> NicCapacity | None:
    """What is left of the NICs with these pods there; None if only shares count. Unknown pods have the
    default limits of the agent."""
    made = nic_limits.from_topology(topology)
    if made is None:
        return None
    here = {(pod.seen.namespace, pod.seen.name): pod for pod in pods}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for key, names in known.items():
        counts.setdefault(key[:2], Counter()).update(names)
    for name, shares in counts.items():
        pod = here.get(name)
        if pod is None or pod.alive:
            made.charge(made.request(pod.spec if pod else NO_POD), shares)
    for pod in here.values():
        if (
            pod.charged_spec is not None
            and pod.spec.rdma_containers
            and (rest := unassigned_shares(pod, known))
        ):
            made.unassigned[made.request(pod.spec)._replace(shares=rest)] += 1
    return made


def nearest_nics(
    topology: NodeTopology, gpus: Mapping[Container, int], pods: Iterable[Pod], known: Nics
) -> dict[Container, tuple[str, ...]]:
    """The NICs nearest to the GPUs of each container without NICs, if only shares count. For containers
    without GPUs the agent chooses."""
    left = {hca.name: hca.shares for hca in topology.hcas if not hca.why}
    for names in known.values():
        take_shares(left, names)
    found = {}
    for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
        for name, count in pod.spec.rdma_containers if pod.alive else ():
            key = (pod.seen.namespace, pod.seen.name, name)
            if key not in known and (mask := gpus.get(key, 0)):
                found[key] = nearest(topology, mask, left, count)
                take_shares(left, found[key])
    return found


def take_shares(left: dict[str, int], names: Iterable[str]) -> None:
    for name in names:
        left[name] = left.get(name, 0) - 1


def grants(pods: Iterable[Pod], known: Nics, planned: Nics) -> list[Grant]:
    """The planned NICs and limits of containers. Pods with limits are included while they live, because an
    agent or a NIC may lose them."""
    grants = []
    for pod in pods:
        limits = pod.spec.rdma_limits
        for name, _ in pod.spec.rdma_containers if pod.alive else ():
            key = (pod.seen.namespace, pod.seen.name, name)
            names = known.get(key, planned.get(key, ()))
            if limits or (names and key not in known):
                grants.append(Grant(*key, RDMA, tuple(sorted(names)), limits))
    return grants


def allocatable(topology: NodeTopology) -> tuple[tuple[str, int], ...]:
    """The sums of the limits of all offered NICs, as resources of the node; empty if no limits are set."""
    if not topology.rdma_settable or topology.rdma_cgroup is None:
        return ()
    offered = {hca.name for hca in topology.hcas if hca.shares}
    limits = [limit for name, limit in topology.rdma_cgroup if name in offered]
    handles = sum(one.hca_handle if one.hca_handle >= 0 else PLENTY for one in limits)
    objects = sum(one.hca_object if one.hca_object >= 0 else PLENTY for one in limits)
    return tuple(zip(KEYS, (handles, objects), strict=True))


def max_limits(topology: NodeTopology) -> tuple[tuple[str, int], ...] | None:
    """The highest limits that a pod can have on one NIC (-1: unlimited); None if the agent sets no limits."""
    if not topology.rdma_settable or topology.rdma_cgroup is None:
        return None
    offered = {hca.name for hca in topology.hcas if hca.shares}
    limits = [limit for name, limit in topology.rdma_cgroup if name in offered]
    handles = [limit.hca_handle for limit in limits]
    objects = [limit.hca_object for limit in limits]
    return tuple(zip(KEYS, (_highest(handles), _highest(objects)), strict=True))


def _highest(limits: Sequence[int]) -> int:
    return -1 if -1 in limits or not limits else max(limits)
