"""Which domains may take a gang whole, level by level, best first: the one that needs the fewest parts
(racks of a block, nodes of a rack), then the one that is left with the least room, then the first by
name: the empty stays empty for those who need it whole.

Works on counts per domain: the cost does not grow with the gang.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory import gpu_shares
from central.scheduler.scoring import Load
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, NUMA

ANYWHERE = "cluster"
Key = Callable[[Ints], Ints]
TRIED_DOMAINS = 16  # of a level, for gangs of unlike pods: each costs a tentative placement


class DomainCapacity(Protocol):
    """How many more of something fit: by row, and by level and domain. gpus: of one of them."""

    by_row: Ints
    by_domain: list[Ints]
    gpus: int
    share: int  # hundredths of a GPU
    least: int  # how surely its memory must be enforced: a rank
    pods: int  # that one of them is


class CountedDomains:
    """Rooms of some rows only, or of groups of equal pods."""

    def __init__(self, snapshot: Snapshot, cap: Ints, view: DomainCapacity, pods: int = 1) -> None:
        """pods: of the view's kind, in one of what is counted."""
        self.by_row, self.gpus, self.pods = cap, view.gpus * pods, pods
        self.share, self.least = view.share, view.least
        domains = snapshot.columns.domains
        self.by_domain = [
            sums_of(cap, domains.of[level], domains.count(level))
            for level in range(len(domains.levels))
        ]


def sums_of(cap: Ints, of: Ints, count: int) -> Ints:
    inside = of >= 0
    return np.bincount(of[inside], weights=cap[inside], minlength=count).astype(np.int64)


class DomainChoice:
    """rooms: one for each kind of pod, with how many of it are wanted. most: domains of a level. load:
    the same as kinds and numbers, where the harm that they do to others should be weighed. by: the
    index of the level whose domains should be few, where the next one is not meant."""

    def __init__(
        self,
        snapshot: Snapshot,
        rooms: Sequence[DomainCapacity],
        counts: Sequence[int],
        anchors: Sequence[int] = (),
        *,
        most: int = 0,
        load: Load = (),
        by: int = 0,
        spread: bool = False,
    ) -> None:
        self._snapshot, self._rooms, self._counts = snapshot, rooms, counts
        self._anchors, self._load, self._by = anchors, load, by
        self._spread = spread
        # For equal pods the best is certain: it takes them.
        self._most = most or (1 if len(rooms) == 1 else TRIED_DOMAINS)
        self._gpus = sum(room.gpus * count for room, count in zip(rooms, counts, strict=True))

    def of(self, level: str) -> Iterator[Ints]:
        """The rows of each domain of the level that may take the whole, best first."""
        snapshot = self._snapshot
        if level in island_masks.ON_NODE:
            yield from self._nodes(level)
        elif level == ANYWHERE:
            rooms = zip(self._rooms, self._counts, strict=True)
            if all(room.by_row.sum() >= count for room, count in rooms):
                yield np.flatnonzero(np.any([room.by_row > 0 for room in self._rooms], axis=0))
        else:
            index = snapshot.columns.domains.levels.index(level)
            of = snapshot.columns.domains.of[index]
            for domain in self._domains(index):
                yield np.flatnonzero(of == domain)

    def _nodes(self, level: str) -> Iterator[Ints]:
        snapshot, rooms, gpus = self._snapshot, self._rooms, self._gpus
        asks = [
            (room, count * (room.pods if room.share else 1))
            for room, count in zip(rooms, self._counts, strict=True)
        ]
        sharing = any(room.share for room in rooms)
        if len(set(self._anchors)) > 1 or not (level == NODE or gpus or sharing):
            return
        if gpus > snapshot.biggest():
            return
        fits = rooms[0].by_row >= self._counts[0]
        for room, count in zip(rooms[1:], self._counts[1:], strict=True):
            fits &= room.by_row >= count
        if level == ISLAND:
            fits &= snapshot.columns.gpus.island >= gpus
        rows = np.flatnonzero(fits)
        if level == NUMA:
            rows = rows[island_masks.most(snapshot, NUMA, rows) >= gpus]
        if self._anchors:
            rows = rows[rows == self._anchors[0]]
        if sharing and level in island_masks.PARTS:
            hold = [bool(island_masks.holding(snapshot, level, row, asks)) for row in rows.tolist()]
            rows = rows[hold]
        elif sharing and len(rooms) > 1:
            rows = rows[
                [gpu_shares.fits(snapshot.columns.gpus, row, asks) for row in rows.tolist()]
            ]
        if self._most == 1:
            yield from _least(rows, self._keys(level))
            return
        keys = [key(rows) for key in self._keys(level)] if len(rows) else []
        order = np.lexsort(keys[::-1]) if keys else rows
        for row in rows[order[: self._most]]:
            yield np.array([row], dtype=np.int64)

    def _keys(self, level: str) -> Iterator[Key]:
        """By what nodes are chosen, the least first: each is asked of those that are equal by the ones
        before it."""
        snapshot, room, gpus = self._snapshot, self._rooms[0], self._gpus
        if (lean := snapshot.preference(self._load)) is not None:
            yield lambda rows: -lean[rows]
        if self._spread:
            if gpus:
                yield lambda rows: -snapshot.columns.gpus.count[rows]
            yield lambda rows: -room.by_row[rows]
            yield lambda rows: snapshot.columns.name_rank()[rows]
            return
        if self._load and snapshot.mix.unlike:
            yield lambda rows: snapshot.mix.harm(self._load, rows)
        # The fullest that takes it: by GPUs, and pods without any keep off the GPU nodes.
        part = max(self._rooms, key=lambda room: room.share)
        if part.share:
            yield lambda rows: gpu_shares.waste(snapshot.columns.gpus, rows, part.share, part.least)
        left = snapshot.columns.gpus.island if level == ISLAND else snapshot.columns.gpus.count
        yield (
            lambda rows: left[rows] if gpus or part.share else snapshot.columns.allocatable[rows, 0]
        )
        yield lambda rows: room.by_row[rows]
        yield lambda rows: snapshot.columns.name_rank()[rows]

    def _domains(self, level: int) -> list[int]:
        """Domains of the level with room for the whole, best first."""
        snapshot, rooms, counts = self._snapshot, self._rooms, self._counts
        enough = rooms[0].by_domain[level] >= counts[0]
        for room, count in zip(rooms[1:], counts[1:], strict=True):
            enough &= room.by_domain[level] >= count
        if self._anchors:
            at = {int(domain) for domain in snapshot.columns.domains.of[level, list(self._anchors)]}
            if len(at) > 1 or -1 in at:
                return []
            enough &= np.arange(len(enough)) == at.pop()
        found = np.flatnonzero(enough)
        if len(found) <= 1:
            return [int(domain) for domain in found]
        main = max(range(len(rooms)), key=lambda i: (rooms[i].gpus * counts[i], counts[i]))
        by = max(level + 1, self._by)
        parts = _parts_needed(snapshot, rooms[main], counts[main], level, by=by)[found]
        left = rooms[main].by_domain[level][found]
        names = snapshot.columns.domains.names[level]
        disliked = self._disliked(level)
        if self._most == 1:
            best = found[parts == parts.min()]
            if disliked is not None:
                best = best[disliked[best] == disliked[best].min()]
            left = rooms[0].by_domain[level][best]
            best = best[left == left.min()].tolist()
            return [min(best, key=names.__getitem__)]
        less = disliked[found] if disliked is not None else parts * 0
        shortlist = np.lexsort((left, less, parts))[: self._most * 4].tolist()
        ranked = sorted(shortlist, key=lambda i: (parts[i], less[i], left[i], names[found[i]]))
        return [int(found[i]) for i in ranked[: self._most]]

    def _disliked(self, level: int) -> Ints | None:
        """How little the pods like each domain of the level: its nodes with room, on average."""
        lean = self._snapshot.preference(self._load)
        if lean is None:
            return None
        of, count = (
            self._snapshot.columns.domains.of[level],
            self._snapshot.columns.domains.count(level),
        )
        some = (self._rooms[0].by_row > 0).astype(np.int64)
        return -sums_of(lean * some, of, count) // np.maximum(sums_of(some, of, count), 1)


def _least(rows: Ints, keys: Iterator[Key]) -> Iterator[Ints]:
    """The first of the rows by these keys, without putting the others in order."""
    while len(rows) > 1 and (key := next(keys, None)) is not None:
        at = key(rows)
        rows = rows[at == at.min()]
    if len(rows):
        yield rows


def parts_needed(
    snapshot: Snapshot, room: DomainCapacity, count: int, level: str, *, by: int
) -> int:
    """How many parts the best domain of the level needs; parts as below."""
    if level in snapshot.columns.domains.levels:
        index = snapshot.columns.domains.levels.index(level)
        needed = _parts_needed(snapshot, room, count, index, by=by)
        return int(needed.min(initial=len(room.by_row) + 1))
    inside = room.by_domain[by] if by < len(snapshot.columns.domains.levels) else room.by_row
    if inside.sum() < count:
        return len(room.by_row) + 1
    return int(_fewest(inside, np.zeros(len(inside), dtype=np.int64), 1, count)[0])


def _parts_needed(
    snapshot: Snapshot, room: DomainCapacity, count: int, level: int, *, by: int
) -> Ints:
    """For each domain of the level: how many of its parts (domains of the level of index `by`; past
    the last: nodes) hold count pods, the roomiest first. Those that can't hold them get a large
    number."""
    domains = snapshot.columns.domains
    if by == level + 1 < len(domains.levels):
        inside, parent = room.by_domain[by], domains.parents(by)
    elif by < len(domains.levels):
        inside = room.by_domain[by]
        parent = np.full(len(inside), -1, dtype=np.int64)
        inner = domains.of[by]
        parent[inner[inner >= 0]] = domains.of[level][inner >= 0]
    else:
        inside, parent = room.by_row, domains.of[level]
    enough = room.by_domain[level] >= count
    needed = _fewest(inside, parent, domains.count(level), count)
    return np.where(enough, needed, len(inside) + 1)


SMALL_ROOM = 64  # parts with room for at most so many are counted, not sorted


def _fewest(room: Ints, parent: Ints, parents: int, count: int) -> Ints:
    """For each parent: how many of its parts, the roomiest first, together hold count. Parents
    that can't hold it get a number that means nothing."""
    rows = np.flatnonzero((room > 0) & (parent >= 0))
    most = int(min(room[rows].max(initial=0), count))
    if most <= SMALL_ROOM:
        # Parts of equal room are alike: how many there are of each, and whole steps over rooms.
        key = parent[rows] * (most + 1) + np.minimum(room[rows], most)
        alike = np.bincount(key, minlength=parents * (most + 1)).reshape(parents, most + 1)
        left = np.full(parents, count, dtype=np.int64)
        needed = np.zeros(parents, dtype=np.int64)
        for size in range(most, 0, -1):
            taken = np.minimum(alike[:, size], -(-left // size))
            needed += taken
            left = np.maximum(left - taken * size, 0)
        return needed
    order = rows[np.lexsort((-room[rows], parent[rows]))]
    filled = np.cumsum(room[order])
    first = np.searchsorted(parent[order], np.arange(parents))
    before = np.concatenate(([0], filled))[first]
    return np.searchsorted(filled, before + count) - first + 1
