"""Preemption inside a queue, reclaim from other queues, and the evictions that follow.

A pod that a disruption budget covers, or whose eviction was refused before, gets a dry run first.
No pod is evicted until all dry runs have succeeded.

Design: docs/design/0019-preemption.md
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from central.model.decisions import DEFRAGMENTATION, PREEMPTION, RECLAIM, Evict
from central.model.resources import requested
from central.scheduler.inventory.pods import EVICTED, EVICTION_ENDED, Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.claim_search import ClaimSearch
from central.scheduler.preemption.disruption_budgets import BudgetKey
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
    outranks,
)
from central.scheduler.queues.claim_in_flight import ClaimInFlight
from central.scheduler.queues.shortfall import Shortfalls
from central.scheduler.reservation.reservation import Reservation, ReservedPlace
from central.scheduler.state.gangs import Gang


def plan(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls] = ()
) -> PreemptionPlan | None:
    """Victims of lower priority in the gang's queue, and of other queues as far as these stay at
    their fair shares, with all victims counted together. lacks: quota that the victims must free as well, as
    alternatives."""
    if not context.queues.enabled:
        may_evict = partial(outranks, context.across)
        by_priority = replace(request, may_evict=may_evict, by_group=True)
        return preemption_plan.find_victims(context, by_priority)
    account = request.gang.account
    if account is None or context.queues.by_name[account.queue].error:
        return None
    plans = (ClaimSearch(context, request, shortfalls).plan() for shortfalls in lacks or [()])
    return next(filter(None, plans), None)


def blocking_budgets(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls] = ()
) -> str:
    """Which disruption budgets alone block preemption, as a reason; empty: none."""
    budgets = context.budgets
    if not budgets.seen:
        return ""
    found = plan(context, replace(request, ignore_budgets=True), lacks)
    if found is None:
        return ""
    budgets.blocked_a_request = True
    names = sorted(budgets.disruptions(found.victims))
    if not names:
        return ""
    return f"preemption blocked by {_list_budgets(context, names)}"


def _list_budgets(context: PreemptionContext, names: Sequence[BudgetKey]) -> str:
    listed = []
    for namespace, name in names[:3]:
        left = max(context.budgets.seen[namespace, name].allowed, 0)
        listed.append(f"{namespace}/{name} ({left} disruption{'' if left == 1 else 's'} left)")
    more = ", ..." if len(names) > 3 else ""
    return f"PodDisruptionBudget{'s' if len(names) > 1 else ''} {', '.join(listed)}{more}"


def start_evictions(
    context: PreemptionContext,
    gang: Gang,
    placement: PlacementRequest,
    found: PreemptionPlan,
    now: float,
) -> Reservation:
    """Reserves the capacity for the gang. The victims count as leaving from now on."""
    for pod in found.victims:
        pod.advance(EVICTED)
        victim = context.state.gang_of(pod)
        if victim is not None:
            victim.preemption.preempted_for = gang.name_for(victim.namespace)
            context.state.pending.changed(victim)
    held = Reservation(
        gang,
        placement,
        ReservedPlace.on(
            context.state.snapshot, found.rows, found.need, found.masks, found.volumes
        ),
        start=now,
        after="",
        by_eviction=True,
        strict=True,
        planned_at=now,
        head_since=now,
        victims=found.victims,
        victims_fit_elsewhere=found.victims_fit_elsewhere,
    )
    held.refresh(context.state, now)
    victims = (context.state.gang_of(pod) for pod in found.victims)
    context.stays.took(gang, [victim for victim in victims if victim is not None], now)
    if context.queues.enabled:
        context.queues.add_claim(_in_flight(context, gang, placement, found))
    return held


def _in_flight(
    context: PreemptionContext, gang: Gang, placement: PlacementRequest, found: PreemptionPlan
) -> ClaimInFlight:
    counted = context.queues.currency.counted
    victims = [
        (victim, pod, counted(dict(pod.spec.requests)))
        for pod in (() if found.victims_fit_elsewhere else found.victims)
        if (victim := context.state.gang_of(pod)) is not None
    ]
    return ClaimInFlight(gang, counted(requested(placement.groups)), tuple(victims))


def continue_evictions(context: PreemptionContext, held: Reservation) -> list[Evict]:
    """First the dry runs that are needed, then the evictions; nothing while a dry run is
    unanswered."""
    staying = [
        pod
        for pod in held.victims
        if pod.evicting and not pod.seen.deleting and pod.seen.uid in context.state.pods
    ]
    if not held.dry_run_sent:
        held.dry_run_sent = True
        uncertain = [
            pod for pod in staying if pod.evict_backoff.refusals or context.budgets.covering(pod)
        ]
        if uncertain:
            return [_evict(context, pod, held, trial=True) for pod in uncertain]
    elif any(
        not pod.eviction_agreed and (pod.evict_backoff.refusals or context.budgets.covering(pod))
        for pod in staying
    ):
        return []
    evictions = [_evict(context, pod, held) for pod in staying]
    held.victims = ()
    return evictions


def cancel(context: PreemptionContext, held: Reservation) -> None:
    """Keeps the victims that were not evicted yet."""
    context.queues.end_claim(held.gang.key)
    for pod in held.victims:
        pod.advance(EVICTION_ENDED)
        victim = context.state.gang_of(pod)
        if victim is not None and pod.seen.uid in victim.members:
            victim.invalidate_counts()
            if not any(one.evicting for one in victim.members.values()):
                victim.preemption.preempted_for = ""
            context.state.pending.changed(victim)
    held.victims = ()


def _evict(
    context: PreemptionContext, pod: Pod, held: Reservation, *, trial: bool = False
) -> Evict:
    seen = pod.seen
    cause, why = _eviction_reason(context, held, context.state.gang_of(pod), seen.priority)
    public = context.state.public(why, seen.namespace)
    shown = public if public != why else ""
    return Evict(seen.uid, seen.namespace, seen.name, pod.node, why, trial, cause, shown)


def _eviction_reason(
    context: PreemptionContext, held: Reservation, victim: Gang | None, priority: int
) -> tuple[str, str]:
    """The cause, and the message for users."""
    claimant = held.gang
    name = claimant.qualified_name
    if held.victims_fit_elsewhere:
        return DEFRAGMENTATION, f"rescheduled to make room for {name}; it fits on other nodes"
    ranked = victim is not None and outranks(context.across, claimant, victim)
    if victim is not None and victim.queue != claimant.queue and not ranked:
        return RECLAIM, f"reclaimed for {name}; queue {claimant.queue} is below its fair share"
    own = victim.priority if victim is not None else priority
    return PREEMPTION, f"preempted by {name} (priority {claimant.priority} > {own})"
