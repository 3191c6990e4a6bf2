"""Preemption inside a queue, reclaim from other queues, and the evictions that follow.

A pod that a disruption budget covers, or whose eviction was refused before, gets a dry run first.
No pod is evicted until all dry runs have succeeded.

Design: docs/design/evictions.md
"""

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from central.model import wording
from central.model.decisions import DEFRAGMENTATION, PREEMPTION, RECLAIM, SUSPENSION, Evict
from central.model.redaction import qualified
from central.scheduler.inventory.pods import EVICTED, EVICTION_ENDED, Pod
from central.scheduler.placement import PlacementRequest, same_devices
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.claim_search import ClaimSearch
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
    outranks,
)
from central.scheduler.queues.queue_claims import reclaims_since
from central.scheduler.queues.shortfall import Shortfalls
from central.scheduler.reservation.reservation import EvictionKind, Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.state.gangs import Gang


def plan(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls] = ()
) -> PreemptionPlan | None:
    """Victims of lower priority in the gang's queue, and of other queues as far as these stay at
    their fair shares, with all victims counted together. lacks: quota that the victims must free as well, as
    alternatives. request.may_evict: by priority, which is all that counts without queues."""
    turns = same_devices.in_turn(context.state.snapshot, request.placement)
    with closing(turns):
        return next((found for _ in turns if (found := _plan(context, request, lacks))), None)


def _plan(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls]
) -> PreemptionPlan | None:
    if not context.queues.enabled:
        return preemption_plan.find_victims(context, request)
    account = request.gang.account
    if account is None or context.queues.by_name[account.queue].error:
        return None
    found = _plan_among_queues(context, request, lacks)
    if found is not None or request.ignore_budgets:
        return found
    if not (context.budgets.seen or context.candidates.table.refresh().by_slot.has_rules.any()):
        return None
    # What a queue has above its share is protected by what queues grant, not by what pods say.
    beyond = replace(request, beyond_marks=True, ignore_budgets=True)
    found = _plan_among_queues(context, beyond, lacks)
    return replace(found, evictions=EvictionKind.BEYOND_MARKS) if found is not None else None


def _plan_among_queues(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls]
) -> PreemptionPlan | None:
    alternatives = lacks or [()]
    for number, shortfalls in enumerate(alternatives, 1):
        search = ClaimSearch(context, request, shortfalls)
        if (found := search.plan()) is not None:
            for other in () if search.suspends else alternatives[number:]:
                found = ClaimSearch(context, request, other).instead_of_own(found)
            return found
    return None


def blocking_budgets(
    context: PreemptionContext, request: PreemptionRequest, lacks: Sequence[Shortfalls] = ()
) -> str:
    """Returns a reason that lists the disruption budgets that alone block preemption, and notes that they do; empty:
    none."""
    budgets = context.budgets
    if not budgets.seen:
        return ""
    found = plan(context, replace(request, ignore_budgets=True), lacks)
    if found is None:
        return ""
    budgets.blocked_a_request = True
    used = budgets.disruptions(found.victims)
    left = disruptions_left(budgets, context.state.gangs.values())
    names = sorted(name for name, count in used.items() if count > left[name]) or sorted(used)
    if not names:
        return ""
    listed = [
        f"{qualified(*name)} ({wording.counted(max(left[name], 0), 'disruption')} left)"
        for name in names[:3]
    ]
    more = ", ..." if len(names) > 3 else ""
    what = wording.plural(len(names), "PodDisruptionBudget")
    return f"preemption blocked by {what} {', '.join(listed)}{more}"


def start_evictions(
    context: PreemptionContext,
    gang: Gang,
    placement: PlacementRequest,
    found: PreemptionPlan,
    now: float,
) -> Reservation:
    """Reserves the capacity for the gang. The victims count as leaving from now on."""
    owned = [(pod, context.state.gang_of(pod)) for pod in found.victims]
    victims = dict.fromkeys(victim for _, victim in owned if victim is not None)
    names: dict[str, str] = {}  # the claimant's, by namespace
    moves = found.evictions is EvictionKind.MOVES
    for pod in found.victims:
        pod.advance(EVICTED)
    for victim in victims:
        if victim is gang:
            continue
        if (name := names.get(victim.namespace)) is None:
            name = names[victim.namespace] = gang.name_for(victim.namespace)
        victim.preemption.preempted_for = name
        victim.preemption.suspended = not moves and _gives_turn(victim, gang)
        context.state.pending.changed(victim)
    place = ReservedPlace.on(context.state.snapshot, found.taken)
    held = Reservation.by_evictions(gang, placement, place, now)
    held.victims, held.evictions = found.victims, found.evictions
    if not found.victims:
        held.after = "pods"
    held.refresh(context.state, now)
    if context.queues.enabled:
        going = () if moves else ((own, pod) for pod, own in owned if own is not None)
        moved = found.victims if moves else ()
        context.queues.add_claim(gang, placement.groups, going, moved)
    return held


def continue_evictions(context: PreemptionContext, held: Reservation) -> list[Evict]:
    """First the dry runs that are needed, then the evictions; nothing while a dry run is
    unanswered. A pod may have ended meanwhile: to evict it would only delete its result."""
    staying = [
        pod
        for pod in held.victims
        if pod.evicting
        and pod.alive
        and not pod.seen.deleting
        and pod.seen.uid in context.state.pods
    ]
    reasons = _EvictionReasons(context, held)
    uncertain = [
        pod
        for pod in staying
        if pod.evict_backoff.refusals
        or (context.budgets.covering(pod) and not reasons.is_beyond_budgets(pod))
    ]
    if not held.dry_run_sent:
        held.dry_run_sent = True
        if uncertain:
            return [reasons.evict(pod, trial=True) for pod in uncertain]
    elif not all(pod.eviction_agreed for pod in uncertain):
        return []
    evictions = [reasons.evict(pod) for pod in staying]
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


class _EvictionReasons:
    """The eviction reasons of the victims of one claim. Thousands of victims have a few different ones."""

    def __init__(self, context: PreemptionContext, held: Reservation) -> None:
        self._context, self._held = context, held
        self._known: dict[object, tuple[str, str, str]] = {}

    def evict(self, pod: Pod, *, trial: bool = False) -> Evict:
        seen, beyond, most_s = pod.seen, self.is_beyond_budgets(pod), self._context.max_grace_s
        cause, why, shown = self._of(pod)
        uid, namespace, name = seen.uid, seen.namespace, seen.name
        grace_s = max(1, int(most_s)) if seen.grace_s > most_s else 0
        return Evict(uid, namespace, name, pod.node, why, trial, cause, shown, beyond, grace_s)

    def is_beyond_budgets(self, pod: Pod) -> bool:
        """Returns whether disruption budgets cover the pod and do not hold against the claim."""
        victim = self._context.state.gang_of(pod)
        if self._held.evictions is not EvictionKind.BEYOND_MARKS or victim is None:
            return False
        return victim.queue != self._held.gang.queue and bool(self._context.budgets.covering(pod))

    def _of(self, pod: Pod) -> tuple[str, str, str]:
        """The cause, the message for users, and what the readers of the pod's namespace may see of it; empty:
        all."""
        seen, victim = pod.seen, self._context.state.gang_of(pod)
        if victim is None:
            alike: object = seen.namespace, seen.priority
        else:
            alike = seen.namespace, victim.namespace, victim.queue, victim.priority
        if (found := self._known.get(alike)) is None:
            cause, why = _eviction_reason(self._context, self._held, victim, seen.priority)
            public = self._context.state.public(why, seen.namespace)
            found = self._known[alike] = cause, why, public if public != why else ""
        return found


def _eviction_reason(
    context: PreemptionContext, held: Reservation, victim: Gang | None, priority: int
) -> tuple[str, str]:
    """The cause, and the message for users."""
    claimant = held.gang
    name = claimant.qualified_name
    if held.evictions is EvictionKind.MOVES:
        return DEFRAGMENTATION, f"rescheduled to make room for {name}; it fits on other nodes"
    if victim is claimant:
        return PREEMPTION, f"above the minimum of its task; {name} lacks a member that it needs"
    ranked = victim is not None and outranks(context.across, claimant, victim)
    if victim is not None and victim.queue != claimant.queue and not ranked:
        since = reclaims_since(context.queues, claimant, victim)
        return RECLAIM, f"reclaimed for {name}; queue {claimant.queue} {since}"
    if victim is not None and _gives_turn(victim, claimant):
        return SUSPENSION, f"suspended after its quantum: it is the turn of {name}"
    own = victim.priority if victim is not None else priority
    return PREEMPTION, f"preempted by {name} (priority {claimant.priority} > {own})"


def _gives_turn(victim: Gang, claimant: Gang) -> bool:
    """Returns whether the victim is suspended for the claimant: evicted because equals of a queue share time."""
    return victim.queue == claimant.queue and victim.priority == claimant.priority
