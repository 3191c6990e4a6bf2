"""One scheduling cycle: apply the facts, decide once, assume the decisions. Pure.

    facts -> accounting -> pending gangs in order (agenda.py)
          -> pods above device limits -> partial gangs -> controllers -> statuses

The live loop, the simulator and replay all call schedule_once(). An exception stops only the object or the gang
that triggered it. After any other one the state is built again and the cycle begins again, once (containment.py).

Design: docs/design/containment.md
"""

from collections.abc import Iterable
from dataclasses import replace

from central.model.decisions import Decision, Delete
from central.model.facts import Fact
from central.scheduler import agenda, containment, partial_gangs
from central.scheduler.agenda import Budget, Round
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.elastic.needs import Need
from central.scheduler.inventory.pods import EVICTION_ENDED, Pod
from central.scheduler.pending_cause import cause_of, nominations
from central.scheduler.quarantine import ACCOUNT
from central.scheduler.queues import order
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import handlers, lost_pods
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
    scheduler.pass_time(now)
    containment.apply_facts(scheduler, facts)


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
        except containment.StateRebuilt:
            continue  # what was decided stays decided: the new state has it
        except Exception as error:  # noqa: BLE001  a bug without an object
            containment.cycle_failed(scheduler, error)
            continue
        containment.cycle_passed(scheduler)
        break
    decisions += containment.take_notices(scheduler)
    return decisions


def _decide(
    scheduler: Scheduler,
    now: float,
    budget: Budget | None,
    interrupt: Interrupt | None,
    decisions: list[Decision],
) -> None:
    """Appends to the decisions as it makes them."""
    state = scheduler.state
    state.snapshot.end_results()
    state.pending.step()
    state.snapshot.last_choice = scheduler.device_usage.deaths.last_choice(state)
    scheduler.queues.in_flight.start_pass()
    if not _update_accounting(scheduler, now, sliced=budget is not None):
        return
    if state.pending.waiting:  # else nobody chooses
        scheduler.elastic.models.look(_elastic_gangs(scheduler))
    agenda.schedule_pending(scheduler, now, budget, interrupt, decisions)
    scheduler.queues.in_flight.start_pass()
    decisions += scheduler.device_usage.gpu_memory.decide(state, now)
    decisions += scheduler.device_usage.rdma.decide(state, now)
    if state.pending.round is None:  # else a gang may still be placed in this round
        _undo_partial(scheduler, now, decisions)
        decisions += scheduler.elastic.unready.release_late(state, now)
        decisions += scheduler.device_usage.idle.decide(state, scheduler.queues, now)
        _resize_elastic(scheduler, now)
    _decide_controllers(scheduler, now, decisions)
    _admit(scheduler, now)
    decisions += _queue_statuses(scheduler, now)
    network = state.network
    decisions += scheduler.hypernode_statuses.decide(network.hypernodes, network.built, now)
    _add_statuses(scheduler, decisions)
    # A gang that must preempt later need not read all pods first.
    quiet = not decisions and state.pending.round is None
    scheduler.preemption.candidates.table.read_portion(quiet=quiet)


def due(scheduler: Scheduler, now: float) -> float | None:
    """Returns when the next cycle is due without a fact; None: not before one. Virtual time jumps there."""
    pending = scheduler.state.pending
    goes_on = pending.round is not None or pending.tries_all_again or scheduler.admission.goes_on
    if goes_on or pending.unpublished or pending.has_changed_reasons:
        return now
    times = [
        gang.attempt.partial_since + partial_gangs.UNDO_AFTER_S
        for gang in pending.partial.values()
        if gang.attempt.partial_since is not None and not containment.blocks(scheduler, gang)
    ]
    times += pending.retry_times(now)
    if scheduler.queues.enabled:
        times += [
            *scheduler.queue_statuses.writes.due(now),
            *scheduler.preemption.claim_watch.due(),
        ]
        times += scheduler.preemption.time_sharing.due()
    times += scheduler.state.owners.held.values()
    times += scheduler.hypernode_statuses.writes.due(now)
    times += scheduler.admission.due(pending)
    times += scheduler.controllers.due(now)
    # those that are over were tried in the last cycle
    times += [at for at in scheduler.quarantine.retry_times() if at > scheduler.state.now]
    times += scheduler.elastic.due()
    times += scheduler.elastic.unready.starts_due(scheduler.state.gangs, now)
    times += scheduler.state.snapshot.filter_results.ends.values()
    policy = scheduler.policy
    times += lost_pods.due(scheduler.state, policy.lost_after_s, policy.max_grace_s)
    return min(times, default=None)


def _update_accounting(scheduler: Scheduler, now: float, *, sliced: bool) -> bool:
    """Accounts the gangs that changed, at most ACCOUNTED_MOST if the cycle is sliced. Returns whether all are
    accounted: decisions wait for that."""
    state = scheduler.state
    handlers.settle_composites(state)
    handlers.release_held_pods(state, now)
    lost_pods.write_off(state, now, scheduler.policy.lost_after_s, scheduler.policy.max_grace_s)
    concerned = state.network.rebuild(state.nodes.values(), state.snapshot)
    scheduler.hypernode_statuses.changed(concerned)
    scheduler.queues.settle()
    if state.pending.all_changed:
        state.pending.changed_gangs.update(state.gangs)
        state.pending.unaccounted.update(state.gangs)
        state.pending.all_changed = False
    containment.mark_due(scheduler)
    for gang in state.pending.take_unaccounted(ACCOUNTED_MOST if sliced else None):
        _account(scheduler, gang)
    if state.pending.unaccounted:
        state.pending.round = state.pending.round or Round(now)  # the next cycle goes on at once
        return False
    resumed = state.pending.round is not None and state.pending.round.epoch == state.pending.epoch
    if scheduler.queues.enabled and not resumed:  # one measure for all slices of a round
        scheduler.queues.measure_capacity(state.snapshot, state.node_sets.unschedulable)
        if scheduler.preemption.time_sharing.look(scheduler.queues, now):
            state.pending.capacity_freed("turn of a gang that shares time")
    return True


def _account(scheduler: Scheduler, gang: Gang) -> None:
    quarantine = scheduler.quarantine
    if quarantine.set_asides and containment.blocks(scheduler, gang, (ACCOUNT,)):
        return
    try:
        gang.attempt.equivalence = 0
        gang.attempt.rank = order.rank(gang)
        gang.attempt.run_time_s = order.backfill_time_s(gang)
        agenda.account(scheduler, gang)
    except Exception as error:  # noqa: BLE001  any bug
        containment.gang_failed(scheduler, gang, error, ACCOUNT)
    if quarantine.set_asides:
        quarantine.release(containment.key_of_gang(gang, ACCOUNT))


def _undo_partial(scheduler: Scheduler, now: float, decisions: list[Decision]) -> None:
    pending = scheduler.state.pending
    for gang in list(pending.partial.values()):
        if containment.blocks(scheduler, gang):
            continue
        with containment.contained(scheduler, gang):
            pending.touch(gang)
            decisions += partial_gangs.undo_partial(gang, now)


def _elastic_gangs(scheduler: Scheduler) -> list[ElasticGang]:
    """Returns the elastic gangs, without those that are set aside."""
    gangs = scheduler.controllers.elastic_gangs(scheduler.state)
    if scheduler.quarantine.set_asides:
        gangs = [each for each in gangs if not containment.blocks(scheduler, each.gang)]
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


def _decide_controllers(scheduler: Scheduler, now: float, decisions: list[Decision]) -> None:
    state, queues, quarantine = scheduler.state, scheduler.queues, scheduler.quarantine
    resources = scheduler.min_resources
    known = len(decisions)
    scheduler.controllers.decide(state, queues, resources, quarantine, now, decisions=decisions)
    decisions[known:] = [_in_time(scheduler, each) for each in decisions[known:]]


def _in_time(scheduler: Scheduler, decision: Decision) -> Decision:
    """A member that leaves for others may take as long to end as a victim."""
    if not isinstance(decision, Delete) or decision.kind != "Pod":
        return decision
    pod, most_s = scheduler.state.pods.get(decision.uid), scheduler.policy.max_grace_s
    if pod is None or not pod.evicting or pod.seen.grace_s <= most_s:
        return decision
    return replace(decision, grace_s=max(1, int(most_s)))


def _admit(scheduler: Scheduler, now: float) -> None:
    state, admission = scheduler.state, scheduler.admission
    queues, resources = scheduler.queues, scheduler.min_resources
    due = admission.groups_due(state, scheduler.controllers.owned_groups(), now)
    admitted = admission.admitted() if due else {}
    for gang in due:
        if containment.blocks(scheduler, gang):
            continue
        with containment.contained(scheduler, gang), containment.ContainedSearch(state.snapshot):
            admission.check(state, queues, resources, gang, admitted)


def _queue_statuses(scheduler: Scheduler, now: float) -> list[Decision]:
    state, statuses = scheduler.state, scheduler.queue_statuses
    gangs = state.gangs if statuses.stale else state.pending.changed_gangs
    statuses.stale = True  # unless all of them can be counted
    for gang in gangs.values():
        statuses.count(gang, gang_status.phase(gang))
    statuses.stale = False
    return [*statuses.decide(scheduler.queues, now)]


def _add_statuses(scheduler: Scheduler, decisions: list[Decision]) -> None:
    pending = scheduler.state.pending
    pending.all_decided()
    for gang in pending.take_unpublished(STATUSES_MOST, REASONS_MOST):
        decisions += _status(scheduler, gang)


def _status(scheduler: Scheduler, gang: Gang) -> list[Decision]:
    """A gang whose status fails gets one that says so."""
    try:
        turns = scheduler.preemption.time_sharing.past_turns(gang)
        cause, nominated = cause_of(scheduler, gang), nominations(scheduler, gang)
        return gang_status.status_update(scheduler.state, gang, cause, nominated, turns)
    except Exception as error:  # noqa: BLE001  any bug; nothing but the status was computed
        return gang_status.plain_status(gang, containment.set_gang_aside(scheduler, gang, error))
