"""The choice of a node for each pod of a gang, where pods are placed one by one because their rules refer to each
other.

Design: docs/design/filters.md, docs/design/unlike-pods.md
"""

from collections.abc import Iterator

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot

CHOICE_UNITS = 40  # of work for one pod
ROWS_PER_UNIT = 16  # ... beside these, because its arrays are read once


def next_row(snapshot: Snapshot, spec: PodSpec, left: int, rows: Ints, used: Bools) -> int | None:
    """Returns the row for the next pod, as best_row(), and counts the work. Raises WorkLimitReached."""
    snapshot.meter.spend(CHOICE_UNITS + len(rows) // ROWS_PER_UNIT)
    return best_row(snapshot, spec, left, rows, used)


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
    """Yields the keys by which nodes are ordered, each by row, the most important first; less is better."""
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
    """Returns by row how many of the pods that must follow this one into its domain would not fit there. left: pods of
    the class that are not placed yet. rows: those that take a pod. None: no pod has to follow it."""
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
