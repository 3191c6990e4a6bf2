"""The owner of the node's state. Threads read a NodeState, which is immutable, or wait for the next
one."""

import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from math import inf

from agent import allocations
from agent.allocations import Allocation, MigAddresses
from agent.node_state import NodeState
from protos.topology import Grant, MemoryOver, NodeTopology, RdmaUse


class AgentNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.boot_id = uuid.uuid4().hex  # of this run of the agent
        self._changed = threading.Condition()
        self._state = NodeState()

    @property
    def state(self) -> NodeState:
        return self._state

    def set_topology(self, topology: NodeTopology) -> None:
        with self._changed:
            if topology != self._state.topology:
                here = allocations.addresses(topology)
                known = {**self._state.orphaned, **allocations.addresses(self._state.topology)}
                orphaned = {uuid: at for uuid, at in known.items() if uuid not in here}
                self._become(replace(self._next(), topology=topology, orphaned=orphaned))

    def set_grants(
        self,
        grants: tuple[Grant, ...],
        unlisted: tuple[Allocation, ...] = (),
        began: float = inf,
        orphaned: MigAddresses | None = None,
    ) -> None:
        """grants come from a List call that began at that monotonic time; unlisted and orphaned
        from the kubelet's checkpoint."""
        with self._changed:
            old = self._state
            grants = tuple(sorted(grants))
            if grants != old.grants or not old.grants_known:
                self._become(replace(self._next(), grants=grants, grants_known=True))
            kept = allocations.unconfirmed(old.allocations, grants, began)
            held = allocations.slices_held((*grants, *kept, *unlisted))
            known = {**(orphaned or {}), **old.orphaned}
            left = {uuid: at for uuid, at in known.items() if uuid in held}
            if (kept, unlisted, left) != (old.allocations, old.unlisted, old.orphaned):
                self._become(
                    replace(self._state, allocations=kept, unlisted=unlisted, orphaned=left)
                )

    def set_unlisted(self, unlisted: tuple[Allocation, ...]) -> None:
        with self._changed:
            self._become(replace(self._state, unlisted=unlisted))

    def record_allocation(self, resource: str, ids: tuple[str, ...], now: float) -> None:
        """Call before Allocate is answered. Raises ValueError if a GPU would be allocated twice."""
        if not allocations.uses_gpus(resource):
            return
        with self._changed:
            state = self._state
            if refusal := state.allocated().refusal(resource, ids, state.topology):
                raise ValueError(refusal)
            new = Allocation(resource, tuple(sorted(ids)), now)
            kept = tuple(each for each in state.allocations if each.device_ids != new.device_ids)
            self._become(replace(state, allocations=(*kept, new)))

    def set_intents(self, intents: tuple[Grant, ...], version: int) -> None:
        with self._changed:
            self._become(replace(self._state, intents=intents, intents_version=version))

    def set_rdma_use(self, used: tuple[RdmaUse, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, rdma_use=used)

    def set_memory_over(self, found: tuple[MemoryOver, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, memory_over=found)

    def _next(self) -> NodeState:
        return replace(self._state, generation=self._state.generation + 1)

    def _become(self, state: NodeState) -> None:
        self._state = state
        self._changed.notify_all()

    def wake(self) -> None:
        """Makes every wait() check its condition again, after something outside the state
        changed."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, until: Callable[[NodeState], bool], timeout_s: float) -> NodeState:
        """Returns the state once the condition holds, or as it is after the timeout."""
        with self._changed:
            self._changed.wait_for(lambda: until(self._state), timeout=timeout_s)
            return self._state
