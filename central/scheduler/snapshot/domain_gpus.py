"""Free GPUs by domain of the network tree: which of equally close domains, or nodes, should be used first so that
whole domains stay whole. Recounts only rows that changed.

Design: docs/design/placement.md
"""

import numpy as np

from central.model.arrays import Ints
from central.scheduler.inventory.columns import Columns

FEW = 16  # up to this many changed rows are recounted one by one; that is then faster than arrays
ALL = 4  # if more than a fourth of the rows changed, all are counted again
DIGITS = 62  # bits of an order


class DomainGpus:
    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._mark = -1
        self._relabelled = -1
        none: Ints = np.zeros(0, dtype=np.int64)
        self._starts: list[int] = []  # by level: the slot of its first domain
        # By level and row: the slot of the row's domain. The last slot stands for no domain, with 0 GPUs.
        self._slots: Ints = np.zeros((0, 0), dtype=np.int64)
        self._around: list[Ints] = []  # by level: see _slots_around()
        self._leaf = none  # by row: rows in the same domains of all levels have the same leaf
        self._leaf_slots: Ints = self._slots  # by level and leaf
        self._free_by_row, self._total_by_row = none, none
        self._free, self._total = none, none  # by slot
        self._weights: list[int] = []  # by level, and of a whole domain
        self._leaves: list[Ints] = []  # by slot: the leaves in the domain
        self._least_total = 0  # of the domains with GPUs, the fewest GPUs of one
        # By leaf: the order for pods with fewer GPUs than that, without the changes, which are by slot; None: not
        # computed, because gangs of whole domains never read it.
        self._small: Ints | None = None
        self._changes: dict[int, int] = {}

    @property
    def single(self) -> bool:
        """Returns whether all nodes are in the same domains. Call refresh() before."""
        return len(self._leaf_slots.T) < 2

    def refresh(self) -> "DomainGpus":
        columns = self._columns
        mark, dirty = columns.dirty.since(self._mark)
        self._mark = -1  # if counting fails, all is counted again
        if self._relabelled != columns.relabelled:
            self._relabel()
            self._relabelled, dirty = columns.relabelled, None
        if dirty is None or len(dirty) > max(FEW, len(self._leaf) // ALL):
            self._free_by_row = np.maximum(columns.gpus.count, 0)
            self._free = self._sum(self._free_by_row)
            total = columns.allocatable[:, 0]
            if dirty is None or not np.array_equal(total, self._total_by_row):
                self._total_by_row = total.copy()
                self._total = self._sum(total)
                self._weigh()
            self._small = None
        elif len(dirty) > FEW:
            self._recount_many(np.array([*set(dirty)], dtype=np.int64))
        else:
            for row in set(dirty):
                self._recount(row)
        self._mark = mark
        return self

    def order_of_rows(self, rows: Ints, gpus: int) -> Ints:
        """Returns by row its place in an order, the least first: by how many whole domains around it pods with that
        many GPUs would break, then by the free GPUs of its domains, the narrowest first."""
        if gpus < self._least_total:
            if self._small is None:
                self._small = self._order(self._leaf_slots, 0)
                self._changes.clear()
            for slot, change in self._changes.items():
                self._small[self._leaves[slot]] += change
            self._changes.clear()
            return self._small.take(self._leaf.take(rows))
        return self.order_from_sums(rows, gpus)

    def order_from_sums(self, rows: Ints, gpus: int) -> Ints:
        """Returns the same as order_of_rows(), from the sums by domain, for any number of GPUs."""
        leaves = self._leaf[rows]
        if len(rows) < self._leaf_slots.shape[1]:
            return self._order(self._leaf_slots[:, leaves], gpus)
        return self._order(self._leaf_slots, gpus)[leaves]

    def order_of_domains(self, level: int, domains: Ints, gpus: int) -> Ints:
        """Returns by domain of the level its place in the order, as order_of_rows()."""
        return self._order(self._around[level][:, domains], gpus)

    def broken_around(self, level: int, domains: Ints, gpus: int) -> Ints:
        """Returns by domain of the level how many whole domains, itself or around it, pods with that many GPUs would
        break."""
        return self._broken(self._around[level][:, domains], gpus)

    def _order(self, slots: Ints, gpus: int) -> Ints:
        order = self._broken(slots, gpus) * self._weights[-1]
        for weight, of_level in zip(self._weights, slots, strict=False):
            if weight:
                order += weight * self._free[of_level]
        return order

    def _broken(self, slots: Ints, gpus: int) -> Ints:
        free = self._free[slots]
        broken: Ints = np.add.reduce((free == self._total[slots]) & (free > gpus), axis=0)
        return broken

    def _relabel(self) -> None:
        domains = self._columns.domains
        counts = [domains.count(level) for level in range(len(domains.levels))]
        self._starts = [sum(counts[:level]) for level in range(len(counts))]
        starts = np.array(self._starts, dtype=np.int64)[:, None]
        self._around = [self._slots_around(level) for level in range(len(counts))]
        self._slots = np.where(domains.of >= 0, domains.of + starts, sum(counts))
        path = np.zeros(domains.of.shape[1], dtype=np.int64)
        for of in domains.of:  # dense again at each level, so that the product stays small
            _, path = np.unique(path * (len(of) + 2) + of + 1, return_inverse=True)
        _, first, self._leaf = np.unique(path, return_index=True, return_inverse=True)
        self._leaf_slots = self._slots[:, first]
        self._leaves = [np.zeros(0, dtype=np.int64)] * (sum(counts) + 1)
        for of_level in self._leaf_slots:
            by_slot = np.argsort(of_level, kind="stable")
            ends = np.flatnonzero(np.diff(of_level[by_slot])) + 1
            for leaves in np.split(by_slot, ends):
                self._leaves[of_level[leaves[0]]] = leaves

    def _slots_around(self, level: int) -> Ints:
        """Lists the slots of the domains around each domain of the level, and its own: levels x domains."""
        domains, none = self._columns.domains, self._starts[-1] + self._columns.domains.count(-1)
        at = np.arange(domains.count(level))
        slots = np.empty((level + 1, len(at)), dtype=np.int64)
        for index in range(level, -1, -1):
            slots[index] = np.where(at >= 0, self._starts[index] + at, none)
            if index:
                at = np.append(domains.parents(index), -1)[at]
        return slots

    def _sum(self, amounts: Ints) -> Ints:
        slots = sum(self._columns.domains.count(level) for level in range(len(self._starts))) + 1
        sums = np.zeros(slots, dtype=np.int64)
        for of_level in self._slots:
            sums += np.bincount(of_level, weights=amounts, minlength=slots).astype(np.int64)
        sums[-1] = 0
        return sums

    def _weigh(self) -> None:
        """The free GPUs of each level become the digits of one integer. The widest levels are left out if
        they do not fit."""
        weight, self._weights = 1, []
        self._least_total = int(self._total[self._total > 0].min(initial=1 << 31))
        ends = [*self._starts[1:], len(self._total) - 1][: len(self._starts)]
        tops = [
            int(self._total[start:end].max(initial=0)) + 1
            for start, end in zip(self._starts, ends, strict=True)
        ]
        for level, top in enumerate(tops):
            narrower = 1
            for other in tops[level:]:
                narrower *= other
            fits = narrower * (len(tops) + 1) < 1 << DIGITS
            self._weights.append(weight if fits else 0)
            if fits:
                weight *= top
        self._weights.append(weight)

    def _recount_many(self, rows: Ints) -> None:
        """rows: each once."""
        columns = self._columns
        free = np.maximum(columns.gpus.count[rows], 0)
        total = columns.allocatable[rows, 0]
        more_free, more_total = free - self._free_by_row[rows], total - self._total_by_row[rows]
        self._free_by_row[rows], self._total_by_row[rows] = free, total
        for of_level in self._slots[:, rows]:
            np.add.at(self._free, of_level, more_free)
            np.add.at(self._total, of_level, more_total)
        self._free[-1] = self._total[-1] = 0
        if more_total.any():
            self._weigh()
        self._small = None

    def _recount(self, row: int) -> None:
        columns, slots = self._columns, self._slots
        total = columns.allocatable.item(row, 0)
        if total != self._total_by_row.item(row):
            self._recount_many(np.array([row]))
        elif change := max(columns.gpus.count.item(row), 0) - self._free_by_row.item(row):
            self._free_by_row[row] += change
            for level in range(len(self._starts)):
                if (slot := slots.item(level, row)) < len(self._free) - 1:
                    self._change(slot, level, change)

    def _change(self, slot: int, level: int, change: int) -> None:
        free, total = self._free.item(slot), self._total.item(slot)
        self._free[slot] = free + change
        if self._small is None:
            return
        # if it became whole: 1; if it was: -1
        whole = (free + change == total > 0) - (free == total > 0)
        change = self._weights[level] * change + self._weights[-1] * whole
        self._changes[slot] = self._changes.get(slot, 0) + change
