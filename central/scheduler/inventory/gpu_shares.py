"""Shared GPUs: how many more pods fit on a node's GPUs, and which GPU each of them gets. A share is a number of
hundredths of one GPU.

A GPU is free, in use as a whole, or open (in use as shares). A pod gets the open GPU that is left with the
least, and opens a free GPU only if no open one has its share free.

Design: docs/design/gpu-sharing.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """The request of one pod: whole GPUs, or hundredths of one GPU of at least an enforcement rank."""

    gpus: int
    share: int
    least: int  # the rank (protos.gpu_sharing.RANKS)


# Masks of the GPUs that may be shared, by the enforcement rank that they have at least; rank 0: all.
Offered = tuple[int, ...]
NOTHING: Offered = (0,) * (HIGHEST + 1)


class GpuColumns:
    """The GPUs of each row. Masks have a bit for each GPU index."""

    def __init__(self) -> None:
        self.count: Ints = np.zeros(0, dtype=np.int64)  # whole GPUs that are free
        self.island: Ints = np.zeros(0, dtype=np.int64)  # of them, the most in one NVLink island
        # reported, healthy or not, without MIG mode; see install()
        self.installed: Ints = np.zeros(0, dtype=np.int64)
        self.installs = 0  # counts changes of installed
        self.shape: list[Shape | None] = []  # None: no agent has reported
        self.free_mask: list[int] = []  # healthy, and no pod has them
        self.offered: list[Offered] = []  # that may be shared
        self.free_shares: list[GpuShares] = []  # of open GPUs
        self.watched: dict[int, Callable[[int], None]] = {}  # by row: called after its changes

    def grow(self, more: int) -> None:
        self.count = np.append(self.count, np.zeros(more, dtype=np.int64))
        self.island = np.append(self.island, np.zeros(more, dtype=np.int64))
        self.installed = np.append(self.installed, np.zeros(more, dtype=np.int64))
        self.shape += [None] * more
        self.free_mask += [0] * more
        self.offered += [NOTHING] * more
        self.free_shares += [{} for _ in range(more)]

    def put(
        self, row: int, shape: Shape | None, free_mask: int, offered: Offered, left: GpuShares
    ) -> bool:
        """Sets what an agent reports. Returns whether more may be free than before."""
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

    def install(self, row: int, gpus: int) -> None:
        """Sets how many GPUs the row has, whether they are healthy and free or not."""
        if self.installed[row] != gpus:
            self.installed[row] = gpus
            self.installs += 1

    def recount_many(self, rows: Ints, have: Ints) -> None:
        masks, shapes = self.free_mask, self.shape
        found = [
            (UNLIMITED, 0)
            if (shape := shapes[row]) is None
            else free_in(shape, masks[row])
            if masks[row]
            else (0, 0)
            for row in rows.tolist()
        ]
        most = np.array(found, dtype=np.int64).reshape(-1, 2)
        self.count[rows] = np.minimum(have, most[:, 0])
        self.island[rows] = np.minimum(have, most[:, 1])


@lru_cache(maxsize=1 << 16)
def free_in(shape: Shape, mask: int) -> tuple[int, int]:
    """The number of GPUs in the mask, and in the island with the most of them."""
    return mask.bit_count(), max(
        ((mask & island).bit_count() for island in shape.islands), default=0
    )


def offered(topology: NodeTopology) -> Offered:
    if not any(gpu.shares for gpu in topology.gpus):
        return NOTHING
    return tuple(
        mask_of(gpu.index for gpu in topology.gpus if gpu.shares and RANKS[gpu.enforcement] >= rank)
        for rank in range(HIGHEST + 1)
    )


def best_enforcement(topology: NodeTopology) -> str:
    """The strongest enforcement of memory caps that a shared GPU of the node has."""
    found = [gpu.enforcement for gpu in topology.gpus if gpu.shares]
    return max(found, key=RANKS.__getitem__, default="none")


def capacity_at(gpus: "GpuColumns", row: int, wanted: int, least: int, within: int = -1) -> int:
    """Returns how many pods of `wanted` hundredths each fit on the row's GPUs of at least rank `least` in the mask
    `within`."""
    fit = gpus.offered[row][least] & within
    if not fit or wanted > WHOLE:
        return 0
    free = min((gpus.free_mask[row] & fit).bit_count(), gpus.count.item(row))
    left = _free_shares(gpus, row, least, within)
    return sum(part // wanted for part in left) + free * (WHOLE // wanted)


def _free_shares(gpus: "GpuColumns", row: int, least: int, within: int = -1) -> Iterable[int]:
    """The free hundredths of each open GPU of the rank in the mask."""
    left, fit = gpus.free_shares[row], gpus.offered[row][least] & within
    every = not least and within == -1
    return left.values() if every else (part for gpu, part in left.items() if fit >> gpu & 1)


def capacity(gpus: "GpuColumns", rows: Ints, wanted: int, least: int) -> Ints:
    """capacity_at() of many rows."""
    found = (capacity_at(gpus, row, wanted, least) for row in rows.tolist())
    return np.fromiter(found, np.int64, len(rows))


def remaining(gpus: "GpuColumns", rows: Ints, least: int) -> tuple[int, int]:
    """The free hundredths of all GPUs together, and of the GPU with the most."""
    parts = [part for row in rows.tolist() for part in _free_shares(gpus, row, least)]
    free = WHOLE * int(capacity(gpus, rows, WHOLE, least).sum())
    return sum(parts) + free, max((*parts, min(free, WHOLE)))


def waste(gpus: "GpuColumns", rows: Ints, wanted: int, least: int = 0) -> Ints:
    """Returns by row the hundredths that the pod would leave of the tightest open GPU; WHOLE if it has to open a GPU,
    which costs more than using any open one."""
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
    """Chooses GPUs of the mask `within` for count pods: (mask of one GPU, number of pods on it). Pods that
    do not fit have mask 0."""
    shape = gpus.shape[row]
    if shape is None:
        return [(0, count)]
    fit = gpus.offered[row][ask.least] & within
    return _assign(shape, gpus.free_shares[row], (gpus.free_mask[row], fit), ask.share, count)


def fits(
    gpus: "GpuColumns", row: int, asks: Iterable[tuple["ShareRequest", int]], within: int = -1
) -> bool:
    """Returns whether the row has GPUs in the mask `within` for that many pods of each request, assigned
    widest_first(); True without a report. Exact for shares of one size; for shares of different sizes a packing may be
    missed."""
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
    """The order of assignment, as indices: most whole GPUs first, then the largest shares, because these
    have the fewest choices."""
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
    """free: the masks of free GPUs and of usable GPUs, open ones included."""
    mask, fit = free
    left = {gpu: part for gpu, part in parts.items() if fit >> gpu & 1}
    left |= dict.fromkeys(indices_of(mask & fit), WHOLE)
    assigned: list[tuple[int, int]] = []
    while count:
        gpu = choose_gpu(shape, left, wanted)
        if gpu < 0:
            return [*assigned, (0, count)]
        some = min(count, left[gpu] // wanted)
        left[gpu] -= some * wanted
        count -= some
        assigned.append((1 << gpu, some))
    return assigned


def change(gpus: "GpuColumns", row: int, gpu: int, by: int) -> None:
    """Takes hundredths of the GPU (a mask of one), or gives them back if by > 0."""
    left, index = gpus.free_shares[row], gpu.bit_length() - 1
    now = left.get(index, WHOLE) + by
    if now < WHOLE:
        left[index] = now
        gpus.free_mask[row] &= ~gpu
    else:
        left.pop(index, None)
        gpus.free_mask[row] |= gpu


def used(pods: Iterable[Pod], foreign: Mapping[int, int]) -> Counter[int]:
    """Hundredths by GPU that a node's pods have, observed or planned, and foreign ones."""
    found = Counter(foreign)
    for pod in pods:
        if pod.gpus and pod.share:
            found[pod.gpus.bit_length() - 1] += pod.share
    return found
