"""Assignment of RDMA NICs to the pods of a node, with limits: each pod gets those closest to its GPUs.

On nodes whose NICs have limits, they must also leave the remaining pods a way to fit. A planned assignment is
kept while it fits, because the pod may already have those NICs.

Design: docs/design/nics.md
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from central.scheduler.inventory import nic_limits
from central.scheduler.inventory.nic_limits import Container, NicCapacity, NicRequest, Nics
from central.scheduler.inventory.pods import Pod
from protos.names import RDMA
from protos.nearest import nearest
from protos.topology import Grant, NodeTopology

NONE: Nics = {}
Assigned = dict[Container, tuple[str, ...]]


def unhealthy(topology: NodeTopology, *held: Nics) -> dict[str, str]:
    """Reasons by name, of NICs that are offered or that a container holds."""
    here = {hca.name: hca.why for hca in topology.hcas}
    offered = (hca.name for hca in topology.hcas if hca.shares)
    mine = (name for each in held for names in each.values() for name in names)
    found = {name: here.get(name, "it is gone") for name in {*offered, *mine}}
    return {name: why for name, why in found.items() if why}


def shares_of_pod(pod: Pod, known: Nics, rails: Nics = NONE) -> Counter[str]:
    """The shares that the pod has of each NIC, as far as known. rails: NICs that containers hold by rail."""
    name = (pod.seen.namespace, pod.seen.name)
    found: Counter[str] = Counter()
    for each, _ in pod.spec.rdma_containers:
        found.update(known.get((*name, each), ()))
    for each in sorted({container for container, _ in pod.spec.rail_containers}):
        found.update(rails.get((*name, each), ()))
    return found


def nearest_nics(
    topology: NodeTopology, gpus: Mapping[Container, int], pods: Iterable[Pod], known: Nics
) -> dict[Container, tuple[str, ...]]:
    """The NICs nearest to the GPUs of each container without NICs, if only shares count. For containers
    without GPUs the agent chooses."""
    left = {hca.name: hca.shares for hca in topology.hcas if not hca.why and not hca.rail}
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
    agent or a NIC may lose them. A rail needs no plan, because the resource says which NIC it is."""
    grants = []
    for pod in pods:
        limits = pod.spec.rdma_limits
        for name, _ in pod.spec.rdma_containers if pod.alive else ():
            key = (pod.seen.namespace, pod.seen.name, name)
            names = known.get(key, planned.get(key, ()))
            if limits or (names and key not in known):
                grants.append(Grant(*key, RDMA, tuple(sorted(names)), limits))
        for name, rail in pod.spec.rail_containers if pod.alive and limits else ():
            grants.append(Grant(pod.seen.namespace, pod.seen.name, name, rail, (), limits))
    return grants


class NicAssigner:
    """Assigns the NICs of a node whose NICs have limits."""

    def __init__(
        self, topology: NodeTopology, gpus: Mapping[Container, int], known: Nics, free: NicCapacity
    ) -> None:
        """gpus: masks; free: what the pods with known NICs leave."""
        self._topology, self._gpus, self._known, self._free = topology, gpus, known, free

    def assignment(self, pods: Iterable[Pod], planned: Nics) -> Assigned:
        """Plans NICs for all charged pods whose NICs are not known. planned: the assignment until now."""
        free, found, others = self._free, {}, []
        for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
            rest = nic_limits.unassigned_shares(pod, self._known)
            if not rest or pod.charged_spec is None:
                continue
            wanted = free.request(pod.spec)._replace(shares=rest)
            before = self._before(pod, planned)
            if before and self._take(wanted, before):
                free.unassigned[wanted] -= 1
                found.update(before)
            else:
                others.append((wanted, pod))
        others.sort(key=lambda each: each[0], reverse=True)  # the largest requests first
        for wanted, pod in others:
            free.unassigned[wanted] -= 1
            found.update(self._next(wanted, pod))
        return found

    def _before(self, pod: Pod, planned: Nics) -> Assigned:
        """The pod's planned assignment if it is complete, else nothing."""
        found = {}
        for name, count in pod.spec.rdma_containers:
            key = (pod.seen.namespace, pod.seen.name, name)
            if key in self._known:
                continue
            if len(planned.get(key, ())) != count:
                return {}
            found[key] = planned[key]
        return found

    def _take(self, wanted: NicRequest, chosen: Assigned) -> bool:
        """Charges the assignment if it fits. Returns whether it does."""
        counts, has = _counts(chosen), self._free.nics
        self._free.charge(wanted, counts)
        if all(name in has and min(has[name]) >= 0 for name in counts):
            return True
        self._free.charge(wanted, counts, -1)
        return False

    def _next(self, wanted: NicRequest, pod: Pod) -> Assigned:
        """Assigns the nearest NICs that leave the other pods a way to fit; without such NICs, the nearest with
        shares left."""
        free, choices = self._free, []
        for shares in self._choices(wanted):
            chosen = self._nearest(pod, shares)
            if not chosen or not self._take(wanted, chosen):
                continue
            if nic_limits.greedy_order(list(free.nics.values()), free.unassigned) is not None:
                return chosen
            choices.append(chosen)
            free.charge(wanted, _counts(chosen), -1)
        shares = {name: nic[2] for name, nic in free.nics.items()}
        last = choices[0] if choices else self._nearest(pod, shares)
        free.charge(wanted, _counts(last))
        return last

    def _choices(self, wanted: NicRequest) -> Iterator[dict[str, int]]:
        """NICs to choose from with their shares: all that fit, then those of choose_nics()."""
        has = self._free.nics
        names, left = list(has), list(has.values())
        yield {name: nic[2] for name, nic in has.items() if nic_limits.pods_per_nic(nic, wanted)}
        for tight in (False, True):
            if chosen := nic_limits.choose_nics(left, wanted, tight=tight):
                yield {names[index]: left[index][2] for index in chosen}

    def _nearest(self, pod: Pod, shares: Mapping[str, int]) -> Assigned:
        """The nearest NICs for each container; nothing if shares are missing."""
        left, found = dict(shares), {}
        for name, count in pod.spec.rdma_containers:
            key = (pod.seen.namespace, pod.seen.name, name)
            if key in self._known:
                continue
            found[key] = nearest(self._topology, self._gpus.get(key, 0), left, count)
            if len(found[key]) < count:
                return {}
            take_shares(left, found[key])
        return found


def _counts(chosen: Assigned) -> Counter[str]:
    return Counter(name for names in chosen.values() for name in names)
