"""GPUs in shares: how many more pods have room on a node's GPUs, one by one, and which GPU each of them goes
to. A share is a hundredth of a GPU; all of a pod's are of one GPU.

A node's GPU is free, somebody's, or open: then left[row] tells how much of it may still be had. Pods go to the open GPU that
will be left with the least, and open another one only where none has so much."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from central.core.fleet.domains import Ints
from protos.sharing import WHOLE, pick
from protos.topology import indices_of

if TYPE_CHECKING:
    from central.core.fleet.snapshot import Snapshot
    from central.core.gangs import Pod

Parts = dict[int, int]  # hundredths by GPU


def room_at(snapshot: "Snapshot", row: int, wanted: int) -> int:
    """How many pods of so many hundredths each the node has room for."""
    offered = snapshot.offered[row]
    if not offered or wanted > WHOLE:
        return 0
    free = min((snapshot.free_mask[row] & offered).bit_count(), snapshot.gpus.item(row))
    return sum(part // wanted for part in snapshot.left[row].values()) + free * (WHOLE // wanted)


def room(snapshot: "Snapshot", rows: Ints, wanted: int) -> Ints:
    """The same of many."""
    found = (room_at(snapshot, row, wanted) for row in rows.tolist())
    return np.fromiter(found, np.int64, len(rows))


def remaining(snapshot: "Snapshot", rows: Ints) -> tuple[int, int]:
    """The hundredths that are left in all, and the most of any one GPU."""
    parts = [part for row in rows.tolist() for part in snapshot.left[row].values()]
    free = WHOLE * int(room(snapshot, rows, WHOLE).sum())
    return sum(parts) + free, max((*parts, min(free, WHOLE)))


def waste(snapshot: "Snapshot", rows: Ints, wanted: int) -> Ints:
    """What the GPU that such a pod would go to has left after it; a GPU that must be opened counts
    more than any other."""
    found = (
        min(
            (part - wanted for part in snapshot.left[row].values() if part >= wanted), default=WHOLE
        )
        for row in rows.tolist()
    )
    return np.fromiter(found, np.int64, len(rows))


def deal(snapshot: "Snapshot", row: int, wanted: int, count: int) -> list[tuple[int, int]]:
    """GPUs, as masks, for count pods that have room there, and how many pods go to each."""
    shape = snapshot.shape[row]
    if shape is None:
        return [(0, count)]
    left = dict(snapshot.left[row])
    left |= dict.fromkeys(indices_of(snapshot.free_mask[row] & snapshot.offered[row]), WHOLE)
    dealt: list[tuple[int, int]] = []
    while count:
        gpu = pick(shape, left, wanted)
        if gpu < 0:
            return [*dealt, (0, count)]
        some = min(count, left[gpu] // wanted)
        left[gpu] -= some * wanted
        count -= some
        dealt.append((1 << gpu, some))
    return dealt


def change(snapshot: "Snapshot", row: int, gpu: int, by: int) -> None:
    """Takes hundredths of a GPU (a mask) or, by more than 0, gives them back."""
    left, index = snapshot.left[row], gpu.bit_length() - 1
    now = left.get(index, WHOLE) + by
    if now < WHOLE:
        left[index] = now
        snapshot.free_mask[row] &= ~gpu
    else:
        left.pop(index, None)
        snapshot.free_mask[row] |= gpu


def used(pods: Iterable["Pod"], strangers: Mapping[int, int]) -> Counter[int]:
    """Hundredths by GPU that pods of a node have, or are planned to have."""
    found = Counter(strangers)
    for pod in pods:
        if pod.gpus and pod.share:
            found[pod.gpus.bit_length() - 1] += pod.share
    return found
