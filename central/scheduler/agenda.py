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

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from central.model.arrays import Ints
from central.model.decisions import Bind, Decision
from central.scheduler import containment, gang_attempt, refusal_reasons, refused_alike
from central.scheduler.pass_claims import PREEMPTION_RETRY_S
from central.scheduler.preemption import withdrawal
from central.scheduler.queues import order
from central.scheduler.queues.turns import FairShares
from central.scheduler.reserved_capacity import ReservedCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.shared_refusals import Verdicts
from central.scheduler.state.attempt import Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import MAX_FACTOR, Interrupt

ROUND_S = 1.0  # a round that is older is finished before refused gangs are tried again
FLOOD_TRIES = 100  # attempts for one namespace in a round of slices, before it waits behind others

Budget = Callable[[], bool]  # asked before each attempt but the first; true: the slice ends


@dataclass(slots=True)
class Round:
    """The remaining work of one round, and its record of the work that is done. It is kept between two cycles, where
    the state may be written, so all of it is plain data."""

    began: float
    by_namespace: Counter[str] = field(default_factory=Counter)  # attempts
    epoch: int = -1  # at the end of the last slice
    dropped: bool = False  # a reservation ended, so those refused before are tried again
    last_pass: bool = False
    late: bool = False  # gangs were due that had been tried already
    binds: list[Decision] = field(default_factory=list)  # of earlier slices
    verdicts: Verdicts = field(default_factory=Verdicts)
    # By equivalence, see gang_attempt.refuse_alike().
    first_refused: dict[int, Gang] = field(default_factory=dict)
    reserved: ReservedCapacity | None = None
    order: "PassOrder | None" = None  # of the gangs that are left, if it still holds
    version: int = -1  # of the queues, at the end of the last slice
    shares: FairShares = field(default_factory=dict)  # while only the round itself changes usage
    long: list[Gang] = field(default_factory=list)  # due for a long attempt
    is_long_next: bool = False  # the next cycle begins with it

    def flooding(self) -> set[str]:
        """The namespaces that have had their attempts."""
        return {name for name, tries in self.by_namespace.items() if tries >= FLOOD_TRIES}

    def must_wait(self, gang: Gang) -> bool:
        """Returns whether the gang's namespace has had its attempts, so that the gang is tried behind the others."""
        return self.by_namespace[gang.namespace] >= FLOOD_TRIES

    def next_pass(self) -> None:
        self.last_pass, self.dropped, self.verdicts = True, False, Verdicts()
        self.first_refused, self.order = {}, None


@dataclass(slots=True)
class PassOrder:
    """The order of one pass: plain data, so that the state can be written between two slices.

    not_due: gangs in it for their reservations
    is_first: gangs of namespaces that have had their attempts are left out, and follow
    again: gangs with another turn, see order.in_order()
    ahead: before the others, the last one first
    """

    scheduler: Scheduler
    this: Round
    not_due: Sequence[Gang]
    is_first: bool
    again: list[Gang] = field(default_factory=list)
    ahead: list[Gang] = field(default_factory=list)
    gangs: order.GangOrder | None = None
    lack: refused_alike.LackOfGpus | None = None

    def put_in_order(self, rows: Ints) -> None:
        """rows: by rank"""
        queues, columns = self.scheduler.queues, self.scheduler.state.pending.columns
        if self.this.reserved is not None and not self.scheduler.quarantine.set_asides:
            self.lack = refused_alike.LackOfGpus(
                self.scheduler, self.this.reserved, self.this.first_refused
            )
            rows = self.lack.without(rows)
        # No bound method skips: those are not plain data.
        self.gangs = order.in_order(
            queues, columns, rows, self.again, shares=self.this.shares, skip=self
        )

    def next(self) -> Gang | None:
        if self.gangs is None and self.again:  # the only gang has another turn
            return self.again.pop()
        if self.ahead:
            return self.ahead.pop()
        columns = self.scheduler.state.pending.columns
        for gang in self.gangs or ():
            if self.is_first and self.this.must_wait(gang) and columns.is_due(gang):
                columns.outcome[gang.attempt.row] = Outcome.BEHIND
            elif self.lack is None or not self.lack.refuses(gang):
                return gang
            else:
                columns.outcome[gang.attempt.row] = Outcome.REFUSED
        if not self.is_first:
            return None
        self.is_first, rows = False, columns.due()
        self.put_in_order(rows[columns.outcome[rows] == Outcome.BEHIND])
        return self.next()

    def __call__(self, rows: Ints, goes_on: Callable[[Gang], bool]) -> int:
        """Refuses those of the next gangs whose requests the round has refused already, many at a time. Returns how
        many."""
        if self.scheduler.quarantine.set_asides or not self.this.first_refused:
            return 0
        count = refused_alike.refuse_next(
            self.scheduler,
            rows,
            self.this.first_refused,
            left_out=self.not_due,
            barred=self.this.flooding() if self.is_first else (),
            goes_on=goes_on,
        )
        self.scheduler.state.pending.columns.outcome[rows[:count]] = Outcome.REFUSED
        return count


@dataclass(slots=True)
class _Slice:
    """The part of a round that one cycle runs.

    reserved: of the round, or of the gangs that are tried beside it
    interrupt: may end a long attempt
    is_alone: for gangs that are tried beside the round of all that are due
    """

    scheduler: Scheduler
    this: Round
    now: float
    decisions: list[Decision]
    reserved: ReservedCapacity
    budget: Budget | None = None
    interrupt: Interrupt | None = None
    is_alone: bool = False

    def run(self) -> None:
        scheduler, this, pending = self.scheduler, self.this, self.scheduler.state.pending
        if this.is_long_next:
            self._try_long()
        resumed = this.epoch == pending.epoch
        if not resumed:
            this.shares = {}
        self.reserved.begin(self.decisions, resumed=resumed)  # may free some
        joined = _join(scheduler, this, self.now)
        if joined or not resumed or this.version != scheduler.queues.version:
            this.order = None
        complete = self._passes()
        if complete and this.long:
            this.is_long_next = True
            if self.budget is None:
                self._try_long()
            complete = self.budget is None  # else what was decided leaves before
        if not complete:  # the next cycle continues it
            this.binds += [each for each in self.decisions if isinstance(each, Bind)]
            this.epoch, this.version = pending.epoch, scheduler.queues.version
            pending.round = this
            return
        if this.late:
            pending.try_all_again()
        if scheduler.queues.enabled and scheduler.preemption.claim_watch.look(
            scheduler.queues, self.now
        ):
            pending.preemption_retry_at.add(self.now + PREEMPTION_RETRY_S)
        refusal_reasons.refresh(scheduler, self.now)

    def _passes(self) -> bool:
        """One pass, another one if a reservation or a binding was given up, and the claims that they gave rise to.
        Returns whether all gangs were tried."""
        this, reserved, pending = self.this, self.reserved, self.scheduler.state.pending
        complete = self._one_pass()
        if (complete or reserved.withdrawn) and this.dropped and not this.last_pass:
            pending.columns.outcome[pending.refused_before()] = Outcome.DUE
            pending.columns.outcome[pending.columns.rows_of(reserved.withdrawn)] = Outcome.DUE
            this.next_pass()
            reserved.restart()
            reserved.begin(self.decisions)
            complete = self._one_pass()
        if not complete or not self.scheduler.queues.enabled:
            return complete
        claimants: list[Gang] = []
        if reserved.claimed or reserved.postponed:
            claimants = withdrawal.claimants(
                self.scheduler.preemption,
                reserved.claimed,
                reserved.postponed,
                this.binds + self.decisions,
            )
        if claimants or reserved.withdrawn:
            self._try_claimants(claimants)
        return True

    def _beside(self, interrupt: Interrupt | None = None) -> "_Slice":
        """Returns a slice of a round of its own, for gangs that are tried beside this one."""
        alone = self.reserved.alone(self.this.began, self.decisions)
        made = Round(self.this.began)
        return _Slice(
            self.scheduler, made, self.now, self.decisions, alone, None, interrupt, is_alone=True
        )

    def _end_beside(self, other: "_Slice") -> None:
        other.reserved.end()
        self.this.dropped |= other.reserved.dropped

    def _try_claimants(self, claimants: Sequence[Gang]) -> None:
        """Lets these gangs claim what others got in this round, before the bindings of its last slice leave. Who loses
        its binding by that, or has lost it, is tried once more, for a place that nobody claims."""
        beside = self._beside()
        withdrawn = beside.reserved.withdrawn
        withdrawn += self.reserved.withdrawn
        self.scheduler.state.pending.wakeups[withdrawal.CLAIMED] += len(claimants)
        for gang in claimants:
            gang.preemption.not_before = 0.0
            beside._try(gang)
        for gang in withdrawn:
            account(self.scheduler, gang)
            beside._try(gang)
        self._end_beside(beside)

    def _try_long(self) -> None:
        """Makes the long attempt of the first gang that is due for one. The others follow after later rounds."""
        this, pending = self.this, self.scheduler.state.pending
        long = [gang for gang in this.long if pending.waiting.get(gang.key) is gang]
        this.long, this.is_long_next = [], False
        if not long:
            return
        gang, *others = long
        for other in others:
            pending.try_later(other, self.now + gang_attempt.LIMITED_S)
        beside = self._beside(self.interrupt)
        beside._try(gang)
        beside.reserved.on_tried(gang)
        self._end_beside(beside)

    def _one_pass(self) -> bool:
        """One pass over what is left and the gangs with a reservation. Returns whether all were tried."""
        this, reserved, pending = self.this, self.reserved, self.scheduler.state.pending
        columns, asked, complete = pending.columns, False, True
        gangs = this.order
        if gangs is None:
            gangs = self._in_order()
        this.order = None
        while (gang := gangs.next()) is not None:
            if pending.waiting.get(gang.key) is not gang:
                continue
            if columns.is_due(gang) or reserved.must_retry(gang):
                if self.budget is not None and asked and self.budget():
                    gangs.ahead.append(gang)
                    complete, this.order = False, gangs
                    break
                asked = True
                # It is not left for its own attempt.
                columns.outcome[gang.attempt.row] = Outcome.REFUSED
                outcome = self._turn(gang)
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

    def _in_order(self) -> PassOrder:
        scheduler, this, pending = self.scheduler, self.this, self.scheduler.state.pending
        columns, waiting, sliced = pending.columns, pending.waiting, self.budget is not None
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
            made.is_first, made.ahead = False, columns.of(rows)
            return made
        columns.outcome[rows] = Outcome.DUE
        if sliced and (
            flooding := this.flooding()
        ):  # they need not be put in order among the others
            floods = [gang for gang in columns.of(rows) if gang.namespace in flooding]
            columns.outcome[columns.rows_of(floods)] = Outcome.BEHIND
        first = columns.mask(rows[columns.outcome[rows] == Outcome.DUE])
        first[columns.rows_of(not_due)] = True
        made.put_in_order(columns.in_rank_order(first))
        return made

    def _turn(self, gang: Gang) -> Outcome:
        """Tries the gang unless it is set aside or due for a long attempt."""
        if containment.blocks(self.scheduler, gang):
            return Outcome.SET_ASIDE
        if gang.attempt.work_factor > MAX_FACTOR:
            self.this.long += [gang] if gang not in self.this.long else []
            return Outcome.LONG
        return self._try(gang)

    def _try(self, gang: Gang) -> Outcome:
        """Sets the gang aside if its attempt fails."""
        try:
            return self._attempt(gang)
        except Exception as error:  # noqa: BLE001  any bug
            containment.gang_failed(self.scheduler, gang, error)
            return Outcome.SET_ASIDE

    def _attempt(self, gang: Gang) -> Outcome:
        scheduler, this, reserved = self.scheduler, self.this, self.reserved
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
        meter.begin(
            attempt.work_factor, self.interrupt if self.is_alone else None, attempt.undisturbed
        )
        attempt.undisturbed = 0
        gang_attempt.schedule(
            scheduler,
            gang,
            reserved,
            self.decisions,
            shares=not self.is_alone,
            verdicts=this.verdicts,
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


def schedule_pending(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Tries every due gang in order, or as many as the budget allows, and appends the decisions."""
    pending = scheduler.state.pending
    this, pending.round = pending.round or Round(now), None  # a new one if the state is rebuilt
    if this.reserved is None:
        this.reserved = ReservedCapacity(scheduler, began=this.began)
    _Slice(scheduler, this, now, decisions, this.reserved, budget, interrupt).run()


def account(scheduler: Scheduler, gang: Gang) -> None:
    """Updates the accounting of the gang, and whether it is waiting or partially bound."""
    counts, pending = gang.counts, scheduler.state.pending
    pending.touch(gang)
    placed = len(counts.placed)
    gang.settle_completed()
    missing = gang.missing()
    if not (missing or gang.started):
        gang.started = placed - counts.assumed >= gang.minimum
    scheduler.elastic.unready.observe(gang, missing, scheduler.state.now)
    before = gang.account
    if scheduler.queues.update(gang):
        pending.capacity_freed("head of a fifo queue left")
    if before is not None and before.never_evicted and _may_be_evicted(gang):
        pending.capacity_freed("gang became preemptable")
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
        gang.attempt.need = order.need(scheduler.queues, gang, missing)


def _may_be_evicted(gang: Gang) -> bool:
    return gang.account is not None and bool(gang.account.used) and not gang.never_evicted


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
