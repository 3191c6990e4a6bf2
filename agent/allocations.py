"""Who has which GPU: nobody, one container as a whole, or several in shares or MIG slices. These are
several resources to the kubelet, which does not know that they are the same GPUs: here is where one
GPU is never allocated in two ways. Pure.

A GPU that is in use one way is not healthy the other ways, which takes it off the kubelet's lists until
it is free again. The kubelet may act on an older list: then Allocate refuses.

Slices come and go while pods run: one that is gone and still held by a pod keeps its address, for its files
would open what is made there next."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from protos import slicing
from protos.names import GPU, GPU_SHARE
from protos.nearest import card_of
from protos.topology import Gpu, Grant, NodeTopology, Slice

KEPT_S = 10.0  # a allocation that pod-resources never showed is forgotten after so long: nobody was admitted


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices that somebody has of whom pod-resources does not tell, or not yet."""

    resource: str
    device_ids: tuple[str, ...]  # sorted
    at: float = 0.0  # when Allocate was answered


MigAddress = tuple[
    str, int, int
]  # of a slice: its GPU's uuid, its GPU instance, its compute instance
MigAddresses = Mapping[str, MigAddress]  # by the slice's uuid


@dataclass(frozen=True, slots=True)
class Allocated:
    whole: frozenset[str]  # uuids
    shared: Mapping[str, int]  # hundredths by uuid
    sliced: frozenset[str]  # GPUs of which slices are in use
    addresses: Mapping[
        MigAddress, frozenset[tuple[str, str]]
    ]  # who is there: resource and uuid of slices

    def refusal(self, resource: str, ids: Iterable[str], topology: NodeTopology) -> str:
        """Why these must not be given; empty: they may."""
        if slicing.is_slice(resource):
            return self._of_slices(resource, ids, topology)
        gpus = sorted(set(map(card_of, ids)))
        if resource == GPU_SHARE and len(gpus) > 1:
            return f"shares of {len(gpus)} GPUs ({_words(gpus, topology)}): no GPU here has so much left"
        other = self.shared.keys() if resource == GPU else self.whole
        in_mig = {gpu.uuid for gpu in topology.gpus if gpu.mig}
        for taken, how in (
            ([gpu for gpu in gpus if gpu in in_mig], "is in MIG mode: it is given in slices"),
            (
                [gpu for gpu in gpus if gpu in other],
                "is in use in shares" if resource == GPU else "is in use as a whole",
            ),
            ([gpu for gpu in gpus if gpu in self.sliced], "has slices in use"),
        ):
            if taken:
                return f"{_words(taken, topology)} {how}"
        return ""

    def _of_slices(self, resource: str, ids: Iterable[str], topology: NodeTopology) -> str:
        here = {
            part.uuid: (gpu, part)
            for gpu, part in slicing.of(topology)
            if slicing.resource(part.profile) == resource
        }
        for each in sorted(ids):
            if each not in here:
                return f"this node has no slice {each} of {resource}"
            if why := self.withheld(*here[each]):
                return why
        return ""

    def withheld(self, gpu: Gpu, part: Slice) -> str:
        """Why this slice must not be given; empty: it may."""
        if gpu.uuid in self.whole:
            return f"GPU {gpu.index} is in use as a whole"
        if gpu.uuid in self.shared:
            return f"GPU {gpu.index} is in use in shares"
        mine = (slicing.resource(part.profile), part.uuid)
        if self.addresses.get((gpu.uuid, part.gi, part.ci), frozenset()) - {mine}:
            return f"{slicing.words(gpu, part)} is in the place of a slice that is still in use"
        return ""


def allocated(
    grants: Iterable[Grant], allocations: Iterable[Allocation], addresses: MigAddresses
) -> Allocated:
    """addresses: of the slices that there are, and of those that are gone."""
    held = {(grant.resource, grant.device_ids) for grant in grants}
    held |= {(allocation.resource, allocation.device_ids) for allocation in allocations}
    shares = {each for resource, ids in held if resource == GPU_SHARE for each in ids}
    taken: dict[MigAddress, set[tuple[str, str]]] = {}
    for resource, ids in held:
        for each in ids if slicing.is_slice(resource) else ():
            if each in addresses:
                taken.setdefault(addresses[each], set()).add((resource, each))
    return Allocated(
        frozenset(each for resource, ids in held if resource == GPU for each in ids),
        Counter(map(card_of, shares)),
        frozenset(address[0] for address in taken),
        {address: frozenset(holders) for address, holders in taken.items()},
    )


def uses_gpus(resource: str) -> bool:
    """Whether its devices are GPUs, or parts of them."""
    return resource in (GPU, GPU_SHARE) or slicing.is_slice(resource)


def addresses(topology: NodeTopology) -> dict[str, MigAddress]:
    return {part.uuid: (gpu.uuid, part.gi, part.ci) for gpu, part in slicing.of(topology)}


def slices_held(held: Iterable[Grant | Allocation]) -> set[str]:
    return {each for one in held if slicing.is_slice(one.resource) for each in one.device_ids}


def unconfirmed(
    allocations: Iterable[Allocation], listed: Iterable[Grant], began: float
) -> tuple[Allocation, ...]:
    """The allocations that a listing, begun at this time, has not settled."""
    shown = {(grant.resource, grant.device_ids) for grant in listed}
    return tuple(
        allocation
        for allocation in allocations
        if (allocation.resource, allocation.device_ids) not in shown
        and began - allocation.at < KEPT_S
    )


def _words(uuids: Iterable[str], topology: NodeTopology) -> str:
    index = {gpu.uuid: str(gpu.index) for gpu in topology.gpus}
    return "GPU " + ",".join(index.get(uuid, uuid) for uuid in uuids)
