"""The agent's knowledge of its node at one moment. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from agent import allocations
from agent.allocations import Allocated, Allocation, Forgotten, MigAddresses
from protos import slicing
from protos.claim_devices import uuid_of
from protos.names import GPU, GPU_SHARE, REST_OF_POD
from protos.topology import ClaimPlan, Gpu, GpuUse, Grant, MemoryOver, NodeTopology, RdmaUse, Slice

Held = tuple[Allocation | Forgotten, ...]


@dataclass(frozen=True, slots=True)
class NodeState:
    generation: int = 1  # grows with every change of topology or grants
    topology: NodeTopology = field(default_factory=NodeTopology)
    grants: tuple[Grant, ...] = ()  # observed: devices of containers as pod-resources lists them
    grants_known: bool = False
    allocations: tuple[Allocation, ...] = ()  # of answered Allocates, not in grants yet
    unlisted: tuple[Allocation, ...] = ()  # of running pods that only the kubelet's checkpoint has
    forgotten: tuple[Forgotten, ...] = ()  # of running pods that the kubelet does not know any more
    orphaned: MigAddresses = field(default_factory=dict)  # of slices that are gone but still held
    intents: tuple[Grant, ...] = ()  # planned: devices as the scheduler chose them
    intents_version: int = 0
    claims: tuple[ClaimPlan, ...] = ()  # allocated on this node, by any scheduler
    prepared: tuple[ClaimPlan, ...] = ()  # by this agent: pods may use their devices
    rdma_use: tuple[RdmaUse, ...] = ()  # a change alone triggers no report
    memory_over: tuple[MemoryOver, ...] = ()
    gpu_use: tuple[GpuUse, ...] = ()

    def allocated(self) -> Allocated:
        held: Held = (*self.allocations, *self.unlisted, *self.forgotten)
        addresses = {**self.orphaned, **allocations.addresses(self.topology)}
        found = allocations.allocated(self.grants, held, addresses)
        if not (self.claims or self.prepared):
            return found
        return found.with_claims(_by_device(self.prepared), _by_device(self.claims), addresses)

    def refusal_of(self, claim: ClaimPlan) -> str:
        """Returns why the claim must not be prepared; "" if it may."""
        rest = replace(
            self, claims=(), prepared=tuple(c for c in self.prepared if c.uid != claim.uid)
        )
        allocated, devices = rest.allocated(), self.by_uuid()
        for device in _by_device((claim,)):
            if device not in devices:
                return f"this node has no device {device}"
            resource, found = devices[device]
            if refusal := allocated.refusal(resource, (device,), self.topology):
                return refusal
            if holder := rest.taken(resource).get(device):
                return f"{device} is taken: {holder}"
            if not found.healthy:
                return f"{device} is not healthy: {found.why}"
        return "" if claim.devices else "the claim has no device of this node"

    def by_uuid(self) -> dict[str, tuple[str, Gpu | Slice]]:
        """Returns each GPU and MIG slice by its UUID, with the name of its resource."""
        found: dict[str, tuple[str, Gpu | Slice]] = {g.uuid: (GPU, g) for g in self.topology.gpus}
        for _, part in slicing.of(self.topology):
            found[part.uuid] = slicing.resource(part.profile), part
        return found

    def held_back(self) -> dict[str, str]:
        """The devices of running pods that the kubelet has forgotten, and why they are held back."""
        return {each: one.why for one in self.forgotten for each in one.device_ids}

    def taken(self, resource: str) -> dict[str, str]:
        """The resource's devices that must not be allocated again, and who has them."""
        held = {
            each: "a pod that was just admitted or is about to end"
            for one in (*self.allocations, *self.unlisted)
            if one.resource == resource
            for each in one.device_ids
        }
        listed = {
            each: f"pod {grant.namespace}/{grant.pod}"
            for grant in self.grants
            if grant.resource == resource
            for each in grant.device_ids
        }
        return {**held, **listed, **self.allocated().claimed, **self.held_back()}

    def reported_grants(self) -> tuple[Grant, ...]:
        """Returns the grants of containers: those that pod-resources lists, or listed before the kubelet forgot them,
        and the GPUs that only the checkpoint has."""
        return (*self.grants, *(one.grant for one in self.forgotten if one.grant), *self.rests())

    def rests(self) -> tuple[Grant, ...]:
        """The GPUs that no list has and the checkpoint has for a pod, as those of init containers."""
        listed = {each for grant in self.grants for each in grant.device_ids}
        found: dict[tuple[str, str], set[str]] = {}
        for one in self.unlisted if self.grants_known else ():
            if one.resource in (GPU, GPU_SHARE):
                found.setdefault((one.uid, one.resource), set()).update(one.device_ids)
        return tuple(
            Grant("", uid, REST_OF_POD, resource, tuple(sorted(ids - listed)))
            for (uid, resource), ids in sorted(found.items())
            if ids - listed
        )

    def unplaced(self, grants: Iterable[Grant]) -> set[str]:
        """UUIDs of allocated MIG slices whose address is unknown."""
        known = self.orphaned.keys() | allocations.addresses(self.topology).keys()
        return allocations.slices_held(grants) - known


def _by_device(claims: Iterable[ClaimPlan]) -> dict[str, str]:
    """The claim in words by the UUID of each of its GPUs and slices, but those that it has by admin access."""
    return {
        uuid_of(each.device): f"claim {claim.namespace}/{claim.name}"
        for claim in claims
        for each in claim.devices
        if not each.admin
    }
