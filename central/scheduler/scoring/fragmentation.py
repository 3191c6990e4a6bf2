"""What a load does to a node: how much more of its idle GPUs those that come could not use then. The definition,
worked out for many nodes at once."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from central.model.arrays import Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.columns import Columns
from protos.closest import closest
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE
from protos.topology import Shape

IDLE = 0.05  # GPUs that a node counts which is idle: its GPUs, and its processors
UNIT = 1 << 16  # of a GPU, in which harm is counted
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Load = tuple[tuple[PodSpec, int], ...]  # kinds of pods with their numbers, all for one node
Left = tuple[int, ...]  # hundredths, by open GPU
Asked = tuple[tuple[int, int], ...]  # hundredths of one GPU, and how often


class TypicalPods:
    """The kinds of pods that come, as columns by kind; first those that ask for a part of a GPU."""

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
        self.most = (int(most[0]), int(most[1]))  # GPUs and cpu that a node has
        self._places: dict[Left, int] = {}
        self._room: list[Ints] = []
        self._unused: list[Ints] = []

    def of(self, lefts: Sequence[Left]) -> tuple[Ints, Ints]:
        """What is left of open GPUs, for each kind of parts: how many pods have room there, and the
        hundredths of GPUs that have too little left for one."""
        known = self._places
        for left in set(lefts) - known.keys():
            known[left] = len(known)
            parts, open_ = self.parts[:, None], np.array(left, dtype=np.int64)
            self._room.append((open_ // parts).sum(axis=1))
            self._unused.append(np.where(open_ < parts, open_, 0).sum(axis=1))
        used = sorted({known[left] for left in lefts})
        place = {number: index for index, number in enumerate(used)}
        at = [place[known[left]] for left in lefts]
        room, unused = (np.array([kept[n] for n in used]) for kept in (self._room, self._unused))
        return room[at], unused[at]


class Inside(NamedTuple):
    """A node's GPUs, beside their number: free, or left of those that are shared."""

    largest: int = 0  # GPUs that an island has
    island: int = 0  # the most free ones of one island
    offered: int = 0  # free ones that may be shared
    opened: int = 0  # that a load has opened
    left: Left = ()


UNKNOWN = Inside()


def lost(columns: Columns, kinds: TypicalPods, may: Ints, load: Load, rows: Ints) -> Floats:
    """By row, the idle GPUs that pods like those that come could not use, on average, once the load is
    there; and a little for all that are idle then. Where it does not fit it means nothing. may: by row,
    a bit for each kind that may run there."""
    if not len(rows):
        return np.zeros(0)
    asked = sum(spec.request(GPU) * count for spec, count in load)
    parts = tuple((part, count) for spec, count in load if (part := spec.request(GPU_SHARE)))
    least = max((columns.request(spec).least for spec, _ in load), default=0)
    inside = [_inside(columns, row, (asked, parts), least) for row in rows.tolist()]
    free = columns.free[np.ix_(rows, kinds.columns)] - _amounts(columns, kinds, load)
    gpus = columns.gpus.count[rows] - asked
    gpus -= np.fromiter((one.opened for one in inside), np.int64, len(rows))
    left = np.fromiter((sum(one.left) for one in inside), np.int64, len(rows))
    idle = gpus + left / WHOLE
    harm: Floats = idle - _usable(kinds, may[rows], (gpus, left, free), inside)
    if load:
        harm += IDLE * (idle / kinds.most[0] + free[:, kinds.cpu] / kinds.most[1])
    return harm


def _usable(
    kinds: TypicalPods, may: Ints, there: tuple[Ints, Ints, Ints], inside: list[Inside]
) -> Floats:
    """By row: the idle GPUs that a pod could use, on average of those that come. there: GPUs that are
    free, hundredths that are left of open ones, and amounts by column.

    Half of it is what one pod finds that it could use: all but the GPUs with too little left for it.
    Half is what as many such pods as have room would fill."""
    gpus, left, free = there
    largest, island, offered = np.array([one[:3] for one in inside], dtype=np.int64).T[:, :, None]
    sharing = len(kinds.parts)
    room = np.empty((len(gpus), len(kinds.weights)))  # how many pods have room
    reach = np.empty_like(room)  # what one of them could use
    room[:, sharing:] = gpus[:, None] / kinds.gpus
    room[:, sharing:] *= (kinds.gpus > largest) | (kinds.gpus <= island)
    reach[:, sharing:] = gpus[:, None]
    if sharing:
        offered = np.clip(offered, 0, np.maximum(gpus[:, None], 0))
        in_parts, unused = kinds.of([one.left for one in inside])
        room[:, :sharing] = in_parts + offered * (WHOLE // kinds.parts)
        reach[:, :sharing] = offered + (left[:, None] - unused) / WHOLE
    for column, asks in enumerate(kinds.asks.T[1:], start=1):  # GPUs are the first
        most = np.full_like(room, np.inf)
        np.divide(free[:, column, None], asks, out=most, where=asks > 0)
        np.minimum(room, most, out=room)
    np.floor(room, out=room)
    room *= may[:, None] >> np.arange(len(kinds.weights)) & 1
    reach *= room > 0
    demand = np.concatenate([kinds.parts / WHOLE, kinds.gpus])
    usable: Floats = (reach @ kinds.weights + np.maximum(room, 0) @ (demand * kinds.weights)) / 2
    return usable


def _amounts(columns: Columns, kinds: TypicalPods, load: Load) -> Ints:
    """What the load takes of each of the columns."""
    taken = np.zeros(len(columns.column), dtype=np.int64)
    for spec, count in load:
        view = columns.request(spec)
        taken[view.columns] += view.amounts * count
    return taken[kinds.columns]


def left_of(columns: Columns, row: int, least: int = 0) -> tuple[Left, Left]:
    """What is left of the row's open GPUs, those first that enforce caps so surely; which of them it is
    makes no difference."""
    if not (left := columns.gpus.free_shares[row]):
        return (), ()
    fit = columns.gpus.offered[row][least]
    sure = (part for gpu, part in left.items() if fit >> gpu & 1)
    rest = (part for gpu, part in left.items() if not fit >> gpu & 1 and part)
    return tuple(sorted(sure)), tuple(sorted(rest))


def _inside(columns: Columns, row: int, asked: tuple[int, Asked], least: int) -> Inside:
    """The row's GPUs with a load on it."""
    shape = columns.gpus.shape[row]
    if shape is None:
        return UNKNOWN
    offered = columns.gpus.offered[row]
    masks = (columns.gpus.free_mask[row], offered[0], offered[least])
    return _loaded(shape, masks, left_of(columns, row, least), *asked)


@lru_cache(maxsize=1 << 15)
def _loaded(
    shape: Shape, masks: tuple[int, int, int], left: tuple[Left, Left], asked: int, parts: Asked
) -> Inside:
    """masks: GPUs that are free, that may be shared, and that may be shared by the load. left: of open
    ones that the load may use, and of the others."""
    mask, offered, fit = masks
    rest = mask & ~closest(shape, mask, asked) if asked else mask
    dealt, opened = list(left[0]), 0
    for part, count in parts:
        for _ in range(count):
            if fitting := [room for room in dealt if room >= part]:
                dealt.remove(min(fitting))
                dealt.append(min(fitting) - part)
            elif gpu := closest(shape, rest & fit, 1):
                rest &= ~gpu
                opened += 1
                dealt.append(WHOLE - part)
    return Inside(
        _together(shape, -1),
        _together(shape, rest),
        (rest & offered).bit_count(),
        opened,
        tuple(sorted(part for part in (*dealt, *left[1]) if part)),
    )


def _together(shape: Shape, mask: int) -> int:
    return max(((island & mask).bit_count() for island in shape.islands), default=0)
