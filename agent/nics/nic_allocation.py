"""Which shares of which network cards a container gets, and what it is told of them. Pure.

A card is offered as several shares, so that several pods may use it. A container should get those of
the cards that its GPUs are closest to: of the GPUs that it holds, else of those planned for it. A
plan names cards, not shares: the shares of one card are alike."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from agent.nics import selector
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
    next_in_admission,
)
from protos import slicing
from protos.names import DOMAIN, GPU, RDMA
from protos.nearest import BETWEEN, SHARES, card_of, nearest
from protos.topology import Grant, Hca, NodeTopology, RdmaLimit, mask_of

NO_LIMIT = RdmaLimit()


@dataclass(frozen=True, slots=True)
class Policy:
    shares: int = 0  # of each card; 0: as many pods as have room below the card's limits
    default: RdmaLimit = NO_LIMIT  # of one pod, on each of its cards
    settable: bool = False


def offered(topology: NodeTopology, patterns: Sequence[str], policy: Policy) -> NodeTopology:
    """The same topology; its cards say how many shares they are offered as."""
    names = {hca.name for hca in selector.served(topology, patterns)}
    limits = dict(topology.rdma_cgroup or ())

    settable = policy.settable and topology.rdma_cgroup is not None

    def count(card: Hca) -> int:
        if policy.shares or card.physical:
            return policy.shares or 1  # a virtual function is for one pod
        most, each = limits.get(card.name, NO_LIMIT), policy.default
        pairs = (most.hca_handle, each.hca_handle), (most.hca_object, each.hca_object)
        return min((have // one for have, one in pairs if have >= 0 and one > 0), default=SHARES)

    return replace(
        topology,
        hcas=tuple(
            replace(hca, shares=count(hca) if hca.name in names else 0) for hca in topology.hcas
        ),
        rdma_settable=settable,
        rdma_default=policy.default if settable else NO_LIMIT,
    )


def preferred(
    question: DeviceRequest,
    topology: NodeTopology,
    plans: Iterable[Grant],
    listed: Sequence[ContainerDevices] | None,
    *,
    just_given: Sequence[str] = (),
    asked_before: frozenset[ContainerKey] = frozenset(),
) -> Choice:
    """just_given: the GPUs of the last Allocate, where that was a moment ago. Whoever holds just
    these and no share yet is the one in admission, plan or not."""
    rows = tuple(listed or ())
    unserved = [row.of(RDMA) for row in rows if not row.ids(RDMA)]
    ours = {
        (plan.namespace, plan.pod, plan.container): plan for plan in plans if plan.resource == RDMA
    }
    candidates = next_in_admission((row.key for row in unserved), ours.keys())
    meant = candidates if len(candidates) == 1 else candidates - asked_before
    held = {row.key: _gpus(row) for row in rows}
    if len(meant) == 1:
        key = next(iter(meant))
        cards: Sequence[str] = ours[key].device_ids
        gpus = held.get(key) or _planned(plans, key)
        who = f"{key[0]}/{key[1]}, container {key[2]}"
    else:
        fresh = {
            row.key for row in unserved if just_given and held[row.key] == tuple(sorted(just_given))
        }
        gpus = tuple(just_given) if len(fresh) == 1 or listed is None else ()
        cards, who = (), "for the GPUs just given" if gpus else "a pod without GPUs or plan"
    return Choice(_shares(question, topology, cards, gpus), who, candidates)


def _gpus(row: ContainerDevices) -> tuple[str, ...]:
    """Whole ones and MIG slices that the container has."""
    found = [ids for name, ids in row.devices if name == GPU or slicing.is_slice(name)]
    return tuple(sorted(each for ids in found for each in ids))


def _planned(plans: Iterable[Grant], key: ContainerKey) -> tuple[str, ...]:
    for plan in plans:
        if plan.resource == GPU and (plan.namespace, plan.pod, plan.container) == key:
            return plan.device_ids
    return ()


def _shares(
    question: DeviceRequest, topology: NodeTopology, cards: Sequence[str], gpus: Sequence[str]
) -> tuple[str, ...]:
    """The must-haves, then shares of the planned cards, then of those nearest to the GPUs."""
    free: dict[str, list[str]] = {}
    for each in sorted(set(question.available) - set(question.must), key=_in_order):
        free.setdefault(card_of(each), []).append(each)
    chosen = list(question.must)
    have = Counter(map(card_of, chosen))
    for card, wanted in Counter(cards).items():
        missing = max(0, min(wanted - have[card], question.size - len(chosen)))
        chosen += [free[card].pop(0) for _ in range(missing) if free.get(card)]
    index = {gpu.uuid: gpu.index for gpu in topology.gpus}
    index |= {part.uuid: gpu.index for gpu, part in slicing.of(topology)}
    mask = mask_of(index[uuid] for uuid in gpus if uuid in index)
    room = {card: len(ids) for card, ids in free.items()}
    for card in nearest(topology, mask, room, question.size - len(chosen)):
        chosen.append(free[card].pop(0))
    return tuple(chosen)


def _in_order(share_id: str) -> tuple[str, int, str]:
    number = share_id.partition(BETWEEN)[2]
    return card_of(share_id), int(number) if number.isdigit() else 0, share_id


def response(
    ids: Iterable[str], topology: NodeTopology, device_nodes: Iterable[str] = ()
) -> ContainerResponse:
    """Raises ValueError for a card that is not here."""
    names = {card_of(each) for each in ids}
    cards = [hca for hca in topology.hcas if hca.name in names]
    if len(cards) < len(names):
        unknown = sorted(names - {hca.name for hca in cards})
        raise ValueError(f"this node has no network card {', '.join(unknown)}")
    told = ",".join(hca.name for hca in cards)
    return ContainerResponse(
        envs={
            "NCCL_IB_HCA": f"={told}",  # with it NCCL takes these names and not all that begin so
            "UCX_NET_DEVICES": ",".join(f"{hca.name}:{hca.port}" for hca in cards),
            "LOCKSTEP_HCAS": told,
        },
        device_nodes=tuple(device_nodes),
        annotations={f"{DOMAIN}/hcas": told},
    )
