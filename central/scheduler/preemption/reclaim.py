"""Making room for a gang: who lawfully must go, and their going. Whoever a disruption budget counts, or
whose eviction was refused before, is asked first whether it would be accepted; nobody is evicted until
all of these may be.
"""

from collections.abc import Sequence
from dataclasses import replace

from central.model.arrays import Ints
from central.model.decisions import Evict
from central.scheduler.inventory.pods import EVICTED, EVICTION_ENDED, Pod
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.disruption_budgets import BudgetKey
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.queues import quota
from central.scheduler.reservation import reservation
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.state.gangs import Gang, GangKey

RECLAIMS_TRIED = 8  # times that victims of other queues are chosen anew


def plan(context: PreemptionContext, claim: PreemptionRequest) -> PreemptionPlan | None:
    """Inside a queue the more urgent may take; from another queue what is above its share, also
    when all victims are counted together."""
    gang = claim.gang
    if not context.queues.enabled:
        return preemption_plan.room_for(context, claim)
    queue = gang.queue
    elsewhere = quota.may_reclaim_any(context.queues, gang)
    if not elsewhere and gang.priority <= context.state.pending.lowest_priority:
        return None
    claimed = any(kept.made and kept.queue == queue for kept in context.reservations.values())
    going = [other for other in context.state.gangs.values() if other.preemption.preempted_for]
    spared: set[GangKey] = set()
    known: dict[tuple[object, ...], bool] = {}  # by queue, and what goes

    def may_take(claimant: Gang, victim: Gang) -> bool:
        if victim.queue == queue:
            return victim.priority < claimant.priority
        if not elsewhere or claimed or victim.key in spared or victim.account is None:
            return False  # one claim of a queue after the other: each changes its share
        key = (victim.account.queue, *victim.account.used.items())
        if key not in known:
            known[key] = quota.may_reclaim(context.queues, claimant, victim, going)
        return known[key]

    for _ in range(RECLAIMS_TRIED):
        found = preemption_plan.room_for(context, replace(claim, may_take=may_take))
        if found is None:
            return None
        too_many = _too_many(context, gang, found, going)
        if not too_many:
            return found
        spared |= too_many
    return None


def _too_many(
    context: PreemptionContext, gang: Gang, found: PreemptionPlan, going: list[Gang]
) -> set[GangKey]:
    """Victims whose queues would fall below their share by what the others lose already."""
    taken, over = list(going), set()
    for victim in {
        id(one): one for pod in found.victims if (one := context.state.gang_of(pod))
    }.values():
        if victim in taken:
            continue
        elsewhere = victim.queue != gang.queue
        if elsewhere and not quota.may_reclaim(context.queues, gang, victim, taken):
            over.add(victim.key)
        else:
            taken.append(victim)
    return over


def spared(
    context: PreemptionContext, gang: Gang, want: PlacementRequest, now: float, apart: Ints
) -> str:
    """Which disruption budgets alone stand in the way; empty: it is not they."""
    budgets = context.budgets
    if not budgets.seen:
        return ""
    found = plan(context, PreemptionRequest(gang, want, now, apart, regardless=True))
    if found is None:
        return ""
    budgets.in_the_way = True
    names = sorted(budgets.spends(found.victims))
    if not names:
        return ""
    return f"those who would give way are kept by {_named(context, names)}"


def _named(context: PreemptionContext, names: Sequence[BudgetKey]) -> str:
    told = [
        f"{namespace}/{name} (allows {max(context.budgets.seen[namespace, name].allowed, 0)} more)"
        for namespace, name in names[:3]
    ]
    more = ", ..." if len(names) > 3 else ""
    return f"disruption budget{'s' if len(names) > 1 else ''} {', '.join(told)}{more}"


def begin(
    context: PreemptionContext,
    gang: Gang,
    want: PlacementRequest,
    found: PreemptionPlan,
    now: float,
) -> Reservation:
    """The room is the gang's from now on; those who must go count as leaving."""
    for pod in found.victims:
        pod.advance(EVICTED)
        victim = context.state.gang_of(pod)
        if victim is not None:
            victim.preemption.preempted_for = gang.display_name
            context.state.pending.changed(victim)
    kept = Reservation(
        gang,
        want,
        found.rows,
        found.need,
        found.masks,
        start=now,
        after="",
        place=reservation.words(context.state.snapshot, found.rows),
        volumes=found.volumes,
        made=True,
        firm=True,
        planned_at=now,
        since=now,
        versions=context.state.snapshot.columns.version[found.rows].copy(),
        victims=found.victims,
        moves=found.moved,
    )
    kept.refresh(context.state, now)
    return kept


def go_on(context: PreemptionContext, kept: Reservation) -> list[Evict]:
    """Asks those who must be asked, then evicts all; nothing while an answer is out."""
    staying = [
        pod
        for pod in kept.victims
        if pod.evicting and not pod.seen.deleting and pod.seen.uid in context.state.pods
    ]
    if not kept.asked:
        kept.asked = True
        doubtful = [pod for pod in staying if pod.evict_backoff.refusals or context.budgets.of(pod)]
        if doubtful:
            return [_evict(context, pod, kept, trial=True) for pod in doubtful]
    elif any(
        not pod.eviction_agreed and (pod.evict_backoff.refusals or context.budgets.of(pod))
        for pod in staying
    ):
        return []
    kept.victims = ()
    return [_evict(context, pod, kept) for pod in staying]


def call_off(context: PreemptionContext, kept: Reservation) -> None:
    """Who was not evicted yet stays."""
    for pod in kept.victims:
        pod.advance(EVICTION_ENDED)
        victim = context.state.gang_of(pod)
        if victim is not None and pod.seen.uid in victim.members:
            victim.invalidate_counts()
            if not any(one.evicting for one in victim.members.values()):
                victim.preemption.preempted_for = ""
            context.state.pending.changed(victim)
    kept.victims = ()


def _evict(
    context: PreemptionContext, pod: Pod, kept: Reservation, *, trial: bool = False
) -> Evict:
    seen = pod.seen
    why = _why(kept, context.state.gang_of(pod), seen.priority)
    return Evict(seen.uid, seen.namespace, seen.name, pod.node, why, trial)


def _why(kept: Reservation, victim: Gang | None, priority: int) -> str:
    claimant = kept.gang
    name = claimant.qualified_name
    if kept.moves:
        return f"is moved: {name} fits then, and so does it, elsewhere"
    if victim is not None and victim.queue != claimant.queue:
        below = f"whose queue {claimant.queue} is below its share"
        return f"makes room for {name}, {below}"
    own = victim.priority if victim is not None else priority
    return f"makes room for {name}, which is more urgent (priority {claimant.priority} over {own})"
