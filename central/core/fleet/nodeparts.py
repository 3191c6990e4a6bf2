"""What a node is made of: its islands of GPUs, and its NUMA nodes. A NUMA node is a level of closeness
for gangs that require it; an island may span two."""

from functools import lru_cache

import numpy as np

from central.core.fleet.domains import Ints
from central.core.fleet.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA
from protos.topology import Shape

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


def most(snapshot: Snapshot, level: str, rows: Ints) -> Ints:
    """The GPUs that may be given of the best part of each of the rows."""
    if level == ISLAND:
        return snapshot.island[rows]
    shapes, free = snapshot.shape, snapshot.free_mask
    found = [
        max(((part & free[row]).bit_count() for part in masks(shapes[row], level)), default=0)
        for row in rows.tolist()
    ]
    return np.minimum(np.array(found, dtype=np.int64), snapshot.gpus[rows])
