"""Capacity of a node's RDMA NICs for more pods, NIC by NIC.

Each NIC has a cgroup limit (handles, objects) that all pods share. A pod requests N NIC shares and, on each of
its NICs, a limit: its own (annotation), or the default of the node's agent. It gets as many different NICs as
it has shares, if there are that many. Pods whose NICs are known are subtracted from those NICs. The requests of
the others are kept as unassigned, and nics.py assigns NICs before the agent receives the plan.

A sum over the NICs would be too much. Example: two NICs have 15 handles left each. Of pods that need 10 handles
only two fit, one on each NIC, although 30 handles are left.

Design: docs/design/nics.md
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from central.model.facts import PodSpec
from central.model.limits import POD_AMOUNT
from central.scheduler.inventory.pods import Pod
from protos.topology import NodeTopology, RdmaLimit

PLENTY = 2**40  # of a NIC without a limit
KEYS = ("hca_handle", "hca_object")  # resource names
NO_POD = PodSpec(())

Container = tuple[str, str, str]  # namespace, pod, container
Nics = Mapping[Container, tuple[str, ...]]  # a NIC name for each share


class NicRequest(NamedTuple):
    """The request of one pod: limits on each of its NICs, and its shares. Sorted in reverse, the largest come first."""

    handles: int
    objects: int
    shares: int  # on all NICs together


FreeNic = list[int]  # handles, objects and shares that are left


class NicCapacity:
    """The remaining capacity of the NICs of one node. nics: those that are offered and healthy."""

    __slots__ = ("default", "nics", "unassigned")

    def __init__(self, nics: dict[str, FreeNic], default: RdmaLimit) -> None:
        self.nics, self.default = nics, default
        self.unassigned: Counter[NicRequest] = Counter()

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, NicCapacity)
            and (self.nics, self.default) == (other.nics, other.default)
            and +self.unassigned == +other.unassigned
        )

    __hash__ = None  # type: ignore[assignment]  # it changes

    def request(self, spec: PodSpec) -> NicRequest:
        limits, default = dict(spec.rdma_limits), self.default
        return NicRequest(
            max(limits.get("hca_handle", default.hca_handle), 0),
            max(limits.get("hca_object", default.hca_object), 0),
            sum(count for _, count in spec.rdma_containers),
        )

    def add_requests(self, spec: PodSpec, count: int) -> None:
        """Adds requests of pods without NICs; a count below 0 removes them."""
        self.unassigned[self.request(spec)] += count

    def charge(self, wanted: NicRequest, nics: Mapping[str, int], sign: int = 1) -> None:
        """Takes what a pod with these shares by NIC uses; sign=-1 gives it back."""
        for name, shares in nics.items():
            if (nic := self.nics.get(name)) is not None:
                nic[0] -= sign * wanted.handles
                nic[1] -= sign * wanted.objects
                nic[2] -= sign * shares

    def fits(self, wanted: Iterable[tuple[PodSpec, int]]) -> bool:
        """Returns whether that many more pods of each class fit together, beside the unassigned ones."""
        asked = +self.unassigned
        for spec, count in wanted:
            asked[self.request(spec)] += count if spec.rdma_containers else 0
        return greedy_order(list(self.nics.values()), asked) is not None

    def capacity(self, wanted: NicRequest) -> int:
        """Returns how many more pods with this request fit beside the unassigned ones."""
        nics = list(self.nics.values())
        most = max_pods(nics, wanted)
        others = +self.unassigned
        if not most or not others:
            return most
        if others.keys() == {wanted}:
            return max(0, most - others[wanted])
        low, high = 0, most
        while low < high:
            middle = (low + high + 1) // 2
            if greedy_order(nics, others + Counter({wanted: middle})) is None:
                high = middle - 1
            else:
                low = middle
        return low


def capacities(nics: Mapping[int, NicCapacity], rows: Sequence[int], spec: PodSpec) -> list[int]:
    """Returns for each of the rows how many more pods of the class fit; PLENTY on nodes whose NICs have no limits."""
    found = []
    for row in rows:
        one = nics.get(row)
        found.append(PLENTY if one is None else one.capacity(one.request(spec)))
    return found


def most_left(nics: Mapping[int, NicCapacity], rows: Sequence[int], spec: PodSpec) -> str:
    """Returns the highest number of handles that one more pod could have, as in ", at most 20"; empty: handles are not
    what is short."""
    found = [one for row in rows if (one := nics.get(row)) is not None]
    asked = dict(spec.rdma_limits).get(KEYS[0], 0)

    def is_too_many(handles: int) -> bool:
        return not any(one.capacity(one.request(spec)._replace(handles=handles)) for one in found)

    most = bisect_left(range(1, asked + 1), x=True, key=is_too_many)
    return f", at most {most}" if 0 < most < asked else ""


def from_topology(topology: NodeTopology) -> NicCapacity | None:
    """The capacity without any pods; None if no NIC has a limit or the agent does not set limits."""
    limits = dict(topology.rdma_cgroup or ())
    offered = [hca for hca in topology.hcas if hca.shares and not hca.rail]
    if not topology.rdma_settable or all(
        limits.get(hca.name, RdmaLimit()) == RdmaLimit() for hca in offered
    ):
        return None
    nics = {}
    for hca in offered:
        limit = limits.get(hca.name, RdmaLimit())
        have = [most if most >= 0 else PLENTY for most in (limit.hca_handle, limit.hca_object)]
        if not hca.why:
            nics[hca.name] = [*have, hca.shares]
    return NicCapacity(nics, topology.rdma_default)


def max_limits(topology: NodeTopology) -> tuple[tuple[str, int], ...] | None:
    """The highest limits that a pod can have on one NIC (-1: unlimited); None if the agent sets no limits."""
    limits = _limits(topology)
    if limits is None:
        return None
    found = ([one.hca_handle for one in limits], [one.hca_object for one in limits])
    return tuple(
        (key, -1 if -1 in each or not each else max(each))
        for key, each in zip(KEYS, found, strict=True)
    )


def allocatable(topology: NodeTopology) -> tuple[tuple[str, int], ...]:
    """The sums of the limits of all offered NICs, as resources of the node; empty if no limits are set."""
    limits = _limits(topology)
    if limits is None:
        return ()
    handles = sum(one.hca_handle if one.hca_handle >= 0 else PLENTY for one in limits)
    objects = sum(one.hca_object if one.hca_object >= 0 else PLENTY for one in limits)
    handles, objects = min(handles, POD_AMOUNT), min(objects, POD_AMOUNT)
    return tuple(zip(KEYS, (handles, objects), strict=True))


def _limits(topology: NodeTopology) -> list[RdmaLimit] | None:
    """The limits of the offered NICs; None if the agent sets no limits."""
    if not topology.rdma_settable or topology.rdma_cgroup is None:
        return None
    offered = {hca.name for hca in topology.hcas if hca.shares}
    return [limit for name, limit in topology.rdma_cgroup if name in offered]


def with_pods(whole: NicCapacity, pods: Iterable[Pod], known: Nics) -> NicCapacity:
    """Returns the capacity that remains with these pods there. Unknown pods have the default limits of the agent."""
    left = NicCapacity({name: [*nic] for name, nic in whole.nics.items()}, whole.default)
    here = {(pod.seen.namespace, pod.seen.name): pod for pod in pods}
    counts: dict[tuple[str, str], Counter[str]] = {}
    for key, names in known.items():
        counts.setdefault(key[:2], Counter()).update(names)
    for name, shares in counts.items():
        pod = here.get(name)
        if pod is None or pod.alive:
            left.charge(left.request(pod.spec if pod else NO_POD), shares)
    for pod in here.values():
        if pod.charged_spec is not None and (rest := unassigned_shares(pod, known)):
            left.unassigned[left.request(pod.spec)._replace(shares=rest)] += 1
    return left


def unassigned_shares(pod: Pod, known: Nics) -> int:
    """The shares of the pod for which no NIC is known."""
    name = (pod.seen.namespace, pod.seen.name)
    return sum(count for each, count in pod.spec.rdma_containers if (*name, each) not in known)


def pods_per_nic(nic: FreeNic, wanted: NicRequest, each: int = 1) -> int:
    """Returns how many such pods fit on the NIC with `each` shares of it per pod; 0 if the NIC is overcommitted."""
    if min(nic) < 0:
        return 0
    found = nic[2] // each
    if wanted.handles:
        found = min(found, nic[0] // wanted.handles)
    if wanted.objects:
        found = min(found, nic[1] // wanted.objects)
    return found


def shares_per_nic(nics: Sequence[FreeNic], wanted: NicRequest) -> tuple[int, int]:
    """The number of NICs that such a pod gets, and the most shares that it has of one of them."""
    count = min(wanted.shares, len(nics))
    return count, -(-wanted.shares // count) if count else 0


def max_pods(nics: Sequence[FreeNic], wanted: NicRequest) -> int:
    """Returns how many such pods fit, each on different NICs. Exact: n pods fit if and only if the NICs, each counted
    for at most n, have n times the NICs of a pod."""
    count, each = shares_per_nic(nics, wanted)
    if not count:
        return 0
    caps = [pods_per_nic(nic, wanted, each) for nic in nics]
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
    nics: Sequence[FreeNic], wanted: NicRequest, *, tight: bool
) -> tuple[int, ...] | None:
    """The NICs of the next such pod, as indices: those that fit the most such pods, or with `tight`, the
    fewest. For equal pods the former is optimal. None: the pod does not fit."""
    count, each = shares_per_nic(nics, wanted)
    caps = [pods_per_nic(nic, wanted, each) for nic in nics] if count else []
    able = [index for index, one in enumerate(caps) if one]
    if len(able) < count or not count:
        return None
    able.sort(key=lambda index: caps[index] if tight else -caps[index])
    return tuple(able[:count])


def greedy_order(nics: Sequence[FreeNic], asked: Mapping[NicRequest, int]) -> bool | None:
    """Returns the `tight` with which choose_nics() can assign all requests, the largest first; False if both can. None
    if neither can, which is not proof that they do not fit."""
    groups = sorted(((wanted, count) for wanted, count in asked.items() if count > 0), reverse=True)
    return next((tight for tight in (False, True) if _fit(nics, groups, tight=tight)), None)


def _fit(nics: Sequence[FreeNic], groups: Iterable[tuple[NicRequest, int]], *, tight: bool) -> bool:
    left = [list(nic) for nic in nics]
    *first, (last, rest) = groups or [(NicRequest(0, 0, 0), 0)]
    for wanted, count in first:
        for _ in range(count):
            if (chosen := choose_nics(left, wanted, tight=tight)) is None:
                return False
            charge(left, wanted, chosen)
    return rest <= 0 or max_pods(left, last) >= rest


def charge(nics: Sequence[FreeNic], wanted: NicRequest, chosen: Sequence[int]) -> None:
    """Takes what a pod on the chosen NICs uses."""
    _, each = shares_per_nic(nics, wanted)
    for index in chosen:
        nics[index][0] -= wanted.handles
        nics[index][1] -= wanted.objects
        nics[index][2] -= each
