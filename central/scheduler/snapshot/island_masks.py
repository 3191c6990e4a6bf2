"""What a node is made of: its islands of GPUs, and its NUMA nodes. A NUMA node is a level of closeness
for gangs that require it; an island may span two."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.gpu_shares import ShareRequest
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA
from protos.topology import Shape, indices_of

PARTS = (ISLAND, NUMA)  # levels inside a node
ON_NODE = (ISLAND, NUMA, NODE)


@lru_cache(maxsize=1 << 12)
def masks(shape: Shape | None, level: str) -> tuple[int, ...]:
    """The GPUs of each part of the level. Where the NUMA nodes are not known, or all GPUs are on one:
    all of them; where no agent has reported, none."""
    if shape is None:
        return ()
    if level == ISLAND:
        return shape.islands
    found: dict[int, int] = {}
    for gpu in range(shape.count):
        numa = shape.numa[gpu] if shape.numa else 0
        found[numa] = found.get(numa, 0) | 1 << gpu
    return tuple(found[numa] for numa in sorted(found))


def holding(
    snapshot: Snapshot,
    level: str,
    row: int,
    asks: Sequence[tuple[ShareRequest, int]],
    held: int = 0,
) -> list[int]:
    """The parts of the node, as masks, with GPUs for so many pods of each kind, the fullest first; where
    others of theirs hold GPUs, the part that these are in."""
    free, left = snapshot.columns.gpus.free_mask[row], snapshot.columns.gpus.free_shares[row]
    sharing = any(ask.share for ask, _ in asks)
    wanted = sum(ask.gpus * count for ask, count in asks)
    found = [
        part
        for part in masks(snapshot.columns.gpus.shape[row], level)
        if not held & ~part
        and (part & free).bit_count() >= wanted
        and not (sharing and not gpu_shares.fits(snapshot.columns.gpus, row, asks, part))
    ]

    def order(part: int) -> tuple[int, int, int]:
        open_ = sum(room for gpu, room in left.items() if sharing and part >> gpu & 1)
        return (part & free).bit_count(), open_, next(indices_of(part))

    return sorted(found, key=order)


def capacities(
    snapshot: Snapshot, level: str, row: int, view: PodClassCapacity, held: int = 0
) -> list[int]:
    """How many pods of the kind each part of the row, that has the GPUs held, has GPUs for; none of a
    kind without any."""
    free, share = snapshot.columns.gpus.free_mask[row], view.share
    if not share and not view.gpus:
        return []
    return [
        gpu_shares.capacity_at(snapshot.columns.gpus, row, share, view.least, part)
        if share
        else (part & free).bit_count() // view.gpus
        for part in masks(snapshot.columns.gpus.shape[row], level)
        if not held & ~part
    ]


def capacity(snapshot: Snapshot, level: str, view: PodClassCapacity, held: int = 0) -> Ints:
    """How many pods of the kind the best part of each row has room for."""
    found = view.by_row.copy()
    if view.share or view.gpus:
        for row in np.flatnonzero(found).tolist():
            best = max(capacities(snapshot, level, row, view, held), default=0)
            found[row] = min(int(found[row]), best)
    return found


def most(snapshot: Snapshot, level: str, rows: Ints) -> Ints:
    """The GPUs that may be given of the best part of each of the rows."""
    if level == ISLAND:
        return snapshot.columns.gpus.island[rows]
    shapes, free = snapshot.columns.gpus.shape, snapshot.columns.gpus.free_mask
    found = [
        max(((part & free[row]).bit_count() for part in masks(shapes[row], level)), default=0)
        for row in rows.tolist()
    ]
    return np.minimum(np.array(found, dtype=np.int64), snapshot.columns.gpus.count[rows])
