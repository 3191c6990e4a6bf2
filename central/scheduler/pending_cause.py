"""The cause for which a gang waits, in one word, and so whether a new node would help: what pods' conditions,
PodGroups, `lockstep explain`, metrics and the console say is read from here.

Design: docs/design/autoscalers.md
"""

from collections.abc import Sequence
from math import inf

from central.model import pending_causes as causes
from central.model import wording
from central.model.amounts import Amounts
from central.model.facts import PodSpec
from central.model.phases import PENDING
from central.scheduler.queues import quota
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.state import readiness
from central.scheduler.state.gangs import Gang


def cause_of(scheduler: Scheduler, gang: Gang) -> str:
    """Returns one of pending_causes.CAUSES; empty: none of its pods waits, nor does it wait for admission."""
    if scheduler.state.why_set_aside(gang):
        return causes.SET_ASIDE
    if gang.published.suspended:
        return causes.SUSPENDED
    if awaits_admission(gang):
        override = gang.published.override
        return (
            causes.INVALID
            if override is not None and wording.NEVER in override[1]
            else causes.QUOTA
        )
    if not gang.counts.unplaced:
        return ""
    refused = scheduler.refused.get(gang.key)
    if refused is not None and gang.attempt.reason:
        return _of_refused(refused, scheduler.reservations.get(gang.key))
    cause, _ = readiness.not_ready(gang, gang.missing(), scheduler.quarantine)
    if not cause and (failed := scheduler.elastic.unready.held(gang, scheduler.state.now)):
        return causes.NO_START if failed.tries else causes.INVALID
    return cause or (causes.RETRY if gang.attempt.reason else causes.NEW)


def _of_refused(refused: GangRefusal, own: Reservation | None) -> str:
    """A reservation whose start is unknown is no place: what must end there may run for ever."""
    awaited = own is not None and (own.by_eviction or own.moved is not None or own.start < inf)
    if awaited or refused.left_to_surplus:
        return causes.PLACE_RESERVED
    return (
        causes.RESERVED if refused.cause == causes.CAPACITY and refused.binding else refused.cause
    )


def start_refusal(
    scheduler: Scheduler, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> tuple[str, str]:
    """Returns why the queue or minResources do not let the gang start these pods now, and the cause; both empty: they
    do."""
    resources = scheduler.min_resources
    if why := quota.refusal(scheduler.queues, resources, gang, groups):
        if wording.NEVER in why:
            return why, causes.INVALID
        return why, causes.RESERVED if quota.GUARANTEED in why else causes.QUOTA
    why = resources.refusal(scheduler.state, gang, groups)
    return why, causes.CAPACITY if why else ""


def awaits_admission(gang: Gang) -> bool:
    override = gang.published.override
    return not gang.members and override is not None and override[0] == PENDING


def wanted_nodes(scheduler: Scheduler, gang: Gang) -> list[tuple[int, Amounts]]:
    """Returns how many new nodes with at least these amounts would let the gang's minimum, or one more member, start
    wherever else it fits: one for each pod, and larger ones may take several. Empty: none would."""
    refused, cause = scheduler.refused.get(gang.key), cause_of(scheduler, gang)
    if refused is None or causes.CAUSES.get(cause) != causes.UNSCHEDULABLE:
        return []
    return [(count, spec.requests) for spec, count in refused.request.groups]


def nominations(scheduler: Scheduler, gang: Gang) -> dict[str, str]:
    """Returns the nodes of the gang's pending pods for whose place victims are leaving, by the name of the pod."""
    own, snapshot = scheduler.reservations.get(gang.key), scheduler.state.snapshot
    if own is None or not own.by_eviction or own.gang is not gang:
        return {}
    left, found = own.place.need.copy(), dict[str, str]()
    # By kind, the places of the rows that were not full of it yet: amounts only shrink.
    kinds = {spec: iter(range(len(left))) for spec, _ in own.request.groups}
    at = {spec: next(rows, None) for spec, rows in kinds.items()}
    for pod in (pod for pod in gang.counts.waiting if pod.spec in kinds):
        view = snapshot.view(pod.spec)
        while (index := at[pod.spec]) is not None:
            need = left[index]
            if (need[view.columns] >= view.amounts).all():
                need[view.columns] -= view.amounts
                found[pod.seen.name] = snapshot.columns.names[own.place.rows[index]]
                break
            at[pod.spec] = next(kinds[pod.spec], None)
    return found
