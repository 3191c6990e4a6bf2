"""Tries the pending gangs in order: each is placed, else it preempts, or reserves capacity, or is refused.

A round tries every gang that is due. A caller with a time budget gets it in slices: a cycle ends when the
budget is spent, its decisions take effect, and the next cycle goes on with the gangs that are left.
Nobody is overtaken by that. Without other changes the slices decide what one uncut cycle decides:

- the order of what is left goes on, or it is made again by the same rules if facts changed its inputs;
- what the round remembers of refusals goes on, because within a capacity epoch free capacity only shrinks;
- gangs that the round has tried wait for its end, whatever the round's own placements change.

But a binding that an earlier slice has sent is not withdrawn (preemption/withdrawal.py): its pods are evicted. And who
searches victims again at the end of the round depends on where it was cut.

Facts between two slices may free capacity. Then gangs that were refused come before those that are left,
as in an uncut cycle, while the round is younger than ROUND_S. An older round is finished first, or else
the last gangs would never be tried in a cluster where something ends every second.

A namespace that takes more than FLOOD_TRIES attempts of a round in slices waits behind the others with the
rest: a tenant with thousands of unlike pods delays itself. An uncut round has no such rule.

A gang whose search needs more work than an attempt in a round may take has one long attempt after the round, in a
cycle of its own where cycles are cut.

Design: docs/design/budgets.md
"""

from collections.abc import Callable, Sequence

from central.model.decisions import Bind, Decision
from central.scheduler import containment, gang_attempt, refusal_reasons, refused_alike
from central.scheduler.pass_claims import PREEMPTION_RETRY_S
from central.scheduler.preemption import withdrawal
from central.scheduler.queues import order
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.round_state import PassOrder, Round
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.attempt import Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import MAX_FACTOR, Interrupt

ROUND_S = 1.0  # a round that is older is finished before refused gangs are tried again

Budget = Callable[[], bool]  # asked before each attempt but the first; true: the slice ends


def schedule_pending(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Tries every due gang in order, or as many as the budget allows, and appends the decisions."""
    pending = scheduler.state.pending
    this = scheduler.state.pending.round or Round(now)
    scheduler.state.pending.round = None  # if the state is rebuilt on the way, a new round begins
    if this.is_long_next:
        _try_long(scheduler, this, now, interrupt, decisions)
    resumed = this.epoch == pending.epoch
    if not resumed:
        this.shares = {}
    reserved = _reserved(scheduler, this)
    reserved.begin(decisions, resumed=resumed)  # may free some
    joined = _join(scheduler, this, now)
    if joined or not resumed or this.version != scheduler.queues.version:
        this.order = None
    complete = _passes(scheduler, this, reserved, budget, decisions)
    if complete and this.long:
        this.is_long_next = True
        if budget is None:
            _try_long(scheduler, this, now, interrupt, decisions)
        complete = budget is None  # else what was decided leaves before
    if not complete:
        _keep(scheduler, this, decisions)
        return
    if this.late:
        pending.try_all_again()
    if scheduler.queues.enabled and scheduler.preemption.claim_watch.look(scheduler.queues, now):
        pending.preemption_retry_at.add(now + PREEMPTION_RETRY_S)
    refusal_reasons.refresh(scheduler, now)


def _keep(scheduler: Scheduler, this: Round, decisions: Sequence[Decision]) -> None:
    """For the next cycle, which continues it."""
    pending = scheduler.state.pending
    this.binds += [each for each in decisions if isinstance(each, Bind)]
    this.epoch, this.version = pending.epoch, scheduler.queues.version
    pending.round = this


def _reserved(scheduler: Scheduler, this: Round) -> ReservedCapacity:
    if this.reserved is None:
        this.reserved = ReservedCapacity(scheduler, began=this.began)
    return this.reserved


def _passes(
    scheduler: Scheduler,
    this: Round,
    reserved: ReservedCapacity,
    budget: Budget | None,
    decisions: list[Decision],
) -> bool:
    """One pass, another one if a reservation or a binding was given up, and the claims that they gave rise to.
    Returns whether all gangs were tried."""
    pending = scheduler.state.pending
    complete = _one_pass(scheduler, this, reserved, budget, decisions)
    if (complete or reserved.withdrawn) and this.dropped and not this.last_pass:
        pending.columns.outcome[pending.refused_before()] = Outcome.DUE
        pending.columns.outcome[pending.columns.rows_of(reserved.withdrawn)] = Outcome.DUE
        this.next_pass()
        reserved.restart()
        reserved.begin(decisions)
        complete = _one_pass(scheduler, this, reserved, budget, decisions)
    if not complete or not scheduler.queues.enabled:
        return complete
    claimants: list[Gang] = []
    if reserved.claimed or reserved.postponed:
        claimants = withdrawal.claimants(
            scheduler.preemption, reserved.claimed, reserved.postponed, this.binds + decisions
        )
    if claimants or reserved.withdrawn:
        _try_claimants(scheduler, this, claimants, decisions)
    return True


def _try_claimants(
    scheduler: Scheduler, this: Round, claimants: Sequence[Gang], decisions: list[Decision]
) -> None:
    """Lets these gangs claim what others got in this round, before the bindings of its last slice leave. Who loses its
    binding by that, or has lost it, is tried once more, for a place that nobody claims."""
    alone = Round(this.began, is_alone=True)
    reserved = _reserved(scheduler, this).alone(this.began, decisions)
    reserved.withdrawn.extend(_reserved(scheduler, this).withdrawn)
    scheduler.state.pending.wakeups[withdrawal.CLAIMED] += len(claimants)
    for gang in claimants:
        gang.preemption.not_before = 0.0
        _try(scheduler, alone, gang, reserved, decisions)
    for gang in reserved.withdrawn:
        account(scheduler, gang)
        _try(scheduler, alone, gang, reserved, decisions)
    reserved.end()
    this.dropped |= reserved.dropped


def _try_long(
    scheduler: Scheduler,
    this: Round,
    now: float,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Makes the long attempt of the first gang that is due for one. The others follow after later rounds."""
    pending = scheduler.state.pending
    long = [gang for gang in this.long if pending.waiting.get(gang.key) is gang]
    this.long, this.is_long_next = [], False
    if not long:
        return
    gang, *others = long
    for other in others:
        pending.try_later(other, now + gang_attempt.LIMITED_S)
    reserved = _reserved(scheduler, this).alone(this.began, decisions)
    alone = Round(this.began, is_alone=True, interrupt=interrupt)
    _try(scheduler, alone, gang, reserved, decisions)
    reserved.on_tried(gang)
    reserved.end()
    this.dropped |= reserved.dropped


def account(scheduler: Scheduler, gang: Gang) -> None:
    """Updates the accounting of the gang, and whether it is waiting or partially bound."""
    counts, pending = gang.counts, scheduler.state.pending
    pending.touch(gang)
    placed = len(counts.placed)
    gang.settle_completed()
    missing = gang.missing()
    if not missing and placed - counts.assumed >= gang.minimum:
        gang.started = True
    scheduler.elastic.unready.observe(gang, missing, scheduler.state.now)
    if scheduler.queues.update(gang):
        pending.capacity_freed("head of a fifo queue left")
    min_resources = scheduler.min_resources
    has_min_resources = min_resources.by_gang or (
        gang.object is not None and gang.object.min_resources
    )
    if has_min_resources and min_resources.update(gang):
        pending.capacity_freed("minResources released")
    scheduler.preemption.time_sharing.update(scheduler.queues, gang, scheduler.state.now)
    partial = False
    if placed:
        pending.lowest_priority = min(pending.lowest_priority, gang.priority)
        partial = missing > 0 and any(pod.alive for pod in counts.placed)
    if not partial:
        gang.attempt.partial_since = None
    partial = partial and not gang.started
    pending.update(gang, waiting=counts.unplaced > 0, partial=partial)
    if gang.account is not None and counts.unplaced:
        gang.attempt.need = order.need(scheduler.queues, gang)


def _join(scheduler: Scheduler, this: Round, now: float) -> bool:
    """Adds the gangs that have become due to those that are left. Returns whether any of these changed."""
    pending = scheduler.state.pending
    columns = pending.columns
    if this.epoch == -1:
        columns.outcome.fill(Outcome.NOT_DUE)
        columns.outcome[pending.due(now)] = Outcome.DUE
        return True
    changed = pending.changed_gangs
    freed = pending.epoch != this.epoch
    due = pending.due(now) if freed else pending.due_changed(now)
    if now - this.began >= ROUND_S:
        is_late = columns.were_tried(due) & ~columns.mask(columns.rows_of(changed.values()))[due]
        this.late |= bool(is_late.any())
        due = due[~is_late]
    some_left = columns.drop_left()
    columns.outcome[due] = Outcome.DUE
    return bool(len(due)) or some_left or any(map(columns.is_due, changed.values()))


def _one_pass(
    scheduler: Scheduler,
    this: Round,
    reserved: ReservedCapacity,
    budget: Budget | None,
    decisions: list[Decision],
) -> bool:
    """One pass over what is left and the gangs with a reservation. Returns whether all were tried."""
    pending, asked, complete = scheduler.state.pending, False, True
    columns = pending.columns
    gangs = this.order
    if gangs is None:
        gangs = _in_order(scheduler, this, sliced=budget is not None)
    this.order = None
    while (gang := gangs.next()) is not None:
        if pending.waiting.get(gang.key) is not gang:
            continue
        if columns.is_due(gang) or reserved.must_retry(gang):
            if budget is not None and asked and budget():
                gangs.ahead.append(gang)
                complete, this.order = False, gangs
                break
            asked = True
            columns.outcome[gang.attempt.row] = Outcome.REFUSED  # is not left for its own attempt
            outcome = _turn(scheduler, this, gang, reserved, decisions)
            columns.outcome[gang.attempt.row] = outcome
            if outcome == Outcome.PARTLY:
                gangs.again.append(gang)
                continue
        reserved.on_tried(gang)
        if reserved.withdrawn and not this.last_pass:  # what they were to take is free for all
            this.dropped, complete = True, False
            break
    reserved.end()
    this.dropped |= reserved.dropped
    return complete


def _in_order(scheduler: Scheduler, this: Round, *, sliced: bool) -> PassOrder:
    pending = scheduler.state.pending
    columns, waiting = pending.columns, pending.waiting
    columns.recycle()
    if scheduler.quarantine.set_asides:
        left = columns.of(columns.due())
        aside = [gang for gang in left if containment.blocks(scheduler, gang)]
        columns.outcome[columns.rows_of(aside)] = Outcome.SET_ASIDE
    of_reservations = [gang for key in scheduler.reservations if (gang := waiting.get(key))]
    not_due = [gang for gang in of_reservations if not columns.is_due(gang)]
    rows = columns.due()
    made = PassOrder(scheduler, this, not_due, is_first=sliced)
    if len(rows) == 1 and not not_due:  # there is nothing to put in order
        made.is_first = False
        made.put_in_order(rows, skips=False)
        return made
    columns.outcome[rows] = Outcome.DUE
    if sliced and (flooding := this.flooding()):  # they need not be put in order among the others
        floods = [gang for gang in columns.of(rows) if gang.namespace in flooding]
        columns.outcome[columns.rows_of(floods)] = Outcome.BEHIND
    first = columns.mask(rows[columns.outcome[rows] == Outcome.DUE])
    first[columns.rows_of(not_due)] = True
    made.put_in_order(columns.in_rank_order(first))
    return made


def _turn(
    scheduler: Scheduler,
    this: Round,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
) -> Outcome:
    """Tries the gang unless it is set aside or due for a long attempt."""
    if containment.blocks(scheduler, gang):
        return Outcome.SET_ASIDE
    if gang.attempt.work_factor > MAX_FACTOR:
        this.long += [gang] if gang not in this.long else []
        return Outcome.LONG
    return _try(scheduler, this, gang, reserved, decisions)


def _try(
    scheduler: Scheduler,
    this: Round,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
) -> Outcome:
    """Sets the gang aside if its attempt fails."""
    try:
        return _attempt(scheduler, this, gang, reserved, decisions)
    except Exception as error:  # noqa: BLE001  any bug
        containment.gang_failed(scheduler, gang, error)
        return Outcome.SET_ASIDE


def _attempt(
    scheduler: Scheduler,
    this: Round,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
) -> Outcome:
    reservations = scheduler.reservations
    pending, attempt = scheduler.state.pending, gang.attempt
    same = this.first_refused.get(attempt.equivalence) if this.first_refused else None
    if (
        same is not None
        and same.attempt.refused_at == pending.epoch
        and gang.key not in reservations
    ):
        refused_alike.refuse(scheduler, gang, same)
        return Outcome.REFUSED
    this.by_namespace[gang.namespace] += 1
    meter, withdrawn = scheduler.state.snapshot.meter, len(reserved.withdrawn)
    meter.begin(attempt.work_factor, this.interrupt, attempt.undisturbed)
    attempt.undisturbed = 0
    gang_attempt.schedule(
        scheduler, gang, reserved, decisions, shares=not this.is_alone, verdicts=this.verdicts
    )
    account(scheduler, gang)
    for other in reserved.withdrawn[withdrawn:]:
        account(scheduler, other)
    if scheduler.quarantine.set_asides:
        scheduler.quarantine.release(containment.key_of_gang(gang))
    if gang.key in pending.waiting:
        gang_attempt.set_work_limit(scheduler, gang)
    meter.end()
    pending.changed(gang)
    if not attempt.reason:
        return Outcome.PARTLY if gang.key in pending.waiting else Outcome.BOUND
    if attempt.equivalence and gang.key not in reservations:
        this.first_refused[attempt.equivalence] = gang
    return Outcome.REFUSED
