"""Pods in their places: who is where, the room that it takes there, and the GPUs it is planned or
known to have."""

from typing import TYPE_CHECKING

from central.scheduler.inventory.cluster_node import ClusterNode
from central.scheduler.inventory.pods import DEVICES_UNKNOWN, Pod
from central.scheduler.state import on_gang
from protos.names import GPU

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def settle(cluster: "Cluster", pod: Pod, where: str, gpus: int = 0) -> None:
    """Puts the pod on the node (none: nowhere), with these GPUs planned. Does nothing where
    nothing changed: most of what is seen of a pod is its status."""
    moved = pod.node != where
    if moved or not pod.alive or pod.charged_spec != pod.spec or pod.gpus != gpus:
        release(cluster, pod)
    if moved:
        if pod.node:
            node_of(cluster, pod.node).pods.pop(pod.seen.uid, None)
            _replan(cluster, pod)
            forget_if_empty(cluster, pod.node)
        pod.node = where
        pod.advance(DEVICES_UNKNOWN)
        if where:
            node_of(cluster, where).pods[pod.seen.uid] = pod
        _replan(cluster, pod)
    pod.gpus = gpus if where and pod.alive else 0
    hold(cluster, pod)
    if where and node_of(cluster, where).speaks_of((pod.seen.namespace, pod.seen.name)):
        settle_gpus(
            cluster, node_of(cluster, where)
        )  # its agent spoke of it before the API server did
    on_gang.touch(cluster, pod)


def hold(cluster: "Cluster", pod: Pod) -> None:
    row = cluster.snapshot.row.get(pod.node)
    if row is None or pod.charged_spec is not None or not pod.alive:
        return
    cluster.snapshot.take(row, pod.spec, 1, pod.gpus)
    pod.charged_spec = pod.spec
    deal_cards(cluster, pod)
    if pod.spec.matched:
        cluster.snapshot.gains += 1  # whoever waits to be near it may go now


def deal_cards(cluster: "Cluster", *pods: Pod) -> None:
    """Plans network cards for pods that have just taken room."""
    for name in sorted({pod.node for pod in pods if pod.spec.rdma_containers}):
        node = cluster.nodes[name]
        if node.limited:
            node.deal_cards()
            cluster.snapshot.put_cards(cluster.snapshot.row[name], node.card_room())


def release(cluster: "Cluster", pod: Pod) -> None:
    if pod.charged_spec is None:
        return
    cluster.snapshot.give(cluster.snapshot.row[pod.node], pod.charged_spec)
    counted = bool(pod.charged_spec.rdma_containers) and cluster.nodes[pod.node].limited
    pod.charged_spec = None
    if pod.gpus or counted:
        pod.gpus = 0
        _remask(cluster, cluster.nodes[pod.node])


def _remask(cluster: "Cluster", node: ClusterNode) -> None:
    row = cluster.snapshot.row.get(node.name)
    if row is not None:
        node.deal_cards()
        cluster.snapshot.put_cards(row, node.card_room())
        cluster.snapshot.put_gpus(row, node.shape, node.free(), node.offered(), node.left())


def settle_gpus(cluster: "Cluster", node: ClusterNode) -> None:
    """Brings the node's plans in line with the truth, and the snapshot in line with both."""
    node.settle(lambda name: cluster.pods.get(cluster.uids.get(name, "")))
    cluster.replanned.add(node.name)
    _remask(cluster, node)


def _replan(cluster: "Cluster", pod: Pod) -> None:
    if pod.spec.request(GPU) or pod.spec.share_containers or pod.spec.rdma_containers:
        cluster.replanned.add(pod.node)


def node_of(cluster: "Cluster", name: str) -> ClusterNode:
    node = cluster.nodes.get(name)
    if node is None:
        node = cluster.nodes[name] = ClusterNode(name)
    return node


def forget_if_empty(cluster: "Cluster", name: str) -> None:
    node = cluster.nodes.get(name)
    if node is not None and node.seen is None and not node.pods and node.report is None:
        del cluster.nodes[name]
