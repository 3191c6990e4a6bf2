"""The number of pods of one class that fit when members of the same class are released, by counts alone.

On a node with n members and free amounts f, min((f + n r) // r) pods fit that request r: the nodes' free capacity is
read, and nothing is released. GPUs are counted as a released snapshot would: by amount, and by the healthy ones among
the free and the members' own.
"""

from collections.abc import Collection, Iterable

import numpy as np

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.preemption_request import PreemptionContext
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.state.cluster_state import ClusterState


def fitting(
    context: PreemptionContext,
    spec: PodSpec,
    members: Iterable[Pod],
    inside: Collection[int] | None,
) -> int | None:
    """inside: rows that count; None: all. Returns None if counts do not say it: the class has rules between pods, parts
    of GPUs or NICs, or a member is of another class."""
    state = context.state
    view = state.snapshot.view(spec).refresh()
    if view.share or view.nics or view.interpod is not None:
        return None
    counts: dict[str, int] = {}
    masks: dict[str, int] = {}
    for pod in members:
        if pod.spec is not spec:
            return None
        node = pod.node
        if node in counts:
            counts[node] += 1
            masks[node] |= pod.gpus
        else:
            counts[node], masks[node] = 1, pod.gpus
    row_of = state.snapshot.columns.row
    rows = np.array([row_of[name] for name in counts], dtype=np.int64)
    numbers = np.array(list(counts.values()), dtype=np.int64)
    healthy = _healthy(state, masks)
    by_row = view.by_row.copy()
    by_row[rows] = _after(view, state.snapshot.columns, rows, numbers, healthy)
    return int(by_row[sorted(inside)].sum() if inside is not None else by_row.sum())


def _after(
    view: PodClassCapacity, columns: Columns, rows: Ints, members: Ints, healthy: Ints
) -> Ints:
    """Returns how many pods fit on each of these rows without the members."""
    fits: Ints = np.full(len(rows), np.iinfo(np.int64).max)
    for column, amount in zip(view.columns.tolist(), view.amounts.tolist(), strict=True):
        free = columns.free[rows, column] + members * amount
        if column == 0:
            free = np.minimum(np.maximum(free, 0), healthy)
        np.minimum(fits, free // amount, out=fits)
    passed = np.zeros(len(columns.names), dtype=np.bool_)
    passed[view.passed_rows()] = True
    fits[(fits < 0) | ~passed[rows]] = 0
    return fits


def _healthy(state: ClusterState, masks: dict[str, int]) -> Ints:
    """GPUs that would be free and healthy, by node as in masks, which has the members' own; where no agent has
    reported, any number."""
    columns, found = state.snapshot.columns, []
    for name, own in masks.items():
        row = columns.row[name]
        if columns.gpus.shape[row] is None:
            found.append(np.iinfo(np.int64).max)
            continue
        healthy = state.nodes[name].reported.healthy if name in state.node_sets.unhealthy else -1
        found.append((columns.gpus.free_mask[row] | own & healthy).bit_count())
    return np.array(found, dtype=np.int64)
