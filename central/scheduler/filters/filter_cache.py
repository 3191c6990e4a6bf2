"""Cached results of the node filters: one bit per node, computed again only for nodes that changed. Pod classes
that differ only in fields that no filter reads, such as their requests, share one cache.

A result that depends on the time ends then: the node counts as changed (Snapshot.end_results).
"""

from collections.abc import Callable
from math import inf
from operator import attrgetter

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters import node_filters

Constraint = tuple[object, ...]


# The values of all fields that node filters read: the key of a cache.
constraint: Callable[[PodSpec], Constraint] = attrgetter(*node_filters.READS)


class FilterResults:
    """One FilterResultCache for all pod classes that the filters cannot tell apart."""

    def __init__(self) -> None:
        self._kept: dict[Constraint, FilterResultCache] = {}
        self.now = 0.0
        self.ends: dict[int, float] = {}  # by row: when the first of its results may change

    def of(self, spec: PodSpec) -> "FilterResultCache":
        key = constraint(spec)
        if key not in self._kept:
            self._kept[key] = FilterResultCache(spec, self)
        return self._kept[key]

    def take_ended(self) -> list[int]:
        """Takes the rows with results that may have changed with the time."""
        ended = [row for row, at in self.ends.items() if at <= self.now]
        for row in ended:
            del self.ends[row]
        return ended

    def keep(self, most: int) -> None:
        """Forgets all if there are more."""
        if len(self._kept) > most:
            self._kept.clear()


class FilterResultCache:
    def __init__(self, spec: PodSpec, shared: FilterResults) -> None:
        self._spec, self._shared = spec, shared
        # by row: the node's, when it was filtered
        self._version: Ints = np.zeros(0, dtype=np.int64)
        self.passed: Bools = np.zeros(0, dtype=np.bool_)
        self.failure: Exception | None = None  # of a filter; such a node does not pass

    def refresh(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        """Filters those of the rows whose node changed. version: by row, grows with every change."""
        if len(self._version) != len(nodes):
            more = len(nodes) - len(self._version)
            self._version = np.append(self._version, np.full(more, -1, dtype=np.int64))
            self.passed = np.append(self.passed, np.zeros(more, dtype=np.bool_))
        for row in rows[self._version[rows] != version[rows]].tolist():
            self._filter(row, nodes[row], version.item(row))

    def fits(self, row: int, nodes: list[NodeSeen | None], version: Ints) -> bool:
        """The result of one row, which must have been refreshed before."""
        if self._version.item(row) != version.item(row):
            self._filter(row, nodes[row], version.item(row))
        return self.passed.item(row)

    def _filter(self, row: int, node: NodeSeen | None, version: int) -> None:
        shared = self._shared
        try:
            if node is None:
                self.passed[row] = False
            else:
                why, until = node_filters.result(self._spec, node, shared.now)
                self.passed[row] = not why
                if until < inf:
                    shared.ends[row] = min(until, shared.ends.get(row, inf))
        except Exception as error:  # noqa: BLE001  a bug; others that ask about this class go on
            self.passed[row], self.failure = False, error
        self._version[row] = version

    def reset(self) -> None:
        self._version[:] = -1
        self.failure = None
