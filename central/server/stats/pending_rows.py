"""The gangs that have not started, and those that run while more of their pods wait, with the cause in one word and
in a sentence."""

from collections.abc import Generator
from dataclasses import dataclass
from math import inf

from central.model.pending_causes import PODS_MISSING
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS, Sums
from central.scheduler import pending_cause
from central.scheduler.queues import min_resources
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status import gang_status
from central.scheduler.status.queue_status import NOT_STARTED

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
    runs: bool = False  # its minimum has nodes; such a gang is not counted as pending


def rows(scheduler: Scheduler) -> Generator[None, None, list[PendingRow]]:
    """Yields between two gangs."""
    found: list[PendingRow] = []
    pending = dict.fromkeys(scheduler.queue_statuses.pending())
    for key in pending | dict.fromkeys(scheduler.state.pending.waiting):
        if (gang := scheduler.state.gangs.get(key)) is not None:
            found.append(_row(scheduler, gang, runs=key not in pending))
        yield
    return found


def _row(scheduler: Scheduler, gang: Gang, *, runs: bool) -> PendingRow:
    counts, held = gang.counts, scheduler.reservations.get(gang.key)
    reason = gang_status.describe(scheduler.state, gang)
    return PendingRow(
        gang.key,
        gang.owner or gang.name,
        gang.queue_name,
        cause_of(scheduler, gang),
        reason if len(reason) <= REASON_MOST else reason[:REASON_MOST].rpartition(" ")[0],
        counts.unplaced if gang.members else gang.minimum,
        _gpus(scheduler, gang),
        gang.created,
        gang.priority,
        gang.attempt.rank,
        gang.minimum,
        len(counts.placed),
        gang.required.rpartition("/")[2],
        held.place.name if held is not None else "",
        held.start if held is not None else inf,
        runs,
    )


def cause_of(scheduler: Scheduler, gang: Gang) -> str:
    """Returns one of pending_causes.CAUSES; empty: it does not wait. A PodGroup without pods waits for them."""
    cause = pending_cause.cause_of(scheduler, gang)
    if cause or gang.members or gang_status.phase(gang) not in NOT_STARTED:
        return cause
    return PODS_MISSING


def _gpus(scheduler: Scheduler, gang: Gang) -> float:
    account = gang.account
    if not gang.members:
        sums: Sums = scheduler.queues.currency.counted(min_resources.declared(gang))
    elif account is not None:
        sums = account.demand
    else:
        sums = scheduler.queues.currency.counted(sums_of(gang.counts.waiting))
    return sums.get(GPU_EQUIVALENTS, 0) / GPU_UNITS
