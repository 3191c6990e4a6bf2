"""The number of further pods of one class that fit, by row and by domain. Recounts only rows that changed.

Design: docs/design/pending-gangs.md
"""

from collections import Counter
from typing import NamedTuple

import numpy as np

from central.model.arrays import UNLIMITED, Bools, Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.filters import node_filters
from central.scheduler.filters.filter_cache import FilterResultCache
from central.scheduler.filters.interpod import InterPodFilter, is_interpod
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory import gpu_shares, nic_limits
from central.scheduler.inventory.columns import Columns
from central.scheduler.scoring.preferences import PreferenceScore

DIRTY_MOST = 1000  # changed rows; with more all are recounted
FEW = 8  # up to this many changed rows are recounted one by one, which is faster than with arrays


class LastingCapacity(NamedTuple):
    """An upper bound of what nodes can offer the pods of one class, with nothing else on them and all GPUs healthy."""

    stamp: tuple[int, int]
    rows: Ints  # that may run the pods now or later
    refused: bool  # whether other nodes never may
    refusals: Counter[str]  # how many of these have enough of all resources, by reason
    capacity: Ints  # by row, how many of the pods fit at most; 0 where they may not run. Not to be written to
    able: Bools  # by row, whether it has enough of all resources; pods may not run on all of these
    of_row: Ints  # by row and requested resource


class PodClassCapacity:
    """by_row[row]: how many more pods of the class fit on the node; by_domain[level][domain]: in the domain.
    Call refresh() before reading."""

    pods = 1  # pods in one counted unit (see CountedDomains)

    def __init__(
        self,
        columns: Columns,
        pod_counts: MatchingPodCounts,
        filter_result: FilterResultCache,
        spec: PodSpec,
    ) -> None:
        self.spec = spec
        self.columns, self.amounts, self.gpus, self.share, self.least = columns.request(spec)
        self._amounts = list(zip(self.columns.tolist(), self.amounts.tolist(), strict=True))
        self.nics = bool(spec.rdma_containers)  # whether NIC limits may apply
        self.interpod = InterPodFilter(columns, pod_counts, spec) if is_interpod(spec) else None
        self.preference: PreferenceScore | None = None  # created by Snapshot.preference
        self._columns = columns
        self._gpus = columns.gpus
        self._mark = -1
        self._relabelled = -1
        self._limit: Ints = np.zeros(0, dtype=np.int64)  # of interpod, as last used
        self.by_row: Ints = np.zeros(0, dtype=np.int64)
        self.by_domain: list[Ints] = []
        self._filter_result = filter_result
        self._when_empty: tuple[int, Ints] = -1, self.by_row  # since a change of allocatable
        self._lasting: LastingCapacity | None = None

    def reset(self) -> None:
        """Makes the next refresh recount all rows."""
        self._mark = -1
        self._lasting = None
        self._filter_result.reset()
        if self.interpod is not None:
            self.interpod.reset()

    def refresh(self) -> "PodClassCapacity":
        columns = self._columns
        mark, dirty = columns.dirty.since(self._mark)
        self._mark = -1  # if counting fails, all is counted again
        if self.interpod is not None:
            limit = self.interpod.limits()
            if len(limit) != len(self._limit):
                dirty = None
            elif limit is not self._limit and dirty is not None:  # pods on other nodes changed it
                dirty += np.flatnonzero(limit != self._limit).tolist()
            self._limit = limit
        if dirty is None or self._relabelled != columns.relabelled or len(dirty) > DIRTY_MOST:
            self._relabelled = columns.relabelled
            self.by_row = self._count(np.arange(len(columns.names)))
            domains = columns.domains
            self.by_domain = [
                sum_by_domain(self.by_row, domains.of[level], domains.count(level))
                for level in range(len(domains.levels))
            ]
        elif len(dirty) <= FEW:
            for row in set(dirty):
                self._recount(row)
        else:
            rows = np.array(sorted(set(dirty)), dtype=np.int64)
            fresh = self._count(rows)
            change = fresh - self.by_row[rows]
            self.by_row[rows] = fresh
            for level, sums in enumerate(self.by_domain):
                of = columns.domains.of[level, rows]
                inside = of >= 0
                np.add.at(sums, of[inside], change[inside])
        self._mark = mark
        return self

    def rows_to_count(self) -> int:
        """Returns how many rows the next refresh recounts, about."""
        _, dirty = self._columns.dirty.since(self._mark)
        every = (
            dirty is None or len(dirty) > DIRTY_MOST or self._relabelled != self._columns.relabelled
        )
        return len(self._columns.names) if every or dirty is None else len(dirty)

    def refresh_filter(self) -> "PodClassCapacity":
        """Refreshes the filters for passed_rows(), without counting."""
        columns = self._columns
        self._filter_result.refresh(np.arange(len(columns.names)), columns.nodes, columns.version)
        return self

    def _recount(self, row: int) -> None:
        """Recounts one row without arrays. Most refreshes concern only the nodes of the last gang."""
        columns = self._columns
        fits = UNLIMITED
        for column, amount in self._amounts:
            have = columns.free.item(row, column) if column else self._gpus.count.item(row)
            fits = min(fits, have // amount)
        if self.share:
            fits = min(fits, gpu_shares.capacity_at(self._gpus, row, self.share, self.least))
        if self.nics and (nics := columns.nics.get(row)) is not None:
            fits = min(fits, nics.capacity(nics.request(self.spec)))
        if self.interpod is not None:
            fits = min(fits, self._limit.item(row))
        # Also where nothing is free: passed_rows() is read for what would fit without other pods.
        passed = self._filter_result.fits(row, columns.nodes, columns.version)
        fits = max(fits, 0) if passed else 0
        change = fits - self.by_row.item(row)
        if change:
            self.by_row[row] = fits
            for sums, of in zip(self.by_domain, columns.domains.of, strict=True):
                if (domain := of.item(row)) >= 0:
                    sums[domain] += change

    @property
    def filter_failure(self) -> Exception | None:
        """The exception of a node filter, since the last reset()."""
        return self._filter_result.failure

    def passed_rows(self) -> Ints:
        """The rows whose nodes pass the filters."""
        return np.flatnonzero(self._filter_result.passed)

    def passed(self, rows: Ints) -> Bools:
        """Returns for each of these rows whether its node passes the filters."""
        found: Bools = self._filter_result.passed[rows]
        return found

    def refused_rows(self) -> Ints:
        return np.flatnonzero(~self._filter_result.passed)

    def refused_nodes(self) -> list[tuple[int, NodeSeen]]:
        """The nodes that do not pass the filters, with their rows."""
        columns, rows = self._columns, self.refused_rows()
        if len(rows) == len(columns.names) - len(columns.row):
            return []  # mostly: only rows without a node
        return [(row, node) for row in rows.tolist() if (node := columns.nodes[row]) is not None]

    def lasting(self) -> "LastingCapacity":
        """Returns the most that the nodes can offer the pods, whatever ends there. Kept until a node or its GPUs
        change."""
        stamp = self._columns.node_changes, self._gpus.installs
        if self._lasting is None or self._lasting.stamp != stamp:
            self._lasting = self._count_lasting(stamp)
        return self._lasting

    def _count_lasting(self, stamp: tuple[int, int]) -> "LastingCapacity":
        passed, refusals = self.refresh_filter().passed_rows(), Counter[str]()
        most = self.most_by_row()
        able = np.all(most >= self.amounts, axis=1)
        again, refused = list[int](), False
        for row, node in self.refused_nodes():
            if why := node_filters.lasting_refusal(self.spec, node):
                refused = True
                refusals.update([why] if able[row] else [])
            else:
                again.append(row)
        rows = np.union1d(passed, np.array(again, dtype=np.int64)) if again else passed
        capacity = np.zeros(len(self._columns.names), dtype=np.int64)
        capacity[rows] = (most[rows] // self.amounts).min(axis=1, initial=UNLIMITED)
        return LastingCapacity(stamp, rows, refused, refusals, capacity, able, most)

    def capacity_when_empty(self) -> Ints:
        """Returns by row an upper bound: how many such pods would fit on the empty node without filters. Not to be
        written to."""
        stamp, most = self._when_empty
        if stamp != self._columns.reallocated:
            most = (self._columns.allocatable[:, self.columns] // self.amounts).min(axis=1)
            self._when_empty = self._columns.reallocated, most
        return most

    def most_by_row(self) -> Ints:
        """Returns by row and by requested resource (as in columns) the most that the node can ever offer, with all GPUs
        healthy and no pod on it."""
        most: Ints = self._columns.allocatable[:, self.columns]
        for index in np.flatnonzero(self.columns == 0).tolist():
            most[:, index] = np.maximum(most[:, index], self._gpus.installed)
        return most

    def _count(self, rows: Ints) -> Ints:
        columns, counted = self._columns, np.zeros(len(rows), dtype=np.int64)
        self._filter_result.refresh(rows, columns.nodes, columns.version)
        passed = self._filter_result.passed[rows]
        rows = rows[passed]
        fits = np.full(len(rows), UNLIMITED, dtype=np.int64)
        for column, amount in zip(self.columns, self.amounts, strict=True):
            free = self._gpus.count[rows] if column == 0 else columns.free[rows, column]
            np.minimum(fits, free // amount, out=fits)
        if self.share:
            np.minimum(
                fits, gpu_shares.capacity(self._gpus, rows, self.share, self.least), out=fits
            )
        if self.nics and columns.nics:
            of_nics = nic_limits.capacities(columns.nics, rows.tolist(), self.spec)
            np.minimum(fits, np.array(of_nics, dtype=np.int64), out=fits)
        if self.interpod is not None:
            np.minimum(fits, self._limit[rows], out=fits)
        counted[passed] = np.maximum(fits, 0)
        return counted


def sum_by_domain(amounts: Ints, of: Ints, count: int) -> Ints:
    """Returns the sums of the amounts by domain. amounts, of: by row, and its domain; -1: none. count: of domains, at
    least."""
    inside = of >= 0
    return np.bincount(of[inside], weights=amounts[inside], minlength=count).astype(np.int64)
