"""The use of each GPU: free, whole for one container, in shares or MIG slices, or in a resource claim. Pure.

These are separate to the kubelet, which does not know that they are the same GPUs, so the
agent must not let one GPU be allocated in two ways. A GPU in use one way is reported as unhealthy
in the other ways, which takes it off the kubelet's lists until it is free. The kubelet may still
act on an older list; Allocate then refuses.

MIG slices can be destroyed while a pod holds them. Such a slice keeps its address occupied, because
the pod's device files would open the slice that is created there next.

Design: docs/design/gpu-sharing.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from protos import slicing
from protos.names import GPU, GPU_SHARE, MIG
from protos.nearest import device_of
from protos.topology import Gpu, Grant, NodeTopology, Slice

KEPT_S = 10.0  # a pod that pod-resources does not list this long after Allocate was not admitted
Device = TypeVar("Device", Gpu, Slice)


@dataclass(frozen=True, slots=True)
class Allocation:
    """Devices of a container that pod-resources does not list, or not yet."""

    resource: str
    device_ids: tuple[str, ...]  # sorted
    at: float = 0.0  # monotonic time of the answer to Allocate
    uid: str = ""  # of the pod, where the checkpoint has it


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Devices that a running pod uses although the kubelet does not know it any more, or knows other ids of them."""

    resource: str
    device_ids: tuple[str, ...]  # sorted
    why: str  # why they are held back, for people
    grant: Grant | None = None  # as pod-resources listed it last


MigAddress = tuple[str, int, int]  # of a slice: UUID of its GPU, GPU instance, compute instance
MigAddresses = Mapping[str, MigAddress]  # by the slice's UUID


@dataclass(frozen=True, slots=True)
class Allocated:
    whole: frozenset[str]  # UUIDs of GPUs
    shared: Mapping[str, int]  # hundredths by the GPU's UUID
    sliced: frozenset[str]  # UUIDs of GPUs with slices in use
    holders: Mapping[MigAddress, frozenset[tuple[str, str]]]  # resource and UUID of slices
    claimed: Mapping[str, str] = field(
        default_factory=dict
    )  # the claim by the UUID of GPU or slice

    def with_claims(
        self, prepared: Mapping[str, str], planned: Mapping[str, str], addresses: MigAddresses
    ) -> "Allocated":
        """Adds the GPUs and slices of claims; those of a planned one only while nothing else has them."""
        now = self._with(prepared, addresses)
        slices = {uuid for held in now.holders.values() for _, uuid in held}
        in_use = now.whole.union(now.shared, now.sliced, slices)
        blocked = now.whole.union(now.shared)  # GPUs whose slices must not be used
        free = {
            uuid: claim
            for uuid, claim in planned.items()
            if uuid not in in_use and addresses.get(uuid, ("",))[0] not in blocked
        }
        return now._with(free, addresses)

    def _with(self, claims: Mapping[str, str], addresses: MigAddresses) -> "Allocated":
        holders = dict(self.holders)
        for uuid in claims.keys() & addresses.keys():
            at = addresses[uuid]
            holders[at] = holders.get(at, frozenset()) | {(MIG, uuid)}
        return replace(
            self,
            whole=self.whole | (claims.keys() - addresses.keys()),
            sliced=frozenset(address[0] for address in holders),
            holders=holders,
            claimed={**self.claimed, **claims},
        )

    def refusal(self, resource: str, ids: Iterable[str], topology: NodeTopology) -> str:
        """Returns why the devices must not be allocated; "" if they may."""
        if slicing.is_slice(resource):
            return self._of_slices(resource, ids, topology)
        gpus = sorted(set(map(device_of, ids)))
        if resource == GPU_SHARE and len(gpus) > 1:
            named = _words(gpus, topology)
            return f"request spans {len(gpus)} GPUs ({named}); a share must fit on one GPU"
        other = self.shared.keys() if resource == GPU else self.whole
        in_mig = {gpu.uuid for gpu in topology.gpus if gpu.mig}
        for gpu in gpus:
            if claim := self.claimed.get(gpu):
                return f"{_words([gpu], topology)} is in {claim}"
        for taken, how in (
            (
                [gpu for gpu in gpus if gpu in in_mig],
                "is in MIG mode; only its slices can be allocated",
            ),
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
        """Returns why the slice must not be allocated; "" if it may."""
        if claim := self.claimed.get(part.uuid):
            return f"{slicing.words(gpu, part)} is in {claim}"
        if gpu.uuid in self.whole:
            return f"GPU {gpu.index} is in use as a whole"
        if gpu.uuid in self.shared:
            return f"GPU {gpu.index} is in use in shares"
        mine = (slicing.resource(part.profile), part.uuid)
        if self.holders.get((gpu.uuid, part.gi, part.ci), frozenset()) - {mine}:
            return f"{slicing.words(gpu, part)} has the address of a former slice that a pod holds"
        return ""


def allocated(
    grants: Iterable[Grant], allocations: Iterable[Allocation | Forgotten], addresses: MigAddresses
) -> Allocated:
    """addresses: of the slices that exist and of those that are gone."""
    held = {(grant.resource, grant.device_ids) for grant in grants}
    held |= {(each.resource, each.device_ids) for each in allocations}
    shares = {each for resource, ids in held if resource == GPU_SHARE for each in ids}
    holders: dict[MigAddress, set[tuple[str, str]]] = {}
    for resource, ids in held:
        for each in ids if slicing.is_slice(resource) else ():
            if each in addresses:
                holders.setdefault(addresses[each], set()).add((resource, each))
    return Allocated(
        frozenset(each for resource, ids in held if resource == GPU for each in ids),
        Counter(map(device_of, shares)),
        frozenset(address[0] for address in holders),
        {address: frozenset(each) for address, each in holders.items()},
    )


def held_back(topology: NodeTopology, forgotten: Iterable[Forgotten]) -> NodeTopology:
    """The topology with the GPUs and slices of running pods that the kubelet has forgotten as
    unhealthy."""
    whys = {each: one.why for one in forgotten for each in one.device_ids}
    if not whys:
        return topology
    gpus = tuple(
        replace(
            _held_back(gpu, whys.get(gpu.uuid)),
            slices=tuple(
                _held_back(part, whys.get(gpu.uuid) or whys.get(part.uuid)) for part in gpu.slices
            ),
        )
        for gpu in topology.gpus
    )
    return replace(topology, gpus=gpus)


def _held_back(device: Device, why: str | None) -> Device:
    return (
        replace(device, healthy=False, why=f"held back: {why}")
        if why and device.healthy
        else device
    )


def addresses(topology: NodeTopology) -> dict[str, MigAddress]:
    return {part.uuid: (gpu.uuid, part.gi, part.ci) for gpu, part in slicing.of(topology)}


def slices_held(held: Iterable[Grant | Allocation | Forgotten]) -> set[str]:
    return {each for one in held if slicing.is_slice(one.resource) for each in one.device_ids}


def unconfirmed(
    allocations: Iterable[Allocation],
    listed: Iterable[Grant],
    began: float,
    given_up: Callable[[Allocation], bool] = lambda _: False,
) -> tuple[Allocation, ...]:
    """The allocations that are still open after a List call that began at that monotonic time: not
    listed, not given up by the kubelet, and younger than KEPT_S."""
    shown = {(grant.resource, grant.device_ids) for grant in listed}
    return tuple(
        each
        for each in allocations
        if (each.resource, each.device_ids) not in shown
        and began - each.at < KEPT_S
        and not given_up(each)
    )


def _words(uuids: Iterable[str], topology: NodeTopology) -> str:
    index = {gpu.uuid: str(gpu.index) for gpu in topology.gpus}
    return "GPU " + ",".join(index.get(uuid, uuid) for uuid in uuids)
