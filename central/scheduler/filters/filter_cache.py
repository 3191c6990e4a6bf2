"""Cached results of the node filters: one bit per node, computed again only for nodes that changed. Pod classes
that differ only in fields that no filter reads, such as their requests, share one cache. Classes that differ only in
the nodes that they name by labels share the results of all other filters; labels are columns (label_columns.py).

A result that depends on the time ends then: the node counts as changed (Snapshot.end_results).
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from operator import attrgetter

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters import node_filters
from central.scheduler.filters.label_columns import LabelColumns

Constraint = tuple[object, ...]
NAMED = {"node_selector", "node_terms"}  # the fields of PodSpec that name nodes by labels


# The values of all fields that node filters read: the key of a cache.
constraint: Callable[[PodSpec], Constraint] = attrgetter(*node_filters.READS)


class FilterResults:
    """One FilterResultCache for all pod classes that the filters cannot tell apart."""

    def __init__(self) -> None:
        self._kept: dict[Constraint, FilterResultCache] = {}
        self._labels = LabelColumns()
        self.now = 0.0
        self.ends: dict[int, float] = {}  # by row: when the first of its results may change

    def of(self, spec: PodSpec) -> "FilterResultCache":
        key = constraint(spec)
        if key not in self._kept:
            if (spec.node_selector or spec.node_terms is not None) and _labels_are_apart():
                others = self.of(replace(spec, node_selector=(), node_terms=None))
                self._kept[key] = SelectedNodes(spec, self, others, self._labels)
            else:
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


def _labels_are_apart() -> bool:
    """Returns whether affinity_mismatch is the only filter that reads which nodes a pod names. A filter that was added
    without its fields may read them."""
    others = {each.refusal for each in node_filters.NODE_FILTERS if not NAMED & {*each.reads}}
    return others | {node_filters.affinity_mismatch} >= {*node_filters.REFUSALS}


class FilterResultCache:
    def __init__(self, spec: PodSpec, shared: FilterResults) -> None:
        self._spec, self._shared = spec, shared
        # by row: the node's, when it was filtered
        self._version: Ints = np.zeros(0, dtype=np.int64)
        self.passed: Bools = np.zeros(0, dtype=np.bool_)
        self.failure: Exception | None = None  # of a filter; such a node does not pass
        self.resets = 0

    def refresh(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        """Filters those of the rows whose node changed. version: by row, grows with every change."""
        if len(self._version) != len(nodes):
            more = len(nodes) - len(self._version)
            self._version = np.append(self._version, np.full(more, -1, dtype=np.int64))
            self.passed = np.append(self.passed, np.zeros(more, dtype=np.bool_))
        if len(stale := rows[self._version[rows] != version[rows]]):
            self._filter_rows(stale, nodes, version)

    def _filter_rows(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        for row in rows.tolist():
            self._filter(row, nodes[row], version.item(row))

    def fits(self, row: int, nodes: list[NodeSeen | None], version: Ints) -> bool:
        """The result of one row, which must have been refreshed before."""
        if self._version.item(row) != version.item(row):
            self._filter_rows(np.array([row]), nodes, version)
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
        self.resets += 1


class SelectedNodes(FilterResultCache):
    """The results for pods that name nodes by labels."""

    def __init__(
        self, spec: PodSpec, shared: FilterResults, others: FilterResultCache, labels: LabelColumns
    ) -> None:
        """others: the results of the other filters."""
        super().__init__(spec, shared)
        self._others, self._labels = others, labels
        self._others_resets = others.resets

    def refresh(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        if self._others_resets != self._others.resets:
            self._others_resets = self._others.resets
            self._version[:] = -1
        super().refresh(rows, nodes, version)

    def _filter_rows(self, rows: Ints, nodes: list[NodeSeen | None], version: Ints) -> None:
        self._others.refresh(rows, nodes, version)
        matched = self._labels.matches(self._spec, rows, nodes, version)
        self.passed[rows] = self._others.passed[rows] & matched
        self.failure = self._others.failure
        self._version[rows] = version[rows]

    def reset(self) -> None:
        super().reset()
        self._others.reset()
