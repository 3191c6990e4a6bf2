"""The pending gangs, with the cause of their waiting in one word and in a sentence."""

from collections.abc import Generator
from dataclasses import dataclass
from math import inf

from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS, Sums
from central.scheduler import pending_cause
from central.scheduler.queues import min_resources
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

REASON_MOST = 600  # characters; cut between words, because readers may not see half of a name


@dataclass(frozen=True, slots=True)
class PendingRow:
    key: GangKey
    name: str  # as users know it: job/sweep, or the PodGroup's own
    queue: str
    cause: str  # of pending_causes.CAUSES
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
    """Returns a row for each gang that waits for a node or for admission; yields between two of them."""
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
        if gang is not None and (
            key in scheduler.state.pending.waiting or pending_cause.awaits_admission(gang)
        ):
            found.append(_row(scheduler, gang))
        yield
    return found


def _row(scheduler: Scheduler, gang: Gang) -> PendingRow:
    counts, held = gang.counts, scheduler.reservations.get(gang.key)
    admission = pending_cause.awaits_admission(gang)
    override = gang.published.override
    reason = override[1] if admission and override is not None else gang.attempt.reason
    return PendingRow(
        gang.key,
        gang.owner or gang.name,
        gang.queue,
        pending_cause.cause_of(scheduler, gang),
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
