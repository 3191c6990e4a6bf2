"""What is free, as dense columns by node row: kept up to date by small changes instead of being
built for each turn. Every change notes its row, so that a ClassView (the room for one kind of pod)
recomputes just the rows that moved.

Amounts are whole numbers (cpu in thousandths, memory in bytes, the rest in pieces). GPUs are counted
by the API server's allocatable and, where an agent has reported, also one by one as a mask; what may
be given is the smaller of the two.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters.filter_cache import Constraint, FilterResultCache, constraint
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory import gpu_counts, gpu_shares
from central.scheduler.inventory.dirty_rows import DirtyRows
from central.scheduler.inventory.domains import Domains
from central.scheduler.inventory.gpu_shares import NOTHING, GpuShares, Offered
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.scoring import WorkloadMix
from central.scheduler.snapshot.capacity import PodClassCapacity
from protos.names import GPU
from protos.topology import Shape

VIEWS_KEPT = 2_000


class Snapshot:
    def __init__(self, levels: Sequence[str] = ()) -> None:
        self.domains = Domains(levels)
        self._labels: Callable[[NodeSeen], Mapping[str, str]] = _own_labels
        self.names: list[str] = []  # by row; empty: the row is free
        self.row: dict[str, int] = {}
        self.nodes: list[NodeSeen | None] = []
        self.column: dict[str, int] = {GPU: 0, "pods": 1, "cpu": 2, "memory": 3}
        self.allocatable: Ints = np.zeros((0, len(self.column)), dtype=np.int64)
        self.free: Ints = np.zeros((0, len(self.column)), dtype=np.int64)
        self.gpus: Ints = np.zeros(0, dtype=np.int64)  # that may be given
        self.island: Ints = np.zeros(0, dtype=np.int64)  # of them, the most in one island
        self.shape: list[Shape | None] = []  # None: no agent has reported
        self.free_mask: list[int] = []  # healthy and nobody's
        self.offered: list[Offered] = []  # that may be used in shares
        self.left: list[GpuShares] = []  # of those that are: hundredths still to be had
        self.cards: dict[int, NicCapacity] = {}  # by row, where limits of network cards are summed
        self.version: Ints = np.zeros(0, dtype=np.int64)  # of what the API server says of the node
        self.neighbours = MatchingPodCounts()
        self.mix = WorkloadMix(self)
        self.freed = 0  # grows when capacity is freed or a node changes (PendingGangs.epoch)
        self.relabelled = 0
        self.touched = DirtyRows()
        self._unused: list[int] = []
        self._name_rank: Ints | None = None
        self._biggest: int | None = None
        self._views: dict[PodSpec, PodClassCapacity] = {}
        self._judgements: dict[Constraint, FilterResultCache] = {}

    # --- nodes ---------------------------------------------------------------

    def put_node(self, node: NodeSeen) -> int:
        """Adds or replaces what the API server says of a node; what is taken there stays taken."""
        row = self.row.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        for resource in node.allocatable:
            self._column(resource)
        fresh = np.zeros(len(self.column), dtype=np.int64)
        for resource, amount in node.allocatable.items():
            fresh[self.column[resource]] = amount
        self.free[row] += fresh - self.allocatable[row]
        self.allocatable[row] = fresh
        self._biggest = None
        self.nodes[row] = node
        self.version[row] += 1
        if self.domains.put(row, self._labels(node)):
            self.relabelled += 1
        self.neighbours.put_node(row, node, len(self.names))
        self.freed += 1
        gpu_counts.count(self, row)
        return row

    def relevel(
        self, levels: Sequence[str], labels: Callable[[NodeSeen], Mapping[str, str]]
    ) -> None:
        """Another network tree: its levels, widest first, and each node's domain at them."""
        self.domains = Domains(levels)
        self.domains.grow(len(self.names))
        self._labels = labels
        for node in self.nodes:
            if node is not None:
                self.domains.put(self.row[node.name], labels(node))
        self.relabelled += 1
        self.freed += 1

    def drop_node(self, name: str) -> None:
        row = self.row.pop(name)
        self.names[row] = ""
        self.nodes[row] = None
        self.version[row] += 1
        self.allocatable[row] = 0
        self._biggest = None
        self.free[row] = 0
        self.shape[row] = None
        self.free_mask[row], self.offered[row], self.left[row] = 0, NOTHING, {}
        self.cards.pop(row, None)
        self.domains.drop(row)
        self.neighbours.put_node(row, None, len(self.names))
        self._unused.append(row)
        self._name_rank = None
        self.relabelled += 1
        gpu_counts.count(self, row)

    def put_gpus(
        self,
        row: int,
        shape: Shape | None,
        free_mask: int,
        offered: Offered = NOTHING,
        left: GpuShares | None = None,
    ) -> None:
        """What an agent says: the GPUs' shape, which of them are healthy and not given, which may be
        used in shares, and what is left of those that are."""
        known, left = self.left[row], left if left is not None else {}
        if (
            free_mask & ~self.free_mask[row]
            or shape != self.shape[row]
            or offered != self.offered[row]
            or any(part > known.get(gpu, 0) for gpu, part in left.items())
        ):
            self.freed += 1
        self.shape[row] = shape
        self.free_mask[row], self.offered[row], self.left[row] = free_mask, offered, left
        gpu_counts.count(self, row)

    def put_cards(self, row: int, room: NicCapacity | None) -> None:
        """What pods may take of the network cards there."""
        known = self.cards.pop(row, None)
        if room is not None:
            self.cards[row] = room
        if known != room:
            self.freed += 1
            self.touched.note([row])

    # --- room ----------------------------------------------------------------

    def take(self, row: int, spec: PodSpec, count: int = 1, gpus: int = 0) -> None:
        view = self.view(spec)
        self.free[row, view.columns] -= view.amounts * count
        if view.share and gpus:
            gpu_shares.change(self, row, gpus, -view.share * count)
        else:
            self.free_mask[row] &= ~gpus
        if view.company is not None:
            self.neighbours.count(row, spec, count)
        if view.cards and row in self.cards:
            self.cards[row].asks(spec, count)
        gpu_counts.count(self, row)

    def give(self, row: int, spec: PodSpec, count: int = 1, gpus: int = 0) -> None:
        view = self.view(spec)
        self.free[row, view.columns] += view.amounts * count
        if view.share and gpus:
            gpu_shares.change(self, row, gpus, view.share * count)
        else:
            self.free_mask[row] |= gpus
        if view.company is not None:
            self.neighbours.count(row, spec, -count)
        if view.cards and row in self.cards:
            self.cards[row].asks(spec, -count)
        self.freed += 1
        gpu_counts.count(self, row)

    def take_many(self, rows: Ints, spec: PodSpec, counts: Ints, gpus: Sequence[int]) -> None:
        """take() of many different rows at once."""
        view = self.view(spec)
        self.free[np.ix_(rows, view.columns)] -= counts[:, None] * view.amounts
        for row, mask in zip(rows.tolist(), gpus, strict=True):
            if mask:
                self.free_mask[row] &= ~mask
        if view.company is not None:
            self.neighbours.count(rows, spec, counts)
        if view.cards and self.cards:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                if row in self.cards:
                    self.cards[row].asks(spec, count)
        gpu_counts.count_many(self, rows)

    def shift(self, rows: Ints, amounts: Ints, masks: Sequence[int], *, free: bool) -> None:
        """Frees or takes amounts (by row and column) and GPUs of different rows, tentatively:
        nothing was gained by it."""
        width = amounts.shape[1]
        self.free[rows, :width] += amounts if free else -amounts
        for row, mask in zip(rows.tolist(), masks, strict=True):
            if mask:
                self.free_mask[row] = (
                    self.free_mask[row] | mask if free else self.free_mask[row] & ~mask
                )
        gpu_counts.count_many(self, rows)

    def view(self, spec: PodSpec) -> PodClassCapacity:
        view = self._views.get(spec)
        if view is None:
            if len(self._views) >= VIEWS_KEPT:
                self._views.clear()
                self._judgements.clear()
            view = self._views[spec] = PodClassCapacity(self, spec)
        return view

    def judgement(self, spec: PodSpec) -> FilterResultCache:
        key = constraint(spec)
        if key not in self._judgements:
            self._judgements[key] = FilterResultCache(spec)
        return self._judgements[key]

    def views(self) -> list[PodClassCapacity]:
        return list(self._views.values())

    def name_rank(self) -> Ints:
        """Each row's place in the order of names: ties are broken by it."""
        if self._name_rank is None:
            order = sorted(range(len(self.names)), key=self.names.__getitem__)
            self._name_rank = np.empty(len(order), dtype=np.int64)
            self._name_rank[order] = np.arange(len(order))
        return self._name_rank

    def biggest(self) -> int:
        """The most GPUs that a node has."""
        if self._biggest is None:
            self._biggest = int(self.allocatable[:, 0].max(initial=0))
        return self._biggest

    def vector(self, requests: Iterable[tuple[str, int]]) -> tuple[Ints, Ints]:
        asked = [(self._column(name), amount) for name, amount in requests if amount > 0]
        return (
            np.array([column for column, _ in asked], dtype=np.int64),
            np.array([amount for _, amount in asked], dtype=np.int64),
        )

    # --- inside ----------------------------------------------------------------

    def _new_row(self, name: str) -> int:
        if not self._unused:
            self._grow(max(64, 2 * len(self.names)))
        row = self._unused.pop()
        self.names[row] = name
        self.row[name] = row
        self._name_rank = None
        return row

    def _grow(self, rows: int) -> None:
        have = len(self.names)
        more = rows - have
        self.names += [""] * more
        self.nodes += [None] * more
        self.shape += [None] * more
        self.free_mask += [0] * more
        self.offered += [NOTHING] * more
        self.left += [{} for _ in range(more)]
        blank = np.zeros((more, len(self.column)), dtype=np.int64)
        self.allocatable = np.vstack([self.allocatable, blank])
        self.free = np.vstack([self.free, blank])
        self.gpus = np.append(self.gpus, np.zeros(more, dtype=np.int64))
        self.island = np.append(self.island, np.zeros(more, dtype=np.int64))
        self.version = np.append(self.version, np.zeros(more, dtype=np.int64))
        self.domains.grow(rows)
        self._unused += range(rows - 1, have - 1, -1)
        self.touched.forget()

    def _column(self, resource: str) -> int:
        if resource not in self.column:
            self.column[resource] = len(self.column)
            blank = np.zeros((len(self.names), 1), dtype=np.int64)
            self.allocatable = np.hstack([self.allocatable, blank])
            self.free = np.hstack([self.free, blank])
        return self.column[resource]


def _own_labels(node: NodeSeen) -> Mapping[str, str]:
    return node.levels()
