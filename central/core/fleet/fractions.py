"""GPUs in shares: how many more pods have room on a node's GPUs, one by one, and which GPU each of them goes
to. A share is a hundredth of a GPU; all of a pod's are of one GPU.

A node's GPU is free, somebody's, or open: then left[row] tells how much of it may still be had. Pods go to the open GPU that
will be left with the least, and open another one only where none has so much."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from central.core.fleet.domains import Ints
from protos.sharing import HIGHEST, RANKS, WHOLE, pick
from protos.topology import NodeTopology, indices_of, mask_of

if TYPE_CHECKING:
    from central.core.fleet.snapshot import Snapshot
    from central.core.gangs import Pod

Parts = dict[int, int]  # hundredths by GPU
# The GPUs that may be used in shares, by how surely caps of their memory hold at least: of rank 0 all.
Offered = tuple[int, ...]
NOTHING: Offered = (0,) * (HIGHEST + 1)


def offered(topology: NodeTopology) -> Offered:
    return tuple(
        mask_of(gpu.index for gpu in topology.gpus if gpu.shares and RANKS[gpu.enforcement] >= rank)
        for rank in range(HIGHEST + 1)
    )


def best(topology: NodeTopology) -> str:
    """How surely a cap of a share's memory holds there at best."""
    found = [gpu.enforcement for gpu in topology.gpus if gpu.shares]
    return max(found, key=RANKS.__getitem__, default="none")


def room_at(snapshot: "Snapshot", row: int, wanted: int, least: int = 0) -> int:
    """How many pods of so many hundredths each the node has room for, on GPUs of that rank."""
    fit = snapshot.offered[row][least]
    if not fit or wanted > WHOLE:
        return 0
    free = min((snapshot.free_mask[row] & fit).bit_count(), snapshot.gpus.item(row))
    return sum(part // wanted for part in _left(snapshot, row, least)) + free * (WHOLE // wanted)


def _left(snapshot: "Snapshot", row: int, least: int) -> Iterable[int]:
    """Of open GPUs of that rank what may still be had; GPUs that are not offered have nothing left."""
    left, fit = snapshot.left[row], snapshot.offered[row][least]
    return (part for gpu, part in left.items() if fit >> gpu & 1) if least else left.values()


def room(snapshot: "Snapshot", rows: Ints, wanted: int, least: int = 0) -> Ints:
    """The same of many."""
    found = (room_at(snapshot, row, wanted, least) for row in rows.tolist())
    return np.fromiter(found, np.int64, len(rows))


def remaining(snapshot: "Snapshot", rows: Ints, least: int = 0) -> tuple[int, int]:
    """The hundredths that are left in all, and the most of any one GPU."""
    parts = [part for row in rows.tolist() for part in _left(snapshot, row, least)]
    free = WHOLE * int(room(snapshot, rows, WHOLE, least).sum())
    return sum(parts) + free, max((*parts, min(free, WHOLE)))


def waste(snapshot: "Snapshot", rows: Ints, wanted: int, least: int = 0) -> Ints:
    """What the GPU that such a pod would go to has left after it; a GPU that must be opened counts
    more than any other."""
    found = (
        min(
            (part - wanted for part in _left(snapshot, row, least) if part >= wanted),
            default=WHOLE,
        )
        for row in rows.tolist()
    )
    return np.fromiter(found, np.int64, len(rows))


def deal(
    snapshot: "Snapshot", row: int, wanted: int, count: int, least: int = 0
) -> list[tuple[int, int]]:
    """GPUs, as masks, for count pods that have room there, and how many pods go to each."""
    shape = snapshot.shape[row]
    if shape is None:
        return [(0, count)]
    fit = snapshot.offered[row][least]
    left = {gpu: part for gpu, part in snapshot.left[row].items() if fit >> gpu & 1}
    left |= dict.fromkeys(indices_of(snapshot.free_mask[row] & fit), WHOLE)
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
