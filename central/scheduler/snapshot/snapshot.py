"""The free capacity of the cluster: columns by row, and the counts that are derived from them.

It is never rebuilt for a cycle. Changes update the columns, and each PodClassCapacity recounts only the rows that
changed.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.model.facts import NodeSeen, PodSpec
from central.scheduler.device_claims.plugin_gpus import NO_DEVICES, Claimable
from central.scheduler.filters.filter_cache import FilterResults
from central.scheduler.filters.pod_counts import MatchingPodCounts
from central.scheduler.inventory import gpu_shares
from central.scheduler.inventory.columns import Columns
from central.scheduler.inventory.domains import Domains
from central.scheduler.inventory.gpu_shares import NOTHING, GpuShares, Offered
from central.scheduler.inventory.nic_limits import NicCapacity
from central.scheduler.scoring import WorkloadMix
from central.scheduler.scoring.preferences import PreferenceScore
from central.scheduler.snapshot.capacity import PodClassCapacity
from central.scheduler.snapshot.domain_gpus import DomainGpus
from central.scheduler.snapshot.free_totals import FreeTotals
from central.scheduler.work_meter import WorkMeter
from protos.topology import Shape

VIEWS_KEPT = 4_096  # classes whose capacities are kept
FILTERS_KEPT = 1_000  # of their filter results, which many classes share and which take longest


class ReservedGpus(NamedTuple):
    name: str  # of the gang
    rows: Ints
    taken: Ints  # by row, out of the snapshot; less than 0: put back
    free: Ints  # of these, those that were free when the reservation was updated
    masks: Sequence[int]  # out of the free masks


class LastChoice(NamedTuple):
    """Nodes on which gangs died. shared: of gangs of several nodes: by node, why. own: by namespace and gang those on
    which its own members failed first."""

    shared: Mapping[str, str] = {}
    own: Mapping[tuple[str, str], Sequence[str]] = {}


class Snapshot:
    def __init__(self, levels: Sequence[str] = ()) -> None:
        self.columns = Columns(levels)
        self.pod_counts = MatchingPodCounts()
        self.pod_counts.devices.plugin_gpus.columns = self.columns
        self.filter_results = FilterResults()
        self.mix = WorkloadMix(self.columns, self.pod_counts, self.filter_results)
        self.domain_gpus = DomainGpus(self.columns)
        self.free_totals = FreeTotals(self.columns)
        self.meter = WorkMeter()  # of the searches on it
        # What is withheld from the gang that is tried, by the gang that it is reserved for.
        self.reserved_gpus: dict[tuple[str, str, bool], ReservedGpus] = {}
        # Changes of several steps that have begun and not ended. One that raises stays counted, because
        # no draft undoes it.
        self.changes_begun = 0
        self.last_choice = LastChoice()
        self.freed = 0  # grows when capacity is freed or a node changes (PendingGangs.epoch)
        self._labels: Callable[[NodeSeen], Mapping[str, str]] = _own_labels
        self._most_gpus: int | None = None
        self._views: dict[PodSpec, PodClassCapacity] = {}

    # --- nodes ---------------------------------------------------------------

    def gpus_with_reserved(self) -> Ints:
        """The free GPUs by row, as if none were reserved."""
        columns, gpus = self.columns, self.columns.gpus
        free, have, masks = gpus.count.copy(), columns.free[:, 0].copy(), Counter[int]()
        for each in self.reserved_gpus.values():
            np.add.at(have, each.rows, each.taken)
            for row, mask in zip(each.rows.tolist(), each.masks, strict=True):
                masks[row] |= mask
        for row, mask in masks.items():
            healthy = (gpus.free_mask[row] | mask).bit_count()
            most = have.item(row) if gpus.shape[row] is None else min(have.item(row), healthy)
            free[row] = max(most, 0)
        return free

    def put_node(self, node: NodeSeen) -> int:
        """Adds or replaces a node; what is taken on it stays taken. See Columns.unknown() for new resources."""
        if self.columns.unknown(node.allocatable):  # pod classes have other columns then
            self._views.clear()
            self.filter_results.keep(0)
        row = self.columns.put_node(node, self._labels(node))
        self._most_gpus = None
        self.pod_counts.put_node(row, node, len(self.columns.names))
        self.freed += 1
        return row

    def end_results(self) -> None:
        """Counts a node as changed where the time has ended a result of a node filter."""
        for row in self.filter_results.take_ended():
            self.columns.touch_node(row)
            self.freed += 1

    def drop_node(self, name: str) -> None:
        self.pod_counts.devices.plugin_gpus.drop(self.columns.row[name])
        row = self.columns.drop_node(name)
        self._most_gpus = None
        self.pod_counts.put_node(row, None, len(self.columns.names))

    def relevel(
        self, levels: Sequence[str], labels: Callable[[NodeSeen], Mapping[str, str]]
    ) -> None:
        """Replaces the network tree. levels: widest first; labels: a node's domain at each level."""
        columns = self.columns
        columns.domains = Domains(levels)
        columns.domains.grow(len(columns.names))
        self._labels = labels
        for node in columns.nodes:
            if node is not None:
                columns.domains.put(columns.row[node.name], labels(node))
        columns.relabelled += 1
        self.freed += 1

    def put_gpus(
        self,
        row: int,
        shape: Shape | None,
        free_mask: int,
        offered: Offered = NOTHING,
        left: GpuShares | None = None,
        *,
        claimable: Claimable = NO_DEVICES,
        plugin: bool = True,
    ) -> None:
        """Sets what an agent reports of the row's GPUs (GpuColumns.put). free_mask: with those that claims hold;
        claimable: the GPUs that claims can have; plugin: whether the device plugin offers whole GPUs, too"""
        plugin_gpus = self.pod_counts.devices.plugin_gpus
        free_mask = plugin_gpus.put(row, claimable, free_mask, counted=plugin)
        self.freed += self.columns.put_gpus(row, shape, free_mask, offered, left or {})

    def put_nics(self, row: int, capacity: NicCapacity | None) -> None:
        """Sets what pods can take of the row's NICs."""
        self.freed += self.columns.put_nics(row, capacity)

    # --- capacity ------------------------------------------------------------

    def take(self, row: int, spec: PodSpec, count: int = 1, gpus: int = 0) -> None:
        """Takes what count pods request, with the mask of their GPUs; a count below 0 gives it back."""
        view, columns = self.view(spec), self.columns
        self.changes_begun += 1
        columns.free[row, view.columns] -= view.amounts * count
        if view.share and gpus:
            gpu_shares.change(columns.gpus, row, gpus, -view.share * count)
        elif count > 0:
            columns.gpus.free_mask[row] &= ~gpus
        else:
            columns.gpus.free_mask[row] |= gpus
        if view.interpod is not None:
            self.pod_counts.count(row, spec, count)
        if view.nics and row in columns.nics:
            columns.nics[row].add_requests(spec, count)
        columns.recount(row)
        self.changes_begun -= 1

    def give(self, row: int, spec: PodSpec, count: int = 1, gpus: int = 0) -> None:
        self.take(row, spec, -count, gpus)
        self.freed += 1

    def take_many(self, rows: Ints, spec: PodSpec, counts: Ints, gpus: Sequence[int]) -> None:
        """take() of many different rows at once; counts below 0 give it back."""
        view, columns = self.view(spec), self.columns
        self.changes_begun += 1
        columns.free[rows[:, None], view.columns] -= counts[:, None] * view.amounts
        free_mask, gives = columns.gpus.free_mask, counts.min(initial=0) < 0
        for row, mask in zip(rows.tolist(), gpus, strict=True):
            if mask:
                free_mask[row] = free_mask[row] | mask if gives else free_mask[row] & ~mask
        if view.interpod is not None:
            self.pod_counts.count(rows, spec, counts)
        if view.nics and columns.nics:
            for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
                if row in columns.nics:
                    columns.nics[row].add_requests(spec, count)
        columns.recount_many(rows)
        self.changes_begun -= 1

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Around a change of several steps: if one raises, the snapshot counts as half changed."""
        self.changes_begun += 1
        yield
        self.changes_begun -= 1

    @property
    def is_half_changed(self) -> bool:
        return self.changes_begun > 0

    def view(self, spec: PodSpec) -> PodClassCapacity:
        view = self._views.get(spec)
        if view is None:
            if len(self._views) >= VIEWS_KEPT:
                self._views.clear()
                self.filter_results.keep(FILTERS_KEPT)
            view = self._views[spec] = PodClassCapacity(
                self.columns, self.pod_counts, self.filter_results.of(spec), spec
            )
        return view

    def forget_view(self, spec: PodSpec) -> None:
        """The next view() of the class counts everything again."""
        if (view := self._views.pop(spec, None)) is not None:
            view.reset()  # its filter results, which other classes share

    def preference(self, groups: Iterable[tuple[PodSpec, int]]) -> Ints | None:
        """Returns by row the summed preference score of these pods; None if they have no preference."""
        total: Ints | None = None
        for spec, count in groups:
            if (
                spec.rules is not None and spec.rules.has_preferences
            ) or self.pod_counts.soft_tainted:
                view = self.view(spec)
                if view.preference is None:
                    view.preference = PreferenceScore(self.columns, self.pod_counts, spec)
                score = view.preference.score() * count
                total = score if total is None else total + score
        return total

    def most_gpus(self) -> int:
        """The most allocatable GPUs of one node."""
        if self._most_gpus is None:
            self._most_gpus = int(self.columns.allocatable[:, 0].max(initial=0))
        return self._most_gpus


def _own_labels(node: NodeSeen) -> Mapping[str, str]:
    return node.levels()
