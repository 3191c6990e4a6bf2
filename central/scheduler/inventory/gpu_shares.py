"""GPUs in shares: how many more pods have room on a node's GPUs, one by one, and which GPU each of them goes
to. A share is a hundredth of a GPU; all of a pod's are of one GPU.

A node's GPU is free, somebody's, or open: then left[row] tells how much of it may still be had. Pods go to the open GPU that
will be left with the least, and open another one only where none has so much."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol

import numpy as np

from central.model.arrays import Ints
from protos.closest import closest
from protos.gpu_sharing import HIGHEST, RANKS, WHOLE, choose_gpu
from protos.topology import NodeTopology, Shape, indices_of, mask_of

if TYPE_CHECKING:
    from central.scheduler.inventory.pods import Pod
    from central.scheduler.snapshot.snapshot import Snapshot

GpuShares = dict[int, int]  # hundredths by GPU


class ShareRequest(Protocol):
    """What a pod wants of a node's GPUs: whole ones, or hundredths of one that enforces caps so surely."""

    gpus: int
    share: int
    least: int  # a rank


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


def room_at(snapshot: "Snapshot", row: int, wanted: int, least: int = 0, within: int = -1) -> int:
    """How many pods of so many hundredths each the node has room for, on GPUs of that rank."""
    fit = snapshot.offered[row][least] & within
    if not fit or wanted > WHOLE:
        return 0
    free = min((snapshot.free_mask[row] & fit).bit_count(), snapshot.gpus.item(row))
    left = _left(snapshot, row, least, within)
    return sum(part // wanted for part in left) + free * (WHOLE // wanted)


def _left(snapshot: "Snapshot", row: int, least: int, within: int = -1) -> Iterable[int]:
    """Of open GPUs of that rank what may still be had; GPUs that are not offered have nothing left."""
    left, fit = snapshot.left[row], snapshot.offered[row][least] & within
    every = not least and within == -1
    return left.values() if every else (part for gpu, part in left.items() if fit >> gpu & 1)


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
    snapshot: "Snapshot", row: int, ask: "ShareRequest", count: int, within: int = -1
) -> list[tuple[int, int]]:
    """GPUs of the mask `within`, as masks, for count pods, and how many pods go to each; the mask 0
    for those who have no room."""
    shape = snapshot.shape[row]
    if shape is None:
        return [(0, count)]
    fit = snapshot.offered[row][ask.least] & within
    return _dealt(shape, snapshot.left[row], (snapshot.free_mask[row], fit), ask.share, count)


def holds(
    snapshot: "Snapshot", row: int, asks: Iterable[tuple["ShareRequest", int]], within: int = -1
) -> bool:
    """Whether so many pods of each kind find GPUs of the mask `within` there, if they are seated in_order:
    whole GPUs first, then the largest parts. For parts of one size a "no" is certain."""
    shape = snapshot.shape[row]
    if shape is None:
        return True
    mine = tuple(
        (one.gpus, one.share, snapshot.offered[row][one.least] & within, count)
        for one, count in asks
        if count
    )
    left = tuple(snapshot.left[row].items())
    return _holds(shape, left, snapshot.free_mask[row], within, mine)


def in_order(asks: Sequence["ShareRequest"]) -> list[int]:
    """The order in which to seat them, as places: the widest first, since they fit in fewest places."""
    return sorted(range(len(asks)), key=lambda i: (-asks[i].gpus, -asks[i].share, i))


@lru_cache(maxsize=1 << 14)
def _holds(
    shape: Shape,
    left: tuple[tuple[int, int], ...],
    free: int,
    within: int,
    asks: tuple[tuple[int, int, int, int], ...],
) -> bool:
    parts = dict(left)
    for gpus, share, fit, count in sorted(asks, key=lambda ask: (-ask[0], -ask[1])):
        if gpus:
            if (free & within).bit_count() < gpus * count:
                return False
            free &= ~closest(shape, free & within, gpus * count)
        for gpu, pods in _dealt(shape, parts, (free, fit), share, count) if share else ():
            if not gpu:
                return False
            index = gpu.bit_length() - 1
            parts[index] = parts.get(index, WHOLE) - pods * share
            free &= ~gpu
    return True


def _dealt(
    shape: Shape, parts: Mapping[int, int], free: tuple[int, int], wanted: int, count: int
) -> list[tuple[int, int]]:
    """free: GPUs that are free, and those that may be used, open ones too."""
    mask, fit = free
    left = {gpu: part for gpu, part in parts.items() if fit >> gpu & 1}
    left |= dict.fromkeys(indices_of(mask & fit), WHOLE)
    dealt: list[tuple[int, int]] = []
    while count:
        gpu = choose_gpu(shape, left, wanted)
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
