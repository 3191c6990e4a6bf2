"""Free capacity as dense columns, one row for each node. Independent of pod classes, filters and placement.

Amounts are whole numbers (cpu in thousandths, memory in bytes, other resources in units). GPUs are counted by
the API server's allocatable and, if an agent has reported, also as a mask of free GPUs; the smaller count
holds. Every change marks its row as dirty, so that derived counts are updated for those rows only.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen, PodSpec
from central.model.limits import COLUMNS
from central.scheduler.inventory.dirty_rows import DirtyRows
from central.scheduler.inventory.domains import Domains
from central.scheduler.inventory.gpu_shares import NOTHING, GpuColumns, GpuShares, Offered, free_in
from central.scheduler.inventory.nic_limits import NicCapacity
from protos.gpu_sharing import RANKS
from protos.names import GPU, GPU_SHARE
from protos.topology import Shape

REQUESTS_KEPT = 10_000
ABSENT = 4  # the column of all resources that no node offers: pods may name as many as they like


class ClassRequest(NamedTuple):
    """The amounts that one pod takes from the columns."""

    columns: Ints
    amounts: Ints  # by column, in the same order
    gpus: int
    share: int  # hundredths of one GPU
    least: int  # the enforcement rank that its share needs


class Columns:
    def __init__(self, levels: Sequence[str] = ()) -> None:
        self.domains = Domains(levels)
        self.names: list[str] = []  # by row; empty if the row is unused
        self.row: dict[str, int] = {}
        self.nodes: list[NodeSeen | None] = []
        self.version: Ints = np.zeros(0, dtype=np.int64)  # counts changes of the node
        self.column: dict[str, int] = {GPU: 0, "pods": 1, "cpu": 2, "memory": 3}
        self.width = len(self.column) + 1  # with ABSENT
        self.allocatable: Ints = np.zeros((0, self.width), dtype=np.int64)
        self.free: Ints = np.zeros((0, self.width), dtype=np.int64)
        self.gpus = GpuColumns()
        self.nics: dict[int, NicCapacity] = {}  # by row, if the NICs have limits
        self.dirty = DirtyRows()
        self.node_changes = 0  # counts nodes that were added, replaced or dropped
        self.relabelled = 0  # counts rows that moved in the network tree
        self.reallocated = 0  # counts changes of allocatable
        self._unused: list[int] = []
        self._requests = lru_cache(REQUESTS_KEPT)(self._request)
        self._name_rank: Ints | None = None

    # --- nodes ---------------------------------------------------------------

    def unknown(self, resources: Mapping[str, int]) -> frozenset[str]:
        """Returns those of the resources for which put_node() will add columns. Their use is counted as ABSENT so
        far: it must be given back before and taken again."""
        if resources.keys() <= self.column.keys():  # of all nodes but the first of a kind
            return frozenset()
        new = [resource for resource in resources if resource not in self.column]
        return frozenset(new[: COLUMNS - len(self.column)])

    def put_node(self, node: NodeSeen, labels: Mapping[str, str]) -> int:
        """Adds or replaces a node; what is taken on it stays taken. labels: its domain at each level."""
        row = self.row.get(node.name)
        if row is None:
            row = self._new_row(node.name)
        before, self.nodes[row] = self.nodes[row], node
        self._node_changed(row)
        if before is None or before.allocatable != node.allocatable:
            self._put_allocatable(row, node.allocatable)
            self.recount(row)
        else:  # its agent has reported, or its labels changed
            self.dirty.add([row])
        if self.domains.put(row, labels):
            self.relabelled += 1
        return row

    def _put_allocatable(self, row: int, amounts: Mapping[str, int]) -> None:
        if unknown := self.unknown(amounts):
            self._add_columns(unknown)
        fresh = [0] * self.width
        for resource, amount in amounts.items():
            if (column := self.column.get(resource)) is not None:
                fresh[column] = amount
        had = self.allocatable[row].tolist()
        for column, (amount, before) in enumerate(zip(fresh, had, strict=True)):
            if amount != before:
                self.free[row, column] += amount - before
                self.allocatable[row, column] = amount
        self.reallocated += 1

    def drop_node(self, name: str) -> int:
        row = self.row.pop(name)
        self.names[row] = ""
        self.nodes[row] = None
        self._node_changed(row)
        self.allocatable[row] = 0
        self.reallocated += 1
        self.free[row] = 0
        self.gpus.put(row, None, 0, NOTHING, {})
        self.gpus.install(row, 0)
        self.nics.pop(row, None)
        self.domains.drop(row)
        self._unused.append(row)
        self._name_rank = None
        self.relabelled += 1
        self.recount(row)
        return row

    def touch_node(self, row: int) -> None:
        """Makes all that depends on the row's node be computed again."""
        self._node_changed(row)
        self.dirty.add([row])

    def _node_changed(self, row: int) -> None:
        self.version[row] += 1
        self.node_changes += 1

    def put_gpus(
        self, row: int, shape: Shape | None, free_mask: int, offered: Offered, left: GpuShares
    ) -> bool:
        """Sets what an agent reports (GpuColumns.put). Returns whether more may be free now."""
        more = self.gpus.put(row, shape, free_mask, offered, left)
        self.recount(row)
        return more

    def put_nics(self, row: int, capacity: NicCapacity | None) -> bool:
        """Sets the capacity of the row's NICs. Returns whether it changed."""
        known = self.nics.pop(row, None)
        if capacity is not None:
            self.nics[row] = capacity
        if known == capacity:
            return False
        self.dirty.add([row])
        return True

    # --- capacity ------------------------------------------------------------

    def recount(self, row: int) -> None:
        """Counts the row's free GPUs again. Written out here, because every change of a row calls it."""
        have, gpus = max(self.free.item(row, 0), 0), self.gpus
        if (shape := gpus.shape[row]) is None:
            gpus.count[row], gpus.island[row] = have, 0
        else:
            healthy, together = free_in(shape, gpus.free_mask[row])
            gpus.count[row] = min(have, healthy)
            gpus.island[row] = min(have, together)
        self.dirty.add([row])
        if row in gpus.watched:
            gpus.watched[row](row)

    def recount_many(self, rows: Ints) -> None:
        self.gpus.recount_many(rows, np.maximum(self.free[rows, 0], 0))
        self.dirty.add(rows.tolist())
        for row in rows.tolist() if self.gpus.watched else ():
            if row in self.gpus.watched:
                self.gpus.watched[row](row)

    def shift(self, rows: Ints, amounts: Ints, masks: Sequence[int], *, free: bool) -> None:
        """Frees or takes amounts (by row and column) and GPU masks on different rows, tentatively."""
        width = amounts.shape[1]
        self.free[rows, :width] += amounts if free else -amounts
        free_mask = self.gpus.free_mask
        for row, mask in zip(rows.tolist(), masks, strict=True):
            if mask:
                free_mask[row] = free_mask[row] | mask if free else free_mask[row] & ~mask
        self.recount_many(rows)

    def request(self, spec: PodSpec) -> ClassRequest:
        """Returns the amounts that a pod of the class takes."""
        return self._requests(spec)

    def _request(self, spec: PodSpec) -> ClassRequest:
        by_column: dict[int, int] = {}
        for name, amount in spec.requests:
            if amount > 0:
                column = self.column.get(name, ABSENT)
                by_column[column] = max(amount, by_column.get(column, 0))
        share = spec.request(GPU_SHARE)
        return ClassRequest(
            np.array(list(by_column), dtype=np.int64),
            np.array(list(by_column.values()), dtype=np.int64),
            spec.request(GPU),
            share,
            RANKS[spec.memory_level] if share else 0,
        )

    def name_rank(self) -> Ints:
        """Each row's index in the order of names, which breaks ties."""
        if self._name_rank is None:
            order = sorted(range(len(self.names)), key=self.names.__getitem__)
            self._name_rank = np.empty(len(order), dtype=np.int64)
            self._name_rank[order] = np.arange(len(order))
        return self._name_rank

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
        blank = np.zeros((more, self.width), dtype=np.int64)
        self.allocatable = np.vstack([self.allocatable, blank])
        self.free = np.vstack([self.free, blank])
        self.version = np.append(self.version, np.zeros(more, dtype=np.int64))
        self.gpus.grow(more)
        self.domains.grow(rows)
        self._unused += range(rows - 1, have - 1, -1)
        self.dirty.reset()

    def _add_columns(self, resources: frozenset[str]) -> None:
        if not resources:
            return
        for resource in sorted(resources):
            self.column[resource] = self.width
            self.width += 1
        blank = np.zeros((len(self.names), len(resources)), dtype=np.int64)
        self.allocatable = np.hstack([self.allocatable, blank])
        self.free = np.hstack([self.free, blank])
        self._requests.cache_clear()
