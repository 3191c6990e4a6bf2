"""Keeps the reasons of pending gangs true after they were refused.

A refusal holds until capacity is freed, and its gang is not tried again before. Its numbers do not hold that long:
other gangs that are bound in the meantime change what is free. So reasons that may be out of date at the end of a
cycle are computed again, equal requests once, a bounded number in each cycle.

Design: docs/design/reclaim.md
"""

from dataclasses import replace
from itertools import islice

from central.model import wording
from central.model.pending_causes import RETRY
from central.scheduler import containment, pending_cause, placement
from central.scheduler.placement import explain, placement_attempts, pod_kinds
from central.scheduler.queues import min_resources
from central.scheduler.refusal_remarks import FITS_NOW, is_late, remarks
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.shared_refusals import CountedCapacity
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.state import readiness
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

RECOMPUTED_MOST = 20  # different requests in one cycle; the others follow in the next cycles
EXAMINED_MOST = 100  # gangs in one cycle, in turn

Known = dict[tuple[object, ...], tuple[str, str]]  # the refusal's base, and the cause


def refresh(scheduler: Scheduler, now: float) -> None:
    """Brings the reasons of refused gangs up to date, after the pending gangs were tried."""
    state, refused = scheduler.state, scheduler.refused
    if not refused:
        return
    waiting = state.pending.waiting
    if scheduler.queues.enabled:
        scheduler.queues.measure_capacity(state.snapshot, state.node_sets.unschedulable)
    stamp = capacity_stamp(scheduler)
    known: Known = {}
    withheld, meter = WithheldCapacity(state.snapshot), state.snapshot.meter
    meter.begin()
    for key in list(islice(refused, EXAMINED_MOST)):
        entry, gang = refused.pop(key), waiting.get(key)
        if entry is None or gang is None or not gang.attempt.reason:
            continue
        if (entry := _present(scheduler, gang, entry)) is None:
            continue
        refused.give(gang, entry)  # at the end: the others have their turn first
        if entry.stamp != stamp and len(known) < RECOMPUTED_MOST and not meter.is_spent:
            if not _recomputed(scheduler, gang, entry, withheld, known):
                continue
            entry.stamp = stamp
        if entry.stamp == stamp:
            held, volumes = _still_held(scheduler, entry)
            if is_late(entry.reason, held, now):
                withheld.set(held, volumes)
                _say(scheduler, entry, withheld, now)
            _set_reason(scheduler, gang, entry.reason)
    for key in scheduler.reservations:  # the time to their starts has changed
        if (own := refused.get(key)) is not None and own.stamp == stamp:
            withheld.set(*_still_held(scheduler, own))
            _say(scheduler, own, withheld, now)
    withheld.set([])
    meter.end()


def _present(scheduler: Scheduler, gang: Gang, entry: GangRefusal) -> GangRefusal | None:
    """The refusal as it concerns the gang now. None: the gang can't be tried, or is set aside."""
    try:
        if gang.missing() == entry.missing:
            return _of_tenant(scheduler, gang, entry)
        return _changed(scheduler, gang, entry)
    except Exception as error:  # noqa: BLE001  any bug
        containment.gang_failed(scheduler, gang, containment.SearchFailed(error))
        return None


def _changed(scheduler: Scheduler, gang: Gang, entry: GangRefusal) -> GangRefusal | None:
    """The refusal of a gang that lost pods in the cycle in which it was refused, by an eviction: until it is tried
    in the next one, its reason speaks of what it lacks now. None: it can't be tried, which is the reason."""
    state, missing = scheduler.state, gang.missing()
    if why := readiness.not_ready(gang, missing, scheduler.quarantine)[1]:
        _set_reason(scheduler, gang, why)
        return None
    _, wants = placement_attempts.attempts(state, gang, missing, scheduler.policy.placement)
    return replace(entry, gang=gang, request=wants[-1], stamp=None, missing=missing)


def _of_tenant(scheduler: Scheduler, gang: Gang, entry: GangRefusal) -> GangRefusal:
    """The refusal, or one of its own for a gang that shares it with a tenant who is answered differently by now."""
    tenant = scheduler.preemption.tenant
    if entry.gang is gang or tenant(entry.gang) == tenant(gang):
        return entry
    return replace(entry, gang=gang, stamp=None)


def refresh_one(scheduler: Scheduler, gang: Gang) -> None:
    """Brings the reason of one gang up to date, for somebody who asks for it between two cycles."""
    entry = scheduler.refused.get(gang.key)
    if entry is None or not gang.attempt.reason:
        return
    entry = _of_tenant(scheduler, gang, entry)
    stamp = capacity_stamp(scheduler)
    if entry.stamp != stamp:
        withheld = WithheldCapacity(scheduler.state.snapshot)
        entry.counted = None  # facts may have come since the cycle
        scheduler.state.snapshot.meter.begin()
        try:
            with scheduler.preemption.counts_in_reasons.as_read():
                if _recomputed(scheduler, gang, entry, withheld, {}):
                    entry.stamp = stamp
            withheld.set([])
            scheduler.state.snapshot.meter.end()
        except containment.StateRebuilt:
            return
    if entry.stamp == stamp:
        _set_reason(scheduler, gang, entry.reason)


def capacity_stamp(scheduler: Scheduler) -> tuple[object, ...]:
    """Changes whenever the numbers of a reason may change, inside one capacity epoch."""
    reserved = [
        (key, held.place.rows.tobytes(), held.withheld.tobytes())
        for key, held in scheduler.reservations.items()
    ]
    return (
        scheduler.state.pending.epoch,
        scheduler.state.snapshot.free_totals.now(),
        tuple(reserved),
        scheduler.queues.version,  # fair shares
        tuple((name, each.allowed) for name, each in scheduler.budgets.seen.items()),
        scheduler.state.pending.budget_uses_changed if scheduler.budgets.seen else 0,
    )


def _recomputed(
    scheduler: Scheduler, gang: Gang, entry: GangRefusal, withheld: WithheldCapacity, known: Known
) -> bool:
    """Computes the refusal and its reason again. False: that failed, and the gang is set aside. Raises StateRebuilt."""
    try:
        with containment.ContainedSearch(scheduler.state.snapshot):
            _recompute(scheduler, gang, entry, withheld, known)
            _say(scheduler, entry, withheld, scheduler.state.now)
    except Exception as error:  # noqa: BLE001  any bug
        containment.gang_failed(scheduler, entry.gang, error)
        return False
    return True


def _recompute(
    scheduler: Scheduler, gang: Gang, entry: GangRefusal, withheld: WithheldCapacity, known: Known
) -> None:
    """Computes the refusal as it is now, for the gang that was tried, or for this one of those that
    share the refusal. Withholds what they must leave free."""
    state, request = scheduler.state, entry.request
    if scheduler.refused.get(entry.gang.key) is not entry:
        entry.gang = gang
    if scheduler.min_resources.by_gang or min_resources.declared(entry.gang):
        withheld.set([])  # what is free counts
    base, cause = pending_cause.start_refusal(scheduler, entry.gang, request.groups)
    entry.over_quota = bool(base)
    if base:
        entry.binding = entry.volumes_only = ()
        entry.counted = None
        withheld.set([])
        if wording.NEVER not in base:
            any_queue: tuple[object, ...] = (request, "whatever the queue has")
            if any_queue not in known:
                known[any_queue] = _why_not(scheduler, request)
            never, _ = known[any_queue]
            base = never if wording.NEVER in never else base
    else:
        held, volumes = _still_held(scheduler, entry)
        withheld.set(held, volumes, scheduler.reservations.get(entry.gang.key))
        key = (request, *map(id, held), None, *map(id, volumes))
        counted = CountedCapacity.of(state, withheld)
        if key not in known:
            same = entry.counted == counted
            known[key] = (entry.base, entry.cause) if same else _why_not(scheduler, request)
        base, cause = known[key]
        entry.counted = counted
    entry.base, entry.cause = base, cause


def _still_held(
    scheduler: Scheduler, entry: GangRefusal
) -> tuple[list[Reservation], list[Reservation]]:
    """The reservations that the gang must leave free, and those of which it must leave volumes."""
    reservations = scheduler.reservations
    binding, volumes = (
        [each for each in held if reservations.get(each.gang.key) is each]
        for held in (entry.binding, entry.volumes_only)
    )
    return binding, volumes


def _why_not(scheduler: Scheduler, request: placement.PlacementRequest) -> tuple[str, str]:
    """Returns why the request does not fit, and the cause."""
    draft = Draft(scheduler.state.snapshot)
    with draft.all_or_nothing():
        try:
            placement.fit(draft, request)
        except DoesNotFit as refusal:
            return refusal.why, explain.cause(scheduler.state.snapshot, request, refusal)
        except WorkLimitReached:
            draft.undo()
            return f"{pod_kinds.describe(request.groups)}; {explain.WORK_LIMIT}", RETRY
    draft.undo()  # a reservation ended after the gang was refused
    return f"{pod_kinds.describe(request.groups)}; {FITS_NOW}", RETRY


def _say(scheduler: Scheduler, entry: GangRefusal, withheld: WithheldCapacity, now: float) -> None:
    entry.reason = entry.base + remarks(scheduler, entry.gang, entry, withheld, now)
    _set_reason(scheduler, entry.gang, entry.reason)


def _set_reason(scheduler: Scheduler, gang: Gang, reason: str) -> None:
    if gang.attempt.reason != reason:
        gang.attempt.reason = reason
        scheduler.state.pending.changed(gang)
