"""Builds the state again from what it has recorded, after an exception may have left it half changed.

What the API server and the agents reported is applied to an empty scheduler, with what only the scheduler knows
(memory.py). Reservations are planned again.

Design: docs/design/containment.md
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import replace

from central.model.facts import Fact, NodeReported, PodSeen, PodSpec, Rule
from central.scheduler.apply import apply
from central.scheduler.memory import (
    NodeMemory,
    SchedulerMemory,
    remember,
    restore_counts,
    restore_gangs,
    restore_nodes,
    restore_plans,
    restore_pod,
)
from central.scheduler.quarantine import SetAsideKey, display_of, is_gone, key_of
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import handlers
from central.scheduler.state.cluster_state import ClusterState

MOST_BUILDS = 10  # each finds one more object that the scheduler fails on


class CannotRebuild(Exception):
    """Too many recorded objects make the scheduler fail."""


class FactFailed(Exception):
    """A recorded fact can't be applied."""

    def __init__(self, fact: Fact, error: Exception) -> None:
        super().__init__(fact, error)
        self.fact, self.error = fact, error


class QueuesFailed(Exception):
    """The tree of queues can't be built of the recorded rules."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class LeftOut:
    """Facts that the state is built without: those that fail, and all about objects that are gone."""

    def __init__(self, guilty: Iterable[Fact]) -> None:
        self._facts: list[Fact] = []
        self._gone: set[SetAsideKey] = set()
        self.uncountable: set[SetAsideKey] = set()  # pods of which not even the amounts can be used
        for fact in guilty:
            self.add(fact)

    def add(self, fact: Fact) -> None:
        self._facts.append(fact)
        if is_gone(fact):
            self._gone.add(key_of(fact))

    def reports(self) -> Iterator[NodeReported]:
        return (fact for fact in self._facts if isinstance(fact, NodeReported))

    def rest(self, facts: Iterable[Fact], memory: SchedulerMemory) -> Iterator[Fact]:
        """All others. A pod with a node stays charged to it."""
        if not self._facts:
            yield from facts
            return
        for fact in facts:
            if self._gone and key_of(fact) in self._gone:
                continue
            if fact not in self._facts:
                yield fact
            elif isinstance(fact, PodSeen) and key_of(fact) not in self.uncountable:
                kept = memory.pods.get(fact.uid)
                if kept is not None and kept.node:
                    yield replace(bare(fact), node=kept.node)


def rebuild(scheduler: Scheduler, *guilty: Fact) -> None:
    """Replaces the scheduler's state in place, without these facts. An older one about the same object
    stays in force if it is still recorded. A pod stays charged to its node in any case, and a node
    whose report is lost gets no more pods. Raises CannotRebuild."""
    left_out, why = LeftOut(guilty), Exception()
    fact: Fact | None
    memory, facts = remember(scheduler), [*recorded(scheduler), *recorded_pods(scheduler)]
    quarantine, now = scheduler.quarantine, scheduler.state.now
    for _ in range(MOST_BUILDS):
        fresh = scheduler.emptied()
        for report in left_out.reports():
            memory.nodes.setdefault(report.node, NodeMemory()).report_failed = True
        try:
            fold(fresh, left_out.rest(facts, memory), memory)
        except FactFailed as failed:
            why, fact = failed.error, failed.fact
            if fact not in facts:  # what counted instead of a pod that failed
                left_out.uncountable.add(key_of(fact))
                continue
        except QueuesFailed as failed:
            why, fact = failed.error, _first_failing(scheduler, facts)
        except Exception as error:  # noqa: BLE001  the old state is still whole, so it is built again
            why, fact = error, None
        else:
            for uid in scheduler.state.owners.gone:
                fresh.state.owners.forget_owner(uid)
            scheduler.adopt(fresh)
            return
        if fact is not None:
            left_out.add(fact)
            quarantine.set_aside(key_of(fact), display_of(fact), why, fact, now)
    raise CannotRebuild(f"the state could not be built in {MOST_BUILDS} attempts") from why


def fold(fresh: Scheduler, facts: Iterable[Fact], memory: SchedulerMemory) -> None:
    """Applies what a scheduler has recorded, and what it knew, to an empty one. Pods come last among the facts. Raises
    FactFailed, QueuesFailed and what else goes wrong; then the fresh one is of no use."""
    state = fresh.state
    fresh.pass_time(memory.now)
    state.owners.former = memory.former_nodes
    pods: list[PodSeen] = []
    for fact in facts:
        if isinstance(fact, PodSeen):
            pods.append(fact)
            continue
        try:
            apply(fresh, fact)
        except Exception as error:
            raise FactFailed(fact, error) from error
    try:
        fresh.queues.settle()
    except Exception as error:
        raise QueuesFailed(error) from error
    handlers.settle_composites(state)
    restore_nodes(state, memory)
    state.keeps_plans = True
    for pod in pods:
        try:
            _admit(state, pod, memory)
        except Exception as error:
            raise FactFailed(pod, error) from error
    restore_gangs(state.gangs, memory)
    state.keeps_plans = False
    restore_plans(state, memory)
    restore_counts(fresh, memory)


def _admit(state: ClusterState, fact: PodSeen, memory: SchedulerMemory) -> None:
    made = state.owners.admit(fact, state.now, known=fact.uid not in memory.held)
    kept = memory.pods.get(fact.uid)
    if made is None:
        state.owners.held[fact.uid] = memory.held[fact.uid]
    elif kept is None:
        handlers.update_pod(state, made)
    else:
        handlers.update_pod(state, made, kept.gpus if made.node == kept.node else 0)
        restore_pod(state, state.pods[fact.uid], kept)


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


def _first_failing(old: Scheduler, facts: Iterable[Fact]) -> Fact | None:
    """The Queue, or another rule, with which the tree of it and of all before it can't be built, though its fact was
    applied without failure. None: all of them can."""
    rules = [fact for fact in facts if isinstance(fact, Rule)]

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


def recorded(scheduler: Scheduler) -> Iterator[Fact]:
    """Yields the facts that were reported, apart from pods and from what the controllers keep."""
    state = scheduler.state
    yield from scheduler.queues.recorded(state.podclasses.namespaces)
    yield from scheduler.budgets.seen.values()
    yield from state.podclasses.storage.recorded()
    yield from state.snapshot.pod_counts.recorded_limits()
    yield from state.network.hypernodes.values()
    yield from state.owners.seen.values()
    yield from state.snapshot.pod_counts.devices.classes.values()
    yield from state.podclasses.device_claims.recorded()
    for node in state.nodes.values():
        if node.report is not None:
            yield node.report
        if node.seen is not None:
            yield node.seen
    yield from state.owners.replicated.objects.values()
    yield from state.owners.composites.groups.values()
    for gang in state.gangs.values():
        if (
            gang.object is not None
            and not gang.object.each_replica
            and gang.key[:2] not in state.owners.composites.composed
        ):
            yield gang.object


def recorded_pods(scheduler: Scheduler) -> Iterator[PodSeen]:
    """Yields the pods as the API server has them; last those that wait for their controllers."""
    state, raw = scheduler.state, scheduler.state.owners.pods
    for uid, pod in state.pods.items():
        yield raw.get(uid, pod.seen)
    for uid in state.owners.held:
        if uid in raw and uid not in state.pods:
            yield raw[uid]
