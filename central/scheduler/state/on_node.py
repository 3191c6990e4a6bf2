"""What the API server and the agents say of nodes."""

from typing import TYPE_CHECKING

from central.model.facts import NodeReported, NodeSeen
from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.state import on_gang, residency

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def seen(cluster: "Cluster", fact: NodeSeen) -> None:
    node = residency.node_of(cluster, fact.name)
    if node.seen == fact:
        return
    new = node.seen is None
    if cluster.hypernodes and (new or node.seen is None or node.seen.labels != fact.labels):
        cluster.tree_is_old = True
    node.seen = fact
    (cluster.shut.discard if fact.ready and not fact.unschedulable else cluster.shut.add)(fact.name)
    _put(cluster, node)
    if new:
        for pod in node.pods.values():
            residency.hold(cluster, pod)
        residency.settle_gpus(cluster, node)


def gone(cluster: "Cluster", name: str) -> None:
    node = cluster.nodes.get(name)
    if node is None or node.seen is None:
        return
    for pod in node.pods.values():
        residency.release(cluster, pod)
    node.seen = None
    node.forget()
    cluster.shut.discard(name)
    cluster.snapshot.drop_node(name)
    cluster.tree_is_old |= bool(cluster.hypernodes)
    _look_after(cluster, node)
    residency.forget_if_empty(cluster, name)


def _look_after(cluster: "Cluster", node: ClusterNode) -> None:
    """Whoever is on a node with GPUs that are, or were, not fit is told anew."""
    ails, ailed = node.ails(), node.name in cluster.ailing
    if ails:
        cluster.ailing.add(node.name)
    else:
        cluster.ailing.discard(node.name)
    if ails or ailed:
        for pod in node.pods.values():
            on_gang.touch(cluster, pod)


def reported(cluster: "Cluster", fact: NodeReported) -> None:
    node = residency.node_of(cluster, fact.node)
    node.silent = False
    before = node.added()
    if node.learn(fact):
        if node.seen is not None and node.added() != before:
            _put(cluster, node)
        residency.settle_gpus(cluster, node)
        _look_after(cluster, node)


def _put(cluster: "Cluster", node: ClusterNode) -> None:
    """What the API server and the agent say of it, in one row."""
    if row := node.row():
        cluster.snapshot.put_node(row)
