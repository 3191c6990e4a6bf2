"""Which gangs to evict so that queues have quota again, with the least harm.

The search is the one for capacity (least_harm.py, exact_search.py): what queues lack is what one pod requests, on one row.
Members above a gang's minimum are units of their own; the rest of a gang goes whole.

Design: docs/design/reclaim.md
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import sub

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import evictable, exact_search, surplus_members
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.preemption.harm import HarmScale, rank
from central.scheduler.preemption.least_harm import (
    Allowance,
    EvictionUnit,
    LeastHarmProblem,
    choose_victims,
)
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionRequest
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.state.gangs import Gang, GangKey

MAX_EXACT_UNITS, MAX_STEPS = 40, 4_000  # of the exact search


def cover(
    context: PreemptionContext,
    request: PreemptionRequest,
    may_evict: Callable[[Gang], bool],
    shortfalls: Sequence[Shortfall],
    chosen: Sequence[Pod] = (),
) -> tuple[Pod, ...] | None:
    """The pods to evict; None: no such set. chosen: victims that go anyway; those that count are part of the
    answer. If they cover everything, no other gang is read, though the queues may have thousands."""
    quota = _Quota(context, request, shortfalls, {pod.seen.uid for pod in chosen})
    theirs = {gang.key: gang for pod in chosen if (gang := context.state.gang_of(pod))}
    if mine := _allowed(request, may_evict, _among(shortfalls, theirs)):
        given = quota.given(quota.units(mine))
        if quota.is_covered_by(given) and quota.is_within_budgets(given):
            return quota.pods_of(given)
    every = {
        key: gang
        for short in shortfalls
        for queue in short.queue
        for key, gang in queue.gangs.items()
    }
    units = quota.units(_allowed(request, may_evict, every.values()))
    context.state.snapshot.meter.spend(len(units))
    found = quota.least_harm(units, quota.given(units))
    if found is not None and not quota.is_within_budgets(found):
        found = quota.least_harm(units, [], keeps_budgets=True)
    return quota.pods_of(found) if found is not None else None


def _allowed(
    request: PreemptionRequest, may_evict: Callable[[Gang], bool], gangs: Iterable[Gang]
) -> list[Gang]:
    return [gang for gang in gangs if gang is not request.gang and may_evict(gang)]


def _among(shortfalls: Sequence[Shortfall], gangs: Mapping[GangKey, Gang]) -> Iterable[Gang]:
    """The gangs that count for a shortfall, in the order of the queues."""
    queues = [queue for short in shortfalls for queue in short.queue]
    if len(gangs) == 1:
        return [gang for key, gang in gangs.items() if any(key in queue.gangs for queue in queues)]
    keys = dict.fromkeys(key for queue in queues for key in queue.gangs if key in gangs)
    return [gangs[key] for key in keys]


class _Quota:
    """What victims must free. The row of each unit is 0, its amounts are by what is lacking, and its pods are pods[unit.pod]."""

    def __init__(
        self,
        context: PreemptionContext,
        request: PreemptionRequest,
        shortfalls: Sequence[Shortfall],
        anyway: Collection[str],
    ) -> None:
        """anyway: uids of pods that go in any case"""
        self._context, self._request, self._anyway = context, request, anyway
        self._lacking = [
            (short, resource, amount)
            for short in shortfalls
            for resource, amount in short.amounts.items()
            if amount > 0
        ]
        self._pods: list[Sequence[Pod]] = []
        self.surplus: dict[int, int] = {}  # by gang: how many of its members may go by themselves
        self.by_task: dict[Allowance, int] = {}  # the same of tasks with minima

    def units(self, gangs: Sequence[Gang]) -> list[EvictionUnit]:
        scale = HarmScale([rank(gang) for gang in gangs], self._request.now)
        self._context.state.snapshot.meter.spend(len(gangs))
        return [
            unit
            for number, gang in enumerate(gangs)
            for unit in self._units_of(gang, number, scale)
        ]

    def _units_of(self, gang: Gang, number: int, scale: HarmScale) -> Iterator[EvictionUnit]:
        context, request, placed = self._context, self._request, gang.counts.placed
        members = [pod for pod in placed if pod.charged_spec is not None and not pod.leaving]
        if not members or any(pod.evict_backoff.not_before > request.now for pod in members):
            return
        if not request.ignore_budgets and context.budgets.never_evictable(members):
            return
        marks_hold = request.marks_hold(gang)
        if request.beyond_marks and marks_hold and context.budgets.cover_any(members):
            return
        why_whole = evictable.why_whole(context, gang, request.now, marks_hold=marks_hold)
        if not request.spares_minimum(gang) and not why_whole:
            yield self._unit(gang, number, scale, members, whole=True)
        self.surplus[number] = left = surplus_members.surplus_count(gang, members)
        if left:
            self.by_task |= surplus_members.surplus_by_task(gang, members)
            may_go = [pod for pod in members if evictable.may_leave(gang, pod) or not marks_hold]
            yield from self._singles(
                [self._single(gang, number, scale, pod) for pod in may_go], left
            )

    def _singles(self, units: list[EvictionUnit], left: int) -> Iterator[EvictionUnit]:
        """Units that free and use the same, only as many as may be evicted: first those that leave anyway, then the least
        harmful ones, of equals the last ranks."""

        def order(unit: EvictionUnit) -> tuple[object, ...]:
            (pod,) = self._pods[unit.pod]
            return pod.seen.uid not in self._anyway, unit.harm, -unit.rank

        alike = Counter[object]()
        for unit in sorted(units, key=order):
            (pod,) = self._pods[unit.pod]
            kind = (unit.frees[0], *unit.uses, *self._context.budgets.covering(pod))
            if alike[kind] < left:
                alike[kind] += 1
                yield unit

    def _single(self, gang: Gang, number: int, scale: HarmScale, pod: Pod) -> EvictionUnit:
        task = surplus_members.task_key(gang.key, pod.seen.task)
        uses = {task: 1} if task in self.by_task else {}
        unit = self._unit(gang, number, scale, [pod], whole=False)
        return replace(unit, rank=pod.seen.order[0], uses=uses)

    def _unit(
        self, gang: Gang, number: int, scale: HarmScale, pods: Sequence[Pod], *, whole: bool
    ) -> EvictionUnit:
        queues = self._context.queues
        queue, amounts = queues.by_name[gang.queue], queues.currency.counted(sums_of(pods))
        amounts = {**amounts, GANGS: int(whole)}
        frees = tuple(
            amounts.get(resource, 0) if short.counts(gang, queue) else 0
            for short, resource, _ in self._lacking
        )
        urgency = sum(surplus_members.urgencies(gang, pods))
        harm = scale.of(rank(gang), pods, breaks=whole, urgency=urgency)
        self._pods.append(pods)
        return EvictionUnit(number, whole, harm, {0: frees}, len(self._pods) - 1)

    def pods_of(self, units: Iterable[EvictionUnit]) -> tuple[Pod, ...]:
        pods = (pod for unit in units for pod in self._pods[unit.pod])
        return tuple({pod.seen.uid: pod for pod in pods}.values())

    def given(self, units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
        """Units whose pods all leave anyway."""
        given = [
            unit
            for unit in units
            if all(pod.seen.uid in self._anyway for pod in self._pods[unit.pod])
        ]
        wholes = {unit.gang for unit in given if unit.whole}
        return [one for one in given if one.whole or one.gang not in wholes]

    def _freed(self, units: Sequence[EvictionUnit]) -> tuple[int, ...]:
        return tuple(sum(unit.frees[0][i] for unit in units) for i in range(len(self._lacking)))

    def is_covered_by(self, units: Sequence[EvictionUnit]) -> bool:
        freed = zip(self._freed(units), self._lacking, strict=True)
        return all(have >= amount for have, (_, _, amount) in freed)

    def is_within_budgets(self, units: Iterable[EvictionUnit]) -> bool:
        context, gangs = self._context, self._context.state.gangs.values()
        return self._request.ignore_budgets or context.budgets.allow(self.pods_of(units), gangs)

    def least_harm(
        self,
        units: Sequence[EvictionUnit],
        given: list[EvictionUnit],
        *,
        keeps_budgets: bool = False,
    ) -> list[EvictionUnit] | None:
        """The least harmful units that cover all together with those that are given."""
        if self.is_covered_by(given):
            return given
        budgets, gone = self._context.budgets, dict[int, list[EvictionUnit]]()
        for unit in given:
            gone.setdefault(unit.gang, []).append(unit)
        surplus, choices = Counter(self.surplus), list[EvictionUnit]()
        surplus.subtract(unit.gang for unit in given if not unit.whole)
        used = Counter(task for unit in given for task in unit.uses)
        allowed = {task: most - used[task] for task, most in self.by_task.items()}
        if keeps_budgets:
            allowed |= disruptions_left(budgets, self._context.state.gangs.values())
        for unit in units:
            mine = gone.get(unit.gang, [])
            if unit in mine or any(one.whole for one in mine):
                continue
            frees = unit.frees[0]
            if unit.whole:  # it includes its members that are given
                frees = tuple(map(sub, frees, self._freed(mine)))
            uses = {**unit.uses}
            if keeps_budgets:
                uses |= budgets.disruptions(self._pods[unit.pod])
            choices.append(replace(unit, frees={0: frees}, uses=uses))
        request = tuple(amount for *_, amount in self._lacking)
        problem = LeastHarmProblem({0: self._freed(given)}, request, 1, choices, surplus, allowed)
        problem = problem.without_useless()
        found = choose_victims(problem)
        if len(problem.units) <= MAX_EXACT_UNITS:
            found, _ = exact_search.improve(problem, found, MAX_STEPS)
        return [*given, *found] if found is not None else None
