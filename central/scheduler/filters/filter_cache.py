"""Cached results of the node filters: one bit per node, computed again only for nodes that changed. Pod classes
that differ only in fields that no filter reads, such as their requests, share one cache."""

from collections.abc import Callable
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

    def of(self, spec: PodSpec) -> "FilterResultCache":
        key = constraint(spec)
        if key not in self._kept:
            self._kept[key] = FilterResultCache(spec)
        return self._kept[key]

    def keep(self, most: int) -> None:
        """Forgets all if there are more."""
        if len(self._kept) > most:
            self._kept.clear()


class FilterResultCache:
    def __init__(self, spec: PodSpec) -> None:
        self._spec = spec
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
        try:
            self.passed[row] = node is not None and not node_filters.refusal(self._spec, node)
        except Exception as error:  # noqa: BLE001  a bug; others that ask about this class go on
            self.passed[row], self.failure = False, error
        self._version[row] = version

    def reset(self) -> None:
        self._version[:] = -1
        self.failure = None
