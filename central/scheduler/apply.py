"""Applies facts to the scheduler: a table with one handler for each type of fact. Nothing else changes the
state from outside."""

from collections.abc import Callable
from typing import Any, get_args

from central.model.device_claims import DeviceFact
from central.model.facts import (
    Answered,
    BatchFact,
    BindDone,
    BindFailed,
    BudgetGone,
    BudgetSeen,
    CoordinatorFact,
    DeviceClassSeen,
    ElasticFact,
    EvictDone,
    Fact,
    GangGone,
    GangSeen,
    GpusIdle,
    HyperNodeGone,
    HyperNodeSeen,
    JobGone,
    JobSeen,
    MemoryExceeded,
    NamespaceGone,
    NamespaceSeen,
    NodeGone,
    NodeOffers,
    NodeReported,
    NodeSeen,
    NodeSilent,
    OwnerGone,
    OwnerSeen,
    PastUsageSeen,
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
from central.scheduler.state import gang_members, handlers, reclassification

Handler = Callable[[Scheduler, Any], None]


def apply(scheduler: Scheduler, fact: Fact) -> None:
    scheduler.queues.in_flight.outdated = True
    HANDLERS[type(fact)](scheduler, fact)


def _namespace(scheduler: Scheduler, fact: NamespaceSeen | NamespaceGone) -> None:
    reclassification.namespace_changed(scheduler.state, fact)
    _queue_rule(scheduler, fact)


def _budget(scheduler: Scheduler, fact: BudgetSeen | BudgetGone) -> None:
    if scheduler.budgets.apply(fact):
        scheduler.state.pending.capacity_freed("disruption budget allows more")


def _queue_rule(scheduler: Scheduler, fact: Rule) -> None:
    if scheduler.queues.apply(fact):
        scheduler.state.pending.all_changed = True
        scheduler.state.pending.capacity_freed("queues or priorities changed")


def _answered(scheduler: Scheduler, fact: Answered) -> None:
    now = scheduler.state.now
    if scheduler.controllers.answered(fact, scheduler.quarantine, now):
        return
    for statuses in (scheduler.queue_statuses, scheduler.hypernode_statuses):
        statuses.writes.answered(fact, now)


HANDLERS: dict[type, Handler] = {
    PodSeen: lambda scheduler, fact: handlers.admit_pod(scheduler.state, fact),
    PodGone: lambda scheduler, fact: handlers.delete_pod(scheduler.state, fact.uid),
    BindFailed: lambda scheduler, fact: handlers.bind_failed(scheduler.state, fact),
    EvictDone: lambda scheduler, fact: handlers.evict_done(scheduler.state, fact),
    OwnerSeen: lambda scheduler, fact: handlers.update_owner(scheduler.state, fact),
    NodeSeen: lambda scheduler, fact: handlers.update_node(scheduler.state, fact),
    NodeGone: lambda scheduler, fact: handlers.delete_node(scheduler.state, fact.name),
    NodeReported: lambda scheduler, fact: handlers.apply_report(scheduler.state, fact),
    NodeSilent: lambda scheduler, fact: handlers.node_silent(scheduler.state, fact),
    NodeOffers: lambda scheduler, fact: handlers.node_offers(scheduler.state, fact),
    GangSeen: lambda scheduler, fact: handlers.update_group(scheduler.state, fact),
    GangGone: lambda scheduler, fact: gang_members.delete_group(scheduler.state, fact),
    **dict.fromkeys(
        get_args(StorageFact), lambda s, fact: reclassification.storage_changed(s.state, fact)
    ),
    **dict.fromkeys((NamespaceSeen, NamespaceGone), _namespace),
    **dict.fromkeys((QueueSeen, QueueGone, PrioritySeen, PriorityGone), _queue_rule),
    PastUsageSeen: _queue_rule,
    **dict.fromkeys((BudgetSeen, BudgetGone), _budget),
    **dict.fromkeys(get_args(DeviceFact), lambda s, fact: handlers.devices_changed(s.state, fact)),
    DeviceClassSeen: lambda s, fact: handlers.device_class(s.state, fact),
    Answered: _answered,
    BindDone: lambda scheduler, fact: None,  # assumed before; the watch delivers the pod's node
    OwnerGone: lambda scheduler, fact: scheduler.state.owners.forget_owner(fact.uid),
    MemoryExceeded: lambda scheduler, fact: scheduler.device_usage.gpu_memory.apply(
        scheduler.state, fact
    ),
    GpusIdle: lambda scheduler, fact: scheduler.device_usage.idle.apply(scheduler.state, fact),
    RdmaUsed: lambda scheduler, fact: scheduler.device_usage.rdma.apply(scheduler.state, fact),
    **dict.fromkeys((HyperNodeSeen, HyperNodeGone), lambda s, fact: s.state.network.apply(fact)),
    **dict.fromkeys(
        (
            JobSeen,
            JobGone,
            *get_args(BatchFact),
            *get_args(CoordinatorFact),
            *get_args(ElasticFact),
        ),
        lambda s, fact: s.controllers.apply(fact),
    ),
}
