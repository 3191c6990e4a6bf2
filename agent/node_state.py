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
    grants: tuple[Grant, ...] = ()  # the truth
    grants_known: bool = False
    allocations: tuple[Allocation, ...] = ()  # beside the grants, of GPUs: not listed yet
    unlisted: tuple[Allocation, ...] = ()  # the same: of pods that only the checkpoint knows
    orphaned: MigAddresses = field(
        default_factory=dict
    )  # where slices were that somebody may still hold
    intents: tuple[Grant, ...] = ()
    intents_version: int = 0
    rdma_use: tuple[RdmaUse, ...] = ()  # no change of it is news
    memory_over: tuple[MemoryOver, ...] = ()

    def allocated(self) -> Allocated:
        held = (*self.allocations, *self.unlisted)
        return allocations.allocated(
            self.grants, held, {**self.orphaned, **allocations.addresses(self.topology)}
        )

    def unplaced(self, grants: Iterable[Grant]) -> set[str]:
        """Slices that somebody holds of which is not known where they are, or were."""
        return (
            allocations.slices_held(grants)
            - allocations.addresses(self.topology).keys()
            - self.orphaned.keys()
        )
