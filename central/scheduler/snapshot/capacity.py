"""The room for one kind of pod, by node and by domain: kept up to date from the snapshot's list of
the rows that changed."""

import numpy as np

from central.model.arrays import UNLIMITED, Ints
from central.model.facts import PodSpec
from central.scheduler.filters.filter_cache import FilterResultCache
from central.scheduler.filters.interpod import InterPodFilter, is_interpod
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory import gpu_shares, nic_limits
from central.scheduler.inventory.columns import Columns
from central.scheduler.scoring.preferences import PreferenceScore

FEW = 12  # rows that changed, up to which they are counted one by one


class PodClassCapacity:
    """The room for one kind of pod: cap[row] is how many more fit there, sums[level][domain] how many
    in a whole domain. Call refresh() before reading."""

    pods = 1  # in one of what is counted

    def __init__(
        self,
        columns: Columns,
        pod_counts: MatchingPodCounts,
        filter_result: FilterResultCache,
        spec: PodSpec,
    ) -> None:
        self.spec = spec
        self.columns, self.amounts, self.gpus, self.share, self.least = columns.request(spec)
        self._asks = list(zip(self.columns.tolist(), self.amounts.tolist(), strict=True))
        self.nics = bool(spec.rdma_containers)  # what it may take of network cards may be summed
        self.interpod = InterPodFilter(columns, pod_counts, spec) if is_interpod(spec) else None
        self.preference: PreferenceScore | None = None  # made where somebody asks
        self._columns = columns
        self._gpus = columns.gpus
        self._mark = -1
        self._relabelled = -1
        self._limit: Ints = np.zeros(0, dtype=np.int64)  # the company's, as it was last used
        self.by_row: Ints = np.zeros(0, dtype=np.int64)
        self.by_domain: list[Ints] = []
        self._filter_result = filter_result

    def reset(self) -> None:
        """The next refresh counts everything anew."""
        self._mark = -1
        self._filter_result.reset()
        if self.interpod is not None:
            self.interpod.reset()

    def refresh(self) -> "PodClassCapacity":
        columns = self._columns
        self._mark, touched = columns.dirty.since(self._mark)
        if self.interpod is not None:
            limit = self.interpod.limits()
            if len(limit) != len(self._limit):
                touched = None
            elif limit is not self._limit and touched is not None:  # pods elsewhere moved it
                touched += np.flatnonzero(limit != self._limit).tolist()
            self._limit = limit
        if touched is None or self._relabelled != columns.relabelled or len(touched) > 1000:
            self._relabelled = columns.relabelled
            self.by_row = self._count(np.arange(len(columns.names)))
            domains = columns.domains
            self.by_domain = [
                self._sum(domains.of[level], domains.count(level))
                for level in range(len(domains.levels))
            ]
        elif len(touched) <= FEW:
            for row in set(touched):
                self._recount(row)
        else:
            rows = np.array(sorted(set(touched)), dtype=np.int64)
            fresh = self._count(rows)
            change = fresh - self.by_row[rows]
            self.by_row[rows] = fresh
            for level, sums in enumerate(self.by_domain):
                of = columns.domains.of[level, rows]
                inside = of >= 0
                np.add.at(sums, of[inside], change[inside])
        return self

    def _recount(self, row: int) -> None:
        """One row, without the detour over arrays: most refreshes are about the node that the last
        gang went to."""
        columns = self._columns
        room = UNLIMITED
        for column, amount in self._asks:
            have = columns.free.item(row, column) if column else self._gpus.count.item(row)
            room = min(room, have // amount)
        if self.share:
            room = min(room, gpu_shares.capacity_at(self._gpus, row, self.share, self.least))
        if self.nics and (nics := columns.nics.get(row)) is not None:
            room = min(room, nics.capacity(nics.request(self.spec)))
        if self.interpod is not None:
            room = min(room, self._limit.item(row))
        if room < 0 or not self._filter_result.fits(row, columns.nodes, columns.version):
            room = 0
        change = room - self.by_row.item(row)
        if change:
            self.by_row[row] = room
            for sums, of in zip(self.by_domain, columns.domains.of, strict=True):
                if (domain := of.item(row)) >= 0:
                    sums[domain] += change

    def passed_rows(self) -> Ints:
        """The nodes that may take such a pod when there is room."""
        return np.flatnonzero(self._filter_result.passed)

    def refused_rows(self) -> Ints:
        return np.flatnonzero(~self._filter_result.passed)

    def capacity_when_empty(self) -> Ints:
        """The room on each node if nobody were there and nothing spoke against it: there will never
        be more."""
        room: Ints = (self._columns.allocatable[:, self.columns] // self.amounts).min(axis=1)
        return room

    def _sum(self, of: Ints, count: int) -> Ints:
        inside = of >= 0
        return np.bincount(of[inside], weights=self.by_row[inside], minlength=count).astype(
            np.int64
        )

    def _count(self, rows: Ints) -> Ints:
        columns = self._columns
        room = np.full(len(rows), UNLIMITED, dtype=np.int64)
        for column, amount in zip(self.columns, self.amounts, strict=True):
            free = self._gpus.count[rows] if column == 0 else columns.free[rows, column]
            np.minimum(room, free // amount, out=room)
        if self.share:
            np.minimum(
                room, gpu_shares.capacity(self._gpus, rows, self.share, self.least), out=room
            )
        if self.nics and columns.nics:
            np.minimum(
                room, nic_limits.capacities(columns.nics, rows.tolist(), self.spec), out=room
            )
        if self.interpod is not None:
            np.minimum(room, self._limit[rows], out=room)
        self._filter_result.refresh(rows, columns.nodes, columns.version)
        room[(room < 0) | ~self._filter_result.passed[rows]] = 0
        return room
