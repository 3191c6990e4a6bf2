"""Capacity that is free once some running pods have gone, as arrays, and the snapshot without these pods. Reservations
use it for pods that end, preemption for victims.

Design: docs/design/reservations.md
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from central.model.arrays import UNLIMITED, Ints
from central.model.device_claims import DeviceUse
from central.model.facts import PodSpec
from central.scheduler.filters.interpod import is_interpod
from central.scheduler.inventory import gpu_shares, nic_limits, nics
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.draft import Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState
from protos.gpu_sharing import WHOLE


class PlacedPods(NamedTuple):
    """Placed pods as arrays with one entry per pod, which hold as long as no pod comes, goes or changes."""

    pods: Sequence[Pod]
    rows: Ints
    gpus: Ints  # masks
    classes: Sequence[PodSpec]
    podclass: Ints  # indices of classes

    @classmethod
    def of(cls, state: ClusterState, pods: Sequence[Pod]) -> "PlacedPods":
        specs, row = [pod.spec for pod in pods], state.snapshot.columns.row
        # A pod class is one PodSpec object; its id is faster than its hash.
        ids = [*map(id, specs)]
        by_id = dict(zip(ids, specs, strict=True))
        number = {key: place for place, key in enumerate(by_id)}
        return cls(
            pods,
            np.array([row[pod.node] for pod in pods], dtype=np.int64),
            np.array([pod.gpus for pod in pods], dtype=np.int64),
            list(by_id.values()),
            np.array([*map(number.__getitem__, ids)], dtype=np.int64),
        )

    def only(self, chosen: Ints) -> "PlacedPods":
        """Returns the pods with these indices, and their classes."""
        used = np.zeros(len(self.classes), dtype=np.bool_)
        used[self.podclass[chosen]] = True
        number = np.cumsum(used) - 1
        return PlacedPods(
            [self.pods[index] for index in chosen.tolist()],
            self.rows[chosen],
            self.gpus[chosen],
            [self.classes[index] for index in np.flatnonzero(used).tolist()],
            number[self.podclass[chosen]],
        )

    def amounts(self, snapshot: Snapshot) -> Ints:
        """Returns what the pods request, by pod and column."""
        vectors = np.zeros((max(len(self.classes), 1), snapshot.columns.width), dtype=np.int64)
        for vector, spec in zip(vectors, self.classes, strict=False):
            view = snapshot.view(spec)
            vector[view.columns] = view.amounts
        found: Ints = vectors[self.podclass] if len(self.pods) else vectors[:0]
        return found


class Freed(NamedTuple):
    """Amounts that pods free when they end, with one entry per pod: its row, and amounts by column."""

    rows: Ints
    amounts: Ints

    def by_row(self, column: int, size: int) -> Ints:
        """Returns the amounts of one column by row, for so many rows."""
        found: Ints = np.zeros(size, dtype=np.int64)
        np.add.at(found, self.rows, self.amounts[:, column])
        return found


class ReleasablePods:
    """Placed pods. rows, amounts (by column) and masks (of healthy GPUs) have one entry per pod."""

    def __init__(self, state: ClusterState, pods: Sequence[Pod] | PlacedPods) -> None:
        snapshot = state.snapshot
        placed = pods if isinstance(pods, PlacedPods) else PlacedPods.of(state, pods)
        pods, classes, podclass = placed.pods, placed.classes, placed.podclass
        self._snapshot, self._nodes = snapshot, state.nodes
        self.pods = pods
        interpod = (is_interpod(spec) for spec in classes)
        self._interpod = np.fromiter(interpod, np.bool_, len(classes))[podclass]
        row = snapshot.columns.row
        self.rows = placed.rows
        self.amounts = placed.amounts(snapshot)
        self.masks = placed.gpus.copy()
        for name in state.node_sets.unhealthy:
            if name in row:
                self.masks[self.rows == row[name]] &= state.nodes[name].reported.healthy
        shares = np.array([snapshot.view(spec).share for spec in classes] or [0], dtype=np.int64)
        self._shares = shares[podclass]
        self.whole_gpus = np.zeros(len(pods), dtype=np.int64)  # that a pod frees by its share alone
        for index in np.flatnonzero(self._shares).tolist():
            self.masks[index] = 0  # other pods may share the GPU
            self._shares[index] = share = _freed_share(state, pods[index])
            self.whole_gpus[index] = bool(share) and self._is_alone(index)

    def _is_alone(self, index: int) -> bool:
        """Returns whether no other pod has a share of the pod's GPU."""
        left = self._snapshot.columns.gpus.free_shares[int(self.rows[index])]
        gpu = self.pods[index].gpus.bit_length() - 1
        return left.get(gpu, WHOLE) + int(self._shares[index]) >= WHOLE

    @property
    def have_shares(self) -> bool:
        return bool(self._shares.any())

    def reordered(self, order: Ints) -> "ReleasablePods":
        """Sorts the pods in place; order: their indices."""
        self.pods = [self.pods[index] for index in order.tolist()]
        self.rows, self.amounts = self.rows[order], self.amounts[order]
        self.masks, self._shares = self.masks[order], self._shares[order]
        self.whole_gpus, self._interpod = self.whole_gpus[order], self._interpod[order]
        return self

    def freed(self, chosen: Ints) -> tuple[Ints, Ints, list[int]]:
        """The rows of the chosen pods (indices), with the amounts and GPUs that they free there."""
        if not len(chosen):
            return self.rows[:0], self.amounts[:0], []
        order = chosen[np.argsort(self.rows[chosen], kind="stable")]
        rows = self.rows[order]
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        amounts = np.add.reduceat(self.amounts[order], first, axis=0)
        masks = np.bitwise_or.reduceat(self.masks[order], first)
        return rows[first], amounts, masks.tolist()

    def min_released(self, request: PlacementRequest) -> int:
        """A lower bound, by sums, of how many of the first pods must go before the request fits."""
        needed = np.zeros(self.amounts.shape[1], dtype=np.int64)
        for spec, count in request.groups:
            view = self._snapshot.view(spec)
            needed[view.columns] += view.amounts * count
        lacking = needed - np.maximum(self._snapshot.columns.free[:, : len(needed)], 0).sum(axis=0)
        least = 0
        for column in np.flatnonzero(lacking > 0).tolist():
            freed = np.cumsum(self.amounts[:, column])
            least = max(least, int(np.searchsorted(freed, lacking[column])) + 1)
        return least

    def first_by_counts(self, request: PlacementRequest, above: int) -> int:
        """The same by fits_when_freed(), and more than `above`; one more than there are: never. The answer is mostly
        near, so the steps begin small."""

        def fits(gone: int) -> bool:
            freed = Freed(self.rows[:gone], self.amounts[:gone])
            return fits_when_freed(self._snapshot, request, freed)

        most, low, high, step = len(self.pods), above, above + 1, 1
        while high < most and not fits(high):
            low, step = high, 2 * step
            high = min(high + step, most)
        if high >= most and not fits(most):
            return most + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if fits(middle) else (middle, high)
        return high

    @contextmanager
    def without(self, chosen: Ints) -> Iterator[Snapshot]:
        """The snapshot without the chosen pods (indices), inside the with block."""
        if not len(chosen):
            yield self._snapshot
            return
        rows, amounts, masks = self.freed(chosen)
        snapshot = self._snapshot
        with snapshot.changing():
            self._shift_shares(chosen, 1)
            self._shift_nics(chosen, 1)
            snapshot.columns.shift(rows, amounts, masks, free=True)
            self._shift_pod_counts(chosen, -1)
        try:
            yield snapshot
        finally:
            with snapshot.changing():
                self._shift_pod_counts(chosen, 1)
                self._shift_shares(chosen, -1)
                self._shift_nics(chosen, -1)
                snapshot.columns.shift(rows, amounts, masks, free=False)

    def _shift_shares(self, chosen: Ints, sign: int) -> None:
        for index in chosen[self._shares[chosen] > 0].tolist():
            row, gpus = int(self.rows[index]), self.pods[index].gpus
            gpu_shares.change(
                self._snapshot.columns.gpus, row, gpus, sign * int(self._shares[index])
            )

    def _shift_nics(self, chosen: Ints, sign: int) -> None:
        """Returns or takes the RDMA limits of the pods, on nodes where limits are counted."""
        for index in chosen.tolist() if self._snapshot.columns.nics else ():
            capacity = self._snapshot.columns.nics.get(int(self.rows[index]))
            pod = self.pods[index]
            if capacity is None or not pod.spec.rdma_containers:
                continue
            known = self._nodes[pod.node].known_nics()
            rest, needed = nic_limits.unassigned_shares(pod, known), capacity.request(pod.spec)
            capacity.charge(needed, nics.shares_of_pod(pod, known), -sign)
            if rest:
                capacity.unassigned[needed._replace(shares=rest)] -= sign

    def _shift_pod_counts(self, chosen: Ints, change: int) -> None:
        """Keeps the counts that inter-pod rules read."""
        for index in chosen[self._interpod[chosen]].tolist():
            spec, row = self.pods[index].spec, int(self.rows[index])
            self._snapshot.pod_counts.count(row, spec, change)


def _freed_share(state: ClusterState, pod: Pod) -> int:
    """Hundredths of the pod's GPU that become available without it."""
    if not pod.gpus or not pod.share:
        return 0
    node = state.nodes[pod.node]
    return pod.share if pod.gpus & node.reported.healthy & node.reported.offered[0] else 0


class TakenCapacity(NamedTuple):
    rows: Ints
    need: Ints  # by row and column
    masks: list[int]  # GPUs by row
    volumes: frozenset[str]
    devices: Mapping[DeviceUse, int] = MappingProxyType({})

    def on_any_gpus(self) -> "TakenCapacity":
        """The same, where the GPUs of a row need not be these."""
        return self._replace(masks=[0] * len(self.masks))


class DraftMark(NamedTuple):
    """A moment of a draft, after which another placement begins."""

    assignments: int
    masks: list[int]  # of free GPUs, by row
    volumes: frozenset[str]  # that are assigned already
    devices: Counter[DeviceUse]  # of claims, the same

    @classmethod
    def of(cls, draft: Draft) -> "DraftMark":
        snapshot = draft.snapshot
        masks = list(snapshot.columns.gpus.free_mask)
        volumes = frozenset(snapshot.pod_counts.volumes.assigned())
        return cls(len(draft.assignments), masks, volumes, snapshot.pod_counts.devices.taken())


def taken_capacity(draft: Draft, since: DraftMark) -> TakenCapacity:
    """Returns what the draft has taken since the mark."""
    snapshot, taken, masks = draft.snapshot, draft.assignments[since.assignments :], since.masks
    rows = sorted({assignment.row for assignment in taken})
    index = {row: place for place, row in enumerate(rows)}
    need = np.zeros((len(rows), snapshot.columns.width), dtype=np.int64)
    by_class: dict[PodSpec, tuple[list[int], list[int]]] = {}  # rows of the need, and pods there
    for row, spec, pods, _ in taken:
        places, counts = by_class.setdefault(spec, ([], []))
        places.append(index[row])
        counts.append(pods)
    for spec, (places, counts) in by_class.items():
        view = snapshot.view(spec)
        at = np.array(places, dtype=np.int64)[:, None], view.columns
        np.add.at(need, at, np.outer(counts, view.amounts))
    gpus = [masks[row] & ~snapshot.columns.gpus.free_mask[row] for row in rows]
    volumes = frozenset(snapshot.pod_counts.volumes.assigned()) - since.volumes
    devices = snapshot.pod_counts.devices.taken() - since.devices
    return TakenCapacity(np.array(rows, dtype=np.int64), need, gpus, volumes, devices)


def fits_when_empty(snapshot: Snapshot, request: PlacementRequest, excluded: Ints) -> bool:
    """Returns whether some domain would fit the request if it were empty. excluded: rows not to use."""
    if request.required not in ("", *island_masks.ON_NODE, *snapshot.columns.domains.levels):
        return False
    fits = np.ones(1, dtype=np.bool_)
    for spec, count in request.groups:
        view = snapshot.view(spec).refresh()
        counts = view.capacity_when_empty().copy()
        counts[view.refused_rows()] = 0
        counts[excluded] = 0
        fits = fits & (_sum_by_domain(snapshot, request.required, counts) >= count)
    return bool(fits.any())


def fits_by_counts(snapshot: Snapshot, request: PlacementRequest) -> bool:
    """Returns whether some domain fits the request by counts alone. Cheap; a trial placement is not."""
    fits = np.ones(1, dtype=np.bool_)
    for spec, count in request.groups:
        counts = snapshot.view(spec).refresh().by_row
        fits = fits & (_sum_by_domain(snapshot, request.required, counts) >= count)
    return bool(fits.any())


def most_when_freed(snapshot: Snapshot, view: PodClassCapacity, freed: Freed) -> Ints:
    """Returns by row an upper bound of how many pods of the class fit once the others have gone: whatever GPUs, NICs
    and rules between pods allow. view: after refresh()."""
    columns = snapshot.columns
    most = np.full(len(columns.names), UNLIMITED, dtype=np.int64)
    for column, amount in zip(view.columns.tolist(), view.amounts.tolist(), strict=True):
        there = columns.free[:, column] + freed.by_row(column, len(most))
        np.minimum(most, there // amount, out=most)
    most[(most < 0) | ~view.passed(np.arange(len(most)))] = 0
    return most


def fits_when_freed(snapshot: Snapshot, request: PlacementRequest, freed: Freed) -> bool:
    """Returns whether some domain would fit the request by most_when_freed(). If not, no trial placement does."""
    fits = np.ones(1, dtype=np.bool_)
    for spec, count in request.groups:
        counts = most_when_freed(snapshot, snapshot.view(spec).refresh(), freed)
        fits = fits & (_sum_by_domain(snapshot, request.required, counts) >= count)
    return bool(fits.any())


def domains_of(snapshot: Snapshot, required: str) -> tuple[Ints, int]:
    """Returns by row the index of its domain of the required level, -1: in none; and how many domains there are."""
    rows = len(snapshot.columns.names)
    if not required:
        return np.zeros(rows, dtype=np.int64), 1
    if required in island_masks.ON_NODE:
        return np.arange(rows), rows
    level = snapshot.columns.domains.levels.index(required)
    return snapshot.columns.domains.of[level], snapshot.columns.domains.count(level)


def _sum_by_domain(snapshot: Snapshot, required: str, counts: Ints) -> Ints:
    if not required:
        return np.array([counts.sum()], dtype=np.int64)
    if required in island_masks.ON_NODE:
        return counts
    of, count = domains_of(snapshot, required)
    inside = of >= 0
    return np.bincount(of[inside], weights=counts[inside], minlength=count).astype(np.int64)
