"""Cost of pods on a node: how much more of its idle GPUs a typical pod could not use afterwards.

For each class of typical pods, the usable idle GPUs of a node are the mean of two answers: what one such pod
would find (all idle GPUs except those with too little left for it; zero if it does not fit, or if the node
has islands as large as the pod needs and none of them is free), and what as many such pods as fit would fill.
A small weight of all idle capacity makes the result independent of node names and order. Classes that few
GPUs will do for count more (weigh_scarcity), so others leave these GPUs to them. After FGD, "Beware
of Fragmentation" (ATC'23). Computed for many nodes at once.

Design: docs/design/fragmentation.md
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from central.model.arrays import Floats, Ints
from central.model.facts import PodSpec
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.scoring.node_states import Left, NodeGpus
from protos.closest import closest
from protos.gpu_sharing import WHOLE
from protos.names import GPU, GPU_SHARE
from protos.topology import Shape

IDLE_WEIGHT = 0.05  # GPUs that an empty node costs, once for its GPUs and once for its CPUs
UNIT = 1 << 16  # integer units per GPU in which costs are kept
PLENTY = 1 << 60  # of what a class does not request
GPU_STATES_MOST = 20_000  # with more all begin again
Asked = tuple[tuple[int, int], ...]  # hundredths of one GPU, and how often


class GpuState(NamedTuple):
    """The GPUs of a node once some pods are there."""

    idle: int  # free ones
    largest: int = 0  # GPUs of its largest island
    island: int = 0  # the most free GPUs of one island
    offered: int = 0  # free GPUs that may be shared
    left: Left = ()  # of shared ones


class TypicalPods:
    """The classes of typical pods as columns; classes that ask for GPU shares come first."""

    def __init__(self, columns: Columns, frequent: Sequence[tuple[PodSpec, int]]) -> None:
        views = [columns.request(kind) for kind, _ in frequent]
        cpu = columns.column["cpu"]
        times = np.array([times for _, times in frequent], dtype=np.float64)
        self.weights: Floats = times / times.sum()
        self._parts: Ints = np.array([v.share for v in views if v.share], dtype=np.int64)
        self._gpus: Ints = np.array([v.gpus for v in views if not v.share], dtype=np.int64)
        self.demand: Floats = np.concatenate([self._parts / WHOLE, self._gpus])  # GPUs, by class
        self.places = np.arange(len(views))
        self.columns: Ints = np.unique(np.concatenate([[cpu], *(v.columns for v in views)]))
        self.columns = self.columns[self.columns > 0]  # GPUs are in GpuState
        self.cpu = int(np.searchsorted(self.columns, cpu))
        asks = np.zeros((len(self.columns), len(views)), dtype=np.int64)
        for number, view in enumerate(views):
            for column, amount in zip(view.columns.tolist(), view.amounts.tolist(), strict=True):
                if column:
                    asks[np.searchsorted(self.columns, column), number] = amount
        # By column and class. Of what a class does not request, every node has plenty.
        self.asks: Ints = np.maximum(asks, 1)
        self.unasked: Ints = np.where(asks > 0, 0, PLENTY)
        most = columns.allocatable[:, [0, cpu]].max(axis=0, initial=1)
        self.most = (int(most[0]), int(most[1]))  # GPUs and CPU of the largest node
        self.forget_states()

    def weigh_scarcity(self, within_reach: Ints) -> None:
        """Counts a class as many times more as it may use fewer GPUs than the class that may use most.
        within_reach: by class, GPUs of the nodes that the filters let it in."""
        most = within_reach.max(initial=0)
        self.weights = self.weights * np.where(
            within_reach > 0, most / np.maximum(within_reach, 1), 1
        )

    def forget_states(self) -> None:
        classes = len(self.weights)
        self._states: dict[GpuState, int] = {}
        self.idle: Floats = np.zeros(0)  # by number of a state
        self.capacity: Floats = np.zeros((0, classes))  # ... and class: how many pods would fit
        self.reach: Floats = self.capacity  # ... and class: idle GPUs that one of them could use

    @property
    def is_full(self) -> bool:
        return len(self._states) > GPU_STATES_MOST

    def number(self, state: GpuState) -> int:
        """Returns the number of the state, which is its index in idle, capacity and reach. A state that is not known is
        added."""
        if (number := self._states.get(state)) is None:
            number = self._states[state] = len(self._states)
            if number == len(self.idle):
                more = max(64, number)
                self.idle = np.append(self.idle, np.zeros(more))
                blank = np.zeros((more, len(self.weights)))
                self.capacity = np.concatenate([self.capacity, blank])
                self.reach = np.concatenate([self.reach, blank])
            self.idle[number] = state.idle + sum(state.left) / WHOLE
            self._put(number, state)
        return number

    def _put(self, number: int, state: GpuState) -> None:
        idle, largest, island, offered, left = state
        sharing = len(self._parts)
        capacity, reach = self.capacity[number], self.reach[number]
        capacity[sharing:] = idle / self._gpus
        capacity[sharing:] *= (self._gpus > largest) | (self._gpus <= island)
        reach[sharing:] = idle
        if sharing:
            offered = min(offered, max(idle, 0))
            parts, open_ = self._parts[:, None], np.array(left, dtype=np.int64)
            capacity[:sharing] = (open_ // parts).sum(axis=1) + offered * (WHOLE // self._parts)
            reach[:sharing] = offered + np.where(open_ < parts, 0, open_).sum(axis=1) / WHOLE


def fragmentation(typical: TypicalPods, gpus: Ints, free: Ints, allowed: Ints) -> Floats:
    """Returns by node the idle GPUs that a typical pod could not use. Meaningless where free is less than 0. gpus: the
    numbers of their states. free: by node and typical column. allowed: one bit per class that the filters let in."""
    capacity = ((free[:, :, None] + typical.unasked) / typical.asks).min(axis=1)
    np.minimum(capacity, typical.capacity[gpus], out=capacity)
    np.floor(capacity, out=capacity)
    capacity *= allowed[:, None] >> typical.places & 1
    np.maximum(capacity, 0, out=capacity)
    reach = typical.reach[gpus]
    reach *= capacity > 0
    usable = reach @ typical.weights + capacity @ (typical.demand * typical.weights)
    idle: Floats = typical.idle[gpus] - usable / 2
    return idle


def idle_weight(typical: TypicalPods, gpus: Ints, free: Ints) -> Floats:
    """Returns by node a little for all that is idle, in GPUs. Arguments as of fragmentation()."""
    weight: Floats = IDLE_WEIGHT * (
        typical.idle[gpus] / typical.most[0] + free[:, typical.cpu] / typical.most[1]
    )
    return weight


class PodsOnGpus:
    """The effect of the same pods on the GPUs of different nodes."""

    def __init__(self, typical: TypicalPods, pods: PodCounts, least: int) -> None:
        """least: rank of the memory enforcement that the pods require."""
        self._typical, self._least = typical, least
        self._asked = sum(spec.request(GPU) * count for spec, count in pods)
        self._shares: Asked = tuple(
            (part, count) for spec, count in pods if (part := spec.request(GPU_SHARE))
        )

    def numbers(self, before: Sequence[NodeGpus], gpus: Ints) -> Ints:
        """Returns by node the number of the state of its GPUs once the pods are there (TypicalPods.number). gpus: by
        node, an index into before."""
        kinds, of = np.unique(gpus, return_inverse=True)
        found = [self._typical.number(self._with_pods(before[kind])) for kind in kinds.tolist()]
        numbers: Ints = np.array(found, dtype=np.int64)[of]
        return numbers

    def _with_pods(self, gpus: NodeGpus) -> GpuState:
        if gpus.shape is None:
            return GpuState(gpus.idle - self._asked)
        fit = gpus.offered[self._least]
        return _with_pods(gpus, gpus.shape, fit, self._asked, self._shares)


@lru_cache(maxsize=1 << 15)
def _with_pods(gpus: NodeGpus, shape: Shape, fit: int, asked: int, parts: Asked) -> GpuState:
    """fit: the mask of the GPUs that these pods may share."""
    idle, rest = gpus.idle - asked, gpus.free
    if asked:
        rest &= ~closest(shape, rest, asked)
    dealt = list(gpus.sure)
    for part, count in parts:
        for _ in range(count):
            if fitting := [capacity for capacity in dealt if capacity >= part]:
                dealt.remove(min(fitting))
                dealt.append(min(fitting) - part)
            elif gpu := closest(shape, rest & fit, 1):
                rest &= ~gpu
                idle -= 1
                dealt.append(WHOLE - part)
    return GpuState(
        idle,
        _largest_in_island(shape, -1),
        _largest_in_island(shape, rest),
        (rest & gpus.offered[0]).bit_count(),
        tuple(sorted(part for part in (*dealt, *gpus.rest) if part)),
    )


def _largest_in_island(shape: Shape, mask: int) -> int:
    return max(((island & mask).bit_count() for island in shape.islands), default=0)
