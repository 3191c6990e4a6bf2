"""Pods on nodes: the accounting of what each pod uses on its node, and of its planned or observed GPUs."""

from collections.abc import Sequence

from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import DEVICES_UNKNOWN, PLACED, Pod, transition
from central.scheduler.state import on_gang
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang
from protos.names import GPU


def move_pod(state: ClusterState, pod: Pod, where: str, gpus: int = 0) -> None:
    """Moves the pod to the node with these planned GPUs; where is empty for a pod without a node.
    Cheap if nothing changed: most updates of a pod concern its status only."""
    moved = pod.node != where
    if moved or not pod.alive or pod.charged_spec != pod.spec or pod.gpus != gpus:
        refund(state, pod)
    if moved:
        if pod.node:
            node_of(state, pod.node).pods.pop(pod.seen.uid, None)
            _notify_agent(state, pod)
            forget_if_empty(state, pod.node)
        pod.node = where
        pod.advance(DEVICES_UNKNOWN)
        if where:
            node_of(state, where).pods[pod.seen.uid] = pod
        _notify_agent(state, pod)
    pod.gpus = gpus if where and pod.alive else 0
    charge(state, pod)
    if where and node_of(state, where).has_observed((pod.seen.namespace, pod.seen.name)):
        reconcile_gpus(
            state, node_of(state, where)
        )  # its agent reported the pod before the API server did
    on_gang.member_changed(state, pod)


def charge(state: ClusterState, pod: Pod) -> None:
    """Takes what the pod uses from its node's free capacity, once. A pod that has ended uses none."""
    row = state.snapshot.columns.row.get(pod.node)
    if row is None or pod.charged_spec is not None or not pod.alive:
        return
    state.snapshot.take(row, pod.spec, 1, pod.gpus)
    pod.charged_spec = pod.spec
    assign_nics(state, pod)
    if pod.spec.matched:
        state.pending.capacity_freed("pod that affinity matches placed")


def assign_nics(state: ClusterState, *pods: Pod) -> None:
    """Plans NICs for pods that were just charged to their nodes."""
    for name in sorted({pod.node for pod in pods if pod.spec.rdma_containers}):
        node = state.nodes[name]
        if node.nics_limited:
            node.assign_nics()
            state.snapshot.put_nics(state.snapshot.columns.row[name], node.nic_capacity())


def refund(state: ClusterState, pod: Pod) -> None:
    """Gives back what charge() took, with the pod's planned GPUs."""
    if pod.charged_spec is None:
        return
    state.snapshot.give(state.snapshot.columns.row[pod.node], pod.charged_spec)
    counted = bool(pod.charged_spec.rdma_containers) and state.nodes[pod.node].nics_limited
    pod.charged_spec = None
    if pod.gpus or counted:
        pod.gpus = 0
        _update_row(state, state.nodes[pod.node])


def _update_row(state: ClusterState, node: ClusterNode) -> None:
    row = state.snapshot.columns.row.get(node.name)
    if row is not None:
        node.assign_nics()
        state.snapshot.put_nics(row, node.nic_capacity())
        state.snapshot.put_gpus(row, node.shape, node.free(), node.offered(), node.free_shares())


def reconcile_gpus(state: ClusterState, node: ClusterNode) -> None:
    """Replaces plans that contradict observed devices, and updates the node's row."""
    node.reconcile_devices(lambda name: state.pods.get(state.uids.get(name, "")))
    state.nodes_to_notify.add(node.name)
    _update_row(state, node)


def _notify_agent(state: ClusterState, pod: Pod) -> None:
    if pod.spec.request(GPU) or pod.spec.share_containers or pod.spec.rdma_containers:
        state.nodes_to_notify.add(pod.node)


def node_of(state: ClusterState, name: str) -> ClusterNode:
    node = state.nodes.get(name)
    if node is None:
        node = state.nodes[name] = ClusterNode(name)
    return node


def forget_if_empty(state: ClusterState, name: str) -> None:
    node = state.nodes.get(name)
    if node is not None and node.seen is None and not node.pods and node.report is None:
        del state.nodes[name]


def assume(
    state: ClusterState,
    gang: Gang,
    members: Sequence[Pod],
    where: Sequence[str],
    gpus: Sequence[int],
) -> None:
    """Records bindings before the API server confirms them. The draft has charged the pods already.

    where, gpus: the node and the mask of planned GPUs of each member."""
    by_name, now, matched = state.nodes, state.now, False
    for pod, name, mask in zip(members, where, gpus, strict=True):
        spec = pod.spec
        by_name[name].pods[pod.seen.uid] = pod
        pod.node, pod.gpus, pod.charged_spec = name, mask, spec
        pod.life = transition(pod.life, PLACED)
        pod.since = now
        if mask or spec.rdma_containers:
            state.nodes_to_notify.add(name)
        matched |= bool(spec.matched)
    if matched:
        state.pending.capacity_freed("pod that affinity matches placed")
    assign_nics(state, *members)
    gang.counts.assign(members)
    state.pending.changed(gang)
