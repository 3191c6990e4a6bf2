"""Reservations: what other gangs must leave free for a pending gang until it starts.

Other gangs may use what the reserved gang does not need, and the rest if they end before it starts (EASY
backfill).

After --patience at the head of the queue a reservation is strict: nobody is let in any more who would
end after the start that was expected then, even if run times turn out to be wrong and the start
moves. Once a pod in the way of the gang has exceeded its run time, other run times are trusted only
after multiplication by TRUST times the factor.

If no start is known, nothing is withheld before --reserve-after, then at most --reserve-idle GPUs, and as much again
after each day: so also a gang that needs all nodes starts in the end.

Design: docs/design/reservations.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import inf
from typing import NamedTuple, Self

import numpy as np

from central.model import wording
from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.model.redaction import qualified
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.reserved_place import GPU_COLUMN, ReservedPlace
from central.scheduler.snapshot.snapshot import ReservedGpus, Snapshot
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

TRUST = 2.0
LATE_S = 60.0  # behind the grace period of a pod that terminates: claims do not wait for it longer


class MovedPods(NamedTuple):
    """Pods that defragmentation has evicted. Their gang's new place is kept until they are made again."""

    uids: frozenset[str]
    until: float

    def awaited(self, state: ClusterState, now: float) -> bool:
        """Returns whether it is not too late, and all of them have gone or are going."""
        pods = state.pods
        return now < self.until and all(
            uid not in pods or pods[uid].leaving or not pods[uid].alive for uid in self.uids
        )


class EvictionKind(Enum):
    ORDINARY = "ordinary"
    MOVES = "moves"  # the victims fit elsewhere: a defragmentation
    BEYOND_MARKS = "beyond-marks"  # how pods and disruption budgets protect gangs of other queues does not count


class Withheld(NamedTuple):
    """The capacity of one reservation that is out of the snapshot."""

    masks: list[int]  # by reserved row
    shares: list[tuple[int, int, int]]  # row, mask of one GPU, hundredths
    any_capacity: bool
    name: str  # of its gang, with the namespace


@dataclass(slots=True, eq=False)
class Reservation:
    gang: Gang
    request: PlacementRequest
    place: ReservedPlace
    start: float  # expected; inf: unknown
    after: str  # whose end the start depends on: a gang or pod, or in general what terminates
    by_eviction: bool = False  # pods that terminate make the capacity free
    strict: bool = False  # closed to gangs that may end after the start, unless they come first
    planned_at: float = 0.0
    head_since: float = 0.0  # when the gang became the first of those that compete for its nodes
    # What other gangs must leave free now, by row and column. At most need.
    withheld: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    victims: tuple[Pod, ...] = ()  # not evicted yet
    dry_run_sent: bool = False
    # Indices of rows that the limit of idle GPUs leaves to others.
    _lent: frozenset[int] = field(default=frozenset(), init=False)
    _refreshed: int = field(default=0, init=False)
    # The latest result of note_withheld() for amounts alone, with the count of refreshes before it.
    _noted: tuple[int, ReservedGpus, Withheld] | None = field(default=None, init=False)
    withheld_volumes: frozenset[str] = frozenset()  # of the volumes, those that are available
    evictions: EvictionKind = EvictionKind.ORDINARY
    moved: MovedPods | None = None  # of this gang, if the place is where it is moved to

    @classmethod
    def by_evictions(
        cls, gang: Gang, request: PlacementRequest, place: ReservedPlace, now: float
    ) -> Self:
        """Returns a reservation of a place that evictions make free. It is strict from the beginning: until the victims
        have left, no other gang may have the place. What it withholds is to be updated by refresh()."""
        return cls(
            gang,
            request,
            place,
            start=now,
            after="evicted pods",
            by_eviction=True,
            strict=True,
            planned_at=now,
            head_since=now,
        )

    @property
    def queue(self) -> str:
        return self.gang.queue

    @property
    def is_counted(self) -> bool:
        """Returns whether amounts say all that its pods take, and any GPUs of the place will do."""
        return not self.place.has_masks and is_counted(self.request)

    @property
    def taken(self) -> Ints:
        """The amounts that are out of the snapshot while the reservation is withheld: of a claim also what its victims
        still use, so that other claims count on none of it."""
        return self.place.need if self.by_eviction else self.withheld

    @property
    def refreshed(self) -> int:
        """The number of updates of the withheld amounts."""
        return self._refreshed

    def refresh(self, state: ClusterState, now: float, most_idle: int = 0) -> bool:
        """Updates what must be withheld: the need, minus what other pods return in time. Returns
        whether the reservation can still be met. most_idle: GPUs to withhold if the start is unknown."""
        snapshot, need = state.snapshot, self.place.need
        free = np.maximum(snapshot.columns.free[self.place.rows, : need.shape[1]], 0)
        end_known, late = self.by_eviction or self.start < inf, self.start < now
        missing = np.maximum(need - self._returned(state, now), 0) if end_known else need
        self.withheld = np.minimum(need if self.by_eviction else missing, free)
        self._lent = frozenset()
        self._refreshed += 1
        if not end_known:
            self._limit_idle(most_idle)
        self.withheld_volumes = self.place.volumes & snapshot.pod_counts.volumes.free.available(
            self.place.volumes
        )
        return (
            bool((self.place.versions == snapshot.columns.version[self.place.rows]).all())
            and self.withheld_volumes == self.place.volumes
            and not (late and not self.by_eviction)
            and not (end_known and (missing > free).any())
        )

    def _returned(self, state: ClusterState, now: float) -> Ints:
        """Returns what the pods of the place return in time, by row and column. Raises the gang's `overrun` to the
        largest of these pods'."""
        returned = self.place.need * 0
        standing, columns = self.gang.preemption, state.snapshot.columns
        for index, row in enumerate(self.place.rows.tolist()):
            node = state.nodes.get(columns.names[row])
            ending: Counter[PodSpec] = Counter()
            for pod in node.pods.values() if node is not None else ():
                if pod.charged_spec is None:
                    continue
                if pod.seen.runs_for_s:
                    standing.overrun = max(standing.overrun, pod.overrun(now))
                if pod.leaving if self.by_eviction else pod.ends(now) <= self.start:
                    ending[pod.charged_spec] += 1
            for spec, count in ending.items():
                view = state.snapshot.view(spec)
                returned[index, view.columns] += view.amounts * count
        return returned

    def late_pods(self, state: ClusterState, max_grace_s: float) -> Iterator[tuple[float, Pod]]:
        """Yields the pods of the place that terminate, and when they are late. max_grace_s: what counts of a grace
        period at most."""
        for row in self.place.rows.tolist():
            node = state.nodes.get(state.snapshot.columns.names[row])
            for pod in node.pods.values() if node is not None else ():
                seen = pod.seen
                if seen.deleting and seen.ended is not None and pod.charged_spec is not None:
                    yield seen.ended + min(seen.grace_s, max_grace_s) + LATE_S, pod

    def _limit_idle(self, most_idle: int) -> None:
        """Withholds whole rows, those with the most free GPUs first, up to most_idle GPUs; but one row at
        least if any may be withheld."""
        gpus = self.withheld[:, GPU_COLUMN]
        order = np.argsort(-gpus, kind="stable")
        beyond = np.cumsum(gpus[order]) > most_idle
        if most_idle:
            beyond[:1] = False
        self._lent = frozenset(order[beyond].tolist() if most_idle else range(len(order)))
        self.withheld[list(self._lent)] = 0

    @property
    def idle(self) -> int:
        """GPUs that are withheld though no start is known."""
        return int(self.withheld[:, GPU_COLUMN].sum()) if self.start == inf else 0

    def become_strict(self) -> None:
        self.strict = True
        standing = self.gang.preemption
        if standing.latest_start == inf and not self.by_eviction:
            standing.latest_start = self.start

    def lets_in(self, run_time_s: float, now: float) -> bool:
        """Returns whether a gang that starts now and runs that long is certain to end before the reserved start."""
        return run_time_s <= self.longest_run_s(now)

    def longest_run_s(self, now: float) -> float:
        """Returns the longest run time with which another gang may start here now; -inf: none."""
        if self.by_eviction or self.start == inf:
            return -inf
        if not self.strict:
            return self.start - now
        standing = self.gang.preemption
        left_s = min(self.start, standing.latest_start) - now
        return left_s / (TRUST * standing.overrun) if standing.overrun > 1 else left_s

    def better_than(self, other: "Reservation", snapshot: Snapshot, strict_since: float) -> bool:
        """Returns whether the gang is expected to start earlier here. In place of a strict reservation only pods that
        were there when it became strict are waited for: else its bound would not hold."""
        if other.strict and self.place.newest > strict_since:
            return False
        if self.start != other.start:
            return self.start < other.start
        return self.place.gpus_lacking(snapshot) < other.place.gpus_lacking(snapshot)

    def describe(self, now: float, terminating: Sequence[tuple[float, Pod]] = ()) -> str:
        """terminating: of late_pods()"""
        if self.moved is not None:
            return f"reserved: {self.place.name}, where the gang is moved to"
        if late := [pod.seen for at, pod in terminating if at <= now]:
            pods = wording.some(qualified(pod.namespace, pod.name, "pod") for pod in late)
            since = rough_duration(now - min(pod.ended or now for pod in late))
            return (
                f"reserved: {self.place.name}; waiting for {pods} to terminate, deleted {since} ago"
            )
        if self.by_eviction:
            if self.victims:
                return f"reserved: {self.place.name}; waiting for a dry run of the evictions"
            last = max((at for at, _ in terminating), default=now) - LATE_S
            time = f", {rough_duration(last - now)} at most" if last > now else ""
            return f"reserved: {self.place.name}; waiting for {self.after} to terminate{time}"
        if self.start == inf:
            return f"reserved: {self.place.name}; start time unknown ({self.after} has no expected run time)"
        start = rough_duration(self.start - now)
        return f"reserved: {self.place.name}, expected in {start} when {self.after} ends"

    def withhold(self, snapshot: Snapshot) -> "Withheld":
        """Takes the withheld capacity, without volumes, out of the snapshot. Returns what
        give_back() needs."""
        rows, gpus = self.place.rows, snapshot.columns.gpus
        reserved = [
            0 if index in self._lent else mask for index, mask in enumerate(self.place.masks)
        ]
        masks = [
            mask & gpus.free_mask[row] for row, mask in zip(rows.tolist(), reserved, strict=True)
        ]
        shares = [
            (row, 1 << gpu, part)
            for row, mask in zip(rows.tolist(), reserved, strict=True)
            for gpu, part in gpus.free_shares[row].items()
            if mask >> gpu & 1
        ]
        for row, gpu, part in shares:  # the GPU is to be whole once its last pod is gone
            gpu_shares.change(gpus, row, gpu, -part)
        before = gpus.count[rows]
        snapshot.columns.shift(rows, self.taken, masks, free=False)
        return self.note_withheld(snapshot, masks, shares, before - gpus.count[rows])

    def note_withheld(
        self,
        snapshot: Snapshot,
        masks: list[int],
        shares: list[tuple[int, int, int]],
        gone: Ints | None = None,
    ) -> "Withheld":
        """Notes what is out of the snapshot now, for reasons and give_back(). gone: free GPUs by row that went with
        it."""
        noted = self._noted if gone is None else None
        if noted is None or noted[0] != self._refreshed:
            free = self.withheld[:, GPU_COLUMN] if gone is None else gone
            name, gpus = self.gang.qualified_name, self.taken[:, GPU_COLUMN]
            found = ReservedGpus(name, self.place.rows, gpus, free, masks)
            noted = self._refreshed, found, Withheld(masks, shares, bool(self.withheld.any()), name)
        if gone is None:
            self._noted = noted
        _, snapshot.reserved_gpus[self.gang.key], withheld = noted
        return withheld

    def give_back(self, snapshot: Snapshot, taken: "Withheld") -> None:
        for row, gpu, part in taken.shares:
            gpu_shares.change(snapshot.columns.gpus, row, gpu, part)
        snapshot.columns.shift(self.place.rows, self.taken, taken.masks, free=True)
        del snapshot.reserved_gpus[self.gang.key]


def is_counted(request: PlacementRequest) -> bool:
    """Returns whether the amounts of its pods, and the devices of their claims, say all that they take: no parts of
    devices, no rules or volumes."""
    return not request.by_islands and not any(
        spec.share_containers or spec.has_nics or spec.rules or spec.matched or spec.volumes
        for spec, _ in request.groups
    )


_STEPS_MIN = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 75, 90)


def rough_duration(seconds: float) -> str:
    """A duration that is rounded to the nearest step, so that a reason does not change with every cycle."""
    minutes = seconds / 60
    if minutes <= 0.75:
        return "less than a minute"
    if minutes <= 90:
        return f"about {min(_STEPS_MIN, key=lambda step: abs(step - minutes))} min"
    hours = minutes / 60
    return f"about {round(hours)} h" if hours < 48 else f"about {round(hours / 24)} days"


def rough_most(seconds: float) -> str:
    """The longest step of rough_duration() that is no longer; empty: less than a minute."""
    minutes = max((step for step in _STEPS_MIN if step <= seconds / 60), default=0)
    if seconds >= 7200:
        return f"{seconds // 3600:.0f} h" if seconds < 172_800 else f"{seconds // 86400:.0f} days"
    return f"{minutes} min" if minutes else ""
