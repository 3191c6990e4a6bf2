"""What pods do to a node: how much more of its idle GPUs a typical pod could not use afterwards.

For each class of typical pods, the usable idle GPUs of a node are the mean of two answers: what one such pod
would find (all idle GPUs except those with too little left for it; zero if it does not fit, or if the node
has islands as large as the pod needs and none of them is free), and what as many such pods as fit would fill.
A small weight of all idle capacity makes the result independent of node names and order. Classes that few
GPUs will do for count more (weigh_scarcity), so others leave these GPUs to them. After FGD, "Beware
of Fragmentation" (ATC'23). Computed for many nodes at once.

Design: docs/design/0012-fragmentation.md
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from central.model.arrays import Floats, Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import PodCounts
from protos.closest import closest
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE
from protos.topology import Shape

IDLE_WEIGHT = 0.05  # GPUs that an empty node costs, once for its GPUs and once for its CPUs
UNIT = 1 << 16  # integer units per GPU in which costs are kept
Left = tuple[int, ...]  # hundredths, by open GPU
Asked = tuple[tuple[int, int], ...]  # hundredths of one GPU, and how often


class TypicalPods:
    """The classes of typical pods as columns; classes that ask for GPU shares come first."""

    def __init__(self, columns: Columns, frequent: Sequence[tuple[PodSpec, int]]) -> None:
        views = [columns.request(kind) for kind, _ in frequent]
        cpu = columns.column["cpu"]
        times = np.array([times for _, times in frequent], dtype=np.float64)
        self.weights: Floats = times / times.sum()
        self.parts: Ints = np.array([v.share for v in views if v.share], dtype=np.int64)
        self.gpus: Ints = np.array([v.gpus for v in views if not v.share], dtype=np.int64)
        self.columns: Ints = np.unique(np.concatenate([[0, cpu], *(v.columns for v in views)]))
        self.asks: Ints = np.zeros((len(views), len(self.columns)), dtype=np.int64)
        for asks, view in zip(self.asks, views, strict=True):
            asks[np.searchsorted(self.columns, view.columns)] = view.amounts
        self.cpu = int(np.searchsorted(self.columns, cpu))
        most = columns.allocatable[:, [0, cpu]].max(axis=0, initial=1)
        self.most = (int(most[0]), int(most[1]))  # GPUs and CPU of the largest node
        self._places: dict[Left, int] = {}
        self._capacity: list[Ints] = []
        self._unused: list[Ints] = []

    def weigh_scarcity(self, within_reach: Ints) -> None:
        """Counts a class as many times more as it may use fewer GPUs than the class that may use most.
        within_reach: by class, GPUs of the nodes that the filters let it in."""
        most = within_reach.max(initial=0)
        self.weights = self.weights * np.where(
            within_reach > 0, most / np.maximum(within_reach, 1), 1
        )

    def of(self, lefts: Sequence[Left]) -> tuple[Ints, Ints]:
        """By node and class with shares: how many pods fit on the open GPUs, and how many hundredths are on
        GPUs with too little left for one pod."""
        known = self._places
        for left in set(lefts) - known.keys():
            known[left] = len(known)
            parts, open_ = self.parts[:, None], np.array(left, dtype=np.int64)
            self._capacity.append((open_ // parts).sum(axis=1))
            self._unused.append(np.where(open_ < parts, open_, 0).sum(axis=1))
        used = sorted({known[left] for left in lefts})
        place = {number: index for index, number in enumerate(used)}
        at = [place[known[left]] for left in lefts]
        capacity, unused = (
            np.array([kept[n] for n in used]) for kept in (self._capacity, self._unused)
        )
        return capacity[at], unused[at]


class GpuState(NamedTuple):
    """Of a node: free GPUs, and what is left of shared ones."""

    largest: int = 0  # GPUs of its largest island
    island: int = 0  # the most free GPUs of one island
    offered: int = 0  # free GPUs that may be shared
    opened: int = 0  # GPUs newly shared by the pods in question
    left: Left = ()


UNKNOWN = GpuState()


def fragmentation(
    columns: Columns, typical: TypicalPods, allowed: Ints, pods: PodCounts, rows: Ints
) -> Floats:
    """By row: the idle GPUs that a typical pod could not use once the pods are there, plus a little for
    all that is idle then. Meaningless where the pods do not fit. allowed: by row, one bit per class that
    the filters let in."""
    if not len(rows):
        return np.zeros(0)
    asked = sum(spec.request(GPU) * count for spec, count in pods)
    parts = tuple((part, count) for spec, count in pods if (part := spec.request(GPU_SHARE)))
    least = max((columns.request(spec).least for spec, _ in pods), default=0)
    states = [_gpu_state(columns, row, (asked, parts), least) for row in rows.tolist()]
    free = columns.free[np.ix_(rows, typical.columns)] - _amounts(columns, typical, pods)
    gpus = columns.gpus.count[rows] - asked
    gpus -= np.fromiter((one.opened for one in states), np.int64, len(rows))
    left = np.fromiter((sum(one.left) for one in states), np.int64, len(rows))
    idle = gpus + left / WHOLE
    cost: Floats = idle - _usable(typical, allowed[rows], (gpus, left, free), states)
    if pods:
        cost += IDLE_WEIGHT * (idle / typical.most[0] + free[:, typical.cpu] / typical.most[1])
    return cost


def _usable(
    typical: TypicalPods, allowed: Ints, there: tuple[Ints, Ints, Ints], states: list[GpuState]
) -> Floats:
    """By row: the idle GPUs that a typical pod could use. there: free GPUs, hundredths left of open ones,
    and free amounts by column."""
    gpus, left, free = there
    largest, island, offered = np.array([one[:3] for one in states], dtype=np.int64).T[:, :, None]
    sharing = len(typical.parts)
    capacity = np.empty((len(gpus), len(typical.weights)))  # how many pods of the class fit
    reach = np.empty_like(capacity)  # idle GPUs that one of them could use
    capacity[:, sharing:] = gpus[:, None] / typical.gpus
    capacity[:, sharing:] *= (typical.gpus > largest) | (typical.gpus <= island)
    reach[:, sharing:] = gpus[:, None]
    if sharing:
        offered = np.clip(offered, 0, np.maximum(gpus[:, None], 0))
        in_parts, unused = typical.of([one.left for one in states])
        capacity[:, :sharing] = in_parts + offered * (WHOLE // typical.parts)
        reach[:, :sharing] = offered + (left[:, None] - unused) / WHOLE
    for column, asks in enumerate(typical.asks.T[1:], start=1):  # GPUs are the first
        most = np.full_like(capacity, np.inf)
        np.divide(free[:, column, None], asks, out=most, where=asks > 0)
        np.minimum(capacity, most, out=capacity)
    np.floor(capacity, out=capacity)
    capacity *= allowed[:, None] >> np.arange(len(typical.weights)) & 1
    reach *= capacity > 0
    demand = np.concatenate([typical.parts / WHOLE, typical.gpus])
    usable: Floats = (
        reach @ typical.weights + np.maximum(capacity, 0) @ (demand * typical.weights)
    ) / 2
    return usable


def _amounts(columns: Columns, typical: TypicalPods, pods: PodCounts) -> Ints:
    """The amounts that the pods take, by column."""
    taken = np.zeros(columns.width, dtype=np.int64)
    for spec, count in pods:
        view = columns.request(spec)
        taken[view.columns] += view.amounts * count
    return taken[typical.columns]


def open_shares(columns: Columns, row: int, least: int = 0) -> tuple[Left, Left]:
    """Hundredths left of the row's open GPUs, sorted: those that enforce memory caps strictly enough, and the
    others. Equal ones are interchangeable, so sorting makes the cache hit more often."""
    if not (left := columns.gpus.free_shares[row]):
        return (), ()
    fit = columns.gpus.offered[row][least]
    sure = (part for gpu, part in left.items() if fit >> gpu & 1)
    rest = (part for gpu, part in left.items() if not fit >> gpu & 1 and part)
    return tuple(sorted(sure)), tuple(sorted(rest))


def _gpu_state(columns: Columns, row: int, asked: tuple[int, Asked], least: int) -> GpuState:
    """The state of the row's GPUs once the pods are there."""
    shape = columns.gpus.shape[row]
    if shape is None:
        return UNKNOWN
    offered = columns.gpus.offered[row]
    masks = (columns.gpus.free_mask[row], offered[0], offered[least])
    return _state_with(shape, masks, open_shares(columns, row, least), *asked)


@lru_cache(maxsize=1 << 15)
def _state_with(
    shape: Shape, masks: tuple[int, int, int], left: tuple[Left, Left], asked: int, parts: Asked
) -> GpuState:
    """masks: GPUs that are free, that may be shared, and that these pods may share. left: hundredths of open
    GPUs that these pods may use, and of the others."""
    mask, offered, fit = masks
    rest = mask & ~closest(shape, mask, asked) if asked else mask
    dealt, opened = list(left[0]), 0
    for part, count in parts:
        for _ in range(count):
            if fitting := [capacity for capacity in dealt if capacity >= part]:
                dealt.remove(min(fitting))
                dealt.append(min(fitting) - part)
            elif gpu := closest(shape, rest & fit, 1):
                rest &= ~gpu
                opened += 1
                dealt.append(WHOLE - part)
    return GpuState(
        _largest_in_island(shape, -1),
        _largest_in_island(shape, rest),
        (rest & offered).bit_count(),
        opened,
        tuple(sorted(part for part in (*dealt, *left[1]) if part)),
    )


def _largest_in_island(shape: Shape, mask: int) -> int:
    return max(((island & mask).bit_count() for island in shape.islands), default=0)
