"""One scheduling cycle: apply the facts, decide once, assume the decisions. Pure.

    facts -> books -> pending gangs in order (placement, else preemption or reservation)
          -> devices over their limits -> partial gangs -> controllers -> statuses

The live loop, the simulator and replay call schedule_once() alike.
"""

from collections.abc import Collection, Iterable, Sequence

from central.model.decisions import Bind, Decision
from central.model.facts import Fact
from central.scheduler import binding, partial_gangs, placement
from central.scheduler.apply import apply
from central.scheduler.inventory.pods import Pod
from central.scheduler.placement import PlacementRequest, placement_attempts
from central.scheduler.queues import order, quota
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state import on_owner, readiness
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status import gang_status

# Reasons by what was asked for in which capacity epoch. What did not fit keeps out everybody who asks
# for the same while only less is free.
Refusals = dict[tuple[int, tuple[PlacementRequest, ...]], str]
Verdicts = dict[frozenset[object], Refusals]  # by the reservations that bound the attempt


def schedule_once(scheduler: Scheduler, facts: Iterable[Fact], now: float) -> list[Decision]:
    """now: seconds since the epoch (pods say when they began), of a clock that never goes back."""
    apply_facts(scheduler, facts, now)
    return decide(scheduler, now)


def apply_facts(scheduler: Scheduler, facts: Iterable[Fact], now: float) -> None:
    scheduler.state.now = scheduler.queues.now = now
    for fact in facts:
        apply(scheduler, fact)


def decide(scheduler: Scheduler, now: float) -> list[Decision]:
    state = scheduler.state
    _update_all_books(scheduler, now)
    decisions = schedule_pending(scheduler, now)
    decisions += scheduler.gpu_memory.decide(state, now)
    decisions += scheduler.rdma_usage.decide(state, now)
    for gang in list(state.pending.partial.values()):
        decisions += partial_gangs.undo_partial(gang, now)
    controllers, queues, promised = scheduler.controllers, scheduler.queues, scheduler.min_resources
    decisions += controllers.decide(state, queues, promised, now)
    scheduler.admission.decide(state, queues, promised, controllers.owned_groups(), now)
    if queues.enabled:
        for gang in state.pending.changed_gangs.values():
            scheduler.queue_statuses.count(gang, gang_status.phase(gang))
        decisions += scheduler.queue_statuses.decide(queues, now)
    network = state.network
    decisions += scheduler.hypernode_statuses.decide(network.hypernodes, network.built, now)
    decisions += gang_status.status_updates(state)
    return decisions


def due(scheduler: Scheduler, now: float) -> float | None:
    """When to decide again though no fact comes: the live loop ticks, virtual time jumps there."""
    pending = scheduler.state.pending
    times = [
        gang.attempt.partial_since + partial_gangs.UNDO_AFTER_S
        for gang in pending.partial.values()
        if gang.attempt.partial_since is not None
    ]
    times += pending.retry_times(now)
    times += scheduler.queue_statuses.due(now) if scheduler.queues.enabled else ()
    times += scheduler.state.owners.held.values()
    times += scheduler.hypernode_statuses.due(now)
    times += scheduler.admission.due(pending)
    times += scheduler.controllers.due(now)
    return min(times, default=None)


def schedule_pending(scheduler: Scheduler, now: float) -> list[Decision]:
    """Tries every gang that is due, in order, and once more those that a dropped reservation frees."""
    pending = scheduler.state.pending
    reserved = ReservedCapacity(scheduler, now)
    asked = pending.due(now)
    decisions = [*reserved.evictions, *_try_in_order(scheduler, reserved, asked)]
    if reserved.dropped:
        again = pending.refused_before()
        reserved = ReservedCapacity(scheduler, now)
        decisions += [*reserved.evictions, *_try_in_order(scheduler, reserved, again)]
    return decisions


def _update_all_books(scheduler: Scheduler, now: float) -> None:
    state = scheduler.state
    on_owner.release_held_pods(state, now)
    if state.network.rebuild(state.nodes.values(), state.snapshot):
        scheduler.hypernode_statuses.rebuilt(state.network.hypernodes)
    for gang in state.pending.changed_gangs.values():
        gang.attempt.equivalence = 0
        gang.attempt.rank = order.rank(gang)
        _update_books(scheduler, gang)
    if scheduler.queues.enabled:
        scheduler.queues.measure_capacity(state.snapshot, state.unschedulable_nodes)


def _update_books(scheduler: Scheduler, gang: Gang) -> None:
    """Files the gang under what it needs next: a place, to be undone, or nothing."""
    counts, pending = gang.counts, scheduler.state.pending
    if len(counts.placed) - counts.assumed >= gang.minimum and not gang.missing():
        gang.started = True
    if scheduler.queues.update(gang):
        pending.capacity_freed("head of a fifo queue left")
    promises = scheduler.min_resources
    promised = promises.by_gang or (gang.object is not None and gang.object.min_resources)
    if promised and promises.update(gang):
        pending.capacity_freed("promised capacity released")
    if counts.placed:
        pending.lowest_priority = min(pending.lowest_priority, gang.priority)
    half = len(counts.placed) > 0 and not gang.started and gang.missing() > 0
    partial = half and any(pod.alive for pod in counts.placed)
    if not partial:
        gang.attempt.partial_since = None
    pending.update(gang, waiting=counts.unplaced > 0, partial=partial)


def _try_in_order(
    scheduler: Scheduler, reserved: ReservedCapacity, asked: Collection[GangKey]
) -> list[Decision]:
    """One pass over the gangs that are asked, and over those with a reservation."""
    pending, reservations = scheduler.state.pending, scheduler.reservations
    decisions: list[Decision] = []
    verdicts: Verdicts = {}
    first_refused: dict[int, Gang] = {}  # by equivalence, of gangs without a reservation
    gangs = [pending.waiting[key] for key in asked]
    gangs += [
        gang for key in reservations if (gang := pending.waiting.get(key)) and key not in asked
    ]
    for gang in order.in_order(scheduler.queues, gangs):
        if gang.key in asked or reserved.must_look(gang):
            attempt = gang.attempt
            same = None
            if gang.key not in reservations:
                same = first_refused.get(attempt.equivalence)
            if same is not None and same.attempt.refused_at == pending.epoch:
                _refuse_alike(scheduler, gang, same)
            else:
                decisions += _try_schedule(scheduler, gang, reserved, verdicts)
                _update_books(scheduler, gang)
                pending.changed(gang)
                if not attempt.reason and gang.key in pending.waiting:
                    pending.retrying[gang.key] = gang  # its other pods come with the next cycle
                if attempt.reason and attempt.equivalence and gang.key not in reservations:
                    first_refused[attempt.equivalence] = gang
        reserved.on_passed(gang)
    reserved.close()
    return decisions


def _refuse_alike(scheduler: Scheduler, gang: Gang, same: Gang) -> None:
    """Since the other was refused, capacity was only taken: this one asks for the same on the same
    terms, so the answer is the same."""
    gang.attempt.refused_at = same.attempt.refused_at
    if gang.attempt.reason != same.attempt.reason:
        gang.attempt.reason = same.attempt.reason
        scheduler.state.pending.changed(gang)


def _try_schedule(
    scheduler: Scheduler, gang: Gang, reserved: ReservedCapacity, verdicts: Verdicts
) -> list[Decision]:
    """Binds as many of the gang's pods as fit; else makes or keeps capacity for its minimum."""
    state, queues, promises = scheduler.state, scheduler.queues, scheduler.min_resources
    missing = gang.missing()
    gang.attempt.reason = readiness.not_ready_reason(gang, missing)
    if gang.attempt.reason:
        reserved.release(gang)
        return []
    placement_policy = scheduler.policy.placement
    attempts, wants = placement_attempts.attempts(state, gang, missing, placement_policy)
    refusals = [
        quota.refusal(queues, promises, gang, want.groups)
        or promises.refusal(state, gang, want.groups)
        for want in wants
    ]
    if refusals[-1]:  # of the smallest attempt
        gang.attempt.equivalence = placement_attempts.equivalence_key(state, gang, wants)
        state.pending.refuse(gang, refusals[-1])
        reserved.release(gang)
        return []
    first = len(wants) - 1 if refusals[0] else 0
    for bound_by in reserved.views_for(gang):
        refused = verdicts.setdefault(bound_by, {})
        binds = _place(scheduler, gang, attempts[first:], wants[first:], refused)
        if binds:
            reserved.on_bound(gang)
            return list(binds)
    gang.attempt.equivalence = placement_attempts.equivalence_key(state, gang, wants)
    evictions = reserved.on_refused(gang, wants[-1]) if missing > 0 else []
    reserved.annotate(gang)
    return list(evictions)


def _place(
    scheduler: Scheduler,
    gang: Gang,
    attempts: Sequence[list[Pod]],
    wants: tuple[PlacementRequest, ...],
    refused: Refusals,
) -> list[Bind]:
    """Binds the first attempt that fits."""
    state, pending = scheduler.state, scheduler.state.pending
    asked = (pending.epoch, wants)
    if refused and asked in refused:
        pending.refuse(gang, refused[asked])
        return []
    draft = Draft(state.snapshot)
    for attempt, want in zip(attempts, wants, strict=True):
        try:
            placement.fit(draft, want)
        except DoesNotFit as no:
            gang.attempt.reason = no.why
            continue
        gang.attempt.reason, gang.attempt.refused_at = "", -1
        return binding.binds(state, gang, attempt, draft.keep())
    pending.refuse(gang, gang.attempt.reason)
    refused[asked] = gang.attempt.reason
    return []
