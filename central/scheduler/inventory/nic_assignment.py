"""Network cards for pods that have none yet, where limits are summed: the nearest to their GPUs, such that
those who come after find room, too. What was dealt stays dealt: the pod may have it by now. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from central.scheduler.inventory import nic_limits, nics
from central.scheduler.inventory.nic_limits import NicCapacity, NicRequest
from central.scheduler.inventory.nics import Container
from central.scheduler.inventory.pods import Pod
from protos.nearest import nearest
from protos.topology import NodeTopology

Dealt = dict[Container, tuple[str, ...]]


def deal(
    topology: NodeTopology,
    gpus: Mapping[Container, int],
    pods: Iterable[Pod],
    known: nics.Cards,
    dealt: nics.Cards,
) -> Dealt:
    """For all who hold room and whose cards are not known."""
    pods = tuple(pods)
    room = nics.room(topology, pods, known)  # who has ended there is known, and is no stranger
    if room is None:
        return {}
    wanting = [pod for pod in pods if pod.charged_spec is not None and pod.spec.rdma_containers]
    return _Dealer(topology, gpus, known, room).deal(wanting, dealt)


class _Dealer:
    def __init__(
        self,
        topology: NodeTopology,
        gpus: Mapping[Container, int],
        known: nics.Cards,
        room: NicCapacity,
    ) -> None:
        self._topology, self._gpus, self._known, self._room = topology, gpus, known, room

    def deal(self, pods: Iterable[Pod], dealt: nics.Cards) -> Dealt:
        room, found, undealt = self._room, {}, []
        for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
            if not (rest := nics.missing(pod, self._known)):
                continue
            wanted = room.ask(pod.spec)._replace(shares=rest)
            before = self._before(pod, dealt)
            if before and self._take(wanted, before):
                room.asked[wanted] -= 1
                found.update(before)
            else:
                undealt.append((wanted, pod))
        undealt.sort(key=lambda each: each[0], reverse=True)  # whoever asks for the most first
        for wanted, pod in undealt:
            room.asked[wanted] -= 1
            found.update(self._next(wanted, pod))
        return found

    def _before(self, pod: Pod, dealt: nics.Cards) -> Dealt:
        """What it was dealt, if that was for all of its containers."""
        found = {}
        for name, count in pod.spec.rdma_containers:
            key = (pod.seen.namespace, pod.seen.name, name)
            if key in self._known:
                continue
            if len(dealt.get(key, ())) != count:
                return {}
            found[key] = dealt[key]
        return found

    def _take(self, wanted: NicRequest, chosen: Dealt) -> bool:
        """Whether there is room for it; then it is taken."""
        counts, has = _counts(chosen), self._room.cards
        self._room.take(wanted, counts)
        if all(name in has and min(has[name]) >= 0 for name in counts):
            return True
        self._room.take(wanted, counts, -1)
        return False

    def _next(self, wanted: NicRequest, pod: Pod) -> Dealt:
        """The nearest cards that leave the others a way; where there is none, the nearest with shares."""
        room, choices = self._room, []
        for roomy in self._choices(wanted):
            chosen = self._near(pod, roomy)
            if not chosen or not self._take(wanted, chosen):
                continue
            if nic_limits.way(list(room.cards.values()), room.asked) is not None:
                return chosen
            choices.append(chosen)
            room.take(wanted, _counts(chosen), -1)
        shares = {name: card[2] for name, card in room.cards.items()}
        last = choices[0] if choices else self._near(pod, shares)
        room.take(wanted, _counts(last))
        return last

    def _choices(self, wanted: NicRequest) -> Iterator[dict[str, int]]:
        """Cards to choose from, with their shares: all with room, then those that leave the most."""
        has = self._room.cards
        names, left = list(has), list(has.values())
        yield {name: card[2] for name, card in has.items() if nic_limits.cap(card, wanted)}
        for tight in (False, True):
            if chosen := nic_limits.choose(left, wanted, tight=tight):
                yield {names[index]: left[index][2] for index in chosen}

    def _near(self, pod: Pod, roomy: Mapping[str, int]) -> Dealt:
        """For each container; nothing where there are not shares enough."""
        left, found = dict(roomy), {}
        for name, count in pod.spec.rdma_containers:
            key = (pod.seen.namespace, pod.seen.name, name)
            if key in self._known:
                continue
            found[key] = nearest(self._topology, self._gpus.get(key, 0), left, count)
            if len(found[key]) < count:
                return {}
            nics.take(left, found[key])
        return found


def _counts(chosen: Dealt) -> Counter[str]:
    return Counter(card for names in chosen.values() for card in names)
