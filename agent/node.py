"""This node as it is now: hardware, who holds what, what the centre plans. The one owner of that
state; everyone else reads a State, which never changes, or waits for the next."""

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from math import inf

from agent import sales
from agent.sales import Places, Sale, Sold
from protos.topology import Grant, MemoryOver, NodeTopology, RdmaUse


@dataclass(frozen=True, slots=True)
class State:
    generation: int = 1  # grows with every change of topology or grants
    topology: NodeTopology = field(default_factory=NodeTopology)
    grants: tuple[Grant, ...] = ()  # the truth
    grants_known: bool = False
    sales: tuple[Sale, ...] = ()  # beside the grants, of GPUs: not listed yet
    unnamed: tuple[Sale, ...] = ()  # the same: of pods that only the checkpoint knows
    gone: Places = field(default_factory=dict)  # where slices were that somebody may still hold
    intents: tuple[Grant, ...] = ()
    intents_version: int = 0
    rdma_use: tuple[RdmaUse, ...] = ()  # no change of it is news
    memory_over: tuple[MemoryOver, ...] = ()

    def sold(self) -> Sold:
        held = (*self.sales, *self.unnamed)
        return sales.sold(self.grants, held, {**self.gone, **sales.places(self.topology)})

    def unplaced(self, grants: Iterable[Grant]) -> set[str]:
        """Slices that somebody holds of which is not known where they are, or were."""
        return sales.slices_held(grants) - sales.places(self.topology).keys() - self.gone.keys()


class Node:
    def __init__(self, name: str) -> None:
        self.name = name
        self.boot_id = uuid.uuid4().hex  # of this run of the agent
        self._changed = threading.Condition()
        self._state = State()

    @property
    def state(self) -> State:
        return self._state

    def set_topology(self, topology: NodeTopology) -> None:
        with self._changed:
            if topology != self._state.topology:
                here = sales.places(topology)
                were = {**self._state.gone, **sales.places(self._state.topology)}
                gone = {uuid: place for uuid, place in were.items() if uuid not in here}
                self._become(replace(self._next(), topology=topology, gone=gone))

    def set_grants(
        self,
        grants: tuple[Grant, ...],
        unnamed: tuple[Sale, ...] = (),
        began: float = inf,
        gone: Places | None = None,
    ) -> None:
        """What a listing says that began then, what the checkpoint knows beside it, and where it says
        that slices were."""
        with self._changed:
            old = self._state
            grants = tuple(sorted(grants))
            if grants != old.grants or not old.grants_known:
                self._become(replace(self._next(), grants=grants, grants_known=True))
            kept = sales.still_open(old.sales, grants, began)
            held = sales.slices_held((*grants, *kept, *unnamed))
            were = {**(gone or {}), **old.gone}
            left = {uuid: place for uuid, place in were.items() if uuid in held}
            if (kept, unnamed, left) != (old.sales, old.unnamed, old.gone):
                self._become(replace(self._state, sales=kept, unnamed=unnamed, gone=left))

    def set_unnamed(self, unnamed: tuple[Sale, ...]) -> None:
        with self._changed:
            self._become(replace(self._state, unnamed=unnamed))

    def sell(self, resource: str, ids: tuple[str, ...], now: float) -> None:
        """Devices are about to be given. Raises ValueError where a GPU would be sold twice."""
        if not sales.of_gpus(resource):
            return
        with self._changed:
            state = self._state
            if refusal := state.sold().refusal(resource, ids, state.topology):
                raise ValueError(refusal)
            sale = Sale(resource, tuple(sorted(ids)), now)
            kept = tuple(each for each in state.sales if each.device_ids != sale.device_ids)
            self._become(replace(state, sales=(*kept, sale)))

    def set_intents(self, intents: tuple[Grant, ...], version: int) -> None:
        with self._changed:
            self._become(replace(self._state, intents=intents, intents_version=version))

    def set_rdma_use(self, used: tuple[RdmaUse, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, rdma_use=used)

    def set_memory_over(self, found: tuple[MemoryOver, ...]) -> None:
        with self._changed:
            self._state = replace(self._state, memory_over=found)

    def _next(self) -> State:
        return replace(self._state, generation=self._state.generation + 1)

    def _become(self, state: State) -> None:
        self._state = state
        self._changed.notify_all()

    def wake(self) -> None:
        """Let everyone who waits look around: something else than the state has changed."""
        with self._changed:
            self._changed.notify_all()

    def wait(self, enough: Callable[[State], bool], timeout_s: float) -> State:
        """The state as soon as it is enough, or as it is after the time."""
        with self._changed:
            self._changed.wait_for(lambda: enough(self._state), timeout=timeout_s)
            return self._state
