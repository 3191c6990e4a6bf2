"""Network cards for pods that have none yet, where limits are summed: the nearest to their GPUs, such that
those who come after find room, too. What was planned stays planned: the pod may have it by now. Pure."""

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
    """For all who hold room and whose cards are not known."""
    pods = tuple(pods)
    room = nics.capacity(topology, pods, known)  # who has ended there is known, and is no stranger
    if room is None:
        return {}
    wanting = [pod for pod in pods if pod.charged_spec is not None and pod.spec.rdma_containers]
    return _Assigner(topology, gpus, known, room).assign(wanting, planned)


class _Assigner:
    def __init__(
        self,
        topology: NodeTopology,
        gpus: Mapping[Container, int],
        known: nics.Nics,
        room: NicCapacity,
    ) -> None:
        self._topology, self._gpus, self._known, self._capacity = topology, gpus, known, room

    def assign(self, pods: Iterable[Pod], planned: nics.Nics) -> Assigned:
        room, found, rest_of_pods = self._capacity, {}, []
        for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
            if not (rest := nics.unassigned_shares(pod, self._known)):
                continue
            wanted = room.request(pod.spec)._replace(shares=rest)
            before = self._before(pod, planned)
            if before and self._take(wanted, before):
                room.unassigned[wanted] -= 1
                found.update(before)
            else:
                rest_of_pods.append((wanted, pod))
        rest_of_pods.sort(key=lambda each: each[0], reverse=True)  # whoever asks for the most first
        for wanted, pod in rest_of_pods:
            room.unassigned[wanted] -= 1
            found.update(self._next(wanted, pod))
        return found

    def _before(self, pod: Pod, planned: nics.Nics) -> Assigned:
        """What it was planned, if that was for all of its containers."""
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
        """Whether there is room for it; then it is taken."""
        counts, has = _counts(chosen), self._capacity.nics
        self._capacity.charge(wanted, counts)
        if all(name in has and min(has[name]) >= 0 for name in counts):
            return True
        self._capacity.charge(wanted, counts, -1)
        return False

    def _next(self, wanted: NicRequest, pod: Pod) -> Assigned:
        """The nearest cards that leave the others a way; where there is none, the nearest with shares."""
        room, choices = self._capacity, []
        for roomy in self._choices(wanted):
            chosen = self._near(pod, roomy)
            if not chosen or not self._take(wanted, chosen):
                continue
            if nic_limits.greedy_order(list(room.nics.values()), room.unassigned) is not None:
                return chosen
            choices.append(chosen)
            room.charge(wanted, _counts(chosen), -1)
        shares = {name: card[2] for name, card in room.nics.items()}
        last = choices[0] if choices else self._near(pod, shares)
        room.charge(wanted, _counts(last))
        return last

    def _choices(self, wanted: NicRequest) -> Iterator[dict[str, int]]:
        """Cards to choose from, with their shares: all with room, then those that leave the most."""
        has = self._capacity.nics
        names, left = list(has), list(has.values())
        yield {name: card[2] for name, card in has.items() if nic_limits.pods_per_nic(card, wanted)}
        for tight in (False, True):
            if chosen := nic_limits.choose_nics(left, wanted, tight=tight):
                yield {names[index]: left[index][2] for index in chosen}

    def _near(self, pod: Pod, roomy: Mapping[str, int]) -> Assigned:
        """For each container; nothing where there are not shares enough."""
        left, found = dict(roomy), {}
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
    return Counter(card for names in chosen.values() for card in names)
