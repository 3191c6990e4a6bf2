"""Capacity that surplus has left for pending pods of other schedulers. It is kept from the gangs of this one for a
while, as far as those pods still lack nodes: their scheduler knows nothing of it, and chooses the nodes.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import TakenCapacity
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.other_pod import OtherPod

KEPT_S = 30.0  # after those who leave have gone
LONGEST_S = 600.0  # since the decision, however long they take


@dataclass(slots=True)
class KeptForOthers:
    """pods, leaving: uids of those it is kept for, and of those who leave it."""

    pods: frozenset[str]
    leaving: frozenset[str]
    decided_at: float
    free_at: float | None = None  # when the last of those had left

    @property
    def until(self) -> float:
        latest = self.decided_at + LONGEST_S
        return latest if self.free_at is None else min(latest, self.free_at + KEPT_S)

    def awaited(self, state: ClusterState, now: float) -> bool:
        """Whether pods still lack a node, and it is not too late."""
        if self.free_at is None and not any(
            (pod := state.pods.get(uid)) is not None and pod.alive for uid in self.leaving
        ):
            self.free_at = now
        return now < self.until and bool(self.lacking(state))

    def lacking(self, state: ClusterState) -> list[str]:
        """Uids of the pods without a node."""
        return [uid for uid in self.pods if uid in state.others_pending()]


@dataclass(slots=True, eq=False)
class ReservedForOthers(Reservation):
    """Of equal pods. counts: how many were to fit on each row of the place."""

    spec: PodSpec | None = None
    counts: Sequence[int] = ()

    @classmethod
    def of(
        cls,
        state: ClusterState,
        pods: Sequence[Pod],
        taken: tuple[Ints, Ints],
        leaving: frozenset[str],
        now: float,
    ) -> "ReservedForOthers":
        """pods: equal ones, at least one. taken: rows, and by row and column what they take there."""
        rows, need = taken
        spec = pods[0].spec
        view = state.snapshot.view(spec)
        column = int(np.flatnonzero(view.amounts > 0)[0])
        counts = need[:, view.columns[column]] // view.amounts[column]
        place = ReservedPlace.on(
            state.snapshot, TakenCapacity(rows, need, [0] * len(rows), frozenset())
        )
        request = PlacementRequest(((spec, len(pods)),))
        made = cls.by_evictions(OtherPod(pods[0]), request, place, now)
        made.moved = KeptForOthers(frozenset(pod.seen.uid for pod in pods), leaving, now)
        made.spec, made.counts = spec, counts.tolist()
        made.refresh(state, now)
        return made

    def describe(self, now: float) -> str:
        assert isinstance(self.moved, KeptForOthers)
        count = self.request.groups[0][1]
        whom = f"kept: {self.place.name}, for {wording.counted(count, 'pod')} of another scheduler"
        if self.moved.free_at is None:
            return f"{whom}; waiting for members of elastic Jobs to leave"
        return f"{whom}, for {max(0.0, self.moved.until - now):.0f} s"

    def refresh(self, state: ClusterState, now: float, most_idle: int = 0) -> bool:
        """The need is what the pods without a node take, on the rows where that many still fit."""
        assert isinstance(self.moved, KeptForOthers)
        assert self.spec is not None
        left = len(self.moved.lacking(state))
        view, columns = state.snapshot.view(self.spec), state.snapshot.columns
        rows, width = self.place.rows, self.place.need.shape[1]
        returned = Reservation._returned(self, state, now)
        there = np.maximum(columns.free[rows, :width], 0) + returned
        asks = view.amounts > 0
        fits = (there[:, view.columns[asks]] // view.amounts[asks]).min(axis=1)
        need = np.zeros_like(self.place.need)
        for index, most in enumerate(self.counts):
            count = min(most, int(fits[index]), left)
            left -= count
            need[index, view.columns] = view.amounts * count
        kept = len(self.moved.lacking(state)) - left
        if kept:
            self.request = PlacementRequest(((self.spec, kept),))
        self.place = replace(self.place, need=need)
        return Reservation.refresh(self, state, now, most_idle) and kept > 0
