"""Answers users' queries from the cluster state: the view of a node, and why a gang is pending. The loop
runs each query between two cycles, so every answer is consistent."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from math import inf

from central.model import wording
from central.model.phases import UNKNOWN
from central.model.resources import DEFAULT, requested
from central.scheduler import pending_cause, quarantine, refusal_reasons
from central.scheduler.elastic import size_reasons
from central.scheduler.inventory import gpu_shares, mig, nics
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import Pod
from central.scheduler.quarantine import SetAsideKey
from central.scheduler.queues import entitlement
from central.scheduler.queues.claim_reasons import why_no_victims
from central.scheduler.queues.queue_tree_node import NAMESPACE, USER
from central.scheduler.queues.tenant_limits import identity_of
from central.scheduler.refusal_remarks import protected_in, without_queues
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from central.scheduler.status import gang_status
from central.server.grpc.query_service import Explanation, NodeView
from central.server.stats import count_gpus
from central.server.stats.node_rows import problem_of
from central.server.stats.pending_rows import cause_of
from central.server.stats.queue_rows import in_units
from central.server.stats.sliced_question import QuestionLoop, ask_in_slices
from protos.stubs import fleet_pb2 as pb
from protos.topology import RdmaLimit, RdmaUse, indices_of, mask_of


class ClusterQueries:
    def __init__(self, loop: QuestionLoop) -> None:
        self._loop = loop

    @property
    def levels(self) -> tuple[str, ...]:
        """The tree's levels: of HyperNodes if there are any, else of node labels."""
        return self._loop.ask(lambda scheduler: scheduler.state.snapshot.columns.domains.levels)

    @property
    def troubles(self) -> tuple[str, ...]:
        def ask(scheduler: Scheduler) -> tuple[str, ...]:
            troubles = sorted(scheduler.state.network.built.errors.items())
            return tuple(f"HyperNode {name}: {why}" for name, why in troubles)

        return self._loop.ask(ask)

    def node_views(self, node: str) -> Sequence[NodeView]:
        if node:
            return self._loop.ask(lambda scheduler: node_views(scheduler, node))
        # 0.2 s for 5,000 nodes, which no cycle waits for
        views: list[NodeView] = ask_in_slices(self._loop, _every_node)
        return views

    def explain(self, namespace: str, name: str) -> Explanation | None:
        return self._loop.ask(lambda scheduler: explain(scheduler, namespace, name))

    def queue_tenants(self, name: str) -> tuple[pb.QueueReply, list[str]]:
        return self._loop.ask(lambda scheduler: queue_tenants(scheduler, name))


def node_views(scheduler: Scheduler, name: str = "") -> list[NodeView]:
    """One node (empty if it is unknown), or every node by name if the name is empty."""
    names = [name] if name else sorted(scheduler.state.snapshot.columns.row)
    return [
        _contained_node_view(scheduler, scheduler.state.nodes[n])
        for n in names
        if n in scheduler.state.snapshot.columns.row
    ]


def _every_node(scheduler: Scheduler) -> Generator[None, None, list[NodeView]]:
    """Returns the views of all nodes, by name. Yields between two nodes; one that is gone by then is left out."""
    views: list[NodeView] = []
    for name in sorted(scheduler.state.snapshot.columns.row):
        views += node_views(scheduler, name)
        yield
    return views


def _contained_node_view(scheduler: Scheduler, node: ClusterNode) -> NodeView:
    """A node that can't be shown does not hide the others."""
    try:
        return _node_view(scheduler, node)
    except Exception as error:  # noqa: BLE001  any bug
        _note(scheduler, node.name, error)
        return NodeView(node.name, trouble=_failed(error))


def _note(scheduler: Scheduler, name: str, error: Exception) -> None:
    scheduler.quarantine.note(SetAsideKey("query", name), ("", name), error)


def _failed(error: Exception) -> str:
    return f"can't be shown (a bug of the scheduler): {quarantine.describe(error)}"


def _node_view(scheduler: Scheduler, node: ClusterNode) -> NodeView:
    snapshot = scheduler.state.snapshot
    row = snapshot.columns.row[node.name]
    plugin_gpus, claimable = snapshot.pod_counts.devices.plugin_gpus, node.reported.claimable
    holders = [
        pb.Holder(
            namespace=pod.seen.namespace,
            pod=pod.seen.name,
            gpus=indices_of(pod.gpus | claimed),
            confirmed=pod.observed or bool(held or claimed),
            share=pod.share,
            slices=held,
            job=_job(scheduler, pod),
            queue=gang.queue_name if (gang := scheduler.state.gang_of(pod)) is not None else "",
        )
        for pod in sorted(node.pods.values(), key=lambda pod: (pod.gpus or 2**64, pod.seen.name))
        if pod.alive
        and (claimed := scheduler.state.claimed_gpus(pod)) >= 0
        and (
            (held := _slices(node, pod))
            or claimed
            or scheduler.queues.currency.worth(pod.spec.requests)
        )
    ]
    allocatable = int(snapshot.columns.allocatable[row, 0])
    parts = gpu_shares.used(node.pods.values(), node.foreign_shares)
    return NodeView(
        node.name,
        snapshot.columns.domains.path(row),
        node.report.topology if node.report else None,
        tuple(holders),
        allocatable,
        count_gpus.of_node(scheduler, node),
        _problems(node, allocatable, plugin_gpus.claimed(claimable), scheduler.state),
        len(parts),
        sum(parts.values()),
        sum(map(len, node.reported.slices.held.values())),
        agent_version=node.report.version if node.report else "",
        cards=tuple(use for pod in node.pods.values() for use in _cards(scheduler, pod)),
    )


def _job(scheduler: Scheduler, pod: Pod) -> str:
    gang = scheduler.state.gang_of(pod)
    return (gang.owner or gang.name) if gang is not None else pod.seen.owner_name or pod.seen.name


def _cards(scheduler: Scheduler, pod: Pod) -> list[RdmaUse]:
    """The pod's usage of each of its RDMA NICs. Usage and limits are unknown without RDMA limits."""
    node, seen = scheduler.state.nodes.get(pod.node), pod.seen
    if node is None or not pod.alive or not pod.spec.has_nics:
        return []
    reported = {
        use.card: use
        for use in node.rdma_use
        if (use.namespace, use.pod) == (seen.namespace, seen.name)
    }
    unknown = RdmaLimit()
    return [
        reported.get(card, RdmaUse(seen.namespace, seen.name, card, unknown, unknown))
        for card in sorted(nics.shares_of_pod(pod, node.known_nics(), node.reported.held_rails))
    ]


def _slices(node: ClusterNode, pod: Pod) -> tuple[pb.HeldSlice, ...]:
    here = mig.by_uuid(node.report)
    return tuple(
        pb.HeldSlice(uuid=uuid, profile=here[uuid][1].profile, gpu=here[uuid][0].index)
        if uuid in here
        else pb.HeldSlice(uuid=uuid)
        for uuid in node.reported.slices.held.get((pod.seen.namespace, pod.seen.name), ())
    )


def _pod_view(scheduler: Scheduler, pod: Pod) -> pb.PodView:
    node = scheduler.state.nodes.get(pod.node)
    held = _slices(node, pod) if node is not None and pod.alive else ()
    claimed = scheduler.state.claimed_gpus(pod)
    confirmed = pod.observed or bool(held or claimed)
    seen = pod.seen
    return pb.PodView(
        name=seen.name,
        node=pod.node,
        gpus=indices_of(pod.gpus | claimed),
        confirmed=confirmed,
        phase=seen.phase,
        share=pod.share,
        slices=held,
    )


def _problems(node: ClusterNode, allocatable: int, claimed: int, state: ClusterState) -> str:
    """claimed: mask of GPUs that claims have"""
    problem = problem_of(node, state)
    if node.silent or not node.offered or node.report is None:
        return problem
    healthy = node.report.topology.healthy_mask().bit_count()
    # The kubelet counts GPUs out and in some seconds late when they become shared, claimed or whole.
    other = node.reported.healthy & (mask_of(node.free_shares()) | claimed)
    if allocatable in (healthy, healthy - other.bit_count()) or not node.reported.plugin:
        return problem
    differs = f"{healthy} healthy GPUs, but the kubelet reports {allocatable} allocatable"
    return f"{problem}; {differs}".removeprefix("; ")


SET_ASIDE_OF_CLUSTER = (
    "set aside after a failure of the scheduler (a bug), which its Event and "
    "the scheduler's log name"
)


def explain(scheduler: Scheduler, namespace: str, name: str) -> Explanation | None:
    """Explains an object by the name of a PodGroup, a gang by label, a pod, the PodGroup's owner (such as a Job), or
    the controller whose pods are the gang (deployment/web, or web). None if there is no such object. An object that
    is set aside is named as well: a Job beside its gang, a node, a queue."""
    found = _explained(scheduler, namespace, name)
    if (known := scheduler.quarantine.find(namespace, name)) is None:
        return found
    key, aside = known
    # Whoever asks may see this namespace alone, and the error of a node may name objects of others.
    why = aside.why if aside.namespace else SET_ASIDE_OF_CLUSTER
    if found is None:
        return Explanation(namespace, name, UNKNOWN, why, ())
    if why in found.reason:
        return found
    return replace(found, reason=f"{found.reason}; {key.kind} {name} is {why}".removeprefix("; "))


def _explained(scheduler: Scheduler, namespace: str, name: str) -> Explanation | None:
    uid = scheduler.state.uids.get((namespace, name), "")
    pod = scheduler.state.pods.get(uid)
    gang = scheduler.state.gangs.get((namespace, name, True)) or (
        scheduler.state.gang_of(pod) if pod else None
    )
    if gang is None and pod is None:
        gang = _of_controller(scheduler, namespace, name)
        if gang is not None and gang.owner:
            return replace(_explanation(scheduler, gang), name=gang.owner.rpartition("/")[2])
    if gang is not None:
        try:
            return _explanation(scheduler, gang)
        except Exception as error:  # noqa: BLE001  any bug
            _note(scheduler, name, error)
            return Explanation(namespace, name, UNKNOWN, _failed(error), ())
    if pod is None:
        return None
    return Explanation(
        namespace,
        name,
        pod.seen.phase,
        "pod of another scheduler" + (f", on node {pod.node}" if pod.node else ", not bound yet"),
        (_pod_view(scheduler, pod),),
        cards=tuple(_cards(scheduler, pod)),
    )


def _of_controller(scheduler: Scheduler, namespace: str, name: str) -> Gang | None:
    """name: the controller's, with or without its kind before it."""
    tail = f"/{name.lower()}"
    for gang in scheduler.state.gangs.values():
        called = gang.owner or gang.name
        if gang.namespace == namespace and f"/{called}".endswith(tail):
            return gang
    return None


def _explanation(scheduler: Scheduler, gang: Gang) -> Explanation:
    refusal_reasons.refresh_one(scheduler, gang)
    members = sorted(gang.members.values(), key=lambda pod: pod.seen.order)
    placed = [pod for pod in gang.counts.placed if pod.alive]
    held = scheduler.reservations.get(gang.key)
    place, pending = _place(scheduler, gang)
    return Explanation(
        gang.namespace,
        gang.name,
        gang_status.phase(gang),
        gang_status.describe(scheduler.state, gang),
        tuple(_pod_view(scheduler, pod) for pod in members),
        gang.minimum,
        _queue(scheduler, gang),
        gang_status.closeness(scheduler.state, gang) if placed else "",
        tuple(use for pod in members for use in _cards(scheduler, pod)),
        scheduler.state.namespaces,
        gang.owner,
        place,
        pending,
        held.start if held is not None else inf,
        gang.priority,
        _size(scheduler, gang),
        scheduler.controllers.job_of(gang.key),
        cause_of(scheduler, gang),
        tuple((n, in_units(dict(each))) for n, each in pending_cause.wanted_nodes(scheduler, gang)),
    )


def _size(scheduler: Scheduler, gang: Gang) -> str:
    now, controllers = scheduler.state.now, scheduler.controllers
    gangs = controllers.elastic_gangs(scheduler.state)
    said = size_reasons.describe(scheduler.elastic, scheduler.preemption, gangs, gang.key, now)
    said = said or controllers.size_left_alone(gang.key, now)
    return "; ".join(filter(None, (said, controllers.training(gang.key, now))))


def _place(scheduler: Scheduler, gang: Gang) -> tuple[int, int]:
    """Returns its place among the pending gangs of its queue, from 1, and their number. 0 if it is not pending."""
    gangs = scheduler.state.gangs
    pending = [
        key
        for key in scheduler.queue_statuses.pending(gang.queue_name)
        if gangs[key].queue == gang.queue  # namespaces that share a queue have an order each
    ]
    if gang.key not in pending:
        return 0, 0
    return 1 + sum(gangs[key].attempt.rank < gang.attempt.rank for key in pending), len(pending)


def _queue(scheduler: Scheduler, gang: Gang) -> str:
    """The queue's name. For a pending gang also the queue's usage and fair share of each scarce
    resource that it requests."""
    refused = scheduler.refused.get(gang.key)
    held = scheduler.reservations.get(gang.key)
    if gang.account is None:
        waits = refused is not None and (held is None or not held.by_eviction)
        with scheduler.preemption.counts_in_reasons.as_read():
            why = without_queues(scheduler, gang, refused, always=True) if refused and waits else ""
        return f"{DEFAULT} ({why})" if why else DEFAULT
    standing = [
        f"{wording.amount(resource, used)} of {wording.quantity(resource, due)}"
        for resource, used, due in entitlement.scarce_shares(scheduler.queues, gang)
    ]
    whose = f"namespace {gang.namespace} " if gang.queue != gang.queue_name else ""
    clauses = [f"{whose}uses {', '.join(standing)} of its fair share"] if standing else []
    if refused is not None and (held is None or not held.by_eviction):
        need = scheduler.queues.currency.counted(requested(refused.request.groups))
        protected = protected_in(scheduler, gang, refused)
        growth = not refused.missing
        with scheduler.preemption.counts_in_reasons.as_read():
            clauses.append(why_no_victims(scheduler.queues, gang, need, protected, growth=growth))
    shown = "; ".join(filter(None, clauses))
    return gang.queue_name + (f" ({shown})" if shown else "")


def queue_tenants(scheduler: Scheduler, name: str) -> tuple[pb.QueueReply, list[str]]:
    """The limits inside the queue, what each namespace and user has of them, and the namespaces of these tenants."""
    queue = scheduler.queues.by_name.get(name)
    if queue is None:
        return pb.QueueReply(found=False), []
    seen, currency = queue.seen, scheduler.queues.currency
    limits = {
        NAMESPACE: _tenant_limit(seen.namespace_gangs, currency.limits(seen.namespace_amounts)),
        USER: _tenant_limit(seen.user_gangs, currency.limits(seen.user_amounts)),
    }
    tenants = []
    for (kind, tenant), usage in queue.tenants.items():
        if (limit := limits[kind]) is not None:
            is_user = kind == USER
            namespace, user = identity_of(tenant) if is_user else (tenant, "")
            used = in_units(usage.used)
            shown = {each: used.get(each, 0.0) for each in limit.resources}
            found = pb.TenantUsage(is_user=is_user, name=user or namespace, resources=shown)
            found.running_gangs = usage.running
            tenants.append(((-sum(shown.values()), -usage.running, user), found, namespace))
    tenants.sort(key=lambda each: each[0])
    reply = pb.QueueReply(
        found=True,
        per_namespace=limits[NAMESPACE],
        per_user=limits[USER],
        tenants=[each for _, each, _ in tenants],
    )
    return reply, [namespace for *_, namespace in tenants]


def _tenant_limit(gangs: int | None, amounts: Mapping[str, int]) -> pb.TenantLimit | None:
    if gangs is None and not amounts:
        return None
    return pb.TenantLimit(running_gangs=gangs, resources=in_units(amounts))
