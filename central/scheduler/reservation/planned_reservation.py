"""Plans a reservation: where and when a pending gang fits first as running pods end. The earliest
time is found by trial placements without the pods that have ended by then.

Design: docs/design/reservations.md
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import inf

import numpy as np

from central.model.arrays import Floats, Ints
from central.model.redaction import qualified
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import (
    DraftMark,
    ReleasablePods,
    TakenCapacity,
    fits_by_counts,
    fits_when_empty,
    taken_capacity,
)
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

MAX_NARROWING = 5  # trial placements for a better place at the same start


def plan_reservation(
    state: ClusterState, gang: Gang, request: PlacementRequest, running: RunningPods, excluded: Ints
) -> Reservation | None:
    """Returns a reservation where the gang fits first as running pods end; None: it fits nowhere, even if all end.
    running: as of now. excluded: rows reserved for other gangs, whose pods are not counted on."""
    now = running.now
    if not fits_when_empty(state.snapshot, request, np.zeros(0, dtype=np.int64)):
        return None
    releasable, ends = _by_end(state, gang, request, running, excluded)
    found = _earliest(state, releasable, request)
    if found is None:
        return None
    count, place = found
    if ends[count - 1] < inf:
        gone = int(np.searchsorted(ends, ends[count - 1], side="right"))  # by the same time
        released = np.full(len(state.snapshot.columns.names), -inf)
        np.maximum.at(released, releasable.rows[:gone], ends[:gone])
        place = _latest_released(state, releasable, request, (gone, place), released)
    ended, last = releasable.pods[:count], releasable.pods[count - 1]
    names = {state.snapshot.columns.names[row] for row in place.rows.tolist()}
    newest = max((pod.since or 0.0 for pod in ended if pod.node in names), default=0.0)
    taken = place if request.by_islands else place.on_any_gpus()
    return Reservation(
        gang,
        request,
        ReservedPlace.on(state.snapshot, taken, newest=newest),
        max(float(ends[count - 1]), now),
        _owner_name(state, last, gang.namespace),
        planned_at=now,
    )


def _earliest(
    state: ClusterState, releasable: ReleasablePods, request: PlacementRequest
) -> tuple[int, TakenCapacity] | None:
    """Returns how many pods must end until the gang fits, and the capacity that it takes then; None: it never fits. A
    lower bound, of the sums or else of the counts, is often the answer; else bisection finds it between the bound and
    all."""
    high, least = len(releasable.pods), max(releasable.min_released(request), 1)
    if least > high:
        return None
    found = fits_without(state, releasable, request, least)
    if found is None and least < high:
        state.snapshot.meter.spend_rows(high + len(state.snapshot.columns.names))
        least = releasable.first_by_counts(request, least)
        if least > high:
            return None
        found = fits_without(state, releasable, request, least)
    if found is not None or least == high:
        return (least, found) if found is not None else None
    found = fits_without(state, releasable, request, high)
    if found is None:
        return None
    low = least
    while high - low > 1:
        middle = (low + high) // 2
        try:
            earlier = fits_without(state, releasable, request, middle)
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
            other = fits_without(state, releasable, request, count, hidden)
        except WorkLimitReached:
            break
        if other is None or _spans(state.snapshot, other.rows) > spans:
            high = middle
        else:
            low, found = middle + 1, other
    return found


def _spans(snapshot: Snapshot, rows: Ints) -> list[int]:
    """Returns how many domains the rows are in, widest level first."""
    return [len(np.unique(of[rows])) for of in snapshot.columns.domains.of]


def fits_without(
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
        draft = Draft(snapshot)
        before = DraftMark.of(draft)
        with draft.all_or_nothing():
            try:
                placement.fit(draft, request)
            except DoesNotFit:
                return None
            found = taken_capacity(draft, before)
        draft.undo()
        return found


@contextmanager
def _hiding(snapshot: Snapshot, rows: Ints) -> Iterator[None]:
    """Takes what is free on these rows out of the snapshot, inside the with block."""
    columns = snapshot.columns
    amounts = np.maximum(columns.free[rows], 0)
    masks = [columns.gpus.free_mask[row] for row in rows.tolist()]
    columns.shift(rows, amounts, masks, free=False)
    try:
        yield
    finally:
        columns.shift(rows, amounts, masks, free=True)


def _by_end(
    state: ClusterState, gang: Gang, request: PlacementRequest, running: RunningPods, excluded: Ints
) -> tuple[ReleasablePods, Floats]:
    """The pods that are expected to end, by end. Pods of other schedulers and of the gang itself count only with a run
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
    if request.existing_rows:
        own = np.array([pod.seen.gang_key == gang.key for pod in pods.pods], dtype=np.bool_)
        chosen = np.flatnonzero(~own | np.isfinite(ends))
        pods, ends = pods.only(chosen), ends[chosen]
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
    """Returns by row how many more pods its domain of the required level must fit. 2**40: the domain is too small even
    without all releasable pods, or does not hold the gang's existing members, or the row is in none."""
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
    """Returns the name of the pod's gang, or of a pod without one, for a message on an object of the namespace."""
    gang = state.gang_of(pod)
    if gang is not None:
        return gang.name_for(namespace)
    seen = pod.seen
    return seen.name if seen.namespace == namespace else qualified(seen.namespace, seen.name)
