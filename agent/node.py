"""The owner of the node's state. Threads read a NodeState, which is immutable, or wait for the next
one."""

import threading
import uuid
from collections.abc import Callable, Container
from dataclasses import replace
from math import inf

from agent import allocations, other_plugins
from agent.allocations import Allocation, Forgotten, MigAddresses
from agent.node_state import NodeState
from agent.other_plugins import Holding
from protos.claim_devices import uuid_of
from protos.topology import ClaimPlan, GpuUse, Grant, MemoryOver, NodeTopology, RdmaUse


class AgentNode:
    def __init__(self, name: str) -> None:
        self.name = name
        self.boot_id = uuid.uuid4().hex  # of this run of the agent
        self._changed = threading.Condition()
        self._state = NodeState()
        self.surveyed = NodeTopology()  # without regard to devices that are held back
        self._forgotten: tuple[Forgotten, ...] = ()  # of the kubelet
        self._others: tuple[Holding, ...] = ()

    @property
    def state(self) -> NodeState:
        return self._state

    def set_topology(self, topology: NodeTopology) -> None:
        with self._changed:
            if topology != self.surveyed:
                here = allocations.addresses(topology)
                known = {**self._state.orphaned, **allocations.addresses(self._state.topology)}
                orphaned = {uuid: at for uuid, at in known.items() if uuid not in here}
                self.surveyed = topology
                self._become(replace(self._held_back(), orphaned=orphaned))

    def set_grants(
        self,
        grants: tuple[Grant, ...],
        unlisted: tuple[Allocation, ...] = (),
        began: float = inf,
        *,
        orphaned: MigAddresses | None = None,
        forgotten: tuple[Forgotten, ...] = (),
        others: tuple[Holding, ...] = (),
        given_up: Callable[[Allocation], bool] = lambda _: False,
    ) -> None:
        """grants come from a List call that began at that monotonic time; unlisted and orphaned
        from the kubelet's checkpoint. given_up: whether the kubelet has given an allocation up."""
        with self._changed:
            self._set_forgotten(forgotten, others)
            old = self._state
            grants = tuple(sorted(grants))
            kept = allocations.unconfirmed(old.allocations, grants, began, given_up)
            held = allocations.slices_held((*grants, *kept, *unlisted, *forgotten))
            held |= {uuid_of(each.device) for claim in old.prepared for each in claim.devices}
            known = {**(orphaned or {}), **old.orphaned}
            left = {uuid: at for uuid, at in known.items() if uuid in held}
            if (grants, True) != (old.grants, old.grants_known):
                self._become(replace(self._state, grants=grants, grants_known=True))
            if (kept, unlisted, left) != (old.allocations, old.unlisted, old.orphaned):
                self._become(
                    replace(self._state, allocations=kept, unlisted=unlisted, orphaned=left)
                )

    def set_unlisted(
        self,
        unlisted: tuple[Allocation, ...],
        forgotten: tuple[Forgotten, ...] = (),
        others: tuple[Holding, ...] | None = (),
    ) -> None:
        """Sets the devices that only the checkpoint has, while pod-resources does not answer. others: None if
        unchanged."""
        with self._changed:
            self._set_forgotten(forgotten, self._others if others is None else others)
            self._become(replace(self._state, unlisted=unlisted))

    def _set_forgotten(self, forgotten: tuple[Forgotten, ...], others: tuple[Holding, ...]) -> None:
        if (forgotten, others) != (self._forgotten, self._others):
            self._forgotten, self._others = forgotten, others
            self._become(self._held_back())

    def _held_back(self) -> NodeState:
        """The next state, with the devices held back that others use."""
        forgotten = (*self._forgotten, *other_plugins.held(self._others, self.surveyed))
        topology = allocations.held_back(self.surveyed, forgotten)
        return replace(self._state, topology=topology, forgotten=forgotten)

    def record_allocation(
        self, resource: str, ids: tuple[str, ...], now: float, reused: Container[str] = ()
    ) -> None:
        """Call before Allocate is answered. reused: devices of an init container of the same pod.
        Raises ValueError if a device would be allocated twice."""
        with self._changed:
            state = self._state
            listed = {each for grant in state.grants for each in grant.device_ids}
            for each, holder in state.taken(resource).items():
                if each in ids and (each in listed or each not in reused):
                    raise ValueError(f"{resource} {each} is taken: {holder}")
            if refusal := state.allocated().refusal(resource, ids, state.topology):
                raise ValueError(refusal)
            new = Allocation(resource, tuple(sorted(ids)), now)
            kept = tuple(each for each in state.allocations if each.device_ids != new.device_ids)
            self._become(replace(state, allocations=(*kept, new)))

    def forget_allocation(self, resource: str, ids: tuple[str, ...]) -> None:
        """The answer to that Allocate was a refusal."""
        refused = (resource, tuple(sorted(ids)))
        with self._changed:
            old = self._state.allocations
            kept = tuple(each for each in old if (each.resource, each.device_ids) != refused)
            if kept != old:
                self._become(replace(self._state, allocations=kept))

    def set_intents(
        self, intents: tuple[Grant, ...], version: int, claims: tuple[ClaimPlan, ...] = ()
    ) -> None:
        with self._changed:
            old = self._state
            claims = old.claims if claims == old.claims else claims
            self._become(replace(old, intents=intents, intents_version=version, claims=claims))

    def set_prepared(self, claims: tuple[ClaimPlan, ...], orphaned: MigAddresses) -> None:
        """Sets the claims that an earlier agent prepared. orphaned: the addresses of their slices."""
        with self._changed:
            known = {**orphaned, **self._state.orphaned}
            self._become(replace(self._state, prepared=claims, orphaned=known))

    def record_claim(self, claim: ClaimPlan) -> None:
        """Call before the claim is prepared. Raises ValueError if a device must not be used."""
        with self._changed:
            if refusal := self._state.refusal_of(claim):
                raise ValueError(refusal)
            self._become(replace(self._state, prepared=(*self._other_claims(claim.uid), claim)))

    def forget_claim(self, uid: str) -> None:
        with self._changed:
            self._become(replace(self._state, prepared=self._other_claims(uid)))

    def _other_claims(self, uid: str) -> tuple[ClaimPlan, ...]:
        return tuple(each for each in self._state.prepared if each.uid != uid)

    def set_rdma_use(self, used: tuple[RdmaUse, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, rdma_use=used)

    def set_memory_over(self, found: tuple[MemoryOver, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, memory_over=found)

    def set_gpu_use(self, found: tuple[GpuUse, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, gpu_use=found)

    def _become(self, state: NodeState) -> None:
        old = self._state
        reported = [
            (s.topology, s.grants_known, s.reported_grants(), s.prepared) for s in (old, state)
        ]
        if reported[0] != reported[1]:
            state = replace(state, generation=old.generation + 1)
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
