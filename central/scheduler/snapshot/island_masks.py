"""The GPU masks of levels inside a node: NVLink islands, NUMA nodes and PCIe switches. All three are called
parts of the node.

NUMA nodes and PCIe switches are opt-in levels. They are not part of the level hierarchy, because an island
can span several of them.

Design: docs/design/topology.md
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.gpu_shares import ShareRequest
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, PARTS_OF_NODE, PCIE_SWITCH
from protos.topology import Shape, indices_of

PARTS = PARTS_OF_NODE
ON_NODE = (*PARTS, NODE)
OPT_IN = frozenset(PARTS) - {ISLAND}  # levels that are tried only where they are required


@lru_cache(maxsize=1 << 12)
def masks(shape: Shape | None, level: str) -> tuple[int, ...]:
    """The mask of each part. Without known NUMA nodes there is one with all GPUs. Without known PCIe switches,
    and without an agent's report, there is none."""
    if shape is None:
        return ()
    if level == ISLAND:
        return shape.islands
    if level == PCIE_SWITCH:
        return shape.switches
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
    *,
    among: int = -1,
) -> list[int]:
    """The masks of the level that have GPUs for that many pods of each request, the fullest first, those that need a
    slow GPU last. held: GPUs that the gang has there already, which the mask must contain. among: the GPUs that it may
    use."""
    free, left = snapshot.columns.gpus.free_mask[row], snapshot.columns.gpus.free_shares[row]
    shape = snapshot.columns.gpus.shape[row]
    fast = free & ~shape.slow if shape is not None else free
    sharing = any(ask.share for ask, _ in asks)
    wanted = sum(ask.gpus * count for ask, count in asks)
    found = [
        part
        for whole in masks(shape, level)
        if (part := whole & among)
        and not held & ~part
        and (part & free).bit_count() >= wanted
        and not (sharing and not gpu_shares.fits(snapshot.columns.gpus, row, asks, part))
    ]

    def order(part: int) -> tuple[bool, int, int, int]:
        open_ = sum(share for gpu, share in left.items() if sharing and part >> gpu & 1)
        slow = (part & fast).bit_count() < wanted
        return slow, (part & free).bit_count(), open_, next(indices_of(part))

    return sorted(found, key=order) if len(found) > 1 else found


def capacities(
    snapshot: Snapshot, level: str, row: int, view: PodClassCapacity, held: int = 0
) -> list[int]:
    """Returns for how many pods of the class each part of the row has GPUs, for parts that contain the GPUs held. Empty
    for a class without GPUs."""
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
    """Returns by row how many pods of the class fit in its best part."""
    found = view.by_row.copy()
    if view.share or view.gpus:
        for row in np.flatnonzero(found).tolist():
            best = max(capacities(snapshot, level, row, view, held), default=0)
            found[row] = min(int(found[row]), best)
    return found


def most(snapshot: Snapshot, level: str, rows: Ints) -> Ints:
    """Returns for each of the rows the most free GPUs in one part."""
    if level == ISLAND:
        return snapshot.columns.gpus.island[rows]
    shapes, free = snapshot.columns.gpus.shape, snapshot.columns.gpus.free_mask
    found = [
        max(((part & free[row]).bit_count() for part in masks(shapes[row], level)), default=0)
        for row in rows.tolist()
    ]
    return np.minimum(np.array(found, dtype=np.int64), snapshot.columns.gpus.count[rows])


def unknown(shape: Shape | None, level: str) -> bool:
    """Returns whether the part of some GPU of the node is unknown."""
    if shape is None or level != PCIE_SWITCH:
        return shape is None
    return sum(mask.bit_count() for mask in shape.switches) < shape.count
