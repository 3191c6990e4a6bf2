"""Victims of one preemption request: candidates as arrays, and the least harmful set in each
domain.

Design: docs/design/0019-preemption.md
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from operator import itemgetter

import numpy as np

from central.model.arrays import Bools, Ints
from central.model.facts import PodSpec
from central.scheduler import placement
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import (
    disruption_budgets,
    evictable,
    exact_search,
    harm,
    independent_units,
    least_harm,
    surplus_members,
)
from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.reservation.release_forecast import DraftMark, ReleasablePods, taken_capacity
from central.scheduler.snapshot import island_masks
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

MAX_STEPS = 4_000  # of the exact search, in all domains together
MAX_EXACT_UNITS = 40  # in a domain; with more, the choice is good but not proven best
MAX_DOMAINS = 8  # domains that get a trial placement, least harm first
MAX_TRIALS = 200  # trial placements for a gang of unlike pods
MEMBER_UNITS = 2  # of work, to read a candidate

Found = tuple[LeastHarmProblem, list[EvictionUnit] | None]
Planned = tuple[harm.Harm, PreemptionPlan]


@dataclass(slots=True)
class _Area:
    """The rows of a domain with candidates. Amounts are of the resources that one pod requests."""

    rows: Sequence[int]
    near: Sequence[int]  # indices of candidates
    free: Ints
    frees: Ints  # by candidate
    request: tuple[int, ...]


class VictimSearch:
    """candidates: pods that may be evicted for the request, on usable rows. gangs: theirs."""

    def __init__(
        self,
        context: PreemptionContext,
        preemption: PreemptionRequest,
        usable: Bools,
        gangs: Sequence[Gang],
        leaving: Sequence[Pod],
    ) -> None:
        """usable: by row. gangs: that may be evicted. leaving: all pods that are terminating, or will be in any
        case."""
        self._context, self._request, self._now = context, preemption.placement, preemption.now
        self._extra_check = preemption.extra_check
        self._forced = preemption.forced
        snapshot = self._snapshot = context.state.snapshot
        fits = np.zeros(len(usable), dtype=np.bool_)
        for spec, _ in self._request.groups:
            fits[snapshot.view(spec).refresh().passed_rows()] = True
        self._usable = usable & fits
        self.gangs: list[tuple[list[Pod], int]] = []  # members that hold capacity, surplus
        self._priorities: list[int] = []  # by gang
        self._kept_whole: list[bool] = []
        self._gang_of: list[int] = []
        pods, surplus_by_task = self._add_gangs(gangs, preemption)
        self._harm = harm.HarmScale(self._priorities, self._now)
        row_of = snapshot.columns.row
        leaving = [pod for pod in leaving if self._usable[row_of[pod.node]]]
        self._covered = not preemption.ignore_budgets and any(map(context.budgets.covering, pods))
        self._allowed = {
            **(
                disruption_budgets.disruptions_left(context.budgets, context.state.gangs.values())
                if self._covered
                else {}
            ),
            **surplus_by_task,
        }
        self._candidates = len(pods)
        self._releasable = ReleasablePods(context.state, [*pods, *leaving])
        self._mixed = self._mixes_whole_and_shared()
        self._state_read: bytes | None = None
        self._terminating = np.arange(self._candidates, len(self._releasable.pods))
        self._upper_bounds = self._fits_without(np.arange(len(self._releasable.pods)))
        self._fits_now = self._fits_without(self._terminating)

    def _add_gangs(
        self, gangs: Sequence[Gang], preemption: PreemptionRequest
    ) -> tuple[list[Pod], dict[least_harm.Allowance, int]]:
        """Returns the candidates, and how much surplus the tasks of their gangs have."""
        forced = {pod.seen.uid for pod in preemption.forced}
        snapshot, min_runtimes = self._snapshot, evictable.MinRuntimes(self._context)
        row_of = snapshot.columns.row
        pods: list[Pod] = []
        surplus_by_task: dict[least_harm.Allowance, int] = {}
        for other in gangs:
            placed = other.counts.placed
            snapshot.meter.spend(1 + MEMBER_UNITS * len(placed))
            members = [pod for pod in placed if pod.charged_spec is not None and not pod.leaving]
            if forced:
                members = [pod for pod in members if pod.seen.uid not in forced]
            surplus = surplus_members.surplus_count(other, members)
            kept_whole = preemption.spares_minimum(other) or bool(
                min_runtimes.why_whole(other, self._now)
            )
            if kept_whole and not surplus:
                continue
            near = [
                pod
                for pod in members
                if self._usable[row_of[pod.node]] and evictable.may_leave(other, pod)
            ]
            if near:
                pods += near
                self._gang_of += [len(self.gangs)] * len(near)
                self._kept_whole.append(kept_whole)
                self.gangs.append((members, surplus))
                self._priorities.append(other.priority)
                surplus_by_task |= surplus_members.surplus_by_task(other, members)
        return pods, surplus_by_task

    def _fits_without(self, gone: Ints) -> dict[PodSpec, Ints]:
        """By pod class: how many fit on each row without these pods (indices)."""
        with self._releasable.without(gone) as snapshot:
            found = {}
            for spec, _ in self._request.groups:
                cap = snapshot.view(spec).refresh().by_row.copy()
                cap[~self._usable] = 0
                found[spec] = cap
            return found

    def may_fit(self, rows: Ints) -> bool:
        return all(
            self._upper_bounds[spec][rows].sum() >= count for spec, count in self._request.groups
        )

    def plan_equal_pods(self, domains: Sequence[Ints]) -> PreemptionPlan | None:
        """For a gang of equal pods: victims by counts. Where these cannot see what victims free,
        by trials too."""
        counted = self._plan_by_counts(domains)
        if not self._mixed:
            return counted[1] if counted is not None else None
        if counted is not None and self._candidates > MAX_EXACT_UNITS:
            return counted[1]
        plans = [plan for plan in (counted, self._plan_by_trials(domains)) if plan is not None]
        return min(plans, key=itemgetter(0))[1] if plans else None

    def _mixes_whole_and_shared(self) -> bool:
        """Whether whole GPUs are requested and candidates have shares, or the other way round. A
        victim's amounts do not say that a GPU is whole once its last share is gone, nor that a
        whole GPU has shares."""
        views = [self._snapshot.view(spec) for spec, _ in self._request.groups]
        whole = bool(self._releasable.amounts[: self._candidates, 0].any())
        shared = self._releasable.have_shares
        return any((view.gpus and shared) or (view.share and whole) for view in views)

    def _plan_by_counts(self, domains: Sequence[Ints]) -> Planned | None:
        """Chooses victims by counts, then proves them by a trial placement."""
        found: list[Found] = []
        by_row: dict[int, list[int]] = {}
        for index in range(self._candidates):
            by_row.setdefault(int(self._releasable.rows[index]), []).append(index)
        try:
            for rows in domains:
                found += self._chosen_on(rows, by_row)
        except WorkLimitReached:
            if not found:
                raise
        found.sort(key=_harm_of)
        steps = MAX_STEPS
        for index, (problem, chosen) in enumerate(found):
            if not problem.is_solved and len(problem.units) <= MAX_EXACT_UNITS and steps > 0:
                better, steps = exact_search.improve(problem, chosen, steps)
                found[index] = (problem, better)
        found.sort(key=_harm_of)
        for _, chosen in found[:MAX_DOMAINS]:
            if chosen and (plan := self.try_without(self._pods_of(chosen))) is not None:
                return least_harm.total_harm(chosen), plan
        return None

    def _chosen_on(self, rows: Ints, by_row: dict[int, list[int]]) -> Iterator[Found]:
        for problem in self._problems(rows, by_row):
            if problem.missing <= 0:
                continue  # terminating pods free enough
            chosen = independent_units.best(problem)
            problem.is_solved = chosen is not None
            if chosen is None:
                chosen = least_harm.choose_victims(problem)
            if chosen is not None or problem.allowed:
                yield problem, chosen

    def _problems(self, rows: Ints, by_row: dict[int, list[int]]) -> Iterator[LeastHarmProblem]:
        ((spec, count),) = self._request.groups
        view, snapshot = self._snapshot.view(spec), self._snapshot
        columns, request = view.columns.tolist(), tuple(view.amounts.tolist())
        candidates = np.zeros(len(self._usable), dtype=np.bool_)
        candidates[list(by_row)] = True
        inside = rows[candidates[rows]].tolist()
        amounts = self._releasable.amounts[:, columns]
        if 0 in columns:
            amounts[:, columns.index(0)] += self._releasable.whole_gpus
        near = sorted(index for row in inside for index in by_row[row])
        snapshot.meter.spend(1 + MEMBER_UNITS * len(near))
        with self._releasable.without(self._terminating):
            free = snapshot.columns.free[inside][:, columns]
            if 0 in columns:  # unhealthy GPUs are not free
                free[:, columns.index(0)] = snapshot.columns.gpus.count[inside]
            area = _Area(inside, near, free, amounts, request)
            if self._request.required in island_masks.PARTS and 0 in columns:
                problems = [*self._islands(area, columns.index(0), count)]
            else:
                missing = count - int(self._fits_now[spec][rows].sum())
                problems = [self._problem(area, missing)]
        yield from problems  # outside of the block: the consumer may raise

    def _islands(self, area: _Area, column: int, count: int) -> Iterator[LeastHarmProblem]:
        """One problem for each part of the row, which counts only its GPUs."""
        for row in area.rows:
            shape, mask = (
                self._snapshot.columns.gpus.shape[row],
                self._snapshot.columns.gpus.free_mask[row],
            )
            for island in island_masks.masks(shape, self._request.required):
                if self._request.existing_gpus & ~island:
                    continue
                inside = _Area(
                    area.rows, area.near, area.free.copy(), area.frees.copy(), area.request
                )
                inside.free[:, column] = (mask & island).bit_count()
                for index in area.near:
                    gpus = int(self._releasable.masks[index]) & island
                    inside.frees[index, column] = gpus.bit_count()
                problem = self._problem(inside, count)
                problem.missing -= sum(map(problem.capacity, problem.free.values()))
                yield problem

    def _problem(self, area: _Area, missing: int) -> LeastHarmProblem:
        rows = self._releasable.rows[area.near].tolist()
        amounts = map(tuple, area.frees[area.near].tolist())
        units: list[EvictionUnit] = []
        wholes: dict[int, EvictionUnit | None] = {}
        surplus: dict[int, int] = {}
        for index, row, frees in zip(area.near, rows, amounts, strict=True):
            number = self._gang_of[index]
            _, surplus[number] = self.gangs[number]
            if number not in wholes:
                wholes[number] = self._whole(number)
                units += filter(None, [wholes[number]])
            if (whole := wholes[number]) is not None:
                have = whole.frees.get(row)
                whole.frees[row] = frees if have is None else tuple(map(int.__add__, have, frees))
            pod = self._releasable.pods[index]
            if surplus[number] and self.may_evict([pod], alone=True):
                rank, uses = pod.seen.order[0], self._uses([pod], alone=True)
                alone = self._harm_alone(index)
                units.append(EvictionUnit(number, False, alone, {row: frees}, index, rank, uses))
        by_row = {row: tuple(have) for row, have in zip(area.rows, area.free.tolist(), strict=True)}
        meter = self._snapshot.meter
        problem = LeastHarmProblem(
            by_row, area.request, missing, units, surplus, self._allowed, meter
        )
        return problem.without_useless()

    def _whole(self, number: int) -> EvictionUnit | None:
        members, _ = self.gangs[number]
        if self._kept_whole[number] or not self.may_evict(members):
            return None
        whole = self.harm_of(number)
        return EvictionUnit(number, True, whole, {}, uses=self._uses(members))

    def whole_gangs(self) -> list[list[Pod]]:
        """The members of each gang that may be evicted whole, least harm first."""
        numbers = [number for number, kept in enumerate(self._kept_whole) if not kept]
        return [self.gangs[number][0] for number in sorted(numbers, key=self.harm_of)]

    def harm_of(self, number: int) -> harm.Harm:
        """Of evicting all of a gang."""
        return self._harm.of(self._priorities[number], self.gangs[number][0], breaks=True)

    def _harm_alone(self, index: int) -> harm.Harm:
        """Of evicting one member above its gang's minimum."""
        priority = self._priorities[self._gang_of[index]]
        return self._harm.of(priority, [self._releasable.pods[index]], breaks=False)

    def may_evict(self, pods: Sequence[Pod], *, alone: bool = False) -> bool:
        """Whether all these pods may be evicted together. alone: without the rest of their
        gangs."""
        for pod in pods:
            if pod.evict_backoff.not_before > self._now:
                return False
        if self._covered and self._context.budgets.never_evictable(pods):
            return False
        return not self._allowed or self._within_allowances(self._uses(pods, alone=alone))

    def _within_allowances(self, uses: Mapping[least_harm.Allowance, int]) -> bool:
        return all(count <= self._allowed[name] for name, count in uses.items())

    def _uses(
        self, pods: Sequence[Pod], *, alone: bool = False
    ) -> Mapping[least_harm.Allowance, int]:
        """What the evictions use of budgets and, if alone, of the surplus of tasks."""
        if not self._allowed:
            return {}
        used = self._context.budgets.disruptions(pods) if self._covered else Counter()
        for pod in pods if alone else ():
            gang = self._context.state.gang_of(pod)
            if (
                gang is not None
                and (task := surplus_members.task_key(gang.key, pod.seen.task)) in self._allowed
            ):
                used[task] += 1
        return used

    def _pods_of(self, units: Sequence[EvictionUnit]) -> list[Pod]:
        pods: dict[str, Pod] = {}
        for unit in units:
            for pod in (
                self.gangs[unit.gang][0] if unit.whole else [self._releasable.pods[unit.pod]]
            ):
                pods[pod.seen.uid] = pod
        return list(pods.values())

    def plan_unlike_pods(self, domains: Sequence[Ints]) -> PreemptionPlan | None:
        """For a gang of unlike pods, for which counts say too little."""
        tried = self._plan_by_trials(domains)
        return tried[1] if tried is not None else None

    def _plan_by_trials(self, domains: Sequence[Ints]) -> Planned | None:
        """Bisects how many units, in order of harm, a trial placement needs, and leaves out units
        that it does not need. The choice is not proven best."""
        by_row: dict[int, list[int]] = {}
        for index in range(self._candidates):
            by_row.setdefault(int(self._releasable.rows[index]), []).append(index)
        best: Planned | None = None
        try:
            for better in self._trials(domains, by_row):
                if best is None or better[0] < best[0]:
                    best = better
        except WorkLimitReached:
            if best is None:
                raise
        return best

    def _trials(self, domains: Sequence[Ints], by_row: dict[int, list[int]]) -> Iterator[Planned]:
        trials = MAX_TRIALS
        for rows in domains[:MAX_DOMAINS]:
            near = sorted(index for row in rows.tolist() for index in by_row.get(row, ()))
            units = self._units_in_order(near)
            low, high = 0, len(units)
            if not self._fits_without_units(units):
                continue
            while high - low > 1:
                middle = (low + high) // 2
                trials -= 1
                if self._fits_without_units(units[:middle]):
                    high = middle
                else:
                    low = middle
            kept = units[:high]
            for unit in reversed(units[:high]):
                without = [one for one in kept if one is not unit]
                trials -= 1
                if trials > 0 and self._fits_without_units(without):
                    kept = without
            plan = self.try_without(self._pods_of(kept))
            harm_of_kept = least_harm.total_harm(kept)
            if plan is not None:
                yield harm_of_kept, plan

    def _units_in_order(self, near: Sequence[int]) -> list[EvictionUnit]:
        """Members above a minimum and whole gangs, in order of harm: at each priority the members come
        first, and of equal members the one with the highest rank."""
        left = {
            number: self.gangs[number][1] for number in {self._gang_of[index] for index in near}
        }
        wholes = [whole for number in sorted(left) if (whole := self._whole(number)) is not None]
        singles: list[EvictionUnit] = []
        used: Counter[least_harm.Allowance] = Counter()
        ranked = sorted(
            (self._harm_alone(index), -self._releasable.pods[index].seen.order[0], index)
            for index in near
            if left[self._gang_of[index]]
        )
        for alone, _, index in ranked:
            pod, number = self._releasable.pods[index], self._gang_of[index]
            more = used + Counter(self._uses([pod], alone=True))
            if left[number] and self.may_evict([pod], alone=True) and self._within_allowances(more):
                left[number], used = left[number] - 1, more
                singles.append(EvictionUnit(number, False, alone, {}, index))
        return self._affordable(sorted(singles + wholes, key=lambda unit: unit.harm))

    def _affordable(self, units: list[EvictionUnit]) -> list[EvictionUnit]:
        """The units, in this order, without those that overspend an allowance."""
        if not self._allowed:
            return units
        kept: list[EvictionUnit] = []
        gone: set[str] = set()
        used: Counter[least_harm.Allowance] = Counter()
        for unit in units:
            fresh = [pod for pod in self._pods_of([unit]) if pod.seen.uid not in gone]
            more = used + Counter(self._uses(fresh))
            if self._within_allowances(more):
                kept.append(unit)
                gone |= {pod.seen.uid for pod in fresh}
                used = more
        return kept

    def _fits_without_units(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether a trial placement succeeds. A long attempt that goes on repeats none."""
        victims, progress = self._pods_of(units), self._snapshot.meter.progress
        if progress is None:
            return self.try_without(victims) is not None
        if self._state_read is None:
            self._state_read = self._read_state()
        reads = (self._state_read, frozenset(pod.seen.uid for pod in victims))

        def fits() -> bool:
            found = self.try_without(victims) is not None
            progress.grew = True
            return found

        return progress.step(reads, fits)

    def _read_state(self) -> bytes:
        """A digest of what trials read: capacity, as far as the request could use it, and who is gone in each."""
        columns, digest = self._snapshot.columns, blake2b(digest_size=16)
        leaving = [pod.seen.uid for pod in self._releasable.pods[self._candidates :]]
        digest.update(repr((self._request, columns.gpus.free_mask, leaving)).encode())
        needed = np.zeros(columns.width, dtype=np.int64)
        for spec, count in self._request.groups:
            view = self._snapshot.view(spec).refresh()
            needed[view.columns] += view.amounts * count
            digest.update(view.passed_rows().tobytes())
        digest.update(np.minimum(columns.free, needed).tobytes())
        return digest.digest()

    def try_without(self, victims: Sequence[Pod]) -> PreemptionPlan | None:
        """A trial placement without the victims; the proof that the gang fits. None: it does
        not."""
        going = ReleasablePods(
            self._context.state, [*victims, *self._releasable.pods[self._candidates :]]
        )
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
        return PreemptionPlan((*self._forced, *victims), taken if exact else taken.on_any_gpus())


def _harm_of(found: Found) -> harm.Harm:
    return least_harm.total_harm(found[1]) if found[1] is not None else harm.MAX_HARM
