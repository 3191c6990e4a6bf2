"""Tries the pending gangs in order: each is placed, else it preempts, or reserves capacity, or is refused.

A round tries every gang that is due. A caller with a time budget gets it in slices: a cycle ends when the
budget is spent, its decisions take effect, and the next cycle goes on with the gangs that are left.
Nobody is overtaken by that. Without other changes the slices decide what one uncut cycle decides:

- the order of what is left goes on, or it is made again by the same rules if facts changed its inputs;
- what the round remembers of refusals goes on, because within a capacity epoch free capacity only shrinks;
- gangs that the round has tried wait for its end, whatever the round's own placements change.

Facts between two slices may free capacity. Then gangs that were refused come before those that are left,
as in an uncut cycle, while the round is younger than ROUND_S. An older round is finished first, or else
the last gangs would never be tried in a cluster where something ends every second.

A namespace that takes more than FLOOD_TRIES attempts of a round in slices waits behind the others with the
rest: a tenant with thousands of unlike pods delays itself. An uncut round has no such rule.

A gang whose search needs more work than an attempt in a round may take has one long attempt after the round, in a
cycle of its own where cycles are cut.

Design: docs/design/0052-slices.md, docs/design/0061-work-limit.md
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain

from central.model.decisions import Bind, Decision
from central.scheduler import binding, fence, placement, refusal_reasons
from central.scheduler.inventory.pods import BIND_FAILED, Pod
from central.scheduler.placement import PlacementRequest, explain, placement_attempts
from central.scheduler.queues import order, quota
from central.scheduler.queues.order import FairShares
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.reserved_capacity import PREEMPTION_RETRY_S, PassMemory, ReservedCapacity
from central.scheduler.scheduler import GangRefusal, Scheduler
from central.scheduler.shared_refusals import Refusals, Verdicts
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from central.scheduler.state import readiness
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.work_meter import MAX_FACTOR, MAX_LONG_FACTOR, Interrupt, WorkLimitReached

LIMITED_S = PREEMPTION_RETRY_S  # until a gang whose search reached its limit is tried with more
LIMITED_MAX_S = 10.0  # ... in a long attempt
LONG_S = 1.5  # ... per unit of its factor, so that long attempts take about a tenth of the time
ROUND_S = 1.0  # a round that is older is finished before refused gangs are tried again
FLOOD_TRIES = 100  # attempts for one namespace in a round of slices, before it waits behind others

Budget = Callable[[], bool]  # asked before each attempt but the first; true: the slice ends


@dataclass(slots=True)
class Round:
    """What one round has still to do, and what it remembers of what it did."""

    began: float
    left: dict[GangKey, None] = field(default_factory=dict)
    tried: set[GangKey] = field(default_factory=set)
    by_namespace: Counter[str] = field(default_factory=Counter)  # attempts
    epoch: int = -1  # at the end of the last slice
    dropped: bool = False  # a reservation ended, so those refused before are tried again
    last_pass: bool = False
    late: bool = False  # gangs were due that had been tried already
    verdicts: Verdicts = field(default_factory=Verdicts)
    first_refused: dict[int, Gang] = field(
        default_factory=dict
    )  # by equivalence, see _refused_alike
    memory: PassMemory = field(default_factory=PassMemory.empty)
    order: Iterator[Gang] | None = None  # of the gangs that are left, if it still holds
    again: list[Gang] = field(
        default_factory=list
    )  # what the order takes back, see order.in_order()
    version: int = -1  # of the queues, at the end of the last slice
    shares: FairShares = field(default_factory=dict)  # while only the round itself changes usage
    long: list[Gang] = field(default_factory=list)  # due for a long attempt
    is_long_next: bool = False  # the next cycle begins with it
    interrupt: Interrupt | None = None  # of a long attempt

    def flooding(self) -> set[str]:
        """The namespaces that have had their attempts."""
        return {name for name, tries in self.by_namespace.items() if tries >= FLOOD_TRIES}

    def must_wait(self, gang: Gang) -> bool:
        """Whether its namespace has had its attempts, so that it is tried behind the others."""
        return self.by_namespace[gang.namespace] >= FLOOD_TRIES and gang.key in self.left

    def next_pass(self, due: dict[GangKey, None]) -> None:
        self.left, self.last_pass, self.dropped = due, True, False
        self.memory = PassMemory.empty()
        self.verdicts, self.first_refused = Verdicts(), {}
        self.order = None


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
    memory = this.memory
    reserved = ReservedCapacity(  # may free some
        scheduler, now, memory, decisions, resumed=resumed, began=this.began
    )
    if _join(scheduler, this, now) or not resumed or this.version != scheduler.queues.version:
        this.order = None
    complete = _one_pass(scheduler, this, reserved, budget, decisions)
    if complete and this.dropped and not this.last_pass:
        this.next_pass(dict.fromkeys(pending.refused_before()))
        reserved = ReservedCapacity(scheduler, now, this.memory, decisions, began=this.began)
        complete = _one_pass(scheduler, this, reserved, budget, decisions)
    if complete and this.long:
        this.is_long_next = True
        if budget is None:
            _try_long(scheduler, this, now, interrupt, decisions)
        complete = budget is None  # else what was decided leaves before
    if not complete:
        this.epoch, this.version = pending.epoch, scheduler.queues.version
        scheduler.state.pending.round = this
        return
    if this.late:
        pending.try_all_again()
    if scheduler.queues.enabled and scheduler.preemption.claim_watch.look(scheduler.queues, now):
        pending.preemption_retry_at.add(now + PREEMPTION_RETRY_S)
    refusal_reasons.refresh(scheduler, now)


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
    for gang in long[1:]:
        pending.try_later(gang, now + LIMITED_S)
    if not long:
        return
    # What the round remembers of attempts with less work does not count.
    memory = this.memory._replace(no_victims={})
    reserved = ReservedCapacity(scheduler, now, memory, decisions, began=this.began)
    alone = Round(this.began, memory=memory, interrupt=interrupt)
    _try(scheduler, alone, long[0], reserved, decisions)
    reserved.on_tried(long[0])
    reserved.close()
    this.dropped |= reserved.dropped


def account(scheduler: Scheduler, gang: Gang) -> None:
    """Updates the accounting of the gang, and whether it is waiting or partially bound."""
    counts, pending = gang.counts, scheduler.state.pending
    pending.touch(gang)
    placed = len(counts.placed)
    if placed - counts.assumed >= gang.minimum and not gang.missing():
        gang.started = True
    if scheduler.queues.update(gang):
        pending.capacity_freed("head of a fifo queue left")
    min_resources = scheduler.min_resources
    has_min_resources = min_resources.by_gang or (
        gang.object is not None and gang.object.min_resources
    )
    if has_min_resources and min_resources.update(gang):
        pending.capacity_freed("minResources released")
    partial = False
    if placed:
        pending.lowest_priority = min(pending.lowest_priority, gang.priority)
        short = not gang.started and gang.missing() > 0
        partial = short and any(pod.alive for pod in counts.placed)
    if not partial:
        gang.attempt.partial_since = None
    pending.update(gang, waiting=counts.unplaced > 0, partial=partial)


def _join(scheduler: Scheduler, this: Round, now: float) -> bool:
    """Adds the gangs that have become due to those that are left. Returns whether any of these changed."""
    pending = scheduler.state.pending
    if this.epoch == -1:
        this.left = pending.due(now)
        return True
    changed = pending.changed_gangs
    freed = pending.epoch != this.epoch
    due = pending.due(now) if freed else pending.due_changed(now, this.tried)
    if freed and now - this.began >= ROUND_S:
        late = [key for key in due if key in this.tried and key not in changed]
        this.late |= bool(late)
        for key in late:
            del due[key]
    this.left |= due
    return bool(due) or any(key in this.left for key in changed)


def _one_pass(
    scheduler: Scheduler,
    this: Round,
    reserved: ReservedCapacity,
    budget: Budget | None,
    decisions: list[Decision],
) -> bool:
    """One pass over what is left and the gangs with a reservation. Returns whether all were tried."""
    pending, asked, complete = scheduler.state.pending, False, True
    gangs = this.order
    if gangs is None:
        this.again = []
        gangs = _in_order(scheduler, this, this.again, sliced=budget is not None)
    this.order = None
    for gang in gangs:
        if pending.waiting.get(gang.key) is not gang:
            continue
        if gang.key in this.left or reserved.must_retry(gang):
            if budget is not None and asked and budget():
                complete, this.order = False, chain((gang,), gangs)
                break
            asked = True
            this.left.pop(gang.key, None)
            this.tried.add(gang.key)
            blocked = scheduler.quarantine.set_asides and fence.blocks(scheduler, gang)
            if not blocked and gang.attempt.work_factor > MAX_FACTOR:
                this.long += [gang] if gang not in this.long else []
            elif not blocked and _try(scheduler, this, gang, reserved, decisions):
                this.left[gang.key] = None
                this.again.append(gang)
                continue
        reserved.on_tried(gang)
    reserved.close()
    this.dropped |= reserved.dropped
    return complete


def _in_order(
    scheduler: Scheduler, this: Round, again: list[Gang], *, sliced: bool
) -> Iterator[Gang]:
    pending = scheduler.state.pending
    gangs = [*_left(scheduler, this)]
    waiting_behind: list[Gang] = []
    if sliced and (flooding := this.flooding()):  # they need not be put in order among the others
        waiting_behind = [gang for gang in gangs if gang.key[0] in flooding]
        gangs = [gang for gang in gangs if gang.key[0] not in flooding]
    gangs += [
        gang
        for key in scheduler.reservations
        if (gang := pending.waiting.get(key)) and key not in this.left
    ]
    if not sliced:
        yield from order.in_order(scheduler.queues, gangs, again, this.shares)
        return
    for gang in order.in_order(scheduler.queues, gangs, again, this.shares):
        if this.must_wait(gang):
            waiting_behind.append(gang)
        else:
            yield gang
    yield from order.in_order(scheduler.queues, waiting_behind, again, this.shares)


def _left(scheduler: Scheduler, this: Round) -> Iterator[Gang]:
    waiting = scheduler.state.pending.waiting
    return (gang for key in this.left if (gang := waiting.get(key)) is not None)


def _try(
    scheduler: Scheduler,
    this: Round,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
) -> bool:
    """Returns whether some of its pods were bound and others are left, for another turn in this pass."""
    pending, reservations = scheduler.state.pending, scheduler.reservations
    attempt = gang.attempt
    same = None
    if gang.key not in reservations:
        same = this.first_refused.get(attempt.equivalence)
    if same is not None and same.attempt.refused_at == pending.epoch:
        _refuse_alike(scheduler, gang, same)
        return False
    this.by_namespace[gang.namespace] += 1
    meter = scheduler.state.snapshot.meter
    meter.begin(attempt.work_factor, this.interrupt)
    try:
        _try_schedule(scheduler, this, gang, reserved, decisions)
        account(scheduler, gang)
    except Exception as error:  # noqa: BLE001  any bug; the gang is set aside
        fence.gang_failed(scheduler, gang, error)
        return False
    if scheduler.quarantine.set_asides:
        scheduler.quarantine.release(fence.key_of_gang(gang))
    if gang.key in pending.waiting:
        _set_work_limit(scheduler, gang)
    meter.end()
    pending.changed(gang)
    if attempt.reason and attempt.equivalence and gang.key not in reservations:
        this.first_refused[attempt.equivalence] = gang
    return not attempt.reason and gang.key in pending.waiting


def _is_undecided(gang: Gang) -> bool:
    return gang.attempt.reason.endswith(explain.WORK_LIMIT)


def _set_work_limit(scheduler: Scheduler, gang: Gang) -> None:
    """If a search of the gang has reached its limit, the gang is tried again with twice the work, though nothing
    is freed; with as much if it was interrupted."""
    attempt, meter = gang.attempt, scheduler.state.snapshot.meter
    if not meter.was_short and not _is_undecided(gang):
        attempt.work_factor = 1
        return
    factor, wait_s = attempt.work_factor, LIMITED_S
    if not meter.was_interrupted:
        attempt.work_factor = min(2 * factor, MAX_LONG_FACTOR)
    if factor > MAX_FACTOR:
        wait_s = LIMITED_MAX_S if meter.was_interrupted else max(LIMITED_MAX_S, LONG_S * factor)
    scheduler.state.pending.try_later(gang, scheduler.state.now + wait_s)


def _refuse_alike(scheduler: Scheduler, gang: Gang, same: Gang) -> None:
    """Copies the refusal of an equal request: since then capacity was only taken, so the result is
    the same."""
    attempt, refused = gang.attempt, same.attempt
    attempt.refused_at = refused.refused_at
    if (known := scheduler.refused.get(same.key)) is not None:
        scheduler.refused[gang.key] = known
    if attempt.reason != refused.reason:
        attempt.reason = refused.reason
        scheduler.state.pending.changed(gang)


def _try_schedule(
    scheduler: Scheduler,
    this: Round,
    gang: Gang,
    reserved: ReservedCapacity,
    decisions: list[Decision],
) -> None:
    """Binds as many of the gang's pods as fit, but while others are left in the round its minimum first, and
    of a scarce surplus one unit; else makes or keeps capacity for its minimum. Appends each decision right after
    the state has it: what fails later must not lose it."""
    state, queues, min_resources = scheduler.state, scheduler.queues, scheduler.min_resources
    missing = gang.missing()
    gang.attempt.reason = readiness.not_ready_reason(gang, missing)
    scheduler.refused.pop(gang.key, None)
    if gang.attempt.reason:
        reserved.release(gang)
        return
    placement_policy = scheduler.policy.placement
    attempts, wants = placement_attempts.attempts(state, gang, missing, placement_policy)
    refusals = [
        quota.refusal(queues, min_resources, gang, want.groups)
        or min_resources.refusal(state, gang, want.groups)
        for want in wants
    ]
    admitted = [index for index, refusal in enumerate(refusals) if not refusal]
    if not admitted:  # not even the smallest attempt
        gang.attempt.equivalence = _equivalence(scheduler, gang, wants)
        state.pending.refuse(gang, refusals[-1])
        scheduler.refused[gang.key] = GangRefusal(
            gang, wants[-1], refusals[-1], missing=missing, over_quota=True
        )
        lacks = _claimable(scheduler, gang, wants[-1])
        decisions += reserved.on_over_quota(gang, wants[-1], lacks, growth=not missing)
        reserved.annotate(gang)
        return
    attempts, wants = [attempts[i] for i in admitted], tuple(wants[i] for i in admitted)
    first, most = 0, None
    if this.left and len(wants) > 1 and not refusals[0]:
        if missing:
            most = attempts[1]
        elif placement_attempts.scarce(state, [gang, *_left(scheduler, this)]):
            first = 1
    for bound_by in reserved.views_for(gang):
        refused = this.verdicts.of(bound_by, wants[first:], state.pending.epoch)
        binds = _place(scheduler, gang, attempts[first:], wants[first:], refused, most=most)
        if binds:
            decisions += binds
            reserved.on_bound(gang)
            return
    if _is_undecided(gang):
        return
    gang.attempt.equivalence = _equivalence(scheduler, gang, wants)
    scheduler.refused[gang.key] = GangRefusal(
        gang, wants[-1], gang.attempt.reason, *reserved.withheld(), missing=missing
    )
    on_refused = reserved.on_refused if missing else reserved.on_growth_refused
    decisions += on_refused(gang, wants[-1])
    reserved.annotate(gang)


def _claimable(
    scheduler: Scheduler, gang: Gang, want: PlacementRequest
) -> list[tuple[Shortfall, ...]]:
    """The quota whose lack is all that refuses the gang: alternatives."""
    min_resources = scheduler.min_resources
    if min_resources.refusal(scheduler.state, gang, want.groups):
        return []
    return quota.shortfalls(scheduler.queues, min_resources, gang, want.groups)


def _equivalence(scheduler: Scheduler, gang: Gang, wants: tuple[PlacementRequest, ...]) -> int:
    tenant = quota.tenant(scheduler.queues, gang)
    return placement_attempts.equivalence_key(scheduler.state, gang, wants, tenant)


def _place(
    scheduler: Scheduler,
    gang: Gang,
    attempts: Sequence[list[Pod]],
    wants: tuple[PlacementRequest, ...],
    refused: Refusals,
    *,
    most: Sequence[Pod] | None,
) -> list[Bind]:
    """Binds the first attempt that fits. most: only these of its pods, where they would run beside the
    others."""
    state, pending = scheduler.state, scheduler.state.pending
    request = (pending.epoch, wants)
    if request in refused:
        pending.refuse(gang, refused[request])
        return []
    draft, meter = Draft(state.snapshot), state.snapshot.meter
    for want, attempt in dict(zip(wants, attempts, strict=True)).items():
        if meter.was_short and want != wants[-1]:
            continue
        if meter.is_spent:  # by larger attempts
            meter.extend()
        try:
            fence.search(state.snapshot, placement.fit, draft, want)
        except DoesNotFit as no:
            if want == wants[-1]:
                gang.attempt.reason = no.why
            continue
        except WorkLimitReached:
            draft.undo()
            continue
        except fence.SearchFailed:
            draft.undo()
            raise
        gang.attempt.reason, gang.attempt.refused_at = "", -1
        pods = attempt
        if most is not None and len(most) < len(attempt):
            pods = binding.reduce(draft, attempt, most)
        try:
            return binding.binds(state, gang, pods, draft.keep())
        except Exception:
            _take_back(pods)
            raise
    _raise_filter_failure(state.snapshot, wants[-1])
    if meter.was_short:  # no answer, so nothing is certain
        gang.attempt.reason = f"{explain.describe_pods(wants[-1].groups)}; {explain.WORK_LIMIT}"
    pending.refuse(gang, gang.attempt.reason)
    refused[request] = gang.attempt.reason
    return []


def _raise_filter_failure(snapshot: Snapshot, want: PlacementRequest) -> None:
    for spec, _ in want.groups:
        if (failure := snapshot.view(spec).filter_failure) is not None:
            raise fence.SearchFailed from failure


def _take_back(pods: Sequence[Pod]) -> None:
    """Their binding was not decided after all. The state is built again with them pending."""
    for pod in pods:
        pod.advance(BIND_FAILED)
        pod.node, pod.gpus = "", 0
