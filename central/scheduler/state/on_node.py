"""Handlers of facts about nodes, from the API server and from agents."""

from central.model.facts import NodeReported, NodeSeen
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.state import on_pod
from central.scheduler.state.cluster_state import ClusterState


def update_node(state: ClusterState, fact: NodeSeen) -> None:
    node = on_pod.node_of(state, fact.name)
    if node.seen == fact:
        return
    new = node.seen is None
    if new or node.seen is None or node.seen.labels != fact.labels:
        state.network.node_changed()
    node.seen = fact
    (
        state.unschedulable_nodes.discard
        if fact.ready and not fact.unschedulable
        else state.unschedulable_nodes.add
    )(fact.name)
    _put_row(state, node)
    if new:
        for pod in node.pods.values():
            on_pod.charge(state, pod)
        on_pod.reconcile_gpus(state, node)


def delete_node(state: ClusterState, name: str) -> None:
    node = state.nodes.get(name)
    if node is None or node.seen is None:
        return
    for pod in node.pods.values():
        on_pod.refund(state, pod)
    node.seen = None
    node.drop_report()
    state.unschedulable_nodes.discard(name)
    state.snapshot.drop_node(name)
    state.network.node_changed()
    _update_health(state, node)
    on_pod.forget_if_empty(state, name)


def _update_health(state: ClusterState, node: ClusterNode) -> None:
    """Marks the gangs on a node that has, or had, unhealthy devices: their reasons name these."""
    ails, ailed = node.is_unhealthy(), node.name in state.unhealthy_nodes
    if ails:
        state.unhealthy_nodes.add(node.name)
    else:
        state.unhealthy_nodes.discard(node.name)
    if ails or ailed:
        for pod in node.pods.values():
            on_pod.member_changed(state, pod)


def apply_report(state: ClusterState, fact: NodeReported) -> None:
    node = on_pod.node_of(state, fact.node)
    node.silent = False
    before = node.reported_values()
    if node.apply_report(fact):
        if node.seen is not None and node.reported_values() != before:
            _put_row(state, node)
        on_pod.reconcile_gpus(state, node)
        _update_health(state, node)


def _put_row(state: ClusterState, node: ClusterNode) -> None:
    """Writes what the API server and the agent report into the node's row of the snapshot."""
    if row := node.merged():
        state.snapshot.put_node(row)
