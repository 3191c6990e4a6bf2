"""The network tree: the zone, block and rack of each node, as dense numbers, built from node labels.

A node without a level's label is in no domain of that level. Its other levels still count."""

from collections.abc import Mapping, Sequence

import numpy as np

from central.model.arrays import Ints
from protos import names

Annotations = tuple[tuple[str, str], ...]


class Domains:
    """levels: label keys, widest first. of[level][row] is the row's domain there, -1 for none.

    A domain is known by its path: rack r1 of block a is not rack r1 of block b.
    """

    def __init__(self, levels: Sequence[str]) -> None:
        self.levels = tuple(levels)
        self.of: Ints = np.full((len(self.levels), 0), -1, dtype=np.int64)
        self.names: list[list[str]] = [[] for _ in self.levels]
        self._ids: list[dict[tuple[str, ...], int]] = [{} for _ in self.levels]
        self._by_path: dict[tuple[str, ...], list[int]] = {}  # of all levels
        self._above: list[list[int]] = [[] for _ in self.levels]
        self._parents: list[Ints] = [np.zeros(0, dtype=np.int64) for _ in self.levels]
        self._ranks: list[Ints] = [np.zeros(0, dtype=np.int64) for _ in self.levels]
        self._occupied: list[Ints | None] = [None for _ in self.levels]
        self._joined: list[Ints | None] = [None for _ in self.levels]
        self._labels: dict[int, Mapping[str, str]] = {}  # by row, as put
        self._annotations: dict[int, Annotations] = {}  # by row
        self._of_place: dict[tuple[int, ...], Annotations] = {}  # by the domain at each level

    def grow(self, rows: int) -> None:
        more = np.full((len(self.levels), rows - self.of.shape[1]), -1, dtype=np.int64)
        self.of = np.hstack([self.of, more])
        self._rows_moved()

    def put(self, row: int, labels: Mapping[str, str]) -> bool:
        """Sets the row's domains from the labels. Returns whether they changed."""
        if self._labels.get(row) == labels:
            return False
        self._labels[row] = labels
        self._annotations.pop(row, None)
        path, moved = tuple([labels.get(key, "") for key in self.levels]), False
        if (ids := self._by_path.get(path)) is None:
            ids = self._by_path[path] = [
                self._id(level, path[: level + 1]) if value else -1
                for level, value in enumerate(path)
            ]
        for level, domain in enumerate(ids):
            if self.of.item(level, row) != domain:
                self.of[level, row], moved = domain, True
        if moved:
            self._rows_moved()
        return moved

    def drop(self, row: int) -> None:
        self.of[:, row] = -1
        self._rows_moved()
        self._labels.pop(row, None)
        self._annotations.pop(row, None)

    def _id(self, level: int, path: tuple[str, ...]) -> int:
        ids = self._ids[level]
        if path not in ids:
            ids[path] = len(ids)
            self.names[level].append(path[-1])
            above = self._ids[level - 1].get(path[:-1], -1) if level else -1
            self._above[level].append(above)
        return ids[path]

    def of_level(self, level: str, *, joined: bool = False) -> Ints:
        """Returns by row a number for its domain of the level: for a node, or a part of one, the row itself, and 0 for
        the whole cluster. joined: as joined(), else -1 for a row in no domain."""
        if level in self.levels:
            index = self.levels.index(level)
            return self.joined(index) if joined else self.of[index]
        rows = np.arange(self.of.shape[1])
        return rows if level in (names.NODE, *names.PARTS_OF_NODE) else np.zeros_like(rows)

    def count(self, level: int) -> int:
        return len(self.names[level])

    def parents(self, level: int) -> Ints:
        """Returns for each domain of the level its domain of the next wider level; -1 for none."""
        if len(self._parents[level]) != self.count(level):
            self._parents[level] = np.array(self._above[level], dtype=np.int64)
        return self._parents[level]

    def ranks(self, level: int) -> Ints:
        """Each domain's index in the order of names, which breaks ties."""
        if len(self._ranks[level]) != self.count(level):
            order = np.argsort(np.array(self.names[level]), kind="stable")
            self._ranks[level] = np.empty(len(order), dtype=np.int64)
            self._ranks[level][order] = np.arange(len(order))
        return self._ranks[level]

    def occupied(self, level: int) -> Ints:
        """The domains of the level that have nodes: a name stays when its last node leaves."""
        if (found := self._occupied[level]) is None:
            of = self.of[level]
            counts = np.bincount(of[of >= 0], minlength=self.count(level))
            found = self._occupied[level] = np.flatnonzero(counts)
            found.flags.writeable = False
        return found

    def joined(self, level: int) -> Ints:
        """Returns by row a number that is equal for rows that are certainly in one domain of the level. The pods of
        one node are in one rack, even if the rack is unknown: a row in no domain of the level is in one of a narrower
        level, or by itself."""
        if (known := self._joined[level]) is not None:
            return known
        found, first = np.full(self.of.shape[1], -1, dtype=np.int64), 0
        for index in range(level, len(self.levels)):
            of = self.of[index]
            found = np.where((found < 0) & (of >= 0), first + of, found)
            first += self.count(index)
        found = np.where(found < 0, first + np.arange(len(found)), found)
        found.flags.writeable = False
        self._joined[level] = found
        return found

    def _rows_moved(self) -> None:
        self._occupied = [None for _ in self.levels]
        self._joined = [None for _ in self.levels]

    def path(self, row: int) -> tuple[str, ...]:
        """The row's domain names, widest first; empty where it has no label."""
        found = zip(self.names, self.of[:, row].tolist(), strict=True)
        return tuple([names[domain] if domain >= 0 else "" for names, domain in found])

    def annotations(self, row: int) -> Annotations:
        """The annotations of pods that are bound there: each domain under its level's key, and all of them
        joined in one."""
        if row not in self._annotations:
            place = tuple(self.of[:, row].tolist())
            if place not in self._of_place:  # else another node of the domain had them
                self._of_place[place] = self._annotate(self.path(row))
            self._annotations[row] = self._of_place[place]
        return self._annotations[row]

    def _annotate(self, path: tuple[str, ...]) -> Annotations:
        pairs = zip(self.levels, path, strict=True)
        found = [
            (key if "/" in key else f"{names.DOMAIN}/{key}", name) for key, name in pairs if name
        ]
        whole = "/".join(name for _, name in found)
        return (*found, (names.DOMAINS, whole)) if found else ()
