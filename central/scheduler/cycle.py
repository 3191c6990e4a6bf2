"""One scheduling cycle: apply the facts, decide once, assume the decisions. Pure.

    facts -> accounting -> pending gangs in order (scheduling_round.py)
          -> pods above device limits -> partial gangs -> controllers -> statuses

The live loop, the simulator and replay all call schedule_once(). An exception stops only the object
that triggered it (fence.py).
"""

from collections.abc import Iterable
from functools import partial

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler import fence, partial_gangs, scheduling_round
from central.scheduler.elastic.needs import Need
from central.scheduler.quarantine import ACCOUNT
from central.scheduler.queues import order
from central.scheduler.scheduler import Scheduler
from central.scheduler.scheduling_round import Budget, Round
from central.scheduler.state import handlers
from central.scheduler.state.gangs import Gang
from central.scheduler.status import gang_status
from central.scheduler.work_meter import MAX_FACTOR, Interrupt

ACCOUNTED_MOST = 5_000  # gangs in one slice: a tenth of a second
STATUSES_MOST = 10_000  # gangs, in one cycle
REASONS_MOST = 500  # ... of which only the reason changed: bindings do not wait for thousands
MOST_RESTARTS = 3  # of a cycle whose state was rebuilt; the next cycle does the rest


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
    for _ in range(MOST_RESTARTS):
        try:
            _decide(scheduler, now, budget, interrupt, decisions)
            break
        except fence.StateRebuilt:
            continue  # what was decided stays decided: the new state has it
        except Exception as error:  # noqa: BLE001  a bug that no object was found for
            fence.cycle_failed(scheduler, error)
    decisions += fence.warnings(scheduler)
    return decisions


def _decide(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Appends to the decisions as it makes them."""
    state, step, decided = scheduler.state, fence.step, fence.decided
    quarantine = scheduler.quarantine
    state.pending.step()
    if not _update_accounting(scheduler, now, sliced=budget is not None):
        return
    step(quarantine, "GPU models of elastic gangs", _look_at_elastic, scheduler)
    scheduling_round.schedule_pending(scheduler, now, budget, interrupt, decisions)
    usage = scheduler.device_usage
    decisions += decided(quarantine, "GPU memory", usage.gpu_memory.decide, state, now)
    decisions += decided(quarantine, "RDMA usage", usage.rdma.decide, state, now)
    if scheduler.state.pending.round is None:  # a gang may still be placed in this round

        def undo(gang: Gang) -> list[Decision]:
            state.pending.touch(gang)
            return partial_gangs.undo_partial(gang, now)

        fence.each_gang(scheduler, state.pending.partial.values(), undo, decisions)
    if scheduler.state.pending.round is None:
        step(quarantine, "elastic sizes", _resize_elastic, scheduler, now)
    controllers, queues = scheduler.controllers, scheduler.queues
    resources, owned = scheduler.min_resources, scheduler.controllers.owned_groups()
    decisions += decided(
        quarantine, "controllers", controllers.decide, state, queues, resources, quarantine, now
    )
    step(quarantine, "admission", scheduler.admission.decide, state, queues, resources, owned, now)
    if queues.enabled:
        decisions += decided(quarantine, "queue statuses", _queue_statuses, scheduler, now)
    network, statuses = state.network, scheduler.hypernode_statuses
    decisions += decided(
        quarantine, "HyperNode statuses", statuses.decide, network.hypernodes, network.built, now
    )
    state.pending.all_decided()
    for gang in state.pending.take_unpublished(STATUSES_MOST, REASONS_MOST):
        decisions += _status(scheduler, gang)
    # A gang that must preempt later need not read all pods first.
    quiet = not decisions and state.pending.round is None
    table = scheduler.preemption.candidates.table
    step(quarantine, "candidates", partial(table.read_portion, quiet=quiet))


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
    times += scheduler.state.owners.held.values()
    times += scheduler.hypernode_statuses.due(now)
    times += scheduler.admission.due(pending)
    times += scheduler.controllers.due(now)
    times += scheduler.quarantine.retry_times()
    times += scheduler.elastic.due()
    return min(times, default=None)


def _update_accounting(scheduler: Scheduler, now: float, *, sliced: bool) -> bool:
    """Of at most ACCOUNTED_MOST gangs if the cycle is sliced. Returns whether all are accounted: nothing may be
    decided before."""
    state = scheduler.state
    handlers.release_held_pods(state, now)
    fence.step(scheduler.quarantine, "network tree", _rebuild_network, scheduler)
    scheduler.queues.settle()
    if state.pending.all_changed:
        state.pending.changed_gangs.update(state.gangs)
        state.pending.unaccounted.update(state.gangs)
        state.pending.all_changed = False

    def account(gang: Gang) -> None:
        gang.attempt.equivalence = 0
        gang.attempt.rank, gang.attempt.run_time_s = order.rank(gang), order.run_time_s(gang)
        scheduling_round.account(scheduler, gang)

    if scheduler.quarantine.set_asides:
        fence.mark_due(scheduler)
    gangs = state.pending.take_unaccounted(ACCOUNTED_MOST if sliced else None)
    fence.each_gang(scheduler, gangs, account, [], ACCOUNT)
    if state.pending.unaccounted:
        state.pending.round = state.pending.round or Round(now)  # the next cycle goes on at once
        return False
    resumed = (
        scheduler.state.pending.round is not None
        and scheduler.state.pending.round.epoch == state.pending.epoch
    )
    if scheduler.queues.enabled and not resumed:  # one measure for all slices of a round
        scheduler.queues.measure_capacity(state.snapshot, state.node_sets.unschedulable)
    return True


def _look_at_elastic(scheduler: Scheduler) -> None:
    if scheduler.state.pending.waiting:  # else nobody chooses
        scheduler.elastic.models.look(scheduler.controllers.elastic_gangs(scheduler.state))


def _resize_elastic(scheduler: Scheduler, now: float) -> None:
    gangs = scheduler.controllers.elastic_gangs(scheduler.state)
    waiting, refused = scheduler.state.pending.waiting, scheduler.refused
    needs = [
        Need(waiting[key], refusal.request)
        for key, refusal in (refused.items() if gangs else ())
        if refusal.left_to_surplus and key in waiting and waiting[key].missing() > 0
    ]
    needs.sort(key=lambda need: need.gang.attempt.rank)
    scheduler.state.snapshot.meter.begin(MAX_FACTOR)  # needs beyond it preempt for themselves
    for resize in scheduler.elastic.decide(scheduler.preemption, gangs, needs, now):
        scheduler.controllers.resize(resize)
    scheduler.state.snapshot.meter.end()


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
        return gang_status.status_update(scheduler.state, gang)
    except Exception as error:  # noqa: BLE001  any bug; nothing but the status was computed
        return gang_status.plain_status(gang, fence.set_gang_aside(scheduler, gang, error))
