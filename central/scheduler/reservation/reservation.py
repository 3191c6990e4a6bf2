"""Reservations: where a pending gang will fit first, and what other gangs must leave free until
then.

The earliest time is found by trial placements without the pods that have ended by then. Other gangs
may use what the reserved gang does not need, and the rest if they end before it starts (EASY
backfill).

After --patience at the head of the queue a reservation is strict: nobody is let in any more who would
end after the start that was expected then, even if run times turn out to be wrong and the start
moves. Once a pod in the way of the gang has exceeded its run time, other run times are trusted only
after multiplication by TRUST times the factor.

If no start is known, nothing is withheld before --reserve-after, then at most --reserve-idle GPUs.

Design: docs/design/0018-reservations.md
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from central.model.arrays import Floats, Ints
from central.model.facts import PodSpec
from central.scheduler import placement
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import (
    ReleasablePods,
    TakenCapacity,
    fits_by_counts,
    fits_when_empty,
    taken_capacity,
)
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

TRUST = 2.0
MAX_NARROWING = 5  # trial placements for a better place at the same start
GPU_COLUMN = 0


@dataclass(frozen=True, slots=True, eq=False)
class ReservedPlace:
    """Where a gang is to fit, and what it takes there."""

    rows: Ints
    need: Ints  # by row and column
    masks: Sequence[int]  # GPUs by row, where it must be these
    volumes: frozenset[str]  # existing volumes that its claims will be bound to
    name: str  # of the narrowest domain around the rows
    versions: Ints  # of the rows' nodes: another version may be another capacity
    newest: float = 0.0  # when the last of the pods that must end there began
    has_masks: bool = field(init=False)  # it must be certain GPUs

    def __post_init__(self) -> None:
        object.__setattr__(self, "has_masks", any(self.masks))

    @classmethod
    def on(
        cls,
        snapshot: Snapshot,
        rows: Ints,
        need: Ints,
        masks: Sequence[int],
        volumes: frozenset[str],
        *,
        newest: float = 0.0,
    ) -> "ReservedPlace":
        versions = snapshot.columns.version[rows].copy()
        return cls(rows, need, masks, volumes, place_name(snapshot, rows), versions, newest)

    def gpus_lacking(self, snapshot: Snapshot) -> int:
        """GPUs of the place that are still in use."""
        free = np.maximum(snapshot.columns.free[self.rows, GPU_COLUMN], 0)
        return int(np.maximum(self.need[:, GPU_COLUMN] - free, 0).sum())


class MovedPods(NamedTuple):
    """Pods that defragmentation has evicted. Their gang's new place is kept until they are made again."""

    uids: frozenset[str]
    until: float

    def awaited(self, state: ClusterState, now: float) -> bool:
        """Whether it is not too late, and all of them have gone or are going."""
        pods = state.pods
        return now < self.until and all(
            uid not in pods or pods[uid].leaving or not pods[uid].alive for uid in self.uids
        )


class Awaited(Protocol):
    """For whom a place is kept that is no waiting gang."""

    @property
    def until(self) -> float: ...
    def awaited(self, state: ClusterState, now: float) -> bool: ...


class Withheld(NamedTuple):
    """Of one reservation, what is out of the snapshot."""

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
    after: str  # the gang or pod whose end the start depends on
    by_eviction: bool = False  # victims make the capacity free
    strict: bool = False  # closed to gangs of equal or lower priority that may end after the start
    planned_at: float = 0.0
    head_since: float = 0.0  # when the gang became the head of its queue
    # What other gangs must leave free now, by row and column. At most need.
    withheld: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    victims: tuple[Pod, ...] = ()  # not evicted yet
    dry_run_sent: bool = False
    # Indices of rows that the limit of idle GPUs leaves to others.
    _lent: frozenset[int] = field(default=frozenset(), init=False)
    withheld_volumes: frozenset[str] = frozenset()  # of the volumes, those that are available
    victims_fit_elsewhere: bool = False  # the eviction is a defragmentation
    moved: Awaited | None = None  # of this gang, if the place is where it is moved to

    @property
    def queue(self) -> str:
        return self.gang.queue

    def refresh(self, state: ClusterState, now: float, most_idle: int = 0) -> bool:
        """Updates what must be withheld: the need, minus what other pods return in time. Returns
        whether the reservation can still be met. most_idle: GPUs to withhold if the start is unknown."""
        snapshot, need = state.snapshot, self.place.need
        free = np.maximum(snapshot.columns.free[self.place.rows, : need.shape[1]], 0)
        end_known, late = self.by_eviction or self.start < inf, self.start < now
        missing = np.maximum(need - self._returned(state, now), 0) if end_known else need
        self.withheld = np.minimum(need if self.by_eviction else missing, free)
        self._lent = frozenset()
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
        """What the pods of the place return in time, by row and column."""
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
        """Whether a gang that starts now and runs so long is certain to end before the reserved start."""
        if self.by_eviction or self.start == inf:
            return False
        if not self.strict:
            return now + run_time_s <= self.start
        standing = self.gang.preemption
        if standing.overrun > 1:
            run_time_s *= TRUST * standing.overrun
        return now + run_time_s <= min(self.start, standing.latest_start)

    def better_than(self, other: "Reservation", snapshot: Snapshot, strict_since: float) -> bool:
        """Whether the gang is expected to start earlier here. In place of a strict reservation only pods that
        were there when it became strict are waited for: else its bound would not hold."""
        if other.strict and self.place.newest > strict_since:
            return False
        if self.start != other.start:
            return self.start < other.start
        return self.place.gpus_lacking(snapshot) < other.place.gpus_lacking(snapshot)

    def describe(self, now: float) -> str:
        if self.moved is not None:
            return f"reserved: {self.place.name}, where the gang is moved to"
        if self.by_eviction:
            if self.victims:
                return f"reserved: {self.place.name}; waiting for a dry run of the evictions"
            return f"reserved: {self.place.name}; waiting for evicted pods to terminate"
        if self.start == inf:
            return f"reserved: {self.place.name}; start time unknown ({self.after} has no runs-for)"
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
        before = gpus.count[rows]
        shares = [
            (row, 1 << gpu, part)
            for row, mask in zip(rows.tolist(), reserved, strict=True)
            for gpu, part in gpus.free_shares[row].items()
            if mask >> gpu & 1
        ]
        for row, gpu, part in shares:  # the GPU is to be whole once its last pod is gone
            gpu_shares.change(gpus, row, gpu, -part)
        snapshot.columns.shift(rows, self.withheld, masks, free=False)
        name, gone = self.gang.qualified_name, before - gpus.count[rows]
        snapshot.reserved_gpus[self.gang.key] = (name, rows, gone)
        return Withheld(masks, shares, bool(self.withheld.any()), name)

    def give_back(self, snapshot: Snapshot, taken: "Withheld") -> None:
        for row, gpu, part in taken.shares:
            gpu_shares.change(snapshot.columns.gpus, row, gpu, part)
        snapshot.columns.shift(self.place.rows, self.withheld, taken.masks, free=True)
        del snapshot.reserved_gpus[self.gang.key]


def plan_reservation(
    state: ClusterState, gang: Gang, request: PlacementRequest, running: RunningPods, excluded: Ints
) -> Reservation | None:
    """Where the gang fits first as running pods end; None: nowhere, even if all end. running: as of now. excluded:
    rows reserved for other gangs, whose pods are not counted on."""
    now = running.now
    if not fits_when_empty(state.snapshot, request, np.zeros(0, dtype=np.int64)):
        return None
    releasable, ends = _by_end(state, request, running, excluded)
    found = _earliest(state, releasable, request)
    if found is None:
        return None
    count, place = found
    if ends[count - 1] < inf:
        gone = int(np.searchsorted(ends, ends[count - 1], side="right"))  # by the same time
        released = np.full(len(state.snapshot.columns.names), -inf)
        np.maximum.at(released, releasable.rows[:gone], ends[:gone])
        place = _latest_released(state, releasable, request, (gone, place), released)
    rows, need, masks, volumes = place
    ended, last = releasable.pods[:count], releasable.pods[count - 1]
    names = {state.snapshot.columns.names[row] for row in rows.tolist()}
    return Reservation(
        gang,
        request,
        ReservedPlace.on(
            state.snapshot,
            rows,
            need,
            masks if request.by_islands else [0] * len(masks),
            volumes,
            newest=max((pod.since or 0.0 for pod in ended if pod.node in names), default=0.0),
        ),
        max(float(ends[count - 1]), now),
        _owner_name(state, last, gang.namespace),
        planned_at=now,
    )


def _earliest(
    state: ClusterState, releasable: ReleasablePods, request: PlacementRequest
) -> tuple[int, TakenCapacity] | None:
    """How many pods must end until the gang fits, and the capacity that it takes then. The lower
    bound of the sums is often the answer; else bisection finds it between the bound and all."""
    high, least = len(releasable.pods), max(releasable.min_released(request), 1)
    if least > high:
        return None
    found = _fits_without(state, releasable, request, least)
    if found is not None or least == high:
        return (least, found) if found is not None else None
    found = _fits_without(state, releasable, request, high)
    if found is None:
        return None
    low = least
    while high - low > 1:
        middle = (low + high) // 2
        try:
            earlier = _fits_without(state, releasable, request, middle)
        except WorkLimitReached:
            break  # later than it could be, but true
        if earlier is None:
            low = middle
        else:
            high, found = middle, earlier
    return high, found


def _latest_released(
    state: ClusterState,
    releasable: ReleasablePods,
    request: PlacementRequest,
    earliest: tuple[int, TakenCapacity],
    released: Floats,
) -> TakenCapacity:
    """The place among the rows that are in use longest until the gang fits: backfill needs those that are
    free before, and the gang starts no earlier on them. At most as many domains are spanned as in the
    place that was found. released: when the last pod of each row ends; -inf: none does."""
    count, found = earliest
    times = np.unique(released)[1:]
    low, high = 0, min(len(times), 2**MAX_NARROWING)
    times, spans = times[-high:] if high else times, _spans(state.snapshot, found.rows)
    while low < high:
        middle = (low + high) // 2
        hidden = np.flatnonzero(released < times[middle])
        try:
            other = _fits_without(state, releasable, request, count, hidden)
        except WorkLimitReached:
            break
        if other is None or _spans(state.snapshot, other.rows) > spans:
            high = middle
        else:
            low, found = middle + 1, other
    return found


def _spans(snapshot: Snapshot, rows: Ints) -> list[int]:
    """How many domains the rows are in, widest level first."""
    return [len(np.unique(of[rows])) for of in snapshot.columns.domains.of]


def _fits_without(
    state: ClusterState,
    releasable: ReleasablePods,
    request: PlacementRequest,
    count: int,
    hidden: Ints | None = None,
) -> TakenCapacity | None:
    """The capacity that a trial placement takes without the first `count` pods, on other rows than the
    hidden ones; None: no fit."""
    state.snapshot.meter.spend_rows(count + len(state.snapshot.columns.names))
    with (
        releasable.without(np.arange(count)) as snapshot,
        _hiding(snapshot, hidden if hidden is not None else np.zeros(0, dtype=np.int64)),
    ):
        if not fits_by_counts(snapshot, request):
            return None
        draft, masks = Draft(snapshot), list(snapshot.columns.gpus.free_mask)
        with draft.all_or_nothing():
            try:
                placement.fit(draft, request)
            except DoesNotFit:
                return None
            found = taken_capacity(draft, masks)
        draft.undo()
        return found


@contextmanager
def _hiding(snapshot: Snapshot, rows: Ints) -> Iterator[None]:
    """Nothing is free on these rows inside the with block."""
    columns = snapshot.columns
    amounts = np.maximum(columns.free[rows], 0)
    masks = [columns.gpus.free_mask[row] for row in rows.tolist()]
    columns.shift(rows, amounts, masks, free=False)
    try:
        yield
    finally:
        columns.shift(rows, amounts, masks, free=True)


def _by_end(
    state: ClusterState, request: PlacementRequest, running: RunningPods, excluded: Ints
) -> tuple[ReleasablePods, Floats]:
    """The pods that are expected to end, by end. Pods of other schedulers count only with a run
    time.

    Unknown ends come last, in the order that serves the gang best: the domain that lacks least is
    assumed to empty first, node by node, nodes with fewer GPUs in use first.
    """
    snapshot = state.snapshot
    views = [snapshot.view(spec).refresh() for spec, _ in request.groups]
    useful = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for view in views:
        useful[view.passed_rows()] = True
    pods, ends = running.on(useful, excluded)
    snapshot.meter.spend(len(ends))
    releasable = ReleasablePods(state, pods)
    used = np.bincount(
        releasable.rows, releasable.amounts[:, 0], len(snapshot.columns.names)
    ).astype(np.int64)
    missing = _lacking(snapshot, releasable, views[_largest_group(views, request)], request)
    unknown = np.isinf(ends)
    rank = snapshot.columns.name_rank()
    order = np.lexsort(
        (
            rank[releasable.rows],
            np.where(unknown, used[releasable.rows], 0),
            np.where(unknown, missing[releasable.rows], 0),
            ends,
        )
    )
    return releasable.reordered(order), ends[order]


def _largest_group(views: Sequence[PodClassCapacity], request: PlacementRequest) -> int:
    return max(range(len(views)), key=lambda i: (views[i].gpus, request.groups[i][1]))


def _lacking(
    snapshot: Snapshot,
    releasable: ReleasablePods,
    view: PodClassCapacity,
    request: PlacementRequest,
) -> Ints:
    """By row: how many more pods its domain of the required level must fit. 2**40: the domain is
    too small even without all releasable pods, or does not hold the gang's existing members."""
    missing = np.zeros(len(snapshot.columns.names), dtype=np.int64)
    if request.required not in snapshot.columns.domains.levels:
        return missing
    level = snapshot.columns.domains.levels.index(request.required)
    of = snapshot.columns.domains.of[level]
    count = sum(number for spec, number in request.groups if spec == view.spec)
    now = view.by_domain[level]
    with releasable.without(np.arange(len(releasable.pods))):
        empty = view.refresh().by_domain[level].copy()
    view.refresh()
    lacking = np.where(empty >= count, np.maximum(count - now, 0), np.int64(2**40))
    if request.existing_rows:
        lacking[np.arange(len(lacking)) != of[request.existing_rows[0]]] = 2**40
    inside = of >= 0
    missing[inside] = lacking[of[inside]]
    missing[~inside] = 2**40
    return missing


def _owner_name(state: ClusterState, pod: Pod, namespace: str) -> str:
    """Of the pod's gang, for a message on an object of the namespace."""
    gang = state.gang_of(pod)
    if gang is not None:
        return gang.name_for(namespace)
    seen = pod.seen
    return seen.name if seen.namespace == namespace else f"{seen.namespace}/{seen.name}"


def place_name(snapshot: Snapshot, rows: Ints) -> str:
    """The narrowest domain that contains all rows."""
    if len(rows) == 1:
        return f"node {snapshot.columns.names[int(rows[0])]}"
    domains = snapshot.columns.domains
    for level in reversed(range(len(domains.levels))):
        inside = set(domains.of[level, rows].tolist())
        if len(inside) == 1 and -1 not in inside:
            kind = domains.levels[level].rpartition("/")[2]
            return f"{kind} {domains.names[level][inside.pop()]}"
    return f"{len(rows)} nodes"


_STEPS_MIN = (1, 2, 3, 5, 10, 15, 20, 30, 45, 60, 90)


def rough_duration(seconds: float) -> str:
    """A duration that is rounded coarsely, so that a reason does not change with every cycle."""
    minutes = seconds / 60
    if minutes <= 0.75:
        return "less than a minute"
    if minutes <= 90:
        return f"about {next(step for step in _STEPS_MIN if minutes <= step)} min"
    hours = minutes / 60
    return f"about {round(hours)} h" if hours < 48 else f"about {round(hours / 24)} days"
