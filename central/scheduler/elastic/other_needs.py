"""Pending pods of other schedulers as needs (--yield-to-others): which of them surplus may leave for now, and the
capacity that is kept for them.

Their scheduler may have reasons that are not known here. So capacity that was freed and not used is freed again only
much later.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Sequence
from dataclasses import dataclass

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.elastic.needs import Need
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.reservation.reserved_for_others import KeptForOthers, ReservedForOthers
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.state.other_pod import OtherPod

MOST = 512  # pods in one turn
AGAIN_S = 600.0  # after capacity that was freed and not used
_UNUSED_MOST = 1024  # kinds of pods that are remembered

_Kind = tuple[str, PodSpec, int]  # namespace, spec, priority


def _kind(pod: Pod) -> _Kind:
    return pod.seen.namespace, pod.spec, pod.seen.priority


@dataclass(frozen=True, slots=True)
class OtherNeed(Need):
    gang: OtherPod


class OtherNeeds:
    def __init__(self) -> None:
        self._unused: dict[_Kind, float] = {}  # until when surplus does not leave again
        self._in_vain: dict[_Kind, object] = {}  # what surplus there was
        self._reservations: dict[ReservedForOthers, list[Pod]] = {}

    def look(self, context: PreemptionContext, now: float) -> None:
        """Ends the reservations that no pod waits for any more, and those that were kept long enough."""
        state = context.state
        for kind in [kind for kind, until in self._unused.items() if until <= now]:
            del self._unused[kind]
        for held, pods in list(self._reservations.items()):
            kept, key = held.moved, held.gang.key
            assert isinstance(kept, KeptForOthers)
            there = context.reservations.get(key) is held
            if there and kept.awaited(state, now) and held.refresh(state, now):
                continue
            del self._reservations[held]
            if there:
                del context.reservations[key]
                state.pending.capacity_freed("reservation for other schedulers' pods ended")
            if kept.lacking(state) and len(self._unused) < _UNUSED_MOST:
                self._unused |= {_kind(pod): now + AGAIN_S for pod in pods}

    def due(self) -> list[float]:
        untils = [held.moved.until for held in self._reservations if held.moved is not None]
        return [*untils, *self._unused.values()]

    def needs(self, state: ClusterState, surplus: object, now: float) -> list[OtherNeed]:
        """The most urgent and oldest first. surplus: as it is now; what found too little of it waits for another."""
        served = {
            uid for pods in self._reservations.values() for uid in (one.seen.uid for one in pods)
        }
        found = [
            pod
            for uid, pod in state.others_pending().items()
            if uid not in served and self._may_try(_kind(pod), surplus)
        ]
        found.sort(key=lambda pod: (-pod.seen.priority, pod.seen.created, pod.seen.uid))
        return [
            OtherNeed(OtherPod(pod), PlacementRequest(((pod.spec, 1),))) for pod in found[:MOST]
        ]

    def _may_try(self, kind: _Kind, surplus: object) -> bool:
        return kind not in self._unused and self._in_vain.get(kind) != surplus

    def in_vain(self, gang: OtherPod, surplus: object) -> None:
        (pod,) = gang.members.values()
        if len(self._in_vain) >= _UNUSED_MOST:
            self._in_vain.clear()
        self._in_vain[_kind(pod)] = surplus

    def keep(
        self,
        context: PreemptionContext,
        gangs: Sequence[Gang],
        taken: tuple[Ints, Ints],
        leaving: frozenset[str],
        now: float,
    ) -> None:
        """Reserves for these pods what those who leave will free."""
        pods = [pod for gang in gangs for pod in gang.members.values()]
        held = ReservedForOthers.of(context.state, pods, taken, leaving, now)
        self._reservations[held] = pods
        context.reservations[held.gang.key] = held
