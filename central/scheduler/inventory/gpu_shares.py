"""GPUs in shares: how many more pods have room on a node's GPUs, one by one, and which GPU each of them goes
to. A share is a hundredth of a GPU; all of a pod's are of one GPU.

A node's GPU is free, somebody's, or open: then left[row] tells how much of it may still be had. Pods go to the open GPU that
will be left with the least, and open another one only where none has so much."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Protocol

import numpy as np

from central.model.arrays import UNLIMITED, Ints
from central.scheduler.inventory.pods import Pod
from protos.closest import closest
from protos.gpu_sharing import HIGHEST, RANKS, WHOLE, choose_gpu
from protos.topology import NodeTopology, Shape, indices_of, mask_of

GpuShares = dict[int, int]  # hundredths by GPU


class ShareRequest(Protocol):
    """What a pod wants of a node's GPUs: whole ones, or hundredths of one that enforces caps so surely."""

    gpus: int
    share: int
    least: int  # a rank


# The GPUs that may be used in shares, by how surely caps of their memory hold at least: of rank 0 all.
Offered = tuple[int, ...]
NOTHING: Offered = (0,) * (HIGHEST + 1)


class GpuColumns:
    """The GPUs of each row."""

    def __init__(self) -> None:
        self.count: Ints = np.zeros(0, dtype=np.int64)  # whole GPUs that may be given
        self.island: Ints = np.zeros(0, dtype=np.int64)  # of them, the most in one island
        self.shape: list[Shape | None] = []  # None: no agent has reported
        self.free_mask: list[int] = []  # healthy and given to nobody
        self.offered: list[Offered] = []  # that may be used in shares
        self.free_shares: list[
            GpuShares
        ] = []  # of those in use as shares: hundredths that are free

    def grow(self, more: int) -> None:
        self.count = np.append(self.count, np.zeros(more, dtype=np.int64))
        self.island = np.append(self.island, np.zeros(more, dtype=np.int64))
        self.shape += [None] * more
        self.free_mask += [0] * more
        self.offered += [NOTHING] * more
        self.free_shares += [{} for _ in range(more)]

    def put(
        self, row: int, shape: Shape | None, free_mask: int, offered: Offered, left: GpuShares
    ) -> bool:
        """What an agent says: the GPUs' shape, which are healthy and given to nobody, which may be
        used in shares, and what is free of those that are. Whether more may be given than before."""
        known = self.free_shares[row]
        more = (
            bool(free_mask & ~self.free_mask[row])
            or shape != self.shape[row]
            or offered != self.offered[row]
            or any(part > known.get(gpu, 0) for gpu, part in left.items())
        )
        self.shape[row] = shape
        self.free_mask[row], self.offered[row], self.free_shares[row] = free_mask, offered, left
        return more

    def recount(self, row: int, have: int) -> None:
        """have: GPUs that are free by the API server's count."""
        shape = self.shape[row]
        if shape is None:
            self.count[row], self.island[row] = have, 0
        else:
            healthy, together = _free_in(shape, self.free_mask[row])
            self.count[row] = min(have, healthy)
            self.island[row] = min(have, together)

    def recount_many(self, rows: Ints, have: Ints) -> None:
        masks, shapes = self.free_mask, self.shape
        found = [
            (UNLIMITED, 0)
            if (shape := shapes[row]) is None
            else _free_in(shape, masks[row])
            if masks[row]
            else (0, 0)
            for row in rows.tolist()
        ]
        most = np.array(found, dtype=np.int64).reshape(-1, 2)
        self.count[rows] = np.minimum(have, most[:, 0])
        self.island[rows] = np.minimum(have, most[:, 1])


@lru_cache(maxsize=1 << 16)
def _free_in(shape: Shape, mask: int) -> tuple[int, int]:
    """How many GPUs of the mask there are in all, and in the island with the most of them."""
    return mask.bit_count(), max(
        ((mask & island).bit_count() for island in shape.islands), default=0
    )


def offered(topology: NodeTopology) -> Offered:
    return tuple(
        mask_of(gpu.index for gpu in topology.gpus if gpu.shares and RANKS[gpu.enforcement] >= rank)
        for rank in range(HIGHEST + 1)
    )


def best_enforcement(topology: NodeTopology) -> str:
    """How surely a cap of a share's memory holds there at best."""
    found = [gpu.enforcement for gpu in topology.gpus if gpu.shares]
    return max(found, key=RANKS.__getitem__, default="none")


def capacity_at(gpus: "GpuColumns", row: int, wanted: int, least: int = 0, within: int = -1) -> int:
    """How many pods of so many hundredths each the node has room for, on GPUs of that rank."""
    fit = gpus.offered[row][least] & within
    if not fit or wanted > WHOLE:
        return 0
    free = min((gpus.free_mask[row] & fit).bit_count(), gpus.count.item(row))
    left = _free_shares(gpus, row, least, within)
    return sum(part // wanted for part in left) + free * (WHOLE // wanted)


def _free_shares(gpus: "GpuColumns", row: int, least: int, within: int = -1) -> Iterable[int]:
    """Of open GPUs of that rank what may still be had; GPUs that are not offered have nothing left."""
    left, fit = gpus.free_shares[row], gpus.offered[row][least] & within
    every = not least and within == -1
    return left.values() if every else (part for gpu, part in left.items() if fit >> gpu & 1)


def capacity(gpus: "GpuColumns", rows: Ints, wanted: int, least: int = 0) -> Ints:
    """The same of many."""
    found = (capacity_at(gpus, row, wanted, least) for row in rows.tolist())
    return np.fromiter(found, np.int64, len(rows))


def remaining(gpus: "GpuColumns", rows: Ints, least: int = 0) -> tuple[int, int]:
    """The hundredths that are left in all, and the most of any one GPU."""
    parts = [part for row in rows.tolist() for part in _free_shares(gpus, row, least)]
    free = WHOLE * int(capacity(gpus, rows, WHOLE, least).sum())
    return sum(parts) + free, max((*parts, min(free, WHOLE)))


def waste(gpus: "GpuColumns", rows: Ints, wanted: int, least: int = 0) -> Ints:
    """What the GPU that such a pod would go to has left after it; a GPU that must be opened counts
    more than any other."""
    found = (
        min(
            (part - wanted for part in _free_shares(gpus, row, least) if part >= wanted),
            default=WHOLE,
        )
        for row in rows.tolist()
    )
    return np.fromiter(found, np.int64, len(rows))


def assign(
    gpus: "GpuColumns", row: int, ask: "ShareRequest", count: int, within: int = -1
) -> list[tuple[int, int]]:
    """GPUs of the mask `within`, as masks, for count pods, and how many pods go to each; the mask 0
    for those who have no room."""
    shape = gpus.shape[row]
    if shape is None:
        return [(0, count)]
    fit = gpus.offered[row][ask.least] & within
    return _assign(shape, gpus.free_shares[row], (gpus.free_mask[row], fit), ask.share, count)


def fits(
    gpus: "GpuColumns", row: int, asks: Iterable[tuple["ShareRequest", int]], within: int = -1
) -> bool:
    """Whether so many pods of each kind find GPUs of the mask `within` there, if they are seated widest_first:
    whole GPUs first, then the largest parts. For parts of one size a "no" is certain."""
    shape = gpus.shape[row]
    if shape is None:
        return True
    mine = tuple(
        (one.gpus, one.share, gpus.offered[row][one.least] & within, count)
        for one, count in asks
        if count
    )
    left = tuple(gpus.free_shares[row].items())
    return _fits(shape, left, gpus.free_mask[row], within, mine)


def widest_first(asks: Sequence["ShareRequest"]) -> list[int]:
    """The order in which to seat them, as places: the widest first, since they fit in fewest places."""
    return sorted(range(len(asks)), key=lambda i: (-asks[i].gpus, -asks[i].share, i))


@lru_cache(maxsize=1 << 14)
def _fits(
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
        for gpu, pods in _assign(shape, parts, (free, fit), share, count) if share else ():
            if not gpu:
                return False
            index = gpu.bit_length() - 1
            parts[index] = parts.get(index, WHOLE) - pods * share
            free &= ~gpu
    return True


def _assign(
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


def change(gpus: "GpuColumns", row: int, gpu: int, by: int) -> None:
    """Takes hundredths of a GPU (a mask) or, by more than 0, gives them back."""
    left, index = gpus.free_shares[row], gpu.bit_length() - 1
    now = left.get(index, WHOLE) + by
    if now < WHOLE:
        left[index] = now
        gpus.free_mask[row] &= ~gpu
    else:
        left.pop(index, None)
        gpus.free_mask[row] |= gpu


def used(pods: Iterable[Pod], strangers: Mapping[int, int]) -> Counter[int]:
    """Hundredths by GPU that pods of a node have, or are planned to have."""
    found = Counter(strangers)
    for pod in pods:
        if pod.gpus and pod.share:
            found[pod.gpus.bit_length() - 1] += pod.share
    return found
