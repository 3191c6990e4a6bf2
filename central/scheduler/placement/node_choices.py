"""Which node each pod of a gang gets, where pods are placed one by one because their rules refer to each other.

In a long attempt the choices are kept: the next slice takes the same nodes again without looking for them, and goes
on where it was cut. They are found by all that they depend on, so on other capacity or counts they begin again.

Design: docs/design/filters.md, docs/design/unlike-pods.md
"""

from collections.abc import Iterator, Sequence
from hashlib import blake2b

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.scheduler.filters.filter_cache import constraint
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import SearchProgress

CHOICE_UNITS = 40  # of work for one pod
ROWS_PER_UNIT = 16  # ... beside these, because its arrays are read once
REPEAT_UNITS = 5  # for a pod whose row is known


class NodeChoices:
    """For the pods of one gang in one domain: a row for each pod in turn, or None where a class found none. progress:
    of the attempt that keeps them. failed: not all pods fitted, but that many."""

    def __init__(self) -> None:
        self.failed: int | None = None
        self.progress: SearchProgress | None = None
        self._rows: list[int | None] = []
        self._turn = 0

    def begin(self) -> None:
        self._turn = 0

    def next_row(
        self, snapshot: Snapshot, spec: PodSpec, left: int, rows: Ints, used: Bools
    ) -> int | None:
        """The row for the next pod. Raises WorkLimitReached."""
        if self._turn == len(self._rows):
            snapshot.meter.spend(CHOICE_UNITS + len(rows) // ROWS_PER_UNIT)
            self._rows.append(best_row(snapshot, spec, left, rows, used))
            if self.progress is not None:
                self.progress.grew = True
        else:
            snapshot.meter.spend(REPEAT_UNITS)
        self._turn += 1
        return self._rows[self._turn - 1]


def choices_for(
    snapshot: Snapshot, groups: PodCounts, order: Sequence[int], rows: Ints, within: int
) -> NodeChoices:
    """Those that a slice before has made; none if this is the first, or no long attempt."""
    progress = snapshot.meter.progress
    if progress is None:
        return NodeChoices()
    reads = (read_state(snapshot, groups, rows), groups, tuple(order), within)
    choices = progress.step(reads, NodeChoices)
    choices.progress = progress
    choices.begin()
    return choices


def best_row(snapshot: Snapshot, spec: PodSpec, left: int, rows: Ints, used: Bools) -> int | None:
    """The node for the next pod: fewest pods that its spread counts, then a domain with capacity for the
    pods that must follow it, then nodes of the gang, then preferences, then the fullest, then by name."""
    view = snapshot.view(spec).refresh()
    rows = rows[view.by_row[rows] > 0]
    for key in _keys(snapshot, view, left, rows, used):
        if len(rows) <= 1:
            break
        values = key[rows]
        rows = rows[values == values.min()]
    return int(rows[0]) if len(rows) else None


def _keys(
    snapshot: Snapshot, view: PodClassCapacity, left: int, rows: Ints, used: Bools
) -> Iterator[Ints]:
    """By row, the most important first; less is better."""
    if view.interpod is not None:
        yield view.interpod.spread_peers()
    if (short := _unplaceable_followers(snapshot, view, left, rows)) is not None:
        yield short
    yield (~used).astype(np.int64)
    if (score := snapshot.preference(((view.spec, 1),))) is not None:
        yield -score
    yield snapshot.columns.gpus.count
    yield snapshot.columns.name_rank()


def _unplaceable_followers(
    snapshot: Snapshot, view: PodClassCapacity, left: int, rows: Ints
) -> Ints | None:
    """By row: how many of the pods that must follow this one into its domain would not fit there. rows: those that
    take a pod. None: no pod has to follow it."""
    near = view.spec.rules.near if view.spec.rules else None
    if near is None or not snapshot.pod_counts.matched_by(near.peers, view.spec):
        return None
    capacity = np.zeros(len(snapshot.columns.names), dtype=np.int64)
    capacity[rows] = view.by_row[rows]
    short = np.zeros(len(capacity), dtype=np.int64)
    for key in near.keys:
        places = snapshot.pod_counts.domains(key)
        short = np.maximum(short, left - places.sums(capacity)[places.of])
    return short


# --- what the choices depend on ---------------------------------------------------------------------------


def read_state(
    snapshot: Snapshot, groups: PodCounts, rows: Ints
) -> tuple[bytes, frozenset[object]]:
    """A digest of what the choices read, and the free volumes. Of free amounts it has as much as the pods could use,
    so that a newcomer who takes what is not scarce changes nothing."""
    columns, pod_counts = snapshot.columns, snapshot.pod_counts
    views = [snapshot.view(spec) for spec, _ in groups]  # their capacities need not be counted
    needed = np.zeros(columns.width, dtype=np.int64)
    for view, (_, count) in zip(views, groups, strict=True):
        needed[view.columns] += view.amounts * count
    scarce = np.flatnonzero(needed)
    arrays = [rows, np.minimum(columns.free[np.ix_(rows, scarce)], needed[scarce])]
    arrays += [columns.gpus.count[rows], columns.gpus.island[rows]]
    filters = {constraint(view.spec): view for view in views}  # classes share them
    arrays += [view.refresh_filter().passed_rows() for view in filters.values()]
    for view in views:
        if view.interpod is not None:
            arrays += [view.interpod.limits(), view.interpod.spread_peers()]
    if (score := snapshot.preference(groups)) is not None:
        arrays.append(score)
    counted: dict[object, Ints] = {}
    volumes: set[object] = set()
    for spec, _ in groups:
        counted.update(pod_counts.changed_by(spec))
        if spec.volumes is not None:
            volumes |= pod_counts.volumes.available(spec.volumes)
        if spec.devices is not None:
            volumes.add(("devices", pod_counts.devices.version))
    digest = blake2b(digest_size=16)
    for array in (*arrays, *counted.values()):
        digest.update(repr(array.shape).encode())
        digest.update(array.tobytes())
    digest.update(repr((columns.relabelled, pod_counts.nodes_version, list(counted))).encode())
    digest.update(repr(_devices(snapshot, views, rows.tolist())).encode())
    return digest.digest(), frozenset(volumes)


def _devices(
    snapshot: Snapshot, views: Sequence[PodClassCapacity], rows: Sequence[int]
) -> list[object]:
    """The GPUs and NICs of the rows that the pods may take."""
    gpus, nics = snapshot.columns.gpus, snapshot.columns.nics
    found: list[object] = [[gpus.free_mask[row] for row in rows]]
    if any(view.share for view in views):
        found += [(gpus.offered[row], gpus.free_shares[row]) for row in rows]
    if any(view.nics for view in views):
        found += [
            (row, nics[row].nics, sorted((+nics[row].unassigned).items()))
            for row in rows
            if row in nics
        ]
    return found
