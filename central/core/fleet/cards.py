"""Which network cards the pods of a node should get, those closest to their GPUs, and how much of
them. Pure: the agent's report, the node's pods and their GPUs in; intents out."""

from collections.abc import Iterable, Mapping

from central.core.facts import NodeReported
from central.core.gangs import Pod
from protos.names import GPU, RDMA
from protos.nearest import card_of, nearest
from protos.topology import Grant, NodeTopology, mask_of

Container = tuple[str, str, str]  # namespace, pod, container
KEYS = ("hca_handle", "hca_object")  # also the names of the resources that wishes are summed as
PLENTY = 2**40  # of a card without a limit


def intents(
    report: NodeReported, pods: Iterable[Pod], planned: Mapping[Container, int]
) -> list[Grant]:
    """planned: GPUs of containers, as masks. A pod with limits has an intent as long as it lives:
    its agent may lose them, and so may a card. Without GPUs the agent chooses the card."""
    topology = report.topology
    held: dict[Container, tuple[str, ...]] = {}
    gpus = dict(planned)
    index = {gpu.uuid: gpu.index for gpu in topology.gpus}
    for grant in report.grants:
        key = (grant.namespace, grant.pod, grant.container)
        if grant.resource == RDMA:
            held[key] = tuple(map(card_of, grant.device_ids))
        elif grant.resource == GPU:
            gpus[key] = mask_of(index[uuid] for uuid in grant.device_ids if uuid in index)
    room = {hca.name: hca.shares for hca in topology.hcas if not hca.why}
    for cards in held.values():
        _take(room, cards)
    pods = tuple(pods)
    left = _left(topology, pods, held)
    grants = []
    for pod in sorted(pods, key=lambda pod: (pod.seen.namespace, pod.seen.name)):
        limits = pod.spec.rdma_limits
        for name, count in pod.spec.rdma_containers if pod.alive else ():
            key = (pod.seen.namespace, pod.seen.name, name)
            cards = held.get(key, ())
            mask = gpus.get(key, 0)
            if not cards and mask:
                roomy = {card: free for card, free in room.items() if _keeps(left, card, limits)}
                cards = nearest(topology, mask, roomy, count)
                if len(cards) < count:  # room enough, but not on the same cards
                    cards = nearest(topology, mask, room, count)
                _take(room, cards)
                _use(left, cards, limits)
            if limits or (cards and key not in held):
                grants.append(Grant(*key, RDMA, tuple(sorted(cards)), limits))
    return grants


def _take(room: dict[str, int], cards: Iterable[str]) -> None:
    for card in cards:
        room[card] = room.get(card, 0) - 1


Left = dict[tuple[str, str], int]  # by card and key


def _left(
    topology: NodeTopology, pods: Iterable[Pod], held: Mapping[Container, tuple[str, ...]]
) -> Left:
    """Of the limits that all pods have together, what nobody has been promised."""
    left: Left = {}
    for card, limit in topology.rdma_cgroup or ():
        for key, most in zip(KEYS, (limit.hca_handle, limit.hca_object), strict=True):
            left[card, key] = most if most >= 0 else PLENTY
    for pod in pods:
        for name, _ in pod.spec.rdma_containers if pod.alive else ():
            cards = held.get((pod.seen.namespace, pod.seen.name, name), ())
            _use(left, cards, pod.spec.rdma_limits)
    return left


def _keeps(left: Left, card: str, limits: Iterable[tuple[str, int]]) -> bool:
    return all(left.get((card, key), PLENTY) >= limit for key, limit in limits)


def _use(left: Left, cards: Iterable[str], limits: tuple[tuple[str, int], ...]) -> None:
    for card in set(cards):
        for key, limit in limits:
            if (card, key) in left:
                left[card, key] -= max(limit, 0)


def allocatable(topology: NodeTopology) -> tuple[tuple[str, int], ...]:
    """Of all cards that are offered, what the pods' wishes may be in sum."""
    if not topology.rdma_settable or topology.rdma_cgroup is None:
        return ()
    offered = {hca.name for hca in topology.hcas if hca.shares}
    limits = [limit for name, limit in topology.rdma_cgroup if name in offered]
    handles = sum(one.hca_handle if one.hca_handle >= 0 else PLENTY for one in limits)
    objects = sum(one.hca_object if one.hca_object >= 0 else PLENTY for one in limits)
    return tuple(zip(KEYS, (handles, objects), strict=True))


def most(topology: NodeTopology) -> tuple[tuple[str, int], ...] | None:
    """What a pod may have of any card at most (-1: no limit); None: nobody here sets limits."""
    if not topology.rdma_settable or topology.rdma_cgroup is None:
        return None
    offered = {hca.name for hca in topology.hcas if hca.shares}
    limits = [limit for name, limit in topology.rdma_cgroup if name in offered]
    handles = [limit.hca_handle for limit in limits if limit.hca_handle >= 0]
    objects = [limit.hca_object for limit in limits if limit.hca_object >= 0]
    return tuple(zip(KEYS, (min(handles, default=-1), min(objects, default=-1)), strict=True))
