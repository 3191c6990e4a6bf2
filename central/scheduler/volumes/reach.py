"""Nodes from which a volume is reachable: by its node affinity, which all local volumes of a node share.

Affinities that are made of labels (In) are indexed by label, so that a node that comes or goes is compared
only with affinities that name one of its labels."""

from collections.abc import Iterable, Mapping

from central.model import selectors
from central.model.facts import NodeSeen
from central.model.pod_rules import NodeTerms

Places = tuple[NodeTerms, ...]  # a node affinity; a node must meet all of them
Label = tuple[str, str]
NAME = "metadata.name"  # indexed like a label


class VolumeReach:
    def __init__(self) -> None:
        self.rows: dict[Places, set[int]] = {}
        self._nodes: dict[int, NodeSeen] = {}
        self._by_label: dict[Label, set[int]] = {}  # rows, for the indexed keys
        self._keys: set[str] = {NAME}
        self._requiring: dict[Label, set[Places]] = {}  # met only by nodes with one of their labels
        self._unindexed: set[Places] = set()

    def track(self, places: Places) -> set[int]:
        """The rows that meet the affinity. The set is kept up to date until untrack()."""
        if places in self.rows:
            return self.rows[places]
        labels = _labels(places)
        if labels is None:
            self._unindexed.add(places)
            rows: Iterable[int] = self._nodes
        else:
            for label in labels:
                self._index(label[0])
                self._requiring.setdefault(label, set()).add(places)
            rows = {row for label in labels for row in self._by_label.get(label, ())}
        found = self.rows[places] = {
            row for row in rows if selectors.inside(places, self._nodes[row])
        }
        return found

    def untrack(self, places: Places) -> None:
        self.rows.pop(places, None)
        self._unindexed.discard(places)
        for label in _labels(places) or ():
            if requiring := self._requiring.get(label):
                requiring.discard(places)
                if not requiring:
                    del self._requiring[label]

    def affected(self, row: int, node: NodeSeen | None) -> list[Places]:
        """The affinities that begin or cease to match when the row's node becomes this one (None: it is
        deleted). update() carries the change out."""
        if not self.rows:
            return []
        before = self._nodes.get(row)
        if before is not None and node is not None and _same(before, node):
            return []
        candidates = set(self._unindexed)
        for seen in (before, node):
            for label in _labels_of(seen, self._keys):
                candidates |= self._requiring.get(label, set())
        return [
            places
            for places in sorted(candidates, key=repr)
            if (row in self.rows[places]) != (node is not None and selectors.inside(places, node))
        ]

    def update(self, row: int, node: NodeSeen | None, affected: Iterable[Places]) -> None:
        """Sets the row's node. affected: the answer of affected()."""
        before = self._nodes.get(row)
        if before is not None and node is not None and _same(before, node):
            self._nodes[row] = node
            return
        for label in _labels_of(self._nodes.pop(row, None), self._keys):
            self._by_label[label].discard(row)
        if node is not None:
            self._nodes[row] = node
            for label in _labels_of(node, self._keys):
                self._by_label.setdefault(label, set()).add(row)
        for places in affected:
            self.rows[places] ^= {row}

    def _index(self, key: str) -> None:
        if key in self._keys:
            return
        self._keys.add(key)
        for row, node in self._nodes.items():
            for label in _labels_of(node, {key}):
                self._by_label.setdefault(label, set()).add(row)


def _same(one: NodeSeen, other: NodeSeen) -> bool:
    return one.name == other.name and one.labels == other.labels


def _labels_of(node: NodeSeen | None, keys: set[str]) -> list[Label]:
    if node is None:
        return []
    labels: Mapping[str, str] = node.labels
    found = [(key, labels[key]) for key in keys if key in labels]
    return [*found, (NAME, node.name)] if NAME in keys else found


def _labels(places: Places) -> set[Label] | None:
    """Labels of which a node must have at least one; None if the affinity has no such set."""
    for terms in places:
        found: set[Label] = set()
        for term in terms:
            named = next((one for one in term if one.operator == "In"), None)
            if named is None:
                break
            key = NAME if named.field else named.key
            found.update((key, value) for value in named.values)
        else:
            return found
    return None
