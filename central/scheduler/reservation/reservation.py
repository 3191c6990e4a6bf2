"""Room that is kept for a gang: where it will fit first, given what is known of when the pods that
run will end, and what of that room others must leave alone until then (EASY backfill)."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np
import numpy.typing as npt

from central.model.arrays import Ints
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import (
    ReleasablePods,
    TakenCapacity,
    could_ever,
    counts_do,
    taken_capacity,
)
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

Floats = npt.NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Reservation:
    gang: Gang
    want: PlacementRequest
    rows: Ints
    need: Ints  # by row and column
    masks: Sequence[int]  # GPUs by row, where it must be these
    start: float  # inf: nobody knows
    after: str  # whose end it waits for
    place: str
    volumes: frozenset[str] = frozenset()  # that exist and its claims will get
    made: bool = False  # by evictions
    firm: bool = False  # nobody of its priority or below may delay it, whatever its end
    planned_at: float = 0.0
    since: float = 0.0  # the gang heads the line
    kept: Ints = field(default_factory=lambda: np.zeros((0, 0), dtype=np.int64))
    versions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    victims: tuple[Pod, ...] = ()  # who leaves once all who are asked agree (claims)
    asked: bool = False
    shelved: frozenset[str] = frozenset()  # of the volumes: nobody has them yet
    moves: bool = False  # those who leave fit elsewhere

    @property
    def queue(self) -> str:
        return self.gang.queue

    def refresh(self, state: ClusterState, now: float) -> bool:
        """Counts anew what must be kept: what is needed less what others bring back in time. Says
        whether it still adds up."""
        snapshot = state.snapshot
        free = np.maximum(snapshot.columns.free[self.rows, : self.need.shape[1]], 0)
        coming = self.need * 0
        told = self.made or (not self.firm and self.start < inf)
        if told:
            for index, row in enumerate(self.rows.tolist()):
                node = state.nodes.get(snapshot.columns.names[row])
                for pod in node.pods.values() if node is not None else ():
                    if pod.charged_spec is not None and (
                        pod.leaving if self.made else pod.ends(now) <= self.start
                    ):
                        view = snapshot.view(pod.charged_spec)
                        coming[index, view.columns] += view.amounts
        missing = np.maximum(self.need - coming, 0)
        self.kept = np.minimum(self.need if self.firm else missing, free)
        self.shelved = self.volumes & snapshot.pod_counts.volumes.free.available(self.volumes)
        late = self.start < now and not self.made
        return (
            bool((self.versions == snapshot.columns.version[self.rows]).all())
            and self.shelved == self.volumes
            and not (told and (late or (missing > free).any()))
        )

    def sentence(self, now: float) -> str:
        if self.made:
            doing = (
                "whose pods' budgets are asked" if self.victims else "whose pods are leaving for it"
            )
            return f"reserved: {self.place}, {doing}"
        if self.start == inf:
            return (
                f"reserved: {self.place}, until enough ends there ({self.after} does not say when)"
            )
        return (
            f"reserved: {self.place}, expected in {about(self.start - now)} when {self.after} ends"
        )

    def hold(self, snapshot: Snapshot) -> list[int]:
        """Takes what is kept out of what others may take, but for volumes; the GPUs are for release()."""
        masks = [
            mask & snapshot.columns.gpus.free_mask[row]
            for row, mask in zip(self.rows.tolist(), self.masks, strict=True)
        ]
        snapshot.columns.shift(self.rows, self.kept, masks, free=False)
        return masks

    def release(self, snapshot: Snapshot, masks: Sequence[int]) -> None:
        snapshot.columns.shift(self.rows, self.kept, masks, free=True)


def plan(
    state: ClusterState, gang: Gang, want: PlacementRequest, now: float, apart: Ints
) -> Reservation | None:
    """Where the gang fits first as those who run end; None: nowhere, ever. On the rows `apart`
    nobody's end is counted on: others wait for it."""
    if not could_ever(state.snapshot, want, np.zeros(0, dtype=np.int64)):
        return None
    leavers, ends = _in_order(state, want, now, apart)
    found = _soonest(state, leavers, want)
    if found is None:
        return None
    count, (rows, need, masks, volumes) = found
    last = leavers.pods[count - 1]
    return Reservation(
        gang,
        want,
        rows,
        need,
        masks if want.by_islands else [0] * len(masks),
        max(float(ends[count - 1]), now),
        _whose(state, last),
        words(state.snapshot, rows),
        volumes,
        planned_at=now,
        versions=state.snapshot.columns.version[rows].copy(),
    )


def _soonest(
    state: ClusterState, leavers: ReleasablePods, want: PlacementRequest
) -> tuple[int, TakenCapacity] | None:
    """How many must be gone until it fits, and its seats then. The sums say how many at least;
    often they do, else it is found between there and all."""
    high, least = len(leavers.pods), max(leavers.fewest(want), 1)
    if least > high:
        return None
    found = _fits_without(state, leavers, want, least)
    if found is not None or least == high:
        return (least, found) if found is not None else None
    found = _fits_without(state, leavers, want, high)
    if found is None:
        return None
    low = least
    while high - low > 1:
        middle = (low + high) // 2
        earlier = _fits_without(state, leavers, want, middle)
        if earlier is None:
            low = middle
        else:
            high, found = middle, earlier
    return high, found


def _fits_without(
    state: ClusterState, leavers: ReleasablePods, want: PlacementRequest, count: int
) -> TakenCapacity | None:
    """The seats that the gang would take if the first so many were gone."""
    with leavers.gone(np.arange(count)) as snapshot:
        if not counts_do(snapshot, want):
            return None
        draft = Draft(snapshot)
        free, masks = snapshot.columns.free.copy(), list(snapshot.columns.gpus.free_mask)
        try:
            placement.fit(draft, want)
        except DoesNotFit:
            return None
        found = taken_capacity(snapshot, free, masks)
        draft.undo()
        return found


def _in_order(
    state: ClusterState, want: PlacementRequest, now: float, apart: Ints
) -> tuple[ReleasablePods, Floats]:
    """Those who will end (of others' pods, only those that say when), first who ends first. Where
    nobody knows: as if the domain with the least missing emptied first, node by node, those with
    the least to wait for before the others."""
    snapshot = state.snapshot
    views = [snapshot.view(spec).refresh() for spec, _ in want.groups]
    useful = np.zeros(len(snapshot.columns.names), dtype=np.bool_)
    for view in views:
        useful[view.passed_rows()] = True
    useful[apart] = False
    pods = [
        pod
        for row in np.flatnonzero(useful).tolist()
        for pod in state.nodes[snapshot.columns.names[row]].pods.values()
        if pod.charged_spec is not None and (pod.seen.ours or pod.ends(now) < inf)
    ]
    leavers = ReleasablePods(state, pods)
    told = [
        pod.ends(now)
        if pod.seen.runs_for_s is not None or pod.seen.deleting or pod.evicting
        else inf
        for pod in pods  # most say nothing, and there are many
    ]
    ends = np.array(told, dtype=np.float64)
    used = np.bincount(leavers.rows, leavers.amounts[:, 0], len(snapshot.columns.names)).astype(
        np.int64
    )
    missing = _missing(snapshot, leavers, views[_main(views, want)], want)
    unknown = np.isinf(ends)
    rank = snapshot.columns.name_rank()
    order = np.lexsort(
        (
            rank[leavers.rows],
            np.where(unknown, used[leavers.rows], 0),
            np.where(unknown, missing[leavers.rows], 0),
            ends,
        )
    )
    return leavers.sorted(order), ends[order]


def _main(views: Sequence[PodClassCapacity], want: PlacementRequest) -> int:
    return max(range(len(views)), key=lambda i: (views[i].gpus, want.groups[i][1]))


def _missing(
    snapshot: Snapshot, leavers: ReleasablePods, view: PodClassCapacity, want: PlacementRequest
) -> Ints:
    """By row: how many pods its domain of the required level lacks room for; where it would not do
    even when all have left: a large number."""
    missing = np.zeros(len(snapshot.columns.names), dtype=np.int64)
    if want.required not in snapshot.columns.domains.levels:
        return missing
    level = snapshot.columns.domains.levels.index(want.required)
    of = snapshot.columns.domains.of[level]
    count = sum(number for spec, number in want.groups if spec == view.spec)
    now = view.by_domain[level]
    with leavers.gone(np.arange(len(leavers.pods))):
        empty = view.refresh().by_domain[level].copy()
    view.refresh()
    lacks = np.where(empty >= count, np.maximum(count - now, 0), np.int64(2**40))
    if want.anchors:
        lacks[np.arange(len(lacks)) != of[want.anchors[0]]] = 2**40
    inside = of >= 0
    missing[inside] = lacks[of[inside]]
    missing[~inside] = 2**40
    return missing


def _whose(state: ClusterState, pod: Pod) -> str:
    gang = state.gang_of(pod)
    return gang.display_name if gang is not None else pod.seen.name


def words(snapshot: Snapshot, rows: Ints) -> str:
    """The closest domain around the rows."""
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


def about(seconds: float) -> str:
    """A duration in words that do not change with every turn."""
    minutes = seconds / 60
    if minutes <= 0.75:
        return "less than a minute"
    if minutes <= 90:
        return f"about {next(step for step in _STEPS_MIN if minutes <= step)} min"
    hours = minutes / 60
    return f"about {round(hours)} h" if hours < 48 else f"about {round(hours / 24)} days"
