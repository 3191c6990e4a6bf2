"""What a pending gang's reason says beside what it lacks: what reservations and disruption budgets mean for it, and why
nobody gives way.

Design: docs/design/0015-queues.md
"""

from collections.abc import Iterable
from math import inf

from central.model import wording
from central.model.resources import requested
from central.scheduler.placement import explain
from central.scheduler.queues import claim_reasons, quota
from central.scheduler.queues.order import run_time_s
from central.scheduler.reservation.reservation import Reservation, rough_duration
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.state.gangs import Gang

FITS_NOW = "fits now; its pods are bound in the next cycle"


def remarks(
    scheduler: Scheduler, gang: Gang, refused: GangRefusal, withheld: WithheldCapacity, now: float
) -> str:
    """The clauses after the refusal's base. withheld: what the gang was refused without."""
    base, reservations = refused.base, scheduler.reservations
    numbers, never, _ = base.partition(wording.NEVER)
    clauses = []
    if not never and (own := reservations.get(gang.key)):
        clauses.append(own.describe(now))
    if holders := withheld.holders():
        names = wording.some(holders)
        said = explain.names_holders(base, names)
        excluded = "" if said else f"excluding capacity reserved for {names}"
        if never:  # others' reservations matter to what fits now alone
            return f"; {excluded}" if excluded and " fits " in numbers else ""
        clauses.append(excluded)
        ahead = withheld.with_capacity()
        known = all(not held.strict and held.start < inf for held in ahead)
        if known and run_time_s(gang) == inf:
            clauses.append("with lockstep.dev/runs-for it may use that until then")
    if never:
        return ""
    if volumes := withheld.with_volumes():
        clauses.append(f"excluding volumes reserved for {_names(volumes)}")
    clauses.append(gang.preemption.blocked_by or _why_nobody(scheduler, gang, refused))
    clauses.append(_after_short_stays(scheduler, gang, now))
    return "".join(f"; {clause}" for clause in clauses if clause)


def _why_nobody(scheduler: Scheduler, gang: Gang, refused: GangRefusal) -> str:
    """Why nobody gives way; empty where somebody does, or where that is not the question."""
    held = scheduler.reservations.get(gang.key)
    if FITS_NOW in refused.base or (held is not None and (held.by_eviction or held.moved)):
        return ""
    queues, groups = scheduler.queues, refused.request.groups
    if refused.over_quota and not quota.shortfalls(queues, scheduler.min_resources, gang, groups):
        return ""  # no victims change that
    need = queues.currency.counted(requested(groups))
    why = claim_reasons.clause(queues, gang, need, growth=not refused.missing)
    # A quota is used up by its own queues.
    return "" if refused.over_quota and why.endswith(claim_reasons.NOBODY_ABOVE) else why


def _after_short_stays(scheduler: Scheduler, gang: Gang, now: float) -> str:
    """Why elastic gangs give nothing; empty where they may."""
    ends = scheduler.preemption.stays.ends(gang, now)
    if ends is None:
        return ""
    return (
        f"takes no surplus of elastic Jobs of others for another {rough_duration(ends - now)}, because gangs of "
        f"namespace {gang.namespace} in queue {gang.queue} did and were gone within a minute"
    )


def _names(held: Iterable[Reservation]) -> str:
    return wording.some({each.gang.qualified_name for each in held})
