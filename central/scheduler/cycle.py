"""One scheduling cycle: apply the facts, decide once, assume the decisions. Pure.

    facts -> accounting -> pending gangs in order (placement, else preemption or reservation)
          -> pods above device limits -> partial gangs -> controllers -> statuses

The live loop, the simulator and replay all call schedule_once().
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
from central.scheduler.state import on_pod, readiness
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status import gang_status

# Reasons by capacity epoch and requests. Within an epoch free capacity only shrinks, so a request that
# did not fit does not fit for another gang either.
Refusals = dict[tuple[int, tuple[PlacementRequest, ...]], str]
Verdicts = dict[frozenset[object], Refusals]  # by the reservations that constrained the attempt


def schedule_once(scheduler: Scheduler, facts: Iterable[Fact], now: float) -> list[Decision]:
    """now: seconds since the epoch, as pods' start times are, of a clock that never goes back."""
    apply_facts(scheduler, facts, now)
    return decide(scheduler, now)


def apply_facts(scheduler: Scheduler, facts: Iterable[Fact], now: float) -> None:
    scheduler.state.now = scheduler.queues.now = now
    for fact in facts:
        apply(scheduler, fact)


def decide(scheduler: Scheduler, now: float) -> list[Decision]:
    state = scheduler.state
    _update_accounting(scheduler, now)
    decisions = schedule_pending(scheduler, now)
    decisions += scheduler.gpu_memory.decide(state, now)
    decisions += scheduler.rdma_usage.decide(state, now)
    for gang in list(state.pending.partial.values()):
        decisions += partial_gangs.undo_partial(gang, now)
    controllers, queues = scheduler.controllers, scheduler.queues
    min_resources = scheduler.min_resources
    decisions += controllers.decide(state, queues, min_resources, now)
    scheduler.admission.decide(state, queues, min_resources, controllers.owned_groups(), now)
    if queues.enabled:
        for gang in state.pending.changed_gangs.values():
            scheduler.queue_statuses.count(gang, gang_status.phase(gang))
        decisions += scheduler.queue_statuses.decide(queues, now)
    network = state.network
    decisions += scheduler.hypernode_statuses.decide(network.hypernodes, network.built, now)
    decisions += gang_status.status_updates(state)
    return decisions


def due(scheduler: Scheduler, now: float) -> float | None:
    """When the next cycle is due without a fact; None: not before one. Virtual time jumps there."""
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
    """Tries every due gang in order. If a reservation was dropped, tries those refused before again."""
    pending = scheduler.state.pending
    reserved = ReservedCapacity(scheduler, now)
    due_keys = pending.due(now)
    decisions = [*reserved.evictions, *_try_in_order(scheduler, reserved, due_keys)]
    if reserved.dropped:
        again = pending.refused_before()
        reserved = ReservedCapacity(scheduler, now)
        decisions += [*reserved.evictions, *_try_in_order(scheduler, reserved, again)]
    return decisions


def _update_accounting(scheduler: Scheduler, now: float) -> None:
    state = scheduler.state
    on_pod.release_held_pods(state, now)
    if state.network.rebuild(state.nodes.values(), state.snapshot):
        scheduler.hypernode_statuses.rebuilt(state.network.hypernodes)
    for gang in state.pending.changed_gangs.values():
        gang.attempt.equivalence = 0
        gang.attempt.rank = order.rank(gang)
        _account(scheduler, gang)
    if scheduler.queues.enabled:
        scheduler.queues.measure_capacity(state.snapshot, state.unschedulable_nodes)


def _account(scheduler: Scheduler, gang: Gang) -> None:
    """Updates the accounting of the gang, and whether it is waiting or partially bound."""
    counts, pending = gang.counts, scheduler.state.pending
    if len(counts.placed) - counts.assumed >= gang.minimum and not gang.missing():
        gang.started = True
    if scheduler.queues.update(gang):
        pending.capacity_freed("head of a fifo queue left")
    min_resources = scheduler.min_resources
    has_min_resources = min_resources.by_gang or (
        gang.object is not None and gang.object.min_resources
    )
    if has_min_resources and min_resources.update(gang):
        pending.capacity_freed("minResources released")
    if counts.placed:
        pending.lowest_priority = min(pending.lowest_priority, gang.priority)
    partly_bound = len(counts.placed) > 0 and not gang.started and gang.missing() > 0
    partial = partly_bound and any(pod.alive for pod in counts.placed)
    if not partial:
        gang.attempt.partial_since = None
    pending.update(gang, waiting=counts.unplaced > 0, partial=partial)


def _try_in_order(
    scheduler: Scheduler, reserved: ReservedCapacity, due_keys: Collection[GangKey]
) -> list[Decision]:
    """One pass over the due gangs and those with a reservation."""
    pending, reservations = scheduler.state.pending, scheduler.reservations
    decisions: list[Decision] = []
    verdicts: Verdicts = {}
    first_refused: dict[int, Gang] = {}  # by equivalence, of gangs without a reservation
    gangs = [pending.waiting[key] for key in due_keys]
    gangs += [
        gang for key in reservations if (gang := pending.waiting.get(key)) and key not in due_keys
    ]
    for gang in order.in_order(scheduler.queues, gangs):
        if gang.key in due_keys or reserved.must_retry(gang):
            attempt = gang.attempt
            same = None
            if gang.key not in reservations:
                same = first_refused.get(attempt.equivalence)
            if same is not None and same.attempt.refused_at == pending.epoch:
                _refuse_alike(scheduler, gang, same)
            else:
                decisions += _try_schedule(scheduler, gang, reserved, verdicts)
                _account(scheduler, gang)
                pending.changed(gang)
                if not attempt.reason and gang.key in pending.waiting:
                    pending.retrying[gang.key] = (
                        gang  # its remaining pods are tried in the next cycle
                    )
                if attempt.reason and attempt.equivalence and gang.key not in reservations:
                    first_refused[attempt.equivalence] = gang
        reserved.on_tried(gang)
    reserved.close()
    return decisions


def _refuse_alike(scheduler: Scheduler, gang: Gang, same: Gang) -> None:
    """Copies the refusal of an equal request: since then capacity was only taken, so the result is
    the same."""
    gang.attempt.refused_at = same.attempt.refused_at
    if gang.attempt.reason != same.attempt.reason:
        gang.attempt.reason = same.attempt.reason
        scheduler.state.pending.changed(gang)


def _try_schedule(
    scheduler: Scheduler, gang: Gang, reserved: ReservedCapacity, verdicts: Verdicts
) -> list[Decision]:
    """Binds as many of the gang's pods as fit; else makes or keeps capacity for its minimum."""
    state, queues, min_resources = scheduler.state, scheduler.queues, scheduler.min_resources
    missing = gang.missing()
    gang.attempt.reason = readiness.not_ready_reason(gang, missing)
    if gang.attempt.reason:
        reserved.release(gang)
        return []
    placement_policy = scheduler.policy.placement
    attempts, wants = placement_attempts.attempts(state, gang, missing, placement_policy)
    refusals = [
        quota.refusal(queues, min_resources, gang, want.groups)
        or min_resources.refusal(state, gang, want.groups)
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
    request = (pending.epoch, wants)
    if request in refused:
        pending.refuse(gang, refused[request])
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
    refused[request] = gang.attempt.reason
    return []
