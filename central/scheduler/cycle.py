"""One scheduling cycle: apply the facts, decide once, assume the decisions. Pure.

    facts -> accounting -> pending gangs in order (scheduling_round.py)
          -> pods above device limits -> partial gangs -> controllers -> statuses

The live loop, the simulator and replay all call schedule_once(). An exception stops only the object
that triggered it (fence.py, culprit.py): every call below is in a phase (cycle_phases.py).
"""

from collections.abc import Iterable
from functools import partial

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import culprit, fence, partial_gangs, scheduling_round, set_aside_notices
from central.scheduler.cycle_phases import Phase
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.needs import Need
from central.scheduler.inventory.pods import EVICTION_ENDED, Pod
from central.scheduler.pending_cause import cause_of, nominations
from central.scheduler.queues import order
from central.scheduler.round_state import Round
from central.scheduler.scheduler import Scheduler
from central.scheduler.scheduling_round import Budget
from central.scheduler.state import handlers
from central.scheduler.state.gangs import Gang
from central.scheduler.status import gang_status
from central.scheduler.work_meter import MAX_FACTOR, Interrupt

ACCOUNTED_MOST = 5_000  # gangs in one slice: a tenth of a second
STATUSES_MOST = 10_000  # gangs, in one cycle
REASONS_MOST = 500  # ... of which only the reason changed: bindings do not wait for thousands
MOST_RESTARTS = 8  # of a cycle whose state was rebuilt; the next cycle does the rest


def schedule_once(
    scheduler: Scheduler,
    facts: Iterable[Fact],
    now: float,
    budget: Budget | None = None,
    interrupt: Interrupt | None = None,
) -> list[Decision]:
    """now: seconds since the epoch, as pods' start times are, of a clock that never goes back.
    budget: ends the cycle's placements early; those that are left follow in the next cycle.
    interrupt: ends a long attempt (work_meter.py)."""
    apply_facts(scheduler, facts, now)
    return decide(scheduler, now, budget, interrupt)


def apply_facts(scheduler: Scheduler, facts: Iterable[Fact], now: float) -> None:
    scheduler.state.now = scheduler.queues.now = now
    fence.apply_facts(scheduler, facts)


def decide(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None = None,
    interrupt: Interrupt | None = None,
) -> list[Decision]:
    decisions: list[Decision] = []
    quarantine, searched = scheduler.quarantine, 0
    if quarantine.phases.begin(now):
        scheduler.state.pending.capacity_freed("phase of the cycle back")
    for _ in range(MOST_RESTARTS):
        try:
            _decide(scheduler, now, budget, interrupt, decisions)
            quarantine.phases.passed.add(Phase.CYCLE)
            break
        except fence.StateRebuilt:
            continue  # what was decided stays decided: the new state has it
        except Exception as error:  # noqa: BLE001  any bug
            fence.phase_failed(scheduler, error)
            searched = culprit.advance(scheduler, _try_cycle, searched)
    if quarantine.failed_phases or quarantine.search is not None:
        culprit.advance(scheduler, _try_cycle, searched)
    fence.release_tried(scheduler)
    decisions += set_aside_notices.take(scheduler)
    return decisions


def _try_cycle(copy: Scheduler) -> None:
    """Of a part of the cluster, without effect."""
    for _ in range(MOST_RESTARTS):
        try:
            _decide(copy, copy.state.now, None, None, [])
            copy.quarantine.phases.passed.add(Phase.CYCLE)
            return
        except fence.StateRebuilt:
            continue
        except Exception as error:
            copy.quarantine.phases.blamed(error)
            raise


def _decide(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Appends to the decisions as it makes them."""
    state, step, decided = scheduler.state, fence.step, fence.decided
    state.pending.step()
    scheduler.queues.in_flight.outdated = True
    if not _update_accounting(scheduler, now, sliced=budget is not None):
        return
    step(scheduler, Phase.MODELS, _look_at_elastic, scheduler)
    scheduling_round.schedule_pending(scheduler, now, budget, interrupt, decisions)
    scheduler.queues.in_flight.outdated = True
    usage = scheduler.device_usage
    decisions += decided(scheduler, Phase.GPU_MEMORY, usage.gpu_memory.decide, state, now)
    decisions += decided(scheduler, Phase.RDMA_USAGE, usage.rdma.decide, state, now)
    if state.pending.round is None:  # else a gang may still be placed in this round
        _undo_partial(scheduler, now, decisions)
        step(scheduler, Phase.ELASTIC_SIZES, _resize_elastic, scheduler, now)
    decisions += decided(scheduler, Phase.CONTROLLERS, _controllers, scheduler, now)
    step(scheduler, Phase.ADMISSION, _admit, scheduler, now)
    if scheduler.queues.enabled:
        found = step(scheduler, Phase.QUEUE_STATUSES, _queue_statuses, scheduler, now)
        if found is None:
            scheduler.queue_statuses.stale = True  # what changed was not counted
        decisions += found or ()
    decisions += decided(scheduler, Phase.HYPERNODE_STATUSES, _hypernodes, scheduler, now)
    decisions += decided(scheduler, Phase.STATUSES, _statuses, scheduler)
    # A gang that must preempt later need not read all pods first.
    quiet = not decisions and state.pending.round is None
    table = scheduler.preemption.candidates.table
    step(scheduler, Phase.CANDIDATES, partial(table.read_portion, quiet=quiet))


def due(scheduler: Scheduler, now: float) -> float | None:
    """When the next cycle is due without a fact; None: not before one. Virtual time jumps there."""
    pending = scheduler.state.pending
    goes_on = pending.round is not None or pending.tries_all_again
    if goes_on or pending.unpublished or pending.has_changed_reasons:
        return now
    times = [
        gang.attempt.partial_since + partial_gangs.UNDO_AFTER_S
        for gang in pending.partial.values()
        if gang.attempt.partial_since is not None
    ]
    times += pending.retry_times(now)
    if scheduler.queues.enabled:
        times += [*scheduler.queue_statuses.due(now), *scheduler.preemption.claim_watch.due()]
        times += scheduler.preemption.time_sharing.due()
    times += scheduler.state.owners.held.values()
    times += scheduler.hypernode_statuses.due(now)
    times += scheduler.admission.due(pending)
    times += scheduler.controllers.due(now)
    # Those that are over were tried in the last cycle, or will be when their phase is back.
    times += [at for at in scheduler.quarantine.retry_times() if at > scheduler.state.now]
    times += scheduler.quarantine.phases.ends()
    times += scheduler.elastic.due()
    return min(times, default=None)


def _update_accounting(scheduler: Scheduler, now: float, *, sliced: bool) -> bool:
    """Of at most ACCOUNTED_MOST gangs if the cycle is sliced. Returns whether all are accounted: nothing may be
    decided before."""
    state, step = scheduler.state, fence.step
    step(scheduler, Phase.HELD_PODS, handlers.release_held_pods, state, now)
    step(scheduler, Phase.NETWORK, _rebuild_network, scheduler)
    scheduler.quarantine.phases.run(Phase.QUEUE_TREE, scheduler.queues.settle, without=None)
    if state.pending.all_changed:
        state.pending.changed_gangs.update(state.gangs)
        state.pending.unaccounted.update(state.gangs)
        state.pending.all_changed = False

    def account(gang: Gang) -> None:
        gang.attempt.equivalence = 0
        gang.attempt.rank = order.rank(gang)
        gang.attempt.run_time_s = order.backfill_time_s(gang)
        scheduling_round.account(scheduler, gang)

    step(scheduler, Phase.BACKOFFS, fence.mark_due, scheduler)
    gangs = state.pending.take_unaccounted(ACCOUNTED_MOST if sliced else None)
    fence.each_gang(scheduler, Phase.ACCOUNT, gangs, account, [])
    if state.pending.unaccounted:
        state.pending.round = state.pending.round or Round(now)  # the next cycle goes on at once
        return False
    resumed = state.pending.round is not None and state.pending.round.epoch == state.pending.epoch
    if scheduler.queues.enabled and not resumed:  # one measure for all slices of a round
        unschedulable = state.node_sets.unschedulable
        measure = scheduler.queues.measure_capacity
        step(scheduler, Phase.QUEUE_CAPACITY, measure, state.snapshot, unschedulable)
        step(scheduler, Phase.TIME_SHARING, _share_time, scheduler, now)
    return True


def _share_time(scheduler: Scheduler, now: float) -> None:
    if scheduler.preemption.time_sharing.look(scheduler.queues, now):
        scheduler.state.pending.capacity_freed("turn of a gang that shares time")


def _undo_partial(scheduler: Scheduler, now: float, decisions: list[Decision]) -> None:
    pending = scheduler.state.pending

    def undo(gang: Gang) -> list[Decision]:
        pending.touch(gang)
        return partial_gangs.undo_partial(gang, now)

    fence.each_gang(scheduler, Phase.PARTIAL_GANGS, pending.partial.values(), undo, decisions)


def _look_at_elastic(scheduler: Scheduler) -> None:
    if scheduler.state.pending.waiting:  # else nobody chooses
        scheduler.elastic.models.look(_elastic_gangs(scheduler))


def _elastic_gangs(scheduler: Scheduler) -> list[ElasticGang]:
    """Without those that are set aside."""
    gangs = scheduler.controllers.elastic_gangs(scheduler.state)
    if scheduler.quarantine.set_asides:
        gangs = [each for each in gangs if not fence.blocks(scheduler, each.gang)]
    return gangs


def _resize_elastic(scheduler: Scheduler, now: float) -> None:
    gangs = _elastic_gangs(scheduler)
    waiting, refused = scheduler.state.pending.waiting, scheduler.refused
    needs = [
        Need(waiting[key], refusal.request)
        for key, refusal in (refused.items() if gangs else ())
        if refusal.left_to_surplus and key in waiting and waiting[key].missing() > 0
    ]
    needs.sort(key=lambda need: need.gang.attempt.rank)
    scheduler.state.snapshot.meter.begin(MAX_FACTOR)  # needs beyond it preempt for themselves
    told: set[Pod] = set()
    try:
        for resize in scheduler.elastic.decide(scheduler.preemption, gangs, needs, now):
            scheduler.controllers.resize(resize)
            told.update(resize.leaving)
    except Exception:
        for pod in scheduler.elastic.leaving:
            if pod not in told:
                pod.advance(EVICTION_ENDED)
        raise
    finally:
        scheduler.state.snapshot.meter.end()


def _controllers(scheduler: Scheduler, now: float) -> list[Decision]:
    state, queues, quarantine = scheduler.state, scheduler.queues, scheduler.quarantine
    resources = scheduler.min_resources
    return scheduler.controllers.decide(state, queues, resources, quarantine, now)


def _admit(scheduler: Scheduler, now: float) -> None:
    state, admission = scheduler.state, scheduler.admission
    due = admission.groups_due(state, scheduler.controllers.owned_groups(), now)
    admitted = admission.admitted() if due else {}
    of = scheduler.queues, scheduler.min_resources

    def check(gang: Gang) -> None:
        fence.search(state.snapshot, admission.check, state, *of, gang, admitted)

    fence.each_gang(scheduler, Phase.PODGROUP, due, check, [])


def _hypernodes(scheduler: Scheduler, now: float) -> Iterable[Decision]:
    network = scheduler.state.network
    return scheduler.hypernode_statuses.decide(network.hypernodes, network.built, now)


def _statuses(scheduler: Scheduler) -> list[Decision]:
    pending = scheduler.state.pending
    pending.all_decided()
    gangs = pending.take_unpublished(STATUSES_MOST, REASONS_MOST)
    return [decision for gang in gangs for decision in _status(scheduler, gang)]


def _rebuild_network(scheduler: Scheduler) -> None:
    state = scheduler.state
    if state.network.rebuild(state.nodes.values(), state.snapshot):
        scheduler.hypernode_statuses.rebuilt(state.network.hypernodes)


def _queue_statuses(scheduler: Scheduler, now: float) -> list[Decision]:
    state, statuses = scheduler.state, scheduler.queue_statuses
    gangs = state.gangs if statuses.stale else state.pending.changed_gangs
    statuses.stale = True  # unless all of them can be counted
    for gang in gangs.values():
        statuses.count(gang, gang_status.phase(gang))
    statuses.stale = False
    return [*statuses.decide(scheduler.queues, now)]


def _status(scheduler: Scheduler, gang: Gang) -> list[Decision]:
    """A gang whose status fails gets one that says so."""
    try:
        turns = scheduler.preemption.time_sharing.past_turns(gang)
        cause, nominated = cause_of(scheduler, gang), nominations(scheduler, gang)
        return gang_status.status_update(scheduler.state, gang, cause, nominated, turns)
    except Exception as error:  # noqa: BLE001  any bug; nothing but the status was computed
        return gang_status.plain_status(gang, fence.set_gang_aside(scheduler, gang, error))
