"""Remarks in a pending gang's reason beside what it lacks: what reservations and disruption budgets mean for it, and
why it gets no victims.

Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Iterable

import numpy as np

from central.model import wording
from central.model.resources import requested
from central.scheduler.placement import explain
from central.scheduler.preemption import protected_work
from central.scheduler.queues import claim_reasons, claimable_quota, min_resources, quota
from central.scheduler.reservation.reservation import Reservation, rough_most
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.state.gangs import Gang
from protos.names import GPU

ORDINARY = 0  # the priority of pods without a PriorityClass: who has it expects no victims
FITS_NOW = "fits now; its pods are bound in the next cycle"


SHORT_ENOUGH = "a gang with lockstep.dev/runs-for of at most {} may use that before"


def is_late(reason: str, held: Iterable[Reservation], now: float) -> bool:
    """Returns whether the reason names a run time with which a gang would not end before these reservations start any
    more, because time has passed."""
    if SHORT_ENOUGH.partition("{")[0] not in reason:
        return False
    longest_s = min((each.longest_run_s(now) for each in held), default=0)
    return SHORT_ENOUGH.format(rough_most(longest_s)) not in reason


def remarks(
    scheduler: Scheduler, gang: Gang, refused: GangRefusal, withheld: WithheldCapacity, now: float
) -> str:
    """The clauses after the refusal's base. withheld: what the gang was refused without."""
    base, reservations = refused.base, scheduler.reservations
    numbers, never, _ = base.partition(wording.NEVER)
    clauses = [_usable_part(scheduler, refused), scheduler.elastic.models.remark(gang, now)]
    own = reservations.get(gang.key)
    if not never and own:
        clauses.append(
            own.describe(now, [*own.late_pods(scheduler.state, scheduler.policy.max_grace_s)])
        )
    if holders := withheld.holders():
        names = wording.some(holders)
        said = explain.names_holders(base, names)
        excluded = "" if said else f"excluding capacity reserved for {names}"
        if never:  # others' reservations matter to what fits now alone
            return f"; {excluded}" if excluded and " fits " in numbers else ""
        clauses.append(excluded)
        if most := rough_most(withheld.longest_run_s(now)):
            clauses.append(SHORT_ENOUGH.format(most))
    if never:
        return ""
    if volumes := withheld.with_volumes():
        clauses.append(f"excluding volumes reserved for {_names(volumes)}")
    clauses.append(gang.preemption.blocked_by or _why_no_victims(scheduler, gang, refused))
    if not (own and own.by_eviction):
        clauses.append(scheduler.preemption.time_sharing.remark(gang, now))
    return "".join(f"; {clause}" for clause in clauses if clause)


def _why_no_victims(scheduler: Scheduler, gang: Gang, refused: GangRefusal) -> str:
    """Returns why it gets no victims; empty where it has some, or where that is not the question."""
    held = scheduler.reservations.get(gang.key)
    if FITS_NOW in refused.base or (held is not None and (held.by_eviction or held.moved)):
        return ""
    queues, groups = scheduler.queues, refused.request.groups
    if not queues.enabled:
        return without_queues(scheduler, gang, refused)
    if refused.over_quota and not claimable_quota.shortfalls(
        queues, scheduler.min_resources, gang, groups
    ):
        return ""  # no victims change that
    need = queues.currency.counted(requested(groups))
    why = claim_reasons.clause(
        queues, gang, need, protected_in(scheduler, gang, refused), growth=not refused.missing
    )
    # A quota is used up by its own queues.
    return "" if refused.over_quota and why.endswith(claim_reasons.NO_QUEUE_ABOVE) else why


def without_queues(
    scheduler: Scheduler, gang: Gang, refused: GangRefusal, *, always: bool = False
) -> str:
    """The same where only priority decides. always: even if it goes without saying, because the gang has no priority
    and nothing has less."""
    if refused.over_quota or refused.left_to_surplus:
        return ""  # no victims change that; surplus leaves for it
    if not refused.missing and scheduler.elastic.manages(gang):
        return ""  # its size is decided otherwise
    expects = always or gang.priority > ORDINARY
    if not expects and gang.priority <= scheduler.state.pending.lowest_priority:
        return ""  # without counting: none is less urgent
    found = protected_work.count(scheduler.preemption, gang, refused.request, frozenset())
    if not (expects or found.less_urgent):
        return ""
    if found.less_urgent and not gang.preempts:
        return f"{claim_reasons.NO_VICTIMS}its own pods have preemptionPolicy Never"
    clauses = found.clauses()
    if equal := found.not_less_urgent:
        has = "has" if equal == 1 else "have"
        pods = f"{wording.counted(equal, 'pod')} {has} priority {gang.priority} or higher"
        clauses.insert(0, pods)
    if rest := found.too_few:
        clauses.append(f"{wording.counted(rest, 'pod')} of lower priority would not free enough")
    return f"{claim_reasons.NO_VICTIMS}{', '.join(clauses)}" if clauses else ""


def protected_in(
    scheduler: Scheduler, gang: Gang, refused: GangRefusal
) -> Callable[[frozenset[str]], str]:
    """Returns a function that says, as the end of a sentence, what protects the gangs of given queues: in the gang's
    own queue the less urgent ones, in others all."""

    def of(queues: frozenset[str]) -> str:
        found = protected_work.count(scheduler.preemption, gang, refused.request, queues)
        clauses = ", ".join(found.clauses())
        return f": {clauses}" if clauses else ""

    return of


def _usable_part(scheduler: Scheduler, refused: GangRefusal) -> str:
    """Returns how many of the GPUs that are free, of which guarantees withhold some, are on nodes that the pods may
    use; empty where all of them are."""
    if not refused.over_quota or quota.GUARANTEED not in refused.base:
        return ""
    snapshot = scheduler.state.snapshot
    columns, of_gpus = snapshot.columns, [s for s, _ in refused.request.groups if s.request(GPU)]
    free, usable = columns.gpus.count, np.zeros(len(columns.names), dtype=np.bool_)
    for spec in of_gpus:
        usable[snapshot.view(spec).refresh().passed_rows()] = True
    here = int(free[usable].sum())
    if not of_gpus or here >= min_resources.free(scheduler.state, GPU):
        return ""
    return f"the nodes that its pods may use have {wording.counted(here, 'GPU')} free"


def _names(held: Iterable[Reservation]) -> str:
    return wording.some({each.gang.qualified_name for each in held})
