"""The least harm that a pod of one class costs on each row, as a bound before any victims are chosen there.

Victims are searched where the bound is low, and the search ends once no other row or domain can be better. All of
it is arrays by row, which equal requests share: only the rows that changed since the last request are counted
again.

The bound of a row counts what frees the resource that the class is placed by (GPUs, if it requests any). The row
lacks `need` of it, and no unit frees more than `most`, so at least need / most units go. The least harmful ones are
summed, with those of the highest priority that this takes: harm is compared from the left, an order that sums keep.

Example: the row lacks 2 GPUs; gangs of 1 GPU that lost 10, 30 and 70 GPU-seconds run there. Two of them go, so at
least 2 gangs are broken and 40 GPU-seconds lost.

Where several pods are missing in a domain, a gang on many rows counts on each by the part that it frees there, and
need / most is not rounded: then the bounds of the rows can be added up.

Design: docs/design/evictions.md
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.model.defaults import MAX_GRACE_S
from central.model.facts import PodSpec
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.harm import BREAKS
from central.scheduler.preemption.victim_columns import PARTS
from central.scheduler.preemption.victim_table import LEAVES, STAYS, VictimTable
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state.cluster_state import ClusterState

Bound = list[float]
NOTHING: Bound = [0.0] * PARTS


BOUNDS_KEPT = 64  # of different requests


@dataclass(slots=True)
class _Units:
    """The units that may go on some rows: one entry for each gang on each row and each member above a minimum."""

    row: Ints
    frees: Ints  # of the resource that counts
    parts: Ints | Floats  # by PARTS


@dataclass(slots=True)
class RowBounds:
    """The bounds of usable rows, by row. Call update() before reading."""

    spec: PodSpec
    pods: int  # that many must fit on the row together; 0: one, and bounds may be added up
    bound: Floats = field(default_factory=lambda: np.zeros((0, PARTS), dtype=np.float64))
    fits: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # at most, now
    most: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # ... without all
    possible: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _now: float = -1.0
    _allowed: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _usable: Bools = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))
    _heap: list[tuple[list[float], int]] = field(default_factory=list)
    _marks: tuple[int, int] = (-1, -1)

    def update(
        self, snapshot: Snapshot, table: VictimTable, allowed: Bools, usable: Bools, now: float
    ) -> "RowBounds":
        """allowed: by slot, which gangs may go. usable: by row."""
        rows, marks = self._changed_rows(snapshot, table, allowed, usable, now)
        self._marks = -1, -1  # if counting fails, all is counted again
        self._now, self._allowed, self._usable = now, allowed, usable
        if rows is None:
            count = len(snapshot.columns.names)
            rows_counted = np.arange(count, dtype=np.int64)
            self.bound = np.zeros((count, PARTS), dtype=np.float64)
            self.fits, self.most = np.zeros((2, count), dtype=np.int64)
            self.possible = np.zeros(count, dtype=np.bool_)
        else:
            rows_counted = rows
        self.possible[rows_counted] = False
        rows_counted = rows_counted[usable[rows_counted]]  # others once they are usable
        if len(rows_counted):
            self._count(snapshot, table, allowed, rows_counted)
        counted = rows_counted[self.possible[rows_counted]]
        if rows is None or len(self._heap) + len(counted) > 2 * len(self.possible):
            # Without entries that are outdated: where queues take turns in giving, each request adds hundreds.
            self._heap = self._entries(np.flatnonzero(self.possible))
            heapify(self._heap)
        else:
            for entry in self._entries(counted):
                heappush(self._heap, entry)
        self._marks = marks
        return self

    def _entries(self, rows: Ints) -> list[tuple[list[float], int]]:
        return list(zip(self.bound[rows].tolist(), rows.tolist(), strict=True))

    def cheapest(self) -> Iterator[tuple[list[float], int]]:
        """The rows where the pods are possible, with their bounds, in order."""
        seen: dict[int, tuple[list[float], int]] = {}
        try:
            while self._heap:
                bound, row = heappop(self._heap)
                if row in seen or not self.possible[row] or bound != self.bound[row].tolist():
                    continue  # it was counted again
                seen[row] = bound, row
                yield bound, row
        finally:
            for entry in seen.values():
                heappush(self._heap, entry)

    def _changed_rows(
        self, snapshot: Snapshot, table: VictimTable, allowed: Bools, usable: Bools, now: float
    ) -> tuple[Ints | None, tuple[int, int]]:
        """Returns the rows to count again (None: all), and the marks of the next update."""
        mark, dirty = snapshot.columns.dirty.since(self._marks[0])
        table_mark, changed = table.dirty.since(self._marks[1])
        marks = mark, table_mark
        if dirty is None or changed is None or now != self._now:
            return None, marks
        have, before = len(allowed), len(self._allowed)
        differ = np.flatnonzero(allowed[:before] != self._allowed[:have])
        other = np.flatnonzero(usable != self._usable).tolist()
        rows = np.unique(np.array([*dirty, *changed, *other], dtype=np.int64))
        if len(differ):
            changed_slots = np.zeros(have, dtype=np.bool_)
            changed_slots[differ] = True
            rows = np.union1d(rows, table.entries.row[changed_slots[table.entries.slot]])
        return rows, marks

    def _count(self, snapshot: Snapshot, table: VictimTable, allowed: Bools, rows: Ints) -> None:
        columns, entries = snapshot.columns, table.entries
        view = snapshot.view(self.spec)
        here = table.entries_on(rows)
        state = entries.state[here]
        may_go = here[(state == STAYS) & allowed[entries.slot[here]]]
        leaving = here[state == LEAVES]
        amounts = np.zeros((max(len(table.classes), 1), columns.width), dtype=np.int64)
        for number, spec in enumerate(table.classes):
            request = columns.request(spec)
            amounts[number, request.columns] = request.amounts
            amounts[number, 0] += request.share > 0  # its GPU, if nobody else has a share of it
        free = columns.free[rows][:, view.columns].copy()
        if len(gpu := np.flatnonzero(view.columns == 0)):  # less than none where claims await some
            free[:, gpu[0]] = columns.gpus.count[rows] + np.minimum(columns.free[rows, 0], 0)
        position = np.zeros(len(columns.names), dtype=np.int64)
        position[rows] = np.arange(len(rows))
        free += _summed(
            position[entries.row[leaving]],
            amounts[entries.podclass[leaving]][:, view.columns],
            len(rows),
        )
        others = table.others_leaving()
        wanted = set(rows.tolist()) if others else set()
        for pod in others:
            row = columns.row[pod.node]
            if pod.charged_spec is not None and row in wanted:
                request = columns.request(pod.charged_spec)
                taken = np.zeros(columns.width, dtype=np.int64)
                taken[request.columns] = request.amounts
                taken[0] += request.share > 0
                free[position[row]] += taken[view.columns]
        freed = amounts[entries.podclass[may_go]][:, view.columns]
        without = free + _summed(position[entries.row[may_go]], freed, len(rows))
        fits = np.maximum(free // view.amounts, 0).min(axis=1)
        most = np.maximum(without // view.amounts, 0).min(axis=1)
        refused = ~view.refresh().passed(rows)
        fits[refused] = 0
        most[refused] = 0
        self.fits[rows], self.most[rows] = fits, most
        counted = _main_column(view.columns, view.amounts, columns.allocatable)
        pods = self.pods or fits + 1
        need = pods * view.amounts[counted] - free[:, counted]
        units = self._units(table, may_go, freed[:, counted])
        units.row = position[units.row]
        found, possible = _least(units, need, len(rows), whole=self.pods > 0)
        if self.pods:
            found[fits >= self.pods] = 0.0  # what terminates in any case is enough
            possible |= fits >= self.pods
        self.bound[rows] = found
        self.possible[rows] = possible & (most >= max(self.pods, 1)) & (most > 0)

    def _units(self, table: VictimTable, may_go: Ints, frees: Ints) -> _Units:
        entries, now = table.entries, self._now
        here = np.unique(entries.slot[may_go])  # slots; all below is of these gangs
        place = np.zeros(len(table.gangs), dtype=np.int64)
        place[here] = np.arange(len(here))
        staying = table.staying_of(here)
        of_pod = entries.harm_of(staying, now)
        slot = place[entries.slot[staying]]
        of_gang = np.zeros((len(here), PARTS), dtype=np.int64)
        for part in range(2, PARTS - 1):
            np.add.at(of_gang[:, part], slot, of_pod[:, part])
        priority = table.by_slot.rank[here]
        of_gang[:, 0], of_gang[:, 1] = priority, BREAKS
        mine = place[entries.slot[may_go]]
        pair = mine * (2**24) + entries.row[may_go]
        pairs, index = np.unique(pair, return_inverse=True)
        on_row = np.bincount(index, weights=frees, minlength=len(pairs)).astype(np.int64)
        whole_slot, whole_row = pairs // 2**24, pairs % 2**24
        whole = of_gang[whole_slot]
        if not self.pods:  # by the part that it frees here
            candidates = staying[self._allowed[entries.slot[staying]]]
            total = np.bincount(place[entries.slot[candidates]], minlength=len(here))
            members = np.bincount(index, minlength=len(pairs))
            part_here = members / np.maximum(total[whole_slot], 1)
            whole = whole.astype(np.float64)
            whole[:, 1:] *= part_here[:, None]
        surplus = table.by_slot.surplus[here]
        alone = np.flatnonzero(surplus[mine] > 0)
        if not len(alone):
            return _Units(whole_row, on_row, whole)
        single = entries.harm_of(may_go[alone], now)
        single[:, 0] = priority[mine[alone]]
        return _Units(
            np.concatenate([whole_row, entries.row[may_go[alone]]]),
            np.concatenate([on_row, frees[alone]]),
            np.concatenate([whole, single]),
        )


class Candidates:
    """The table of victims and the bounds, which all requests for victims share."""

    def __init__(self, state: ClusterState, max_grace_s: float = MAX_GRACE_S) -> None:
        self.table = VictimTable(state, max_grace_s)
        self._bounds: dict[tuple[PodSpec, int], RowBounds] = {}

    def bounds(self, spec: PodSpec, pods: int) -> RowBounds:
        """Returns the bounds for requests of this class. pods: as in RowBounds."""
        found = self._bounds.get((spec, pods))
        if found is None:
            if len(self._bounds) >= BOUNDS_KEPT:
                self._bounds.clear()
            found = self._bounds[spec, pods] = RowBounds(spec, pods)
        return found


def _summed(rows: Ints, amounts: Ints, count: int) -> Ints:
    """Amounts by row."""
    found = np.zeros((count, amounts.shape[1]), dtype=np.int64)
    for column in range(amounts.shape[1]):
        found[:, column] = np.bincount(rows, amounts[:, column], count)
    return found


def _main_column(columns: Ints, amounts: Ints, allocatable: Ints) -> int:
    """Returns the place of the resource that counts: GPUs, else the one of which a pod takes the largest part of a
    node."""
    if len(gpu := np.flatnonzero(columns == 0)):
        return int(gpu[0])
    whole = np.maximum(allocatable[:, columns].max(axis=0, initial=1), 1)
    return int(np.argmax(amounts / whole))


def _least(units: _Units, need: Ints, rows: int, *, whole: bool) -> tuple[Floats, Bools]:
    """The bound of each row, and whether all of its units together free what it lacks. whole: units go whole."""
    helps = (units.frees > 0) | (need[units.row] <= 0)
    row, frees, parts = units.row[helps], units.frees[helps], units.parts[helps]
    order = np.lexsort((*(parts[:, part] for part in reversed(range(PARTS))), row))
    row, frees, parts = row[order], frees[order], parts[order]
    found = np.zeros((rows, PARTS), dtype=np.float64)
    if not len(row):
        return found, need <= 0
    start = np.searchsorted(row, np.arange(rows))
    count = np.bincount(row, minlength=rows)
    most = np.ones(rows, dtype=np.int64)
    np.maximum.at(most, row, frees)
    go = np.maximum(need, 0) / most
    if whole:
        go = np.maximum(np.ceil(go), 1)
    last = np.maximum(np.ceil(go).astype(np.int64), 1)  # units of which any part goes
    possible = last <= count
    at = np.where(possible, start + last - 1, 0)
    # Units of the same row and priority stand together. Those of lower priority are not counted.
    new = np.append(True, (row[1:] != row[:-1]) | (parts[1:, 0] != parts[:-1, 0]))
    first = np.flatnonzero(new)[np.cumsum(new) - 1][at]
    counted = np.where(possible, go - (first - start), 0)
    full = np.floor(counted).astype(np.int64)
    sums = np.concatenate([np.zeros((1, PARTS), dtype=parts.dtype), np.cumsum(parts, axis=0)])
    found[:] = sums[first + full] - sums[first]
    rest = counted - full
    some = np.flatnonzero(rest > 0)
    found[some] += parts[np.minimum(first + full, len(parts) - 1)[some]] * rest[some, None]
    found[:, 0] = parts[at, 0]
    found[~possible] = 0
    return found, possible


def by_domain(bounds: RowBounds, of: Ints, missing: Ints) -> Iterator[tuple[list[float], int]]:
    """The domains that may take the missing pods, with their bounds, in order. of: domain by row. missing: pods by
    domain; domains that miss none are left out."""
    rows = np.flatnonzero((of >= 0) & bounds.possible)
    count = len(missing)
    keys = [bounds.bound[rows, part] for part in reversed(range(PARTS))]
    rows = rows[np.lexsort((*keys, of[rows]))]
    domain, gain = of[rows], (bounds.most - bounds.fits)[rows]
    gain = np.maximum(gain, 0) if not bounds.pods else np.minimum(np.maximum(gain, 0), 1)
    summed = np.cumsum(gain)
    first = np.searchsorted(domain, np.arange(count))
    before = np.concatenate([[0], summed])[first]
    so_far = summed - gain - before[domain]
    taken = np.clip(missing[domain] - so_far, 0, gain)
    priority = np.full(count, -np.inf)
    np.maximum.at(priority, domain[taken > 0], bounds.bound[rows, 0][taken > 0])
    highest = bounds.bound[rows, 0] == priority[domain]
    total = np.zeros((count, PARTS))
    for part in range(1, PARTS):
        weights = bounds.bound[rows, part] * taken * highest
        total[:, part] = np.bincount(domain, weights, count)
    total[:, 0] = priority
    enough = (np.bincount(domain, taken, count) >= missing) & (missing > 0)
    found = np.flatnonzero(enough)
    order = np.lexsort(tuple(total[found, part] for part in reversed(range(PARTS))))
    for number in found[order].tolist():
        yield total[number].tolist(), number


def at_most(table: VictimTable, victims: Sequence[Pod], bound: Bound, now: float) -> bool:
    """Returns whether the harm of these evictions is at most what the bound says."""
    by_slot: dict[int, list[int]] = {}
    for pod in victims:
        slot, entry = table.entry_of(pod)
        by_slot.setdefault(slot, []).append(entry)
    priority, surplus = table.by_slot.rank, table.by_slot.surplus
    highest = max(int(priority[slot]) for slot in by_slot)
    ranked, lower = np.zeros(PARTS), np.zeros(PARTS)
    for slot, chosen in by_slot.items():
        harm = table.entries.harm_of(np.array(chosen, dtype=np.int64), now).sum(axis=0)
        if len(chosen) > surplus[slot]:
            harm[1] = BREAKS
        if priority[slot] == highest:
            ranked += harm
        else:
            lower += harm
    total = ranked + lower
    actual = (
        highest,
        *(each for part in (1, 2, 3) for each in (ranked[part], lower[part])),
        *total[4:7],
    )
    return actual <= (bound[0], bound[1], 0, bound[2], 0, bound[3], 0, *bound[4:7])
