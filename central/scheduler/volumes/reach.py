"""From which nodes a volume can be used: by what it asks of them, which the volumes of one node have in
common. Kept up to date as nodes come and go, without asking every node about every volume."""

from collections.abc import Iterable, Mapping

from central.model import selectors
from central.model.facts import NodeSeen
from central.model.pod_rules import NodeTerms

Places = tuple[NodeTerms, ...]  # all of them hold
Label = tuple[str, str]
NAME = "metadata.name"  # as if it were a label


class VolumeReach:
    def __init__(self) -> None:
        self.rows: dict[Places, set[int]] = {}
        self._nodes: dict[int, NodeSeen] = {}
        self._by_label: dict[Label, set[int]] = {}  # rows, of the keys that somebody asks about
        self._keys: set[str] = {NAME}
        self._asking: dict[Label, set[Places]] = {}  # who can only be met by such a label
        self._others: set[Places] = set()

    def know(self, places: Places) -> set[int]:
        """The rows that meet them, from now on kept up to date."""
        if places in self.rows:
            return self.rows[places]
        labels = _labels(places)
        if labels is None:
            self._others.add(places)
            rows: Iterable[int] = self._nodes
        else:
            for label in labels:
                self._ask(label[0])
                self._asking.setdefault(label, set()).add(places)
            rows = {row for label in labels for row in self._by_label.get(label, ())}
        found = self.rows[places] = {
            row for row in rows if selectors.inside(places, self._nodes[row])
        }
        return found

    def forget(self, places: Places) -> None:
        self.rows.pop(places, None)
        self._others.discard(places)
        for label in _labels(places) or ():
            if asking := self._asking.get(label):
                asking.discard(places)
                if not asking:
                    del self._asking[label]

    def moved(self, row: int, node: NodeSeen | None) -> list[Places]:
        """Whom the node's coming, going or new labels matter to: they are met there and were not, or
        the other way round. changed() makes it so."""
        before = self._nodes.get(row)
        if before is not None and node is not None and _same(before, node):
            return []
        asked = set(self._others)
        for seen in (before, node):
            for label in _labels_of(seen, self._keys):
                asked |= self._asking.get(label, set())
        return [
            places
            for places in sorted(asked, key=repr)
            if (row in self.rows[places]) != (node is not None and selectors.inside(places, node))
        ]

    def changed(self, row: int, node: NodeSeen | None, whom: Iterable[Places]) -> None:
        """The node is like that now, or gone; whom: as moved() said."""
        for label in _labels_of(self._nodes.pop(row, None), self._keys):
            self._by_label[label].discard(row)
        if node is not None:
            self._nodes[row] = node
            for label in _labels_of(node, self._keys):
                self._by_label.setdefault(label, set()).add(row)
        for places in whom:
            self.rows[places] ^= {row}

    def check(self) -> None:
        """What is kept up to date is what a look at every node gives."""
        for places, rows in self.rows.items():
            fresh = {row for row, node in self._nodes.items() if selectors.inside(places, node)}
            assert rows == fresh, f"{places}: rows {rows}, should be {fresh}"

    def _ask(self, key: str) -> None:
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
    """Labels of which a node must have one to meet them; None: it is not said by labels alone."""
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
