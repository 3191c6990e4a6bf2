"""Costs of the same pods on each node, by the state of the node: computed for states that are asked about, and kept.

Design: docs/design/fragmentation.md
"""

from typing import Optional

import numpy as np

from central.model.arrays import Floats, Ints
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.pods import PodCounts
from central.scheduler.scoring.fragmentation import (
    UNIT,
    PodsOnGpus,
    TypicalPods,
    fragmentation,
    idle_weight,
)
from central.scheduler.scoring.node_states import NodeStates

AT_ONCE = 4_096  # states, because their arrays have an entry for each class and resource
NOT_COMPUTED = np.iinfo(np.int64).min


class StateCosts:
    """base: the costs of no pods, which are the fragmentation as it is; None if this is them."""

    def __init__(
        self,
        columns: Columns,
        typical: TypicalPods,
        states: NodeStates,
        pods: PodCounts,
        base: Optional["StateCosts"],
    ) -> None:
        self._columns, self._typical, self._states = columns, typical, states
        self._base = base
        self._amounts = _amounts(columns, typical, pods)
        self._gpus = PodsOnGpus(typical, pods, states.least)
        self._numbering = states.numberings
        self._table: Ints = np.zeros(0, dtype=np.int64)  # by number of a state

    def at(self, rows: Ints) -> Ints:
        """Returns the costs by row, in parts of a GPU (UNIT)."""
        numbers = self._numbers().take(rows)
        costs = self._table.take(numbers)
        if np.minimum.reduce(costs, initial=0) == NOT_COMPUTED:
            unknown = (costs == NOT_COMPUTED).nonzero()[0]
            self._complete(numbers[unknown], rows[unknown])
            costs[unknown] = self._table[numbers[unknown]]
        return costs

    def _complete(self, numbers: Ints, rows: Ints) -> None:
        """numbers: of the rows' states."""
        examples = np.full(self._states.count, -1, dtype=np.int64)
        examples[numbers] = rows
        fresh = (examples >= 0).nonzero()[0]
        for start in range(0, len(fresh), AT_ONCE):
            some = fresh[start : start + AT_ONCE]
            self._table[some] = self._compute(examples[some])

    def _numbers(self) -> Ints:
        """Returns the number of each row's state. The table has a place for each of them."""
        states = self._states.refresh()
        if self._numbering != states.numberings:
            self._numbering, self._table = states.numberings, self._table[:0]
        if states.count > len(self._table):
            table = np.full(max(64, 2 * states.count), NOT_COMPUTED, dtype=np.int64)
            table[: len(self._table)] = self._table
            self._table = table
        return states.of

    def _compute(self, rows: Ints) -> Ints:
        """Returns the costs by row, in parts of a GPU (UNIT). The states of the rows are different."""
        typical, states = self._typical, self._states
        gpus = self._gpus.numbers(states.node_gpus, states.gpus[rows])
        free = self._columns.free[rows][:, typical.columns] - self._amounts
        cost = fragmentation(typical, gpus, free, states.allowed[rows])
        if self._base is None:
            return _in_units(cost)
        cost += idle_weight(typical, gpus, free)
        return _in_units(cost) - self._base.at(rows)


def _in_units(gpus: Floats) -> Ints:
    units: Ints = np.rint(gpus * UNIT).astype(np.int64)
    return units


def _amounts(columns: Columns, typical: TypicalPods, pods: PodCounts) -> Ints:
    """The amounts that the pods take, by typical column."""
    taken = np.zeros(columns.width, dtype=np.int64)
    for spec, count in pods:
        view = columns.request(spec)
        taken[view.columns] += view.amounts * count
    amounts: Ints = taken[typical.columns]
    return amounts
