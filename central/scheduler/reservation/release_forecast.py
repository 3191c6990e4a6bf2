"""What would be free if some of the pods that run were gone: their room as arrays, and the snapshot
as it would be without them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.scheduler.filters.interpod import is_interpod
from central.scheduler.inventory import gpu_shares, nics
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState


class ReleasablePods:
    """Pods that hold room; rows, amounts (by column) and masks (of healthy GPUs) go by pod."""

    def __init__(self, state: ClusterState, pods: Sequence[Pod]) -> None:
        snapshot = state.snapshot
        specs = [pod.spec for pod in pods]
        alike = {id(spec): spec for spec in specs}  # a kind is one object: quicker than to hash it
        number = {key: place for place, key in enumerate(alike)}
        kind = np.array([number[id(spec)] for spec in specs], dtype=np.int64)
        kinds = list(alike.values())
        views = [snapshot.view(spec) for spec in kinds]
        vectors = np.zeros((max(len(kinds), 1), len(snapshot.columns.column)), dtype=np.int64)
        for vector, view in zip(vectors, views, strict=False):
            vector[view.columns] = view.amounts
        self._snapshot, self._nodes = snapshot, state.nodes
        self.pods = pods
        counted = (is_interpod(spec) for spec in kinds)
        self._counted = np.fromiter(counted, np.bool_, len(kinds))[kind]
        row = snapshot.columns.row
        self.rows = np.array([row[pod.node] for pod in pods], dtype=np.int64)
        self.amounts: Ints = vectors[kind] if len(pods) else vectors[:0]
        self.masks = np.array([pod.gpus for pod in pods], dtype=np.int64)
        for name in state.unhealthy_nodes:
            if name in row:
                self.masks[self.rows == row[name]] &= state.nodes[name].healthy()
        shares = np.array([view.share for view in views] or [0], dtype=np.int64)
        self._parts = shares[kind]
        for index in np.flatnonzero(self._parts).tolist():
            self.masks[index] = 0  # others may have shares of it
            self._parts[index] = _part(state, pods[index])

    def sorted(self, order: Ints) -> "ReleasablePods":
        """The same, in another order."""
        self.pods = [self.pods[index] for index in order.tolist()]
        self.rows, self.amounts = self.rows[order], self.amounts[order]
        self.masks, self._parts = self.masks[order], self._parts[order]
        return self

    def freed(self, chosen: Ints) -> tuple[Ints, Ints, list[int]]:
        """The rows that these (by index) are on, with what they would free there."""
        if not len(chosen):
            return self.rows[:0], self.amounts[:0], []
        order = chosen[np.argsort(self.rows[chosen], kind="stable")]
        rows = self.rows[order]
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        amounts = np.add.reduceat(self.amounts[order], first, axis=0)
        masks = np.bitwise_or.reduceat(self.masks[order], first)
        return rows[first], amounts, masks.tolist()

    def fewest(self, want: PlacementRequest) -> int:
        """How many, from the first on, must be gone at least: fewer can't do, by the sums."""
        wanted = np.zeros(self.amounts.shape[1], dtype=np.int64)
        for spec, count in want.groups:
            view = self._snapshot.view(spec)
            wanted[view.columns] += view.amounts * count
        lacks = wanted - np.maximum(self._snapshot.columns.free[:, : len(wanted)], 0).sum(axis=0)
        least = 0
        for column in np.flatnonzero(lacks > 0).tolist():
            freed = np.cumsum(self.amounts[:, column])
            least = max(least, int(np.searchsorted(freed, lacks[column])) + 1)
        return least

    @contextmanager
    def gone(self, chosen: Ints) -> Iterator[Snapshot]:
        """The snapshot without them, for as long as the block lasts."""
        rows, amounts, masks = self.freed(chosen)
        self._change(chosen, 1)
        self._card(chosen, 1)
        self._snapshot.columns.shift(rows, amounts, masks, free=True)
        self._count(chosen, -1)
        try:
            yield self._snapshot
        finally:
            self._count(chosen, 1)
            self._change(chosen, -1)
            self._card(chosen, -1)
            self._snapshot.columns.shift(rows, amounts, masks, free=False)

    def _change(self, chosen: Ints, sign: int) -> None:
        """Their GPUs have more left without them."""
        for index in chosen[self._parts[chosen] > 0].tolist():
            row, gpus = int(self.rows[index]), self.pods[index].gpus
            gpu_shares.change(
                self._snapshot.columns.gpus, row, gpus, sign * int(self._parts[index])
            )

    def _card(self, chosen: Ints, sign: int) -> None:
        """Their network cards, where limits of these are summed."""
        for index in chosen.tolist() if self._snapshot.columns.nics else ():
            room = self._snapshot.columns.nics.get(int(self.rows[index]))
            pod = self.pods[index]
            if room is None or not pod.spec.rdma_containers:
                continue
            known = self._nodes[pod.node].known_nics()
            rest, wanted = nics.unassigned_shares(pod, known), room.request(pod.spec)
            room.charge(wanted, nics.shares_of_pod(pod, known), -sign)
            if rest:
                room.unassigned[wanted._replace(shares=rest)] -= sign

    def _count(self, chosen: Ints, change: int) -> None:
        """Their neighbours do without them."""
        for index in chosen[self._counted[chosen]].tolist():
            spec, row = self.pods[index].spec, int(self.rows[index])
            self._snapshot.pod_counts.count(row, spec, change)


def _part(state: ClusterState, pod: Pod) -> int:
    """Hundredths that others could have of its GPU if it were gone."""
    if not pod.gpus or not pod.share:
        return 0
    node = state.nodes[pod.node]
    return pod.share if pod.gpus & node.healthy() & node.offered()[0] else 0


class TakenCapacity(NamedTuple):
    rows: Ints
    need: Ints  # by row and column
    masks: list[int]  # GPUs by row
    volumes: frozenset[str]


def taken_capacity(snapshot: Snapshot, free: Ints, masks: Sequence[int]) -> TakenCapacity:
    """What was taken since the snapshot had this free."""
    taken = free - snapshot.columns.free[:, : free.shape[1]]
    rows = np.flatnonzero(taken.any(axis=1))
    gpus = [masks[row] & ~snapshot.columns.gpus.free_mask[row] for row in rows.tolist()]
    volumes = frozenset(snapshot.pod_counts.volumes.assigned())
    return TakenCapacity(rows, taken[rows], gpus, volumes)


def could_ever(snapshot: Snapshot, want: PlacementRequest, apart: Ints) -> bool:
    """Whether some domain is large enough when empty, without the rows apart."""
    if want.required not in ("", *island_masks.ON_NODE, *snapshot.columns.domains.levels):
        return False
    big = np.ones(1, dtype=np.bool_)
    for spec, count in want.groups:
        view = snapshot.view(spec).refresh()
        room = view.capacity_when_empty()
        room[view.refused_rows()] = 0
        room[apart] = 0
        big = big & (_by_domain(snapshot, want.required, room) >= count)
    return bool(big.any())


def counts_do(snapshot: Snapshot, want: PlacementRequest) -> bool:
    """Whether some domain has room by counts: without that no trial is worth its time."""
    enough = np.ones(1, dtype=np.bool_)
    for spec, count in want.groups:
        room = snapshot.view(spec).refresh().by_row
        enough = enough & (_by_domain(snapshot, want.required, room) >= count)
    return bool(enough.any())


def _by_domain(snapshot: Snapshot, required: str, room: Ints) -> Ints:
    if not required:
        return np.array([room.sum()], dtype=np.int64)
    if required in island_masks.ON_NODE:
        return room
    level = snapshot.columns.domains.levels.index(required)
    of = snapshot.columns.domains.of[level]
    inside = of >= 0
    count = snapshot.columns.domains.count(level)
    return np.bincount(of[inside], weights=room[inside], minlength=count).astype(np.int64)
