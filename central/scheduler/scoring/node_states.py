"""Numbers nodes by their state, so that what is computed for one node holds for all in the same state.

A state is all that the cost of pods on a node depends on (fragmentation.py): its free amounts, its GPUs, and which
classes of typical pods its filters let in. Only rows that changed are numbered again. The numbers of GPUs and of
nodes without their classes outlive a change of the classes, because building a state takes longest.

Design: docs/design/fragmentation.md
"""

from collections.abc import Hashable
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.gpu_shares import Offered
from protos.topology import Shape

STATES_MOST = 10_000  # states beside four for each row; with more all begin again
Left = tuple[int, ...]  # hundredths, by open GPU


class NodeGpus(NamedTuple):
    """The GPUs of a node. sure, rest: hundredths left of the open ones that enforce memory limits strictly enough, and
    of the others; sorted, because equal GPUs are interchangeable."""

    idle: int  # free ones
    shape: Shape | None
    free: int  # the mask
    offered: Offered
    sure: Left
    rest: Left


class NodeStates:
    """least: the rank of the memory enforcement that the pods require. Call refresh() before reading."""

    def __init__(self, columns: Columns, least: int) -> None:
        self._columns, self.least = columns, least
        self._mark = -1
        self.numberings = 0  # counts how often all states were numbered again
        self._gpu_numbers: dict[NodeGpus, int] = {}
        self._node_numbers: dict[Hashable, int] = {}
        self._numbers: dict[tuple[int, int], int] = {}
        self.allowed: Ints = np.zeros(0, dtype=np.int64)
        self.node_gpus: list[NodeGpus] = []  # by number
        self._node: Ints = self.allowed  # by row, without the classes
        self.gpus: Ints = self.allowed  # by row, the number of its GPUs
        self.of: Ints = self.allowed  # by row, the number of its state

    @property
    def is_full(self) -> bool:
        return len(self._node_numbers) + len(self._numbers) > STATES_MOST + 4 * len(self.of)

    @property
    def count(self) -> int:
        return len(self._numbers)

    def put_allowed(self, allowed: Ints) -> None:
        """Begins again with the numbers of states: other classes are typical. allowed: by row, one bit per class; where
        it changes later, its node does."""
        self.allowed = allowed
        if len(allowed) == len(self._node):
            self._number_all()
        else:
            self._mark = -1

    def refresh(self) -> "NodeStates":
        mark, dirty = self._columns.dirty.since(self._mark)
        self._mark = -1  # if a row fails, all are numbered again
        if dirty is None or len(self._node) != len(self._columns.names):
            found = [self._read(row) for row in range(len(self._columns.names))]
            self._node, self.gpus = np.array(found, dtype=np.int64).reshape(-1, 2).T
            self._number_all()
        else:
            for row in set(dirty):
                self._node[row], self.gpus[row] = node, _ = self._read(row)
                pair = node, self.allowed.item(row)
                self.of[row] = self._numbers.setdefault(pair, len(self._numbers))
        self._mark = mark
        return self

    def _number_all(self) -> None:
        """Numbers the states that nodes are in now, and no others."""
        self.numberings += 1
        kinds, allowed = np.unique(self.allowed, return_inverse=True)
        pairs = self._node * len(kinds) + allowed
        _, first, self.of = np.unique(pairs, return_index=True, return_inverse=True)
        known = zip(self._node[first].tolist(), self.allowed[first].tolist(), strict=True)
        self._numbers = {pair: number for number, pair in enumerate(known)}

    def _read(self, row: int) -> tuple[int, int]:
        """The numbers of the row's node and of its GPUs."""
        there, part = self._columns, gpus_of(self._columns, row, self.least)
        if (gpus := self._gpu_numbers.get(part)) is None:
            gpus = self._gpu_numbers[part] = len(self.node_gpus)
            self.node_gpus.append(part)
        key = there.free[row].tobytes(), gpus
        return self._node_numbers.setdefault(key, len(self._node_numbers)), gpus


def gpus_of(columns: Columns, row: int, least: int) -> NodeGpus:
    gpus = columns.gpus
    offered = gpus.offered[row]
    sure: Left = ()
    rest: Left = ()
    if left := gpus.free_shares[row]:
        fit = offered[least]
        sure = tuple(sorted(part for gpu, part in left.items() if fit >> gpu & 1))
        rest = tuple(sorted(part for gpu, part in left.items() if not fit >> gpu & 1 and part))
    return NodeGpus(gpus.count.item(row), gpus.shape[row], gpus.free_mask[row], offered, sure, rest)
