"""The knowledge that only the scheduler has: neither the API server nor the agents report it again. Plain data.

    state = fold(facts, memory)

A state that is built again after a failure takes it as it is (rebuild.py). A journal writes it as text
(central/server/checkpoint.py). Reservations are not part of it: they are planned again.

Design: docs/design/containment.md
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from central.model.device_claims import ClaimKey
from central.scheduler.device_claims.pod_device_claims import DevicePlan
from central.scheduler.elastic.resize_history import ResizeHistory
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.nic_limits import Container
from central.scheduler.inventory.pods import EVICTION_ENDED, Pod, PodName, transition
from central.scheduler.preemption.run_histories import RunsMemory
from central.scheduler.quarantine import QuarantineMemory
from central.scheduler.queues.queue_tree_node import QueueHistory
from central.scheduler.scheduler import DeviceUsage, Scheduler
from central.scheduler.state import handlers
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.former_nodes import FormerNodes
from central.scheduler.state.gangs import Gang, GangKey, PreemptionStanding, Published
from central.scheduler.state.pending_gangs import PendingMemory
from central.scheduler.status.hypernode_status import HyperNodeStatuses
from central.scheduler.status.queue_status import QueueStatuses
from protos.topology import RdmaUse


@dataclass(slots=True)
class NodeMemory:
    """Fields of ClusterNode and, forgotten, of its Reported. device_plans: of claims of its pods"""

    silent: bool = False
    offered: bool = True
    report_failed: bool = False
    rdma_use: tuple[RdmaUse, ...] = ()
    planned_nics: dict[Container, tuple[str, ...]] = field(default_factory=dict)
    forgotten: list[tuple[str, PodName]] = field(default_factory=list)
    device_plans: list[tuple[ClaimKey, DevicePlan]] = field(default_factory=list)


@dataclass(slots=True)
class GangMemory:
    """Fields of Gang and of its Attempt, without the end of a backoff: every gang is tried at once, so that its reason
    is true."""

    started: bool
    reason: str
    partial_since: float | None
    bind_failures: int
    failures_handled: int
    preemption: PreemptionStanding
    published: Published
    ran: bool = False


@dataclass(slots=True)
class SchedulerMemory:
    """The state's own objects, not copies. held: until when pods wait for their controllers, by uid. quarantine: a
    state that is built again shares the one before"""

    now: float = 0.0
    nodes: dict[str, NodeMemory] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    former_nodes: FormerNodes = field(default_factory=FormerNodes)
    volume_plans: list[tuple[tuple[str, str], str, str]] = field(default_factory=list)
    gangs: dict[GangKey, GangMemory] = field(default_factory=dict)
    queues: dict[str, QueueHistory] = field(default_factory=dict)
    pending: PendingMemory = field(default_factory=PendingMemory)
    queue_statuses: QueueStatuses = field(default_factory=QueueStatuses)
    hypernode_statuses: HyperNodeStatuses = field(default_factory=HyperNodeStatuses)
    device_usage: DeviceUsage = field(default_factory=DeviceUsage)
    resizes: dict[GangKey, ResizeHistory] = field(default_factory=dict)
    runs: RunsMemory = field(default_factory=RunsMemory)
    quarantine: QuarantineMemory = field(default_factory=QuarantineMemory)


def remember(scheduler: Scheduler) -> SchedulerMemory:
    state, sharing = scheduler.state, scheduler.preemption
    nodes = {name: made for name, node in state.nodes.items() if (made := _of_node(node))}
    _add_device_plans(state, nodes)
    return SchedulerMemory(
        state.now,
        nodes,
        {**state.pods, **_kept_victims(scheduler)},
        dict(state.owners.held),
        state.owners.former,
        _volume_plans(state),
        {key: _of_gang(gang) for key, gang in state.gangs.items()},
        scheduler.queues.histories(),
        state.pending.remembered(),
        scheduler.queue_statuses,
        scheduler.hypernode_statuses,
        scheduler.device_usage,
        scheduler.elastic.histories,
        replace(
            sharing.time_sharing.histories.remembered(),
            failed_starts=scheduler.elastic.unready.failed,
        ),
        scheduler.quarantine.remembered(),
    )


def _kept_victims(scheduler: Scheduler) -> dict[str, Pod]:
    """Victims of reservations whose evictions were not requested yet, as pods that stay."""
    victims = (pod for held in scheduler.reservations.values() for pod in held.victims)
    return {
        pod.seen.uid: replace(pod, life=transition(pod.life, EVICTION_ENDED)) for pod in victims
    }


def _of_node(node: ClusterNode) -> NodeMemory | None:
    """Returns the memory of the node. None: there is nothing to remember of it."""
    made = NodeMemory(
        node.silent,
        node.offered,
        node.report_failed,
        node.rdma_use,
        node.planned_nics,
        node.reported.forgotten,
    )
    return made if made != NodeMemory() else None


def _of_gang(gang: Gang) -> GangMemory:
    attempt = gang.attempt
    return GangMemory(
        gang.started,
        attempt.reason,
        attempt.partial_since,
        attempt.bind_failures,
        attempt.failures_handled,
        gang.preemption,
        gang.published,
        attempt.ran,
    )


def _volume_plans(state: ClusterState) -> list[tuple[tuple[str, str], str, str]]:
    """Claim, volume and pod, without pods whose placement was taken back or refused."""
    return [
        (claim, volume, uid)
        for claim, (volume, uids) in state.podclasses.storage.plans.planned().items()
        for uid in sorted(uids)
        if (pod := state.pods.get(uid)) is not None and pod.node
    ]


def _add_device_plans(state: ClusterState, nodes: dict[str, NodeMemory]) -> None:
    """Adds the same for device claims, each to the node of one of its pods."""
    for key, plan in state.podclasses.device_claims.plans.items():
        there = {uid for uid in plan.pods if (pod := state.pods.get(uid)) and pod.node}
        if there:
            memory = nodes.setdefault(state.pods[min(there)].node, NodeMemory())
            memory.device_plans.append((key, replace(plan, pods=there)))


# --- into a state that facts were applied to ---------------------------------------------------


def restore_nodes(state: ClusterState, memory: SchedulerMemory) -> None:
    """Restores what is remembered of nodes, and the plans for volumes and device claims, before the pods are on their
    nodes."""
    for name, kept in memory.nodes.items():
        if kept.report_failed:
            handlers.lose_report(state, name)
        if (node := state.nodes.get(name)) is None:
            continue
        node.silent, node.rdma_use = kept.silent, kept.rdma_use
        handlers.set_offered(state, node, kept.offered)
        for uid, pod in kept.forgotten if not kept.report_failed else ():
            node.reported.adopt(uid, pod)
            node.reported.forget(uid, pod)
    for claim, volume, uid in memory.volume_plans:
        state.podclasses.storage.plans.add(claim, uid, volume)
    for key, plan in (each for kept in memory.nodes.values() for each in kept.device_plans):
        state.podclasses.device_claims.restore_plan(key, plan)


def restore_pod(state: ClusterState, pod: Pod, kept: Pod) -> None:
    if (pod.node, pod.gpus) != (kept.node, kept.gpus):
        handlers.move_pod(state, pod, kept.node, kept.gpus)
    pod.life, pod.work, pod.evict_backoff = kept.life, kept.work, kept.evict_backoff
    if pod.leaving and pod.seen.gang_key is None:  # it was evicted, and is set aside since
        state.set_other_leaving(pod)


def restore_gangs(gangs: Mapping[GangKey, Gang], memory: SchedulerMemory) -> None:
    for key, gang in gangs.items():
        if (kept := memory.gangs.get(key)) is None:
            continue
        attempt = gang.attempt
        attempt.reason, attempt.partial_since = kept.reason, kept.partial_since
        attempt.bind_failures = kept.bind_failures
        attempt.failures_handled, attempt.ran = kept.failures_handled, kept.ran
        gang.started, gang.preemption = kept.started, kept.preemption
        gang.published = kept.published
        if not any(pod.evicting for pod in gang.members.values()):
            gang.preemption.preempted_for = ""


def restore_plans(state: ClusterState, memory: SchedulerMemory) -> None:
    """Agents may have the plans of NICs already. After the pods, because a plan without its pod is dropped."""
    for name, node in state.nodes.items():
        kept = memory.nodes.get(name)
        if kept is not None and not kept.report_failed:
            node.planned_nics = kept.planned_nics
        handlers.reconcile_gpus(state, node)


def restore_counts(fresh: Scheduler, memory: SchedulerMemory) -> None:
    """Restores counts that go on, and what is kept by name rather than by object."""
    pending, gangs = fresh.state.pending, fresh.state.gangs
    fresh.queues.adopt_histories(memory.queues)
    pending.continue_from(memory.pending)
    fresh.queue_statuses = memory.queue_statuses
    fresh.hypernode_statuses = memory.hypernode_statuses
    fresh.device_usage, fresh.elastic.histories = memory.device_usage, memory.resizes
    fresh.preemption.time_sharing.restore(memory.runs, gangs)
    fresh.elastic.unready.failed = memory.runs.failed_starts
    fresh.queue_statuses.recount()
    for key in memory.gangs:
        if key not in gangs:
            fresh.queue_statuses.forget(key)
