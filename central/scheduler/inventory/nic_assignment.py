"""Assigns RDMA NICs to pods that have none yet, on nodes whose NICs have limits: the nearest to their GPUs that
leave the remaining pods a way to fit.

A planned assignment is kept while it fits, because the pod may already have those NICs.

Design: docs/design/0028-rdma-limits.md
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from central.scheduler.inventory import nic_limits, nics
from central.scheduler.inventory.nic_limits import NicCapacity, NicRequest
from central.scheduler.inventory.nics import Container
from central.scheduler.inventory.pods import Pod
from protos.nearest import nearest
from protos.topology import NodeTopology

Assigned = dict[Container, tuple[str, ...]]


def assign(
    topology: NodeTopology,
    gpus: Mapping[Container, int],
    pods: Iterable[Pod],
    known: nics.Nics,
    planned: nics.Nics,
) -> Assigned:
    """Plans NICs for all charged pods whose NICs are not known. planned: the assignment until now."""
    pods = tuple(pods)
    free = nics.free_capacity(topology, pods, known)  # with ended pods, which are not unknown ones
    if free is None:
        return {}
    wanting = [pod for pod in pods if pod.charged_spec is not None and pod.spec.rdma_containers]
    return _Assigner(topology, gpus, known, free).assign(wanting, planned)


class _Assigner:
    def __init__(
        self,
        topology: NodeTopology,
        gpus: Mapping[Container, int],
        known: nics.Nics,
        free: NicCapacity,
    ) -> None:
        self._topology, self._gpus, self._known, self._free = topology, gpus, known, free

    def assign(self, pods: Iterable[Pod], planned: nics.Nics) -> Assigned:
        free, found, others = self._free, {}, []
        for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
            if not (rest := nics.unassigned_shares(pod, self._known)):
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

    def _before(self, pod: Pod, planned: nics.Nics) -> Assigned:
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
            nics.take_shares(left, found[key])
        return found


def _counts(chosen: Assigned) -> Counter[str]:
    return Counter(name for names in chosen.values() for name in names)
