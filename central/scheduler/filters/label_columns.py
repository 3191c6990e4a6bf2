"""Node labels as columns: which nodes meet the node selector and the required node affinity of a pod, in a few array
operations for all of them, and for one node as well.

    key zone:  row 0: 0 (a)   row 1: 1 (b)   row 2: -1 (no label)
    zone In (b, c): the numbers of b and c, of which c has none; row 1 matches

Design: docs/design/filters.md
"""

from collections.abc import Iterable

import numpy as np

from central.model import selectors
from central.model.arrays import Bools, Ints
from central.model.facts import NodeSeen, PodSpec
from central.model.pod_rules import Requirement

KEYS_KEPT = 256  # pods may name any
VALUES_KEPT = 1_000  # of a key, beside two for each node: labels change

Nodes = list[NodeSeen | None]


class LabelColumn:
    """The values of one label, or of one field, as numbers by row; -1: none."""

    def __init__(self, key: str, *, field: bool) -> None:
        self._key, self._field = key, field
        self._numbers: dict[str, int] = {}
        self._of: Ints = np.zeros(0, dtype=np.int64)
        self._version = self._of  # of each node when it was read

    def matches(self, requirement: Requirement, rows: Ints) -> Bools:
        """Returns whether each row meets the requirement, as selectors.matches() of its node."""
        of = self._of[rows]
        if requirement.operator in ("In", "NotIn"):
            named = [self._numbers[each] for each in requirement.values if each in self._numbers]
            return np.isin(of, named, invert=requirement.operator == "NotIn")
        present = np.unique(of)
        values = [None, *self._numbers]
        met = [n for n in present.tolist() if selectors.holds(requirement, values[n + 1])]
        return np.isin(of, met)

    def refresh(self, rows: Ints, nodes: Nodes, version: Ints) -> None:
        """Reads those of the rows whose node changed. version: by row, grows with every change."""
        more = len(nodes) - len(self._of)
        if more or len(self._numbers) > VALUES_KEPT + 2 * len(nodes):
            self._numbers, self._of = {}, np.full(len(nodes), -1, dtype=np.int64)
            self._version = self._of.copy()
            rows = np.arange(len(nodes))
        for row in rows[self._version[rows] != version[rows]].tolist():
            node, value = nodes[row], None
            if node is not None:
                value = selectors.value_of(self._key, node, field=self._field)
            self._of[row] = -1 if value is None else self._number(value)
            self._version[row] = version[row]

    def _number(self, value: str) -> int:
        return self._numbers.setdefault(value, len(self._numbers))


class LabelColumns:
    def __init__(self) -> None:
        self._columns: dict[tuple[str, bool], LabelColumn] = {}

    def matches(self, spec: PodSpec, rows: Ints, nodes: Nodes, version: Ints) -> Bools:
        """Returns whether the node of each row meets the pod's node selector and required node affinity."""
        selector = [Requirement(key, "In", (value,)) for key, value in spec.node_selector]
        found = self._meets_all(selector, rows, nodes, version)
        if spec.node_terms is not None:
            some = np.zeros(len(rows), dtype=np.bool_)
            for term in filter(None, spec.node_terms):
                some |= self._meets_all(term, rows, nodes, version)
            found &= some
        return found

    def _meets_all(
        self, requirements: Iterable[Requirement], rows: Ints, nodes: Nodes, version: Ints
    ) -> Bools:
        found = np.ones(len(rows), dtype=np.bool_)
        for each in requirements:
            column = self._column(each.key, field=each.field)
            column.refresh(rows, nodes, version)
            found &= column.matches(each, rows)
        return found

    def _column(self, key: str, *, field: bool) -> LabelColumn:
        if (key, field) not in self._columns:
            if len(self._columns) >= KEYS_KEPT:
                self._columns.clear()
            self._columns[key, field] = LabelColumn(key, field=field)
        return self._columns[key, field]
