"""Refusals of the requests that did not fit in one round, so that equal requests of other gangs are not searched."""

from typing import NamedTuple

from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.state.cluster_state import ClusterState


class CountedCapacity(NamedTuple):
    """The capacity that a reason was counted on. Where it is equal, the same request has the same reason: no facts came
    in between, no pod was bound, no capacity freed, and the same was withheld."""

    step: int  # PendingGangs.steps
    epoch: int
    withheld: tuple[Reservation, ...]
    volumes_only: tuple[Reservation, ...]
    refreshed: int  # how often what these withhold was updated

    @classmethod
    def of(cls, state: ClusterState, withheld: WithheldCapacity) -> "CountedCapacity":
        """withheld: what is out of the snapshot now."""
        whole, volumes = tuple(withheld.reservations()), tuple(withheld.volumes_only)
        refreshed = sum(held.refreshed for held in (*whole, *volumes))
        return cls(state.pending.steps, state.pending.epoch, whole, volumes, refreshed)


class RefusedRequest(NamedTuple):
    reason: str
    counted: CountedCapacity
    cause: str  # of pending_causes.CAUSES


# By capacity epoch and requests. Within an epoch free capacity only shrinks, so a request that did not
# fit does not fit for another gang either.
Refusals = dict[tuple[int, tuple[PlacementRequest, ...]], RefusedRequest]


class Verdicts:
    """Refusals by the reservations that constrained the attempt. Who has to leave more of them free is refused as
    well."""

    def __init__(self) -> None:
        self._by_reserved: dict[frozenset[object], Refusals] = {}
        self._least: dict[tuple[PlacementRequest, ...], tuple[int, frozenset[object]]] = {}

    def of(
        self, reserved: frozenset[object], wants: tuple[PlacementRequest, ...], epoch: int
    ) -> Refusals:
        refused = self._by_reserved.setdefault(reserved, {})
        request = (epoch, wants)
        if refused and request in refused:
            return refused
        then, fewer = self._least.get(wants, (-1, reserved))
        if then == epoch and fewer <= reserved:
            known = self._by_reserved[fewer]  # mostly empty
            return {request: known[request]} if known and request in known else refused
        self._least[wants] = epoch, reserved
        return refused
