"""Whole GPUs that may be given, by row: as many as the API server counts, and where an agent has reported no more
than it calls free; and of them, the most that are in one island."""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from central.model.arrays import UNLIMITED, Ints
from protos.topology import Shape

if TYPE_CHECKING:
    from central.scheduler.snapshot.snapshot import Snapshot


def count(snapshot: "Snapshot", row: int) -> None:
    """The row has changed."""
    have = max(int(snapshot.free[row, 0]), 0)
    shape = snapshot.shape[row]
    if shape is None:
        snapshot.gpus[row], snapshot.island[row] = have, 0
    else:
        healthy, together = _free_in(shape, snapshot.free_mask[row])
        snapshot.gpus[row] = min(have, healthy)
        snapshot.island[row] = min(have, together)
    snapshot.touched.note([row])


def count_many(snapshot: "Snapshot", rows: Ints) -> None:
    have = np.maximum(snapshot.free[rows, 0], 0)
    masks, shapes = snapshot.free_mask, snapshot.shape
    found = [
        (UNLIMITED, 0)
        if (shape := shapes[row]) is None
        else _free_in(shape, masks[row])
        if masks[row]
        else (0, 0)
        for row in rows.tolist()
    ]
    room = np.array(found, dtype=np.int64).reshape(-1, 2)
    snapshot.gpus[rows] = np.minimum(have, room[:, 0])
    snapshot.island[rows] = np.minimum(have, room[:, 1])
    snapshot.touched.note(rows.tolist())


@lru_cache(maxsize=1 << 16)
def _free_in(shape: Shape, mask: int) -> tuple[int, int]:
    """How many GPUs of the mask there are in all, and in the island with the most of them."""
    return mask.bit_count(), max(
        ((mask & island).bit_count() for island in shape.islands), default=0
    )
