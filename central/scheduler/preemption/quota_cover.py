"""Which gangs to evict so that queues have quota again, with the least harm.

The search is the one for capacity (least_harm.py, exact_search.py): what queues lack is what one pod requests, on one row.
Members above a gang's minimum are units of their own; the rest of a gang goes whole.

Design: docs/design/reclaim.md
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from central.model.resources import Sums
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import evictable, exact_search, surplus_members
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.preemption.harm import Harm, HarmScale
from central.scheduler.preemption.least_harm import (
    Allowance,
    EvictionUnit,
    LeastHarmProblem,
    choose_victims,
)
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionRequest
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.state.gangs import Gang, GangKey

MAX_EXACT_UNITS, MAX_STEPS = 40, 4_000  # of the exact search


@dataclass(frozen=True, slots=True, eq=False)
class _Unit:
    gang: Gang
    pods: tuple[Pod, ...]
    whole: bool
    harm: Harm
    frees: tuple[int, ...]  # by what is required


def cover(
    context: PreemptionContext,
    request: PreemptionRequest,
    may_evict: Callable[[Gang], bool],
    shortfalls: Sequence[Shortfall],
    chosen: Iterable[Pod] = (),
) -> tuple[Pod, ...] | None:
    """The pods to evict; None: no such set. chosen: victims that go anyway; those that count are part of the
    answer."""
    anyway = {pod.seen.uid: pod for pod in chosen}
    if (enough := _chosen_alone(context, request, may_evict, shortfalls, anyway)) is not None:
        return enough
    gangs = [gang for gang in _inside(shortfalls) if gang is not request.gang and may_evict(gang)]
    units = _all_units(context, request, gangs, shortfalls, anyway)
    context.state.snapshot.meter.spend(len(units))
    required = _required(shortfalls)
    found = _least_harm(units, _given(units, anyway), required)
    if found is not None and not _within_budgets(context, request, found):
        found = _least_harm(units, [], required, context)
    return _pods_of(found) if found is not None else None


def _pods_of(units: Iterable[_Unit]) -> tuple[Pod, ...]:
    return tuple({pod.seen.uid: pod for unit in units for pod in unit.pods}.values())


def _given(units: Iterable[_Unit], anyway: Collection[str]) -> list[_Unit]:
    """Those whose pods all go anyway."""
    given = [unit for unit in units if all(pod.seen.uid in anyway for pod in unit.pods)]
    wholes = {unit.gang.key for unit in given if unit.whole}
    return [one for one in given if one.whole or one.gang.key not in wholes]


def _chosen_alone(
    context: PreemptionContext,
    request: PreemptionRequest,
    may_evict: Callable[[Gang], bool],
    shortfalls: Sequence[Shortfall],
    chosen: Mapping[str, Pod],
) -> tuple[Pod, ...] | None:
    """Those of the chosen pods that count, if they cover everything: then nothing else is looked at, though the queues
    may have thousands of gangs. None: they do not."""
    theirs = {gang.key: gang for pod in chosen.values() if (gang := context.state.gang_of(pod))}
    gangs = [
        theirs[key]
        for key in _in_order(shortfalls, theirs)
        if theirs[key] is not request.gang and may_evict(theirs[key])
    ]
    if not gangs:
        return None
    given = _given(_all_units(context, request, gangs, shortfalls, chosen), chosen)
    if not _covers(given, _required(shortfalls)) or not _within_budgets(context, request, given):
        return None
    return _pods_of(given)


def _in_order(shortfalls: Sequence[Shortfall], keys: Collection[GangKey]) -> Iterable[GangKey]:
    """Those of the keys that _inside() has, in its order."""
    queues = [queue for short in shortfalls for queue in short.queue]
    if len(keys) == 1:
        return [key for key in keys if any(key in queue.gangs for queue in queues)]
    return dict.fromkeys(key for queue in queues for key in queue.gangs if key in keys)


def _inside(shortfalls: Sequence[Shortfall]) -> list[Gang]:
    found: dict[GangKey, Gang] = {}
    for short in shortfalls:
        for queue in short.queue:
            found.update(queue.gangs)
    return list(found.values())


def _required(shortfalls: Sequence[Shortfall]) -> tuple[int, ...]:
    return tuple(amount for short in shortfalls for amount in short.amounts.values())


def _all_units(
    context: PreemptionContext,
    request: PreemptionRequest,
    gangs: Sequence[Gang],
    shortfalls: Sequence[Shortfall],
    anyway: Collection[str],
) -> list[_Unit]:
    scale = HarmScale([gang.priority for gang in gangs], request.now)
    context.state.snapshot.meter.spend(len(gangs))
    return [
        unit
        for gang in gangs
        for unit in _units(context, request, gang, shortfalls, scale, anyway=anyway)
    ]


def _units(
    context: PreemptionContext,
    request: PreemptionRequest,
    gang: Gang,
    shortfalls: Sequence[Shortfall],
    scale: HarmScale,
    *,
    anyway: Collection[str],
) -> Iterator[_Unit]:
    members = [
        pod for pod in gang.counts.placed if pod.charged_spec is not None and not pod.leaving
    ]
    if not members or any(pod.evict_backoff.not_before > request.now for pod in members):
        return
    if not request.ignore_budgets and context.budgets.never_evictable(members):
        return
    queue = context.queues.by_name[gang.queue]

    def unit(pods: Sequence[Pod], *, whole: bool) -> _Unit:
        amounts = context.queues.currency.counted(sums_of(pods))
        if whole:
            amounts = {**amounts, GANGS: 1}
        urgency = sum(surplus_members.urgencies(gang, pods))
        harm = scale.of(gang.priority, pods, breaks=whole, urgency=urgency)
        return _Unit(gang, tuple(pods), whole, harm, _frees(gang, queue, amounts, shortfalls))

    if not request.spares_minimum(gang) and not evictable.why_whole(context, gang, request.now):
        yield unit(members, whole=True)
    for pod in _surplus(gang, members, anyway):
        yield unit([pod], whole=False)


def _surplus(gang: Gang, members: Sequence[Pod], anyway: Collection[str]) -> Iterator[Pod]:
    """Members that may go by themselves, all of them together: those that go anyway, the least urgent pods, of these the
    last ranks."""

    def order(pod: Pod) -> tuple[object, ...]:
        return pod.seen.uid in anyway, -pod.seen.priority, pod.seen.order

    left = surplus_members.surplus_count(gang, members)
    by_task = dict(surplus_members.surplus_by_task(gang, members))
    may_go = [pod for pod in members if evictable.may_leave(gang, pod)] if left else []
    for pod in sorted(may_go, key=order, reverse=True):
        task = surplus_members.task_key(gang.key, pod.seen.task)
        if left and by_task.get(task, 1):
            left -= 1
            if task in by_task:
                by_task[task] -= 1
            yield pod


def _frees(
    gang: Gang, queue: Queue, amounts: Sums, shortfalls: Sequence[Shortfall]
) -> tuple[int, ...]:
    return tuple(
        amounts.get(resource, 0) if short.counts(gang, queue) else 0
        for short in shortfalls
        for resource in short.amounts
    )


def _least_harm(
    units: Sequence[_Unit],
    given: Sequence[_Unit],
    required: Sequence[int],
    context: PreemptionContext | None = None,
) -> list[_Unit] | None:
    """The least harmful units that cover all together with those that are given: the request is one pod on one row.
    context: of disruption budgets that are kept."""
    short = [index for index, amount in enumerate(required) if amount > 0]
    gone: dict[GangKey, list[_Unit]] = {}
    for unit in given:
        gone.setdefault(unit.gang.key, []).append(unit)
    free = tuple(sum(unit.frees[index] for unit in given) for index in short)
    numbers: dict[GangKey, int] = {}
    surplus, choices, theirs = Counter[int](), list[EvictionUnit](), dict[EvictionUnit, _Unit]()
    for unit in units:
        mine = gone.get(unit.gang.key, ())
        if unit in mine or any(one.whole for one in mine):
            continue
        number = numbers.setdefault(unit.gang.key, len(numbers))
        surplus[number] += not unit.whole
        counted = mine if unit.whole else ()  # which the whole gang includes
        frees = tuple(unit.frees[i] - sum(one.frees[i] for one in counted) for i in short)
        uses = context.budgets.disruptions(unit.pods) if context is not None else {}
        choices.append(EvictionUnit(number, unit.whole, unit.harm, {0: frees}, uses=uses))
        theirs[choices[-1]] = unit
    allowed: Mapping[Allowance, int] = {}
    if context is not None:
        allowed = disruptions_left(context.budgets, context.state.gangs.values())
    request = tuple(required[index] for index in short)
    problem = LeastHarmProblem({0: free}, request, 1, choices, surplus, allowed)
    problem = problem.without_useless()
    if not short or problem.capacity(free):
        return list(given)
    found = choose_victims(problem)
    if len(problem.units) <= MAX_EXACT_UNITS:
        found, _ = exact_search.improve(problem, found, MAX_STEPS)
    return [*given, *(theirs[one] for one in found)] if found is not None else None


def _covers(units: Sequence[_Unit], required: Sequence[int]) -> bool:
    wholes = {unit.gang.key for unit in units if unit.whole}
    counted = [unit for unit in units if unit.whole or unit.gang.key not in wholes]
    return all(
        sum(unit.frees[index] for unit in counted) >= amount
        for index, amount in enumerate(required)
    )


def _within_budgets(
    context: PreemptionContext, request: PreemptionRequest, units: Sequence[_Unit]
) -> bool:
    gangs = context.state.gangs.values()
    return request.ignore_budgets or context.budgets.allow(_pods_of(units), gangs)
