"""Applies facts to the scheduler: a table with one handler for each type of fact. Nothing else changes the
state from outside."""

from collections.abc import Callable
from typing import Any, get_args

from central.model.facts import (
    Answered,
    BatchFact,
    BindDone,
    BindFailed,
    BudgetGone,
    BudgetSeen,
    EvictDone,
    Fact,
    GangGone,
    GangSeen,
    HyperNodeGone,
    HyperNodeSeen,
    JobGone,
    JobSeen,
    MemoryExceeded,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeReported,
    NodeSeen,
    NodeSilent,
    OwnerGone,
    OwnerSeen,
    PodGone,
    PodSeen,
    PriorityGone,
    PrioritySeen,
    QueueGone,
    QueueSeen,
    RdmaUsed,
    Rule,
)
from central.model.volumes import StorageFact
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import on_node, on_pod
from central.scheduler.status import hypernode_status, queue_status

Handler = Callable[[Scheduler, Any], None]


def apply(scheduler: Scheduler, fact: Fact) -> None:
    HANDLERS[type(fact)](scheduler, fact)


def _node_silent(scheduler: Scheduler, fact: NodeSilent) -> None:
    on_pod.node_of(scheduler.state, fact.node).silent = True


def _gang_seen(scheduler: Scheduler, fact: GangSeen) -> None:
    on_pod.get_or_create_gang(scheduler.state, (fact.namespace, fact.name, True)).object = fact


def _gang_gone(scheduler: Scheduler, fact: GangGone) -> None:
    on_pod.delete_group(scheduler.state, (fact.namespace, fact.name, True))


def _namespace(scheduler: Scheduler, fact: NamespaceSeen | NamespaceGone) -> None:
    on_pod.namespace_changed(scheduler.state, fact)
    _queue_rule(scheduler, fact)


def _budget(scheduler: Scheduler, fact: BudgetSeen | BudgetGone) -> None:
    if scheduler.budgets.apply(fact):
        scheduler.state.pending.capacity_freed("disruption budget allows more")


def _queue_rule(scheduler: Scheduler, fact: Rule) -> None:
    if scheduler.queues.apply(fact):
        pending = scheduler.state.pending
        pending.changed_gangs.update(scheduler.state.gangs)
        pending.capacity_freed("queues or priorities changed")


def _answered(scheduler: Scheduler, fact: Answered) -> None:
    now = scheduler.state.now
    if scheduler.controllers.answered(fact, now):
        return
    if fact.kind == queue_status.KIND:
        scheduler.queue_statuses.answered(fact, now)
    elif fact.kind == hypernode_status.KIND:
        scheduler.hypernode_statuses.answered(fact, now)


HANDLERS: dict[type, Handler] = {
    PodSeen: lambda scheduler, fact: on_pod.admit_pod(scheduler.state, fact),
    PodGone: lambda scheduler, fact: on_pod.delete_pod(scheduler.state, fact.uid),
    OwnerSeen: lambda scheduler, fact: on_pod.update_owner(scheduler.state, fact),
    OwnerGone: lambda scheduler, fact: scheduler.state.owners.forget_owner(fact.uid),
    NodeSeen: lambda scheduler, fact: on_node.update_node(scheduler.state, fact),
    NodeGone: lambda scheduler, fact: on_node.delete_node(scheduler.state, fact.name),
    NodeReported: lambda scheduler, fact: on_node.apply_report(scheduler.state, fact),
    NodeSilent: _node_silent,
    MemoryExceeded: lambda scheduler, fact: scheduler.gpu_memory.apply(scheduler.state, fact),
    RdmaUsed: lambda scheduler, fact: scheduler.rdma_usage.apply(scheduler.state, fact),
    GangSeen: _gang_seen,
    GangGone: _gang_gone,
    BindDone: lambda scheduler, fact: (
        None
    ),  # assumed before; the watch delivers the pod with its node
    BindFailed: lambda scheduler, fact: on_pod.bind_failed(scheduler.state, fact),
    EvictDone: lambda scheduler, fact: on_pod.evict_done(scheduler.state, fact),
    Answered: _answered,
    **dict.fromkeys((HyperNodeSeen, HyperNodeGone), lambda s, fact: s.state.network.apply(fact)),
    **dict.fromkeys((NamespaceSeen, NamespaceGone), _namespace),
    **dict.fromkeys((BudgetSeen, BudgetGone), _budget),
    **dict.fromkeys((QueueSeen, QueueGone, PrioritySeen, PriorityGone), _queue_rule),
    **dict.fromkeys(get_args(StorageFact), lambda s, fact: on_pod.storage_changed(s.state, fact)),
    **dict.fromkeys(
        (JobSeen, JobGone, *get_args(BatchFact)), lambda s, fact: s.controllers.apply(fact)
    ),
}
