"""Which nodes may take pods of one constraint at all: the predicates' answers, kept by node and asked
again only of nodes that changed. Shared by all kinds of pods that differ in their requests alone."""

from collections.abc import Callable
from operator import attrgetter

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters import node_filters

Constraint = tuple[object, ...]


# The fields that the node filters read: pods that are equal in these share one result.
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

    def clear(self) -> None:
        self._kept.clear()


class FilterResultCache:
    def __init__(self, spec: PodSpec) -> None:
        self._spec = spec
        self._judged: Ints = np.zeros(0, dtype=np.int64)  # the node's version when it was judged
        self.passed: Bools = np.zeros(0, dtype=np.bool_)

    def refresh(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        """version: grows with every change of what the API server says of a node."""
        if len(self._judged) != len(nodes):
            more = len(nodes) - len(self._judged)
            self._judged = np.append(self._judged, np.full(more, -1, dtype=np.int64))
            self.passed = np.append(self.passed, np.zeros(more, dtype=np.bool_))
        for row in rows[self._judged[rows] != version[rows]].tolist():
            self._judge(row, nodes[row], version.item(row))

    def fits(self, row: int, nodes: list[NodeSeen | None], version: Ints) -> bool:
        """Of one row, which a refresh has seen before."""
        if self._judged.item(row) != version.item(row):
            self._judge(row, nodes[row], version.item(row))
        return self.passed.item(row)

    def _judge(self, row: int, node: NodeSeen | None, version: int) -> None:
        self.passed[row] = node is not None and not node_filters.refusal(self._spec, node)
        self._judged[row] = version

    def reset(self) -> None:
        self._judged[:] = -1
