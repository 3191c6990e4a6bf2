"""The pending gangs, with the cause of their waiting in one word and in a sentence."""

from collections.abc import Generator
from dataclasses import dataclass
from math import inf

from central.model import controller_gangs, wording
from central.model.phases import PENDING
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS, Sums
from central.scheduler import fence
from central.scheduler.queues import min_resources
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

# Causes. The names are label values of metrics.
NEVER = "never"  # only a change of the nodes, of the queue or of the request can help
QUOTA = "quota"
CAPACITY = "capacity"
RESERVED = "reserved"  # what other gangs have reserved is not counted for it
PODS_MISSING = "pods-missing"  # fewer pods exist than the gang needs to start
GATED = "gated"
INVALID = "invalid"
PREEMPTED = "preempted"  # its pods are being evicted
RETRY = "retry"  # a binding failed, and is tried again
SET_ASIDE = "set-aside"  # after a bug of the scheduler
NEW = "new"  # not tried yet
CAUSES = (
    NEVER, QUOTA, CAPACITY, RESERVED, PODS_MISSING, GATED, INVALID, PREEMPTED, RETRY, SET_ASIDE, NEW,
)  # fmt: skip

REASON_MOST = 600  # characters; cut between words, because readers may not see half of a name


@dataclass(frozen=True, slots=True)
class PendingRow:
    key: GangKey
    name: str  # as users know it: job/sweep, or the PodGroup's own
    queue: str
    cause: str  # of CAUSES
    reason: str
    pods: int  # without a node; of a gang without pods, its minimum
    gpus: float  # GPU equivalents that these request
    created: float  # Unix time
    priority: int
    rank: tuple[int, int, float, GangKey]  # order inside its queue
    minimum: int
    placed: int
    within: str = ""  # the network level that it requires
    reserved: str = ""  # where capacity is reserved for it
    start: float = inf  # expected, Unix time; inf: unknown


def rows(scheduler: Scheduler) -> Generator[None, None, list[PendingRow]]:
    """Of all gangs that wait for a node or for admission; yields between two of them."""
    found: list[PendingRow] = []
    keys = [*scheduler.state.pending.waiting]
    keys += [
        key for key in scheduler.admission.groups if key not in scheduler.state.pending.waiting
    ]
    keys += [
        key
        for namespace, name in scheduler.controllers.owned_groups()
        if (key := (namespace, name, True)) not in scheduler.state.pending.waiting
    ]
    for key in keys:
        gang = scheduler.state.gangs.get(key)
        if gang is not None and (key in scheduler.state.pending.waiting or _awaits_admission(gang)):
            found.append(_row(scheduler, gang))
        yield
    return found


def cause(scheduler: Scheduler, gang: Gang) -> str:
    """Why the gang waits, of CAUSES."""
    reason, refused = gang.attempt.reason, scheduler.refused.get(gang.key)
    aside = scheduler.quarantine.set_asides
    if aside and fence.key_of_gang(gang) in aside:
        return SET_ASIDE
    if _awaits_admission(gang):
        override = gang.published.override
        return NEVER if override is not None and wording.NEVER in override[1] else QUOTA
    if gang.attempt.retry_at > scheduler.state.now:
        return RETRY
    if refused is not None and reason:
        if wording.NEVER in reason:
            return NEVER
        if refused.over_quota:
            return QUOTA
        return RESERVED if refused.binding else CAPACITY
    if gang.preemption.preempted_for:
        return PREEMPTED
    seen = gang.object
    if seen is not None and (seen.error or (seen.priority_class and gang.class_priority is None)):
        return INVALID
    if gang.counts.gated:
        return GATED
    named = gang.key[2] and not controller_gangs.is_controllers(gang.name)
    if named and seen is None and not gang.counts.label_min:
        return INVALID
    return PODS_MISSING if reason else NEW


def _awaits_admission(gang: Gang) -> bool:
    override = gang.published.override
    return not gang.members and override is not None and override[0] == PENDING


def _row(scheduler: Scheduler, gang: Gang) -> PendingRow:
    counts, held = gang.counts, scheduler.reservations.get(gang.key)
    admission = _awaits_admission(gang)
    override = gang.published.override
    reason = override[1] if admission and override is not None else gang.attempt.reason
    return PendingRow(
        gang.key,
        gang.owner or gang.name,
        gang.queue,
        cause(scheduler, gang),
        reason if len(reason) <= REASON_MOST else reason[:REASON_MOST].rpartition(" ")[0],
        gang.minimum if admission else counts.unplaced,
        _gpus(scheduler, gang, admission=admission),
        gang.created,
        gang.priority,
        gang.attempt.rank,
        gang.minimum,
        len(counts.placed),
        gang.required.rpartition("/")[2],
        held.place.name if held is not None else "",
        held.start if held is not None else inf,
    )


def _gpus(scheduler: Scheduler, gang: Gang, *, admission: bool) -> float:
    account = gang.account
    if admission:
        sums: Sums = scheduler.queues.currency.counted(min_resources.declared(gang))
    elif account is not None:
        sums = account.demand
    else:
        sums = scheduler.queues.currency.counted(sums_of(gang.counts.waiting))
    return sums.get(GPU_EQUIVALENTS, 0) / GPU_UNITS
