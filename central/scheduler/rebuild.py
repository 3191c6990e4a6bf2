"""Builds the state again from what it has recorded, after an exception may have left it half changed.

What the API server and the agents reported is applied to an empty scheduler. What only the scheduler
knows is carried over: bindings that are not confirmed yet, planned devices, evictions, backoffs, what
was published. Reservations are planned again.

Design: docs/design/containment.md
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from central.model.facts import DeviceClassSeen, Fact, NodeReported, PodSeen, PodSpec, Rule
from central.scheduler.apply import apply
from central.scheduler.inventory.pods import EVICTION_ENDED, Pod
from central.scheduler.quarantine import Quarantine, SetAsideKey, display_of, is_gone, key_of
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import handlers
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

MOST_BUILDS = 10  # each finds one more object that the scheduler fails on


class CannotRebuild(Exception):
    """Too many recorded objects make the scheduler fail."""


class LeftOut:
    """Facts that the state is built without: those that fail, and all about objects that are gone."""

    def __init__(self, guilty: Iterable[Fact]) -> None:
        self._facts: list[Fact] = []
        self._gone: set[SetAsideKey] = set()
        self.uncountable: set[str] = set()  # uids of pods of which not even the amounts can be used
        for fact in guilty:
            self.add(fact)

    def add(self, fact: Fact) -> None:
        self._facts.append(fact)
        if is_gone(fact):
            self._gone.add(key_of(fact))

    def reports(self) -> Iterator[NodeReported]:
        return (fact for fact in self._facts if isinstance(fact, NodeReported))

    def is_gone(self, fact: Fact) -> bool:
        return bool(self._gone) and key_of(fact) in self._gone

    def __contains__(self, fact: Fact) -> bool:
        return fact in self._facts or self.is_gone(fact)


def rebuild(scheduler: Scheduler, *guilty: Fact) -> None:
    """Replaces the scheduler's state in place, without these facts. An older one about the same object
    stays in force if it is still recorded. A pod stays charged to its node in any case, and a node
    whose report is lost gets no more pods. Raises CannotRebuild."""
    left_out = LeftOut(guilty)
    why: Exception | None = None
    for _ in range(MOST_BUILDS):
        fresh = scheduler.emptied()
        try:
            complete = _build(scheduler, fresh, left_out)
        except Exception as error:  # noqa: BLE001  the old state is still whole, so it is built again
            complete, why = False, error
        if complete:
            scheduler.adopt(fresh)
            return
    raise CannotRebuild(f"the state could not be built in {MOST_BUILDS} attempts") from why


def bare(fact: PodSeen) -> PodSeen:
    """The pod as one of another scheduler: only what it takes on its node, with its devices."""
    return PodSeen(
        fact.uid,
        fact.namespace,
        fact.name,
        PodSpec(
            fact.spec.requests,
            gpu_containers=fact.spec.gpu_containers,
            share_containers=fact.spec.share_containers,
            rdma_containers=fact.spec.rdma_containers,
            rail_containers=fact.spec.rail_containers,
            rdma_limits=fact.spec.rdma_limits,
        ),
        fact.node,
        fact.phase,
        ours=False,
        deleting=fact.deleting,
    )


def _build(old: Scheduler, fresh: Scheduler, left_out: LeftOut) -> bool:
    """Returns whether it is complete. If not, the fact on which it failed is left out next time."""
    fresh.state.now = fresh.queues.now = old.state.now
    for fact in recorded(old):
        if fact in left_out:
            continue
        try:
            apply(fresh, fact)
        except Exception as error:  # noqa: BLE001  any bug
            _leave_out(old.quarantine, left_out, fact, error, old.state.now)
            return False
    if not _settle_queues(old, fresh, left_out):
        return False
    _carry_lost_reports(old.state, fresh.state, left_out)
    _carry_nodes(old.state, fresh.state)
    _carry_volume_plans(old.state, fresh.state)
    _end_pending_evictions(old)
    fresh.state.keeps_plans = True
    if not _carry_pods(old.state, fresh.state, old.quarantine, left_out):
        return False
    _carry_held(old.state, fresh.state, left_out)
    for gang in fresh.state.gangs.values():
        if (before := old.state.gangs.get(gang.key)) is not None:
            _carry_gang(gang, before)
    _carry_planned_nics(old.state, fresh.state)
    fresh.state.keeps_plans = False
    for node in list(fresh.state.nodes.values()):
        handlers.reconcile_gpus(fresh.state, node)
    fresh.queues.adopt_history(old.queues)
    _carry_counters(old, fresh)
    return True


def _settle_queues(old: Scheduler, fresh: Scheduler, left_out: LeftOut) -> bool:
    """Builds the tree of queues. If that fails, the Queue that it fails on is found by bisection, with a tree built
    for each half: its fact was applied without failure."""
    try:
        fresh.queues.settle()
    except Exception as error:  # noqa: BLE001  any bug
        rules = list(fresh.queues.recorded(fresh.state.podclasses.namespaces))
        if (guilty := _first_failing(old, rules)) is not None:
            _leave_out(old.quarantine, left_out, guilty, error, old.state.now)
        return False
    return True


def _first_failing(old: Scheduler, rules: Sequence[Rule]) -> Rule | None:
    """The rule with which the tree of it and of all before it can't be built; None: all of them can."""

    def fails(index: int) -> bool:
        trial = old.emptied().queues
        try:
            for rule in rules[: index + 1]:
                trial.apply(rule)
            trial.settle()
        except Exception:  # noqa: BLE001  any bug
            return True
        return False

    first = bisect_left(range(len(rules)), True, key=fails)
    return rules[first] if first < len(rules) else None


def _leave_out(
    quarantine: Quarantine, left_out: LeftOut, fact: Fact, error: Exception, now: float
) -> None:
    left_out.add(fact)
    quarantine.set_aside(key_of(fact), display_of(fact), error, fact, now)


def _carry_pods(
    before: ClusterState, after: ClusterState, quarantine: Quarantine, left_out: LeftOut
) -> bool:
    for uid, pod in before.pods.items():
        raw = before.owners.pods.get(uid, pod.seen)
        if left_out.is_gone(raw) or uid in left_out.uncountable:
            continue
        guilty = raw in left_out or pod.seen in left_out
        if guilty and not pod.node:
            continue
        try:
            _carry_pod(after, pod, replace(bare(raw), node=pod.node) if guilty else raw)
        except Exception as error:  # noqa: BLE001  any bug
            if guilty:
                left_out.uncountable.add(uid)
            else:
                _leave_out(quarantine, left_out, raw, error, before.now)
            return False
    return True


def recorded(scheduler: Scheduler) -> Iterator[Fact]:
    """What was reported, apart from pods and from what the controllers keep."""
    state = scheduler.state
    yield from scheduler.queues.recorded(state.podclasses.namespaces)
    yield from scheduler.budgets.seen.values()
    yield from state.podclasses.storage.recorded()
    yield from state.snapshot.pod_counts.recorded_limits()
    yield from state.network.hypernodes.values()
    yield from state.owners.seen.values()
    yield from (DeviceClassSeen(*each) for each in state.snapshot.device_classes.items())
    for node in state.nodes.values():
        if node.report is not None:
            yield node.report
        if node.seen is not None:
            yield node.seen
    yield from state.owners.replicated.objects.values()
    for gang in state.gangs.values():
        if gang.object is not None and not gang.object.each_replica:
            yield gang.object


def _carry_lost_reports(before: ClusterState, after: ClusterState, left_out: LeftOut) -> None:
    """An older report that is still recorded does not say what the lost one said."""
    lost = {node.name for node in before.nodes.values() if node.report_failed}
    for name in sorted(lost.union(report.node for report in left_out.reports())):
        handlers.lose_report(after, name)


def _carry_volume_plans(before: ClusterState, after: ClusterState) -> None:
    """Without those of pods whose placement was taken back or refused."""
    for claim, (volume, uids) in before.podclasses.storage.plans.planned().items():
        for uid in sorted(uids):
            if (pod := before.pods.get(uid)) is not None and pod.node:
                after.podclasses.storage.plans.add(claim, uid, volume)


def _carry_nodes(before: ClusterState, after: ClusterState) -> None:
    for name, node in after.nodes.items():
        if (old := before.nodes.get(name)) is None:
            continue
        node.silent, node.rdma_use = old.silent, old.rdma_use
        handlers.set_offered(after, node, old.offered)
        if node.report is old.report:
            node.reported = old.reported


def _carry_planned_nics(before: ClusterState, after: ClusterState) -> None:
    """Agents may have the plans already. After the pods, because a plan without its pod is dropped."""
    for name, node in after.nodes.items():
        old = before.nodes.get(name)
        if old is not None and node.report is old.report:
            node.planned_nics = old.planned_nics


def _end_pending_evictions(old: Scheduler) -> None:
    """As reclaim.cancel: victims whose eviction was not asked for yet stay."""
    for held in old.reservations.values():
        for pod in held.victims:
            pod.advance(EVICTION_ENDED)


def _carry_pod(state: ClusterState, old: Pod, fact: PodSeen) -> None:
    made = state.owners.admit(fact, state.now, known=True)
    if made is None:
        return
    handlers.update_pod(state, made)
    pod = state.pods[fact.uid]
    if old.node:
        handlers.move_pod(state, pod, old.node, old.gpus if old.alive else 0)
    pod.life, pod.work, pod.evict_backoff = old.life, old.work, old.evict_backoff
    if pod.leaving and pod.seen.gang_key is None:  # it was evicted, and is set aside since
        state.set_other_leaving(fact.uid, pod)


def _carry_held(before: ClusterState, after: ClusterState, left_out: LeftOut) -> None:
    """Pods that wait for their controller."""
    for uid, until in before.owners.held.items():
        fact = before.owners.pods.get(uid)
        if fact is None or uid in after.pods or fact in left_out:
            continue
        if (made := after.owners.admit(fact, after.now, known=False)) is None:
            after.owners.held[uid] = until
        else:
            handlers.update_pod(after, made)


def _carry_gang(gang: Gang, before: Gang) -> None:
    """Without the end of a backoff: every gang is tried at once, so that its reason is true."""
    attempt, old = gang.attempt, before.attempt
    attempt.reason, attempt.partial_since = old.reason, old.partial_since
    attempt.bind_failures, attempt.failures_handled = old.bind_failures, old.failures_handled
    gang.started, gang.preemption, gang.published = (
        before.started,
        before.preemption,
        before.published,
    )
    if not any(pod.evicting for pod in gang.members.values()):
        gang.preemption.preempted_for = ""


def _carry_counters(old: Scheduler, fresh: Scheduler) -> None:
    """What counts on, and what is kept by name rather than by object."""
    state, before = fresh.state, old.state
    state.nodes_to_notify |= before.nodes.keys() & state.nodes.keys()
    state.snapshot.freed = before.snapshot.freed + 1
    state.pending.adopt_counts(before.pending)
    fresh.queue_statuses, fresh.hypernode_statuses = old.queue_statuses, old.hypernode_statuses
    fresh.device_usage = old.device_usage
    fresh.elastic.histories = old.elastic.histories
    fresh.preemption.stays.adopt(old.preemption.stays)
    fresh.preemption.time_sharing.adopt(old.preemption.time_sharing, state.gangs)
    fresh.queue_statuses.recount()
    for gang in before.gangs.values():
        if gang.key not in state.gangs:
            fresh.queue_statuses.forget(gang.key)
