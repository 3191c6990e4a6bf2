"""The room for one kind of pod, by node and by domain: kept up to date from the snapshot's list of
the rows that changed."""

from typing import TYPE_CHECKING

import numpy as np

from central.model.arrays import UNLIMITED, Ints
from central.model.facts import PodSpec
from central.scheduler.filters.interpod import InterPodFilter, is_interpod
from central.scheduler.inventory import gpu_shares, nic_limits
from central.scheduler.scoring.preferences import PreferenceScore
from protos.gpu_sharing import RANKS
from protos.names import GPU, GPU_SHARE

if TYPE_CHECKING:
    from central.scheduler.snapshot.snapshot import Snapshot

FEW = 12  # rows that changed, up to which they are counted one by one


class PodClassCapacity:
    """The room for one kind of pod: cap[row] is how many more fit there, sums[level][domain] how many
    in a whole domain. Call refresh() before reading."""

    pods = 1  # in one of what is counted

    def __init__(self, snapshot: "Snapshot", spec: PodSpec) -> None:
        self.spec = spec
        self.columns, self.amounts = snapshot.vector(spec.requests)
        self._asks = list(zip(self.columns.tolist(), self.amounts.tolist(), strict=True))
        self.gpus = spec.request(GPU)
        self.share = spec.request(GPU_SHARE)
        self.least = RANKS[spec.memory_level] if self.share else 0
        self.cards = bool(spec.rdma_containers)  # what it may take of network cards may be summed
        self.company = InterPodFilter(snapshot, spec) if is_interpod(spec) else None
        self.leaning: PreferenceScore | None = None  # made where somebody asks
        self._snapshot = snapshot
        self._mark = -1
        self._relabelled = -1
        self._limit: Ints = np.zeros(0, dtype=np.int64)  # the company's, as it was last used
        self.cap: Ints = np.zeros(0, dtype=np.int64)
        self.sums: list[Ints] = []
        self._judgement = snapshot.judgement(spec)

    def forget(self) -> None:
        """The next refresh counts everything anew."""
        self._mark = -1
        self._judgement.forget()
        if self.company is not None:
            self.company.forget()

    def refresh(self) -> "PodClassCapacity":
        snapshot = self._snapshot
        self._mark, touched = snapshot.touched.since(self._mark)
        if self.company is not None:
            limit = self.company.limit()
            if len(limit) != len(self._limit):
                touched = None
            elif limit is not self._limit and touched is not None:  # pods elsewhere moved it
                touched += np.flatnonzero(limit != self._limit).tolist()
            self._limit = limit
        if touched is None or self._relabelled != snapshot.relabelled or len(touched) > 1000:
            self._relabelled = snapshot.relabelled
            self.cap = self._count(np.arange(len(snapshot.names)))
            domains = snapshot.domains
            self.sums = [
                self._sum(domains.of[level], domains.count(level))
                for level in range(len(domains.levels))
            ]
        elif len(touched) <= FEW:
            for row in set(touched):
                self._recount(row)
        else:
            rows = np.array(sorted(set(touched)), dtype=np.int64)
            fresh = self._count(rows)
            change = fresh - self.cap[rows]
            self.cap[rows] = fresh
            for level, sums in enumerate(self.sums):
                of = snapshot.domains.of[level, rows]
                inside = of >= 0
                np.add.at(sums, of[inside], change[inside])
        return self

    def _recount(self, row: int) -> None:
        """One row, without the detour over arrays: most refreshes are about the node that the last
        gang went to."""
        snapshot = self._snapshot
        room = UNLIMITED
        for column, amount in self._asks:
            have = snapshot.free.item(row, column) if column else snapshot.gpus.item(row)
            room = min(room, have // amount)
        if self.share:
            room = min(room, gpu_shares.room_at(snapshot, row, self.share, self.least))
        if self.cards and (cards := snapshot.cards.get(row)) is not None:
            room = min(room, cards.room(cards.ask(self.spec)))
        if self.company is not None:
            room = min(room, self._limit.item(row))
        if room < 0 or not self._judgement.fits(row, snapshot.nodes, snapshot.version):
            room = 0
        change = room - self.cap.item(row)
        if change:
            self.cap[row] = room
            for sums, of in zip(self.sums, snapshot.domains.of, strict=True):
                if (domain := of.item(row)) >= 0:
                    sums[domain] += change

    def fit_rows(self) -> Ints:
        """The nodes that may take such a pod when there is room."""
        return np.flatnonzero(self._judgement.fit)

    def unfit_rows(self) -> Ints:
        return np.flatnonzero(~self._judgement.fit)

    def when_empty(self) -> Ints:
        """The room on each node if nobody were there and nothing spoke against it: there will never
        be more."""
        room: Ints = (self._snapshot.allocatable[:, self.columns] // self.amounts).min(axis=1)
        return room

    def _sum(self, of: Ints, count: int) -> Ints:
        inside = of >= 0
        return np.bincount(of[inside], weights=self.cap[inside], minlength=count).astype(np.int64)

    def _count(self, rows: Ints) -> Ints:
        snapshot = self._snapshot
        room = np.full(len(rows), UNLIMITED, dtype=np.int64)
        for column, amount in zip(self.columns, self.amounts, strict=True):
            free = snapshot.gpus[rows] if column == 0 else snapshot.free[rows, column]
            np.minimum(room, free // amount, out=room)
        if self.share:
            np.minimum(room, gpu_shares.room(snapshot, rows, self.share, self.least), out=room)
        if self.cards and snapshot.cards:
            np.minimum(room, nic_limits.rooms(snapshot.cards, rows.tolist(), self.spec), out=room)
        if self.company is not None:
            np.minimum(room, self._limit[rows], out=room)
        self._judgement.refresh(rows, snapshot.nodes, snapshot.version)
        room[(room < 0) | ~self._judgement.fit[rows]] = 0
        return room
