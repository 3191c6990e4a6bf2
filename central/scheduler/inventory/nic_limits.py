"""Room for pods on a node's network cards, card by card: where the cgroup of all pods has limits, the limits of
pods must fit below them on each card, and a sum over the cards would promise what no card can keep.

A pod asks for shares, and on each of its cards for a limit: its own wish, else what the node's agent gives by default.
It gets as many different cards as it has shares, as far as there are so many. Whose cards are known takes from these;
the others are asked for, and dealt to cards when the node's agent is told (see cards). Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from central.model.facts import PodSpec
from protos.topology import NodeTopology, RdmaLimit

PLENTY = 2**40  # of a card without a limit
KEYS = ("hca_handle", "hca_object")  # also the names of the resources that wishes are summed as


class NicRequest(NamedTuple):
    """Of one pod on each of its cards; the most first when sorted."""

    handles: int
    objects: int
    shares: int  # in all


Card = list[int]  # handles, objects and shares that are left


class NicCapacity:
    """Of one node. cards are those that are offered and fit for work."""

    __slots__ = ("default", "nics", "unassigned")

    def __init__(self, cards: dict[str, Card], default: RdmaLimit) -> None:
        self.nics, self.default = cards, default
        self.unassigned: Counter[NicRequest] = Counter()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NicCapacity)
            and (self.nics, self.default) == (other.nics, other.default)
            and +self.unassigned == +other.unassigned
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def request(self, spec: PodSpec) -> NicRequest:
        return request(spec, self.default)

    def add_requests(self, spec: PodSpec, count: int) -> None:
        """So many more pods, or fewer."""
        self.unassigned[self.request(spec)] += count

    def charge(self, wanted: NicRequest, cards: Mapping[str, int], sign: int = 1) -> None:
        """Of a pod that holds so many shares of these."""
        for name, shares in cards.items():
            if (card := self.nics.get(name)) is not None:
                card[0] -= sign * wanted.handles
                card[1] -= sign * wanted.objects
                card[2] -= sign * shares

    def fits(self, wanted: Iterable[tuple[PodSpec, int]]) -> bool:
        """Whether there is room for so many of each kind, together."""
        asked = +self.unassigned
        for spec, count in wanted:
            asked[self.request(spec)] += count if spec.rdma_containers else 0
        return greedy_order(list(self.nics.values()), asked) is not None

    def capacity(self, wanted: NicRequest) -> int:
        """How many more pods of this kind there is room for, beside those that asked before."""
        cards = list(self.nics.values())
        most = max_pods(cards, wanted)
        others = +self.unassigned
        if not most or not others:
            return most
        if others.keys() == {wanted}:
            return max(0, most - others[wanted])
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if greedy_order(cards, others + Counter({wanted: middle})) is None:
                high = middle - 1
            else:
                low = middle
        return low


def capacities(cards: Mapping[int, NicCapacity], rows: Sequence[int], spec: PodSpec) -> list[int]:
    """Of many nodes; those where only shares count have plenty."""
    found = []
    for row in rows:
        room = cards.get(row)
        found.append(PLENTY if room is None else room.capacity(room.request(spec)))
    return found


def request(spec: PodSpec, default: RdmaLimit) -> NicRequest:
    wished = dict(spec.rdma_limits)
    return NicRequest(
        max(wished.get("hca_handle", default.hca_handle), 0),
        max(wished.get("hca_object", default.hca_object), 0),
        sum(count for _, count in spec.rdma_containers),
    )


def from_topology(topology: NodeTopology) -> NicCapacity | None:
    """With nobody there; None: no card has a limit, or none is set, and only shares count."""
    limits = dict(topology.rdma_cgroup or ())
    offered = [hca for hca in topology.hcas if hca.shares]
    if not topology.rdma_settable or all(
        limits.get(hca.name, RdmaLimit()) == RdmaLimit() for hca in offered
    ):
        return None
    cards = {}
    for hca in offered:
        limit = limits.get(hca.name, RdmaLimit())
        have = [most if most >= 0 else PLENTY for most in (limit.hca_handle, limit.hca_object)]
        if not hca.why:
            cards[hca.name] = [*have, hca.shares]
    return NicCapacity(cards, topology.rdma_default)


def pods_per_nic(card: Card, wanted: NicRequest, each: int = 1) -> int:
    """How many such pods the card has room for, with so many shares of it each; none where more is
    promised than there is."""
    if min(card) < 0:
        return 0
    found = card[2] // each
    if wanted.handles:
        found = min(found, card[0] // wanted.handles)
    if wanted.objects:
        found = min(found, card[1] // wanted.objects)
    return found


def shares_per_nic(cards: Sequence[Card], wanted: NicRequest) -> tuple[int, int]:
    """On how many cards such a pod is, and with how many shares of each, at most."""
    count = min(wanted.shares, len(cards))
    return count, -(-wanted.shares // count) if count else 0


def max_pods(cards: Sequence[Card], wanted: NicRequest) -> int:
    """How many such pods there is room for, none twice on a card."""
    count, each = shares_per_nic(cards, wanted)
    if not count:
        return 0
    caps = [pods_per_nic(card, wanted, each) for card in cards]
    if count == 1:
        return sum(caps)
    low, high = 0, sum(caps) // count
    while low < high:
        middle = (low + high + 1) // 2
        if sum(min(one, middle) for one in caps) >= middle * count:
            low = middle
        else:
            high = middle - 1
    return low


def choose_nics(
    cards: Sequence[Card], wanted: NicRequest, *, tight: bool
) -> tuple[int, ...] | None:
    """The cards of the next such pod: those with the most room, or tight: with the least. Equal pods
    that get those with the most are as many as can be."""
    count, each = shares_per_nic(cards, wanted)
    caps = [pods_per_nic(card, wanted, each) for card in cards] if count else []
    able = [index for index, one in enumerate(caps) if one]
    if len(able) < count or not count:
        return None
    able.sort(key=lambda index: caps[index] if tight else -caps[index])
    return tuple(able[:count])


def greedy_order(cards: Sequence[Card], asked: Mapping[NicRequest, int]) -> bool | None:
    """How choose_nics() finds room for all of them, the greediest first: tight or not; None: it does not."""
    groups = sorted(((wanted, count) for wanted, count in asked.items() if count > 0), reverse=True)
    return next((tight for tight in (False, True) if _fit(cards, groups, tight=tight)), None)


def _fit(cards: Sequence[Card], groups: Iterable[tuple[NicRequest, int]], *, tight: bool) -> bool:
    left = [list(card) for card in cards]
    *first, (last, rest) = groups or [(NicRequest(0, 0, 0), 0)]
    for wanted, count in first:
        for _ in range(count):
            if (chosen := choose_nics(left, wanted, tight=tight)) is None:
                return False
            charge(left, wanted, chosen)
    return rest <= 0 or max_pods(left, last) >= rest


def charge(cards: Sequence[Card], wanted: NicRequest, chosen: Sequence[int]) -> None:
    _, each = shares_per_nic(cards, wanted)
    for index in chosen:
        cards[index][0] -= wanted.handles
        cards[index][1] -= wanted.objects
        cards[index][2] -= each
