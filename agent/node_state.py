"""What the agent knows of its node at one moment. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from agent import allocations
from agent.allocations import Allocated, Allocation, MigAddresses
from protos.topology import Grant, MemoryOver, NodeTopology, RdmaUse


@dataclass(frozen=True, slots=True)
class NodeState:
    generation: int = 1  # grows with every change of topology or grants
    topology: NodeTopology = field(default_factory=NodeTopology)
    grants: tuple[Grant, ...] = ()  # observed: devices of containers as pod-resources lists them
    grants_known: bool = False
    allocations: tuple[Allocation, ...] = ()  # GPUs of answered Allocates, not in grants yet
    unlisted: tuple[Allocation, ...] = ()  # GPUs of pods that only the kubelet's checkpoint has
    orphaned: MigAddresses = field(default_factory=dict)  # of slices that are gone but still held
    intents: tuple[Grant, ...] = ()  # planned: devices as the scheduler chose them
    intents_version: int = 0
    rdma_use: tuple[RdmaUse, ...] = ()  # a change alone triggers no report
    memory_over: tuple[MemoryOver, ...] = ()

    def allocated(self) -> Allocated:
        held = (*self.allocations, *self.unlisted)
        addresses = {**self.orphaned, **allocations.addresses(self.topology)}
        return allocations.allocated(self.grants, held, addresses)

    def unplaced(self, grants: Iterable[Grant]) -> set[str]:
        """UUIDs of allocated MIG slices whose address is unknown."""
        known = self.orphaned.keys() | allocations.addresses(self.topology).keys()
        return allocations.slices_held(grants) - known
