"""Applies facts to the scheduler: a table with one handler for each type of fact. Nothing else changes the
state from outside."""

from collections.abc import Callable
from typing import Any, get_args

from central.model import facts
from central.model.device_claims import DeviceFact
from central.model.facts import Fact
from central.model.volumes import StorageFact
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import gang_members, handlers, reclassification

Handler = Callable[[Scheduler, Any], None]


def apply(scheduler: Scheduler, fact: Fact) -> None:
    scheduler.queues.in_flight.outdated = True
    HANDLERS[type(fact)](scheduler, fact)


def _namespace(scheduler: Scheduler, fact: facts.NamespaceSeen | facts.NamespaceGone) -> None:
    reclassification.namespace_changed(scheduler.state, fact)
    _queue_rule(scheduler, fact)


def _budget(scheduler: Scheduler, fact: facts.BudgetSeen | facts.BudgetGone) -> None:
    if scheduler.budgets.apply(fact):
        scheduler.state.pending.capacity_freed("disruption budget allows more")


def _queue_rule(scheduler: Scheduler, fact: facts.Rule) -> None:
    if scheduler.queues.apply(fact):
        scheduler.state.pending.all_changed = True
        scheduler.state.pending.capacity_freed("queues or priorities changed")


def _answered(scheduler: Scheduler, fact: facts.Answered) -> None:
    now = scheduler.state.now
    if scheduler.controllers.answered(fact, scheduler.quarantine, now):
        return
    for statuses in (scheduler.queue_statuses, scheduler.hypernode_statuses):
        statuses.writes.answered(fact, now)


HANDLERS: dict[type, Handler] = {
    facts.PodSeen: lambda scheduler, fact: handlers.admit_pod(scheduler.state, fact),
    facts.PodGone: lambda scheduler, fact: handlers.delete_pod(scheduler.state, fact.uid),
    facts.BindFailed: lambda scheduler, fact: handlers.bind_failed(scheduler.state, fact),
    facts.EvictDone: lambda scheduler, fact: handlers.evict_done(scheduler.state, fact),
    facts.OwnerSeen: lambda scheduler, fact: handlers.update_owner(scheduler.state, fact),
    facts.NodeSeen: lambda scheduler, fact: handlers.update_node(scheduler.state, fact),
    facts.NodeGone: lambda scheduler, fact: handlers.delete_node(scheduler.state, fact.name),
    facts.NodeReported: lambda scheduler, fact: handlers.apply_report(scheduler.state, fact),
    facts.NodeSilent: lambda scheduler, fact: handlers.node_silent(scheduler.state, fact),
    facts.NodeOffers: lambda scheduler, fact: handlers.node_offers(scheduler.state, fact),
    facts.GangSeen: lambda scheduler, fact: handlers.update_group(scheduler.state, fact),
    facts.GangGone: lambda scheduler, fact: gang_members.delete_group(scheduler.state, fact),
    **dict.fromkeys(
        get_args(StorageFact), lambda s, fact: reclassification.storage_changed(s.state, fact)
    ),
    **dict.fromkeys((facts.NamespaceSeen, facts.NamespaceGone), _namespace),
    **dict.fromkeys(
        (facts.QueueSeen, facts.QueueGone, facts.PrioritySeen, facts.PriorityGone), _queue_rule
    ),
    facts.PastUsageSeen: _queue_rule,
    **dict.fromkeys((facts.BudgetSeen, facts.BudgetGone), _budget),
    **dict.fromkeys(get_args(DeviceFact), lambda s, fact: handlers.devices_changed(s.state, fact)),
    facts.DeviceClassSeen: lambda s, fact: handlers.device_class(s.state, fact),
    facts.Answered: _answered,
    # Assumed before; the watch delivers the pod's node.
    facts.BindDone: lambda scheduler, fact: None,
    facts.OwnerGone: lambda scheduler, fact: scheduler.state.owners.forget_owner(fact.uid),
    facts.MemoryExceeded: lambda scheduler, fact: scheduler.device_usage.gpu_memory.apply(
        scheduler.state, fact
    ),
    facts.GpusIdle: lambda scheduler, fact: scheduler.device_usage.idle.apply(
        scheduler.state, fact
    ),
    facts.RdmaUsed: lambda scheduler, fact: scheduler.device_usage.rdma.apply(
        scheduler.state, fact
    ),
    **dict.fromkeys(
        (facts.HyperNodeSeen, facts.HyperNodeGone), lambda s, fact: s.state.network.apply(fact)
    ),
    **dict.fromkeys(
        (
            facts.JobSeen,
            facts.JobGone,
            *get_args(facts.BatchFact),
            *get_args(facts.CoordinatorFact),
            *get_args(facts.ElasticFact),
        ),
        lambda s, fact: s.controllers.apply(fact),
    ),
}
