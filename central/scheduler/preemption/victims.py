"""Victims of one preemption request: candidates as arrays, and the least harmful set in each
domain.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter

import numpy as np

from central.model.arrays import Bools, Floats, Ints
from central.model.facts import PodSpec
from central.scheduler import placement
from central.scheduler.filters.interpod import is_interpod
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import exact_search, harm, independent_units, least_harm
from central.scheduler.preemption.independent_units import SingleRowGangs
from central.scheduler.preemption.least_harm import QUOTA, EvictionUnit, LeastHarmProblem
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.preemption.victim_gangs import MEMBER_UNITS, VictimGangs
from central.scheduler.preemption.victim_units import VictimUnits
from central.scheduler.reservation.release_forecast import DraftMark, ReleasablePods, taken_capacity
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.work_meter import WorkLimitReached

MAX_STEPS = 4_000  # of the exact search, in all domains together
MAX_EXACT_UNITS = 40  # in a domain; with more, the choice is good but not proven best
MAX_DOMAINS = 8  # domains that get a trial placement, least harm first
MAX_TRIALS = 200  # trial placements where counts do not tell what is needed
HARM_PARTS = 7  # of harm.Harm

Planned = tuple[harm.Harm, PreemptionPlan]


@dataclass(slots=True)
class _Chosen:
    """The least harmful victims in one domain, before a trial placement proves them: whole gangs by number, or units.

    problem: what the units solve, if there may be a better answer."""

    rows: Ints  # of the domain
    gangs: Ints | None = None
    least: harm.Harm = harm.MAX_HARM  # of the gangs
    units: list[EvictionUnit] | None = None
    problem: LeastHarmProblem | None = None

    @property
    def harm(self) -> harm.Harm:
        return self.least if self.units is None else least_harm.total_harm(self.units)


@dataclass(slots=True)
class _Area:
    """The rows of a domain with candidates. Amounts are of the resources that one pod requests."""

    rows: Ints
    near: Ints  # indices of candidates
    free: Ints  # by row
    frees: Ints  # by candidate
    request: Ints


class VictimSearch:
    """The candidates are the pods on usable rows that may be evicted for the request; where quota is lacking, on all
    rows."""

    def __init__(
        self,
        context: PreemptionContext,
        preemption: PreemptionRequest,
        usable: Bools,
        slots: Ints,
        leaving: Sequence[Pod],
    ) -> None:
        """usable: by row. slots: of the gangs that may be evicted, in the table of victims. leaving: all pods that are
        terminating, or will be in any case."""
        self._context, self._request = context, preemption.placement
        self._counted = largest_group(context.state.snapshot, self._request)
        self._extra_check, self._accepts = preemption.extra_check, preemption.accepts
        snapshot = self._snapshot = context.state.snapshot
        fits = np.zeros(len(usable), dtype=np.bool_)
        for spec, _ in self._request.groups:
            fits[snapshot.view(spec).refresh().passed_rows()] = True
        self._usable = usable & fits
        rows = np.ones_like(usable) if preemption.quota else self._usable
        self._gangs = VictimGangs(context, preemption, slots, rows)
        self.units = VictimUnits(context, preemption, self._gangs)
        pods = self._gangs.pods
        leaving = self._on_usable(leaving)
        self._candidates = len(pods)
        self._releasable = ReleasablePods(context.state, [*pods, *leaving])
        self._mixed = self._mixes_whole_and_shared()
        # A victim's amounts do not say which rules between pods, volumes or devices it lifts, nor which GPU has its
        # share.
        groups, shared = self._request.groups, self._releasable.have_shares
        unseen = any(is_interpod(spec) or (spec.share_containers and shared) for spec, _ in groups)
        self._seen_by_counts = alike(self._request) and not (self._mixed or unseen)
        self._terminating = np.arange(self._candidates, len(self._releasable.pods))
        self._fits_now = self._fits_without(self._terminating)

    def _on_usable(self, pods: Sequence[Pod]) -> list[Pod]:
        row_of = self._snapshot.columns.row
        return [pod for pod in pods if self._usable[row_of[pod.node]]]

    def may_free_quota(self) -> bool:
        """Returns whether there are candidates, and all of them together free what quota lacks."""
        return self._candidates > 0 and (
            not self.units.lacking or self.units.free_quota(self.units.for_quota)
        )

    def _fits_without(self, gone: Ints) -> dict[PodSpec, Ints]:
        """Returns by pod class how many fit on each row without these pods (indices)."""
        with self._releasable.without(gone) as snapshot:
            found = {}
            for spec, _ in self._request.groups:
                cap = snapshot.view(spec).refresh().by_row.copy()
                cap[~self._usable] = 0
                found[spec] = cap
            return found

    @cached_property
    def _upper_bounds(self) -> dict[PodSpec, Ints]:
        return self._fits_without(np.arange(len(self._releasable.pods)))

    def may_fit(self, rows: Ints) -> bool:
        return all(
            self._upper_bounds[spec][rows].sum() >= count for spec, count in self._request.groups
        )

    def plan(self, domains: Sequence[Ints]) -> PreemptionPlan | None:
        """Returns a plan with victims that counts choose, or, where these do not see all that victims free or that the
        pods need, with victims by trials."""
        counted = self._plan_by_counts(domains) if alike(self._request) else None
        if self._seen_by_counts or (counted is not None and self._candidates > MAX_EXACT_UNITS):
            return counted[1] if counted is not None else None
        plans = [plan for plan in (counted, self._plan_by_trials(domains)) if plan is not None]
        return min(plans, key=itemgetter(0))[1] if plans else None

    def _mixes_whole_and_shared(self) -> bool:
        """Returns whether whole GPUs are requested and candidates have shares, or the other way round. A
        victim's amounts do not say that a GPU is whole once its last share is gone, nor that a
        whole GPU has shares."""
        views = [self._snapshot.view(spec) for spec, _ in self._request.groups]
        whole = bool(self._releasable.amounts[: self._candidates, 0].any())
        shared = self._releasable.have_shares
        return any((view.gpus and shared) or (view.share and whole) for view in views)

    def _plan_by_counts(self, domains: Sequence[Ints]) -> Planned | None:
        """Chooses victims by counts, then proves them by a trial placement."""
        for choice in self._choices(domains)[:MAX_DOMAINS]:
            pods = self._pods_chosen(choice)
            if pods is not None and self._accepts(pods) and (plan := self.try_without(pods)):
                return choice.harm, plan
        return None

    def _choices(self, domains: Sequence[Ints]) -> list[_Chosen]:
        """Returns choices by counts in all domains, least harm first."""
        found: list[_Chosen] = []
        try:
            for rows in domains:
                found += self._chosen_on(rows)
        except WorkLimitReached:
            if not found:
                raise
        found.sort(key=attrgetter("harm"))
        steps = MAX_STEPS
        for choice in found:
            problem = choice.problem
            if problem is not None and len(problem.units) <= MAX_EXACT_UNITS and steps > 0:
                choice.units, steps = exact_search.improve(problem, choice.units, steps)
        found.sort(key=attrgetter("harm"))
        return found

    def _pods_chosen(self, choice: _Chosen) -> list[Pod] | None:
        """Returns the pods of the choice; None: no choice was found."""
        if choice.gangs is not None:
            return self._gangs.members_of(choice.gangs)
        return None if choice.units is None else self.units.pods_of(choice.units)

    def _chosen_on(self, rows: Ints) -> Iterator[_Chosen]:
        spec, count = self._counted
        near = self._near(rows)
        self._snapshot.meter.spend(1 + MEMBER_UNITS * len(near))
        if self._request.required in island_masks.PARTS and 0 in self._snapshot.view(spec).columns:
            for problem in self._islands(near, count):
                yield from self._choice(rows, problem)
            return
        missing = count - int(self._fits_now[spec][rows].sum())
        area = self._area(near if missing > 0 else near[:0])
        if missing <= 0 and not self.units.lacking:
            yield _Chosen(rows, units=[])  # terminating pods free enough
        elif (gangs := self._sorted_gangs(area, missing)) is not None:
            yield _Chosen(rows, gangs, self._gangs.harm_of_all(gangs))
        else:
            yield from self._choice(rows, self._problem(area, max(missing, 0)))

    def _choice(self, rows: Ints, problem: LeastHarmProblem) -> Iterator[_Chosen]:
        """Yields no choice where terminating pods free enough, or where no set of the units does."""
        if problem.missing > 0 or problem.lacking:
            units = least_harm.choose_victims(problem)
            if units is not None or problem.allowed:
                yield _Chosen(rows, units=units, problem=problem)

    def _near(self, rows: Ints) -> Ints:
        """The candidates on these rows, in order."""
        if self.units.lacking:
            rows = rows[self._usable[rows]]
        if len(rows) == len(self._usable):
            return np.arange(self._candidates)
        ordered, start = self._by_row
        first, end = start[rows], start[rows + 1]
        parts = [ordered[a:b] for a, b in zip(first.tolist(), end.tolist(), strict=True) if b > a]
        return np.sort(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)

    @cached_property
    def _by_row(self) -> tuple[Ints, Ints]:
        """The candidates row by row, and where those of each row begin."""
        rows = self._releasable.rows[: self._candidates]
        order = np.argsort(rows, kind="stable")
        return order, np.searchsorted(rows[order], np.arange(len(self._usable) + 1))

    @cached_property
    def _frees(self) -> Ints:
        """The amounts that each candidate frees, of the resources that one pod requests."""
        columns = self._snapshot.view(self._counted[0]).columns
        amounts: Ints = self._releasable.amounts[: self._candidates, columns]
        amounts[:, columns == 0] += self._releasable.whole_gpus[: self._candidates, None]
        return amounts

    def _area(self, near: Ints) -> _Area:
        view, snapshot = self._snapshot.view(self._counted[0]), self._snapshot
        inside = np.unique(self._releasable.rows[near])
        with self._releasable.without(self._terminating):
            free = snapshot.columns.free[inside][:, view.columns]
            if 0 in view.columns:  # unhealthy GPUs are not free
                free[:, view.columns == 0] = snapshot.columns.gpus.count[inside, None]
        return _Area(inside, near, free, self._frees, view.amounts)

    def _sorted_gangs(self, area: _Area, missing: int) -> Ints | None:
        """The gangs to evict, where each is on one row and goes whole, and sorting finds the best ones; else None."""
        gangs, near = self._gangs, area.near
        number = gangs.gang_of[near]
        if self.units.allowed or self.units.lacking or gangs.surplus[number].any():
            return None
        may_go = ~gangs.backed_off[number]
        near, number = near[may_go], number[may_go]
        if not len(near):
            return None
        begins = np.append(True, number[1:] != number[:-1])
        first, rows = np.flatnonzero(begins), self._releasable.rows[near]
        numbers = number[first]
        if (rows[1:] != rows[:-1])[~begins[1:]].any():  # a gang on two rows
            return None
        units = SingleRowGangs(
            np.searchsorted(area.rows, rows[first]),
            np.add.reduceat(area.frees[near], first, axis=0),
            gangs.whole_parts[numbers, :HARM_PARTS],
        )
        chosen = independent_units.best_gangs(area.free, area.request, missing, units)
        return numbers[chosen] if chosen is not None else None

    def _islands(self, near: Ints, count: int) -> Iterator[LeastHarmProblem]:
        """One problem for each part of a row, which counts only its GPUs."""
        area, gpus = self._area(near), self._snapshot.columns.gpus
        (column,) = np.flatnonzero(self._snapshot.view(self._counted[0]).columns == 0).tolist()
        with self._releasable.without(self._terminating):
            parts = [(gpus.shape[row], gpus.free_mask[row]) for row in area.rows.tolist()]
        for shape, mask in parts:
            for island in island_masks.masks(shape, self._request.required):
                if self._request.existing_gpus & ~island:
                    continue
                inside = _Area(area.rows, near, area.free.copy(), area.frees.copy(), area.request)
                inside.free[:, column] = (mask & island).bit_count()
                for index in near.tolist():
                    freed = int(self._releasable.masks[index]) & island
                    inside.frees[index, column] = freed.bit_count()
                problem = self._problem(inside, count)
                fit = sum(problem.capacity(*each) for each in problem.free.items() if each[0] >= 0)
                problem.missing = max(0, count - fit)
                yield problem

    def _problem(self, area: _Area, missing: int) -> LeastHarmProblem:
        gangs, near = self._gangs, area.near
        rows, numbers = self._releasable.rows[near].tolist(), gangs.gang_of[near].tolist()
        amounts, units = map(tuple, area.frees[near].tolist()), self.units.of(near.tolist())
        wholes = {unit.gang: unit for unit in units if unit.whole}
        singles = {unit.pod: unit for unit in units if not unit.whole}
        for index, number, row, frees in zip(near.tolist(), numbers, rows, amounts, strict=True):
            if (whole := wholes.get(number)) is not None:
                have = whole.frees.get(row)
                whole.frees[row] = frees if have is None else tuple(map(int.__add__, have, frees))
            if (single := singles.get(index)) is not None:
                single.frees[row] = frees
        surplus = {unit.gang: int(gangs.surplus[unit.gang]) for unit in units}
        free = map(tuple, area.free.tolist())
        by_row: dict[int, tuple[int, ...]] = dict(zip(area.rows.tolist(), free, strict=True))
        lacking, allowed, meter = self.units.lacking, self.units.allowed, self._snapshot.meter
        if lacking:
            by_row[QUOTA] = (0,) * len(lacking)
        request: tuple[int, ...] = tuple(area.request.tolist())
        return LeastHarmProblem(
            by_row, request, missing, units, surplus, allowed, meter, lacking, self._units_accepted
        ).without_useless()

    def _units_accepted(self, units: Sequence[EvictionUnit]) -> bool:
        return self._accepts(self.units.pods_of(units))

    def _plan_by_trials(self, domains: Sequence[Ints]) -> Planned | None:
        """Adds to the victims that counts choose for the largest group, in order of harm, as many units as a trial
        placement needs, and leaves out units that it does not need. The result is not proven best."""
        best: Planned | None = None
        try:
            for better in self._trials(domains):
                if best is None or better[0] < best[0]:
                    best = better
        except WorkLimitReached:
            if best is None:
                raise
        return best

    def _trials(self, domains: Sequence[Ints]) -> Iterator[Planned]:
        trials = _Trials(self._plan_without_units, MAX_TRIALS)
        choices = self._choices(domains)
        told = {id(choice.rows) for choice in choices}
        others = [_Chosen(rows, least=harm.MAX_HARM) for rows in domains if id(rows) not in told]
        for choice in [*choices, *others][:MAX_DOMAINS]:
            units = self.units.in_order(self._near(choice.rows).tolist())
            starts = [self._among_chosen(choice)]
            if len(units) <= MAX_EXACT_UNITS and (choice.gangs is not None or choice.units):
                starts.append(lambda unit: False)
            for is_chosen in starts:
                first = [unit for unit in units if is_chosen(unit)]
                found = trials.needed(first, [unit for unit in units if not is_chosen(unit)])
                if found is not None and self._accepts(found[1].victims):
                    yield found

    def _among_chosen(self, choice: _Chosen) -> Callable[[EvictionUnit], bool]:
        """Returns a function that tells whether counts chose the unit."""
        if choice.gangs is not None:
            numbers = frozenset(choice.gangs.tolist())
            return lambda unit: unit.whole and unit.gang in numbers
        keys = {(unit.gang, unit.pod) for unit in choice.units or ()}
        return lambda unit: (unit.gang, unit.pod) in keys

    def _plan_without_units(self, units: Sequence[EvictionUnit]) -> PreemptionPlan | None:
        """Returns the plan where quota suffices and a trial placement succeeds."""
        if not self.units.free_quota(units):
            return None
        return self.try_without(self.units.pods_of(sorted(units, key=attrgetter("harm"))))

    def try_without(self, victims: Sequence[Pod]) -> PreemptionPlan | None:
        """A trial placement without the victims; the proof that the gang fits. None: it does
        not."""
        leaving = [*self._on_usable(victims), *self._releasable.pods[self._candidates :]]
        going = ReleasablePods(self._context.state, leaving)
        self._snapshot.meter.spend(len(going.pods))
        self._snapshot.meter.spend_rows(len(self._usable))
        with going.without(np.arange(len(going.pods))) as snapshot:
            draft = Draft(snapshot)
            before = DraftMark.of(draft)
            with draft.all_or_nothing():
                try:
                    placement.fit(draft, self._request)
                except DoesNotFit:
                    return None
                taken = taken_capacity(draft, before)
                proven = self._extra_check is None or self._extra_check(draft, victims)
            draft.undo()
        if not proven:
            return None
        exact = self._request.by_islands or self._mixed
        return PreemptionPlan(tuple(victims), taken if exact else taken.on_any_gpus())


class _Trials:
    """A number of trial placements, and what they prove to be needed."""

    def __init__(
        self, plan: Callable[[Sequence[EvictionUnit]], PreemptionPlan | None], most: int
    ) -> None:
        """plan: of the gang without these units; None: it does not fit."""
        self._plan, self._left = plan, most
        self._proven = list[PreemptionPlan]()  # of units that sufficed, the last ones last

    def _fit(self, units: Sequence[EvictionUnit]) -> bool:
        self._left -= 1
        if (found := self._plan(units)) is not None:
            self._proven.append(found)
        return found is not None

    def needed(
        self, first: Sequence[EvictionUnit], others: Sequence[EvictionUnit]
    ) -> Planned | None:
        """Returns the plan without the first units, with as many of the others, in their order, as are needed, and
        without those of all that are not; of the first ones as far as the work limit allows to tell. None: even all
        do not suffice."""
        self._proven.clear()
        kept, low, high = [*first], -1, 0
        try:
            if not self._fit(first):
                kept += others
                if not others or not self._fit(kept):
                    return None
                low, high = 0, 1
                while high < len(others) and not self._fit([*first, *others[:high]]):
                    low, high = high, min(2 * high, len(others))
            kept = [*first, *others[:high]]
            while high - low > 1:
                middle = (low + high) // 2
                if self._fit(without := [*first, *others[:middle]]):
                    kept, high = without, middle
                else:
                    low = middle
            # What counts chose is needed, as far as counts tell.
            size = (len(kept) + 1) // 2 if high or len(kept) <= MAX_EXACT_UNITS else 0
            kept.sort(key=attrgetter("harm"))
            while size:
                for end in range(len(kept), 0, -size):
                    without = kept[: max(end - size, 0)] + kept[end:]
                    if self._left > 0 and self._fit(without):
                        kept = without
                size //= 2
        except WorkLimitReached:
            # Many more than are needed may be among the others.
            if high or not self._proven:
                raise
        return least_harm.total_harm(kept), self._proven[-1]


def alike(request: PlacementRequest) -> bool:
    """Returns whether all pods are of one class and not divided."""
    return len(request.groups) == 1 and not request.subgroups


def largest_group(snapshot: Snapshot, request: PlacementRequest) -> tuple[PodSpec, int]:
    """Returns the class whose pods need the largest part of their nodes together, and the number of all pods that need
    as much as each of them of the resource that is scarcest for it; of these classes the one that needs most."""
    counts, sizes = Counter[tuple[int, int]](), list[tuple[tuple[int, int], Floats, PodSpec]]()
    for spec, count in request.groups:
        view = snapshot.view(spec)
        whole = np.maximum(snapshot.columns.allocatable[:, view.columns].max(axis=0, initial=1), 1)
        parts = view.amounts / whole
        scarcest = int(parts.argmax())
        key = int(view.columns[scarcest]), int(view.amounts[scarcest])
        counts[key] += count
        sizes.append((key, parts, spec))
    key, _, spec = max(sizes, key=lambda each: (each[1].max() * counts[each[0]], each[1].sum()))
    return spec, counts[key]
