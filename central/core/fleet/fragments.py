"""Expected fragmentation: the idle GPUs that a pod like those that come could not use where they are.

Pods are counted by kind as they come, and count for less as others follow. A node's idle GPUs count by
the share of kinds that find no place on it: no room, or none that is close (all of a pod's GPUs in
one island, where the node has islands as large). A load does harm as far as it makes that more, and a
little by what it leaves idle: that fills nodes up, and makes the choice independent of how equal
ones happen to stand. Of nodes that are equally close the one with the least harm is taken. After
"Beware of Fragmentation" (ATC'23).
"""

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from central.core.facts import PodSpec
from central.core.fleet.domains import Ints
from protos.closest import closest
from protos.names import GPU
from protos.topology import Shape

if TYPE_CHECKING:
    from central.core.fleet.snapshot import Snapshot

KINDS = 48  # the most frequent count
IDLE = 0.25  # GPUs that a node counts which is idle: its GPUs, and its processors
PARTS = 4096  # of a GPU, in which harm is counted
FEW = 64  # rows: what is known of nodes like them is looked up
MEMORY = 8192  # pods: then all count half
FRESH = 1.25  # shares are worked out anew when so many times as many have come
LOADS_KEPT = 500
STATES_KEPT = 10_000
Load = tuple[tuple[PodSpec, int], ...]  # kinds of pods with their numbers, all for one node
State = tuple[bytes, int, Shape | None, int, int]


class Mix:
    """What comes, and what it means for each node."""

    def __init__(self, snapshot: "Snapshot") -> None:
        self._snapshot = snapshot
        self._seen: Counter[PodSpec] = Counter()
        self._came = self._counted = 0
        self._kinds: list[PodSpec] = []
        none: Ints = np.zeros(0, dtype=np.int64)
        self._gpus = self._shares = none  # by kind
        self._asks = none  # by kind, and by column
        self._columns = none
        self._cpu = 0  # its place among the columns
        self._most = (1, 1)  # GPUs and cpu that a node has
        self._judged_at = -1  # the count of changes of nodes
        self._version = none  # of the nodes, when these were judged
        self._may = none  # by row: a bit for each kind
        self._harms: dict[Load, _Harm] = {}

    def came(self, spec: PodSpec) -> None:
        """A pod that was not known before."""
        if spec.request(GPU):
            self._seen[_kind(spec)] += 1
            self._came += 1
            if self._came >= MEMORY:
                self._seen = Counter({kind: n // 2 for kind, n in self._seen.items() if n > 1})
                self._came = self._seen.total()
                self._counted = 0

    def harm(self, load: Load) -> Ints | None:
        """By row, what the load would do there. None: there is nothing to choose between, all pods
        that come being of one kind."""
        if len(self._seen) < 2:
            return None
        grown = len(self._version) != len(self._snapshot.names)
        if self._came > self._counted * FRESH or grown:
            self._count()
        if len(self._version) != len(self._snapshot.names):
            self._judged_at = -1
            self._version = np.full(len(self._snapshot.names), -1, dtype=np.int64)
            self._may = np.zeros(len(self._version), dtype=np.int64)
        if self._judged_at != self._snapshot.neighbours.nodes_moved:
            self._judged_at = self._snapshot.neighbours.nodes_moved
            self._judge(np.flatnonzero(self._version != self._snapshot.version))
        if (harm := self._harms.get(load)) is None:
            if len(self._harms) >= LOADS_KEPT:
                self._harms.clear()
            harm = self._harms[load] = _Harm(self._snapshot, load)
        return harm.refresh(self)

    def kept(self) -> Iterator[tuple[Ints, Ints]]:
        """For promises: what is kept of each load, and what is worked out anew."""
        snapshot = self._snapshot
        if self._judged_at == snapshot.neighbours.nodes_moved and len(self._version):
            every = np.arange(len(self._version), dtype=np.int64)
            for load, harm in self._harms.items():
                yield harm.refresh(self), self.weigh(load, every)

    def _count(self) -> None:
        """The shares anew."""
        self._counted = self._came
        frequent = sorted(self._seen.most_common(KINDS), key=lambda one: one[0].requests)
        self._kinds = [kind for kind, _ in frequent]
        views = [self._snapshot.view(kind) for kind in self._kinds]
        cpu = self._snapshot.column["cpu"]
        self._columns = np.unique(np.concatenate([[0, cpu], *(view.columns for view in views)]))
        self._cpu = int(np.searchsorted(self._columns, cpu))
        self._gpus = np.array([view.gpus for view in views], dtype=np.int64)
        self._shares = np.array([share for _, share in frequent], dtype=np.int64)
        self._asks = np.zeros((len(views), len(self._columns)), dtype=np.int64)
        for asks, view in zip(self._asks, views, strict=True):
            asks[np.searchsorted(self._columns, view.columns)] = view.amounts
        most = self._snapshot.allocatable[:, [0, cpu]].max(axis=0, initial=1)
        self._most = (int(most[0]), int(most[1]))
        self._version, self._judged_at = self._version[:0], -1
        self._harms.clear()

    def _judge(self, rows: Ints) -> None:
        """Which kinds may run on these rows at all."""
        snapshot = self._snapshot
        self._may[rows] = 0
        for place, kind in enumerate(self._kinds):
            judgement = snapshot.judgement(kind)
            judgement.refresh(rows, snapshot.nodes, snapshot.version)
            self._may[rows] |= judgement.fit[rows].astype(np.int64) << place
        self._version[rows] = snapshot.version[rows]

    def state(self, row: int) -> State:
        """All that the harm on a row depends on."""
        there = self._snapshot
        return (
            there.free[row].tobytes(),
            there.gpus.item(row),
            there.shape[row],
            there.free_mask[row],
            self._may.item(row),
        )

    def weigh(self, load: Load, rows: Ints) -> Ints:
        """The harm on each row, in parts of a GPU. Where it does not fit it means nothing."""
        snapshot = self._snapshot
        gpus = snapshot.gpus[rows]
        free = snapshot.free[np.ix_(rows, self._columns)]
        asked = sum(spec.request(GPU) * count for spec, count in load)
        now, after, largest = self._islands(rows, asked)
        before = gpus * self._shut_out(rows, free, (gpus, now, largest))
        free = free - self._amounts(load)
        gpus = gpus - asked
        lost = gpus * self._shut_out(rows, free, (gpus, after, largest))
        idle = gpus / self._most[0] + free[:, self._cpu] / self._most[1]
        harm = (lost - before) / self._shares.sum() + IDLE * idle
        parts: Ints = np.round(harm * PARTS).astype(np.int64)
        return parts

    def _shut_out(self, rows: Ints, free: Ints, gpus: tuple[Ints, Ints, Ints]) -> Ints:
        """How many of the pods that came find no place on the rows, or no close one. gpus: that are
        free, the most of them in one island, and the size of the largest."""
        places = np.arange(len(self._kinds))
        fits = (self._may[rows, None] >> places & 1).astype(np.bool_)
        for column, asked in enumerate(self._asks.T):
            fits &= free[:, column, None] >= asked
        there, island, largest = (column[:, None] for column in gpus)
        fits &= there >= self._gpus
        fits &= (self._gpus > largest) | (self._gpus <= island)
        shut_out: Ints = ~fits @ self._shares
        return shut_out

    def _islands(self, rows: Ints, asked: int) -> tuple[Ints, Ints, Ints]:
        """The most free GPUs of one island on each row, now and when so many are taken, and the size
        of its largest island; 0 where nothing is known of islands."""
        found = np.zeros((3, len(rows)), dtype=np.int64)
        for index, row in enumerate(rows.tolist()):
            if (shape := self._snapshot.shape[row]) is not None:
                mask = self._snapshot.free_mask[row]
                left = mask & ~closest(shape, mask, asked) if asked else mask
                found[:, index] = _together(shape, mask, left)
        return found[0], found[1], found[2]

    def _amounts(self, load: Load) -> Ints:
        """What the load takes of each of the columns."""
        taken = np.zeros(len(self._snapshot.column), dtype=np.int64)
        for spec, count in load:
            view = self._snapshot.view(spec)
            taken[view.columns] += view.amounts * count
        return taken[self._columns]


@lru_cache(maxsize=1 << 14)
def _together(shape: Shape, mask: int, left: int) -> tuple[int, int, int]:
    most = [0, 0, 0]
    for island in shape.islands:
        here = ((island & mask).bit_count(), (island & left).bit_count(), island.bit_count())
        most = list(map(max, most, here))
    return most[0], most[1], most[2]


class _Harm:
    """What one load does, by row: kept, and worked out anew where something changed."""

    def __init__(self, snapshot: "Snapshot", load: Load) -> None:
        self._snapshot, self._load = snapshot, load
        self._mark = -1
        self._known: dict[State, int] = {}
        self._by_row: Ints = np.zeros(0, dtype=np.int64)

    def refresh(self, mix: Mix) -> Ints:
        self._mark, touched = self._snapshot.touched.since(self._mark)
        if touched is None or len(self._by_row) != len(self._snapshot.names):
            self._by_row = mix.weigh(self._load, np.arange(len(self._snapshot.names)))
        elif len(rows := set(touched)) > FEW:
            many = np.array(sorted(rows), dtype=np.int64)
            self._by_row[many] = mix.weigh(self._load, many)
        else:
            for row in rows:
                self._by_row[row] = self._of(mix, row)
        return self._by_row

    def _of(self, mix: Mix, row: int) -> int:
        state = mix.state(row)
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= STATES_KEPT:
                self._known.clear()
            known = self._known[state] = int(mix.weigh(self._load, np.array([row]))[0])
        return known


@lru_cache(maxsize=1 << 12)
def _kind(spec: PodSpec) -> PodSpec:
    """What of a pod counts for its kind: what it asks for, and which nodes it may use."""
    return PodSpec(spec.requests, spec.node_selector, spec.node_terms, spec.tolerations)
