"""Which pods are of one kind, as rules, namespaces and volumes come and go."""

from typing import TYPE_CHECKING

from central.core.facts import NamespaceGone, NamespaceSeen, PodSeen
from central.core.filters.volumes import AttachLimits, StorageFact
from central.core.gangs import Pod
from central.core.learning import gangs

if TYPE_CHECKING:
    from central.core.cluster import Cluster


def learn(cluster: "Cluster", pod: Pod, before: PodSeen | None) -> None:
    """Gives the pod its kind, and those their new one of whom its rules speak."""
    spec = pod.seen.spec
    if before is None or before.spec != spec:
        fresh = cluster.kinds.learn(spec)
        for uid in cluster.kinds.spoken_of(fresh):
            rekind(cluster, cluster.pods[uid])
    pod.spec = cluster.kinds.of(pod.seen)
    cluster.kinds.file(pod.seen, before)


def rekind(cluster: "Cluster", pod: Pod) -> None:
    """Where it is, it stays: only what is counted there changes."""
    kind = cluster.kinds.of(pod.seen)
    if kind == pod.spec:
        return
    pod.spec = kind
    if pod.held is not None:
        row = cluster.snapshot.row[pod.node]
        cluster.snapshot.give(row, pod.held)
        cluster.snapshot.take(row, kind)
        pod.held = kind
    gangs.touch(cluster, pod)


def namespace(cluster: "Cluster", fact: NamespaceSeen | NamespaceGone) -> None:
    labels = dict(fact.labels) if isinstance(fact, NamespaceSeen) else None
    if cluster.kinds.put_namespace(fact.name, labels):
        for pod in cluster.pods.values():
            if pod.seen.namespace == fact.name:
                rekind(cluster, pod)


def storage(cluster: "Cluster", fact: StorageFact) -> None:
    for uid in cluster.kinds.storage.apply(fact):
        rekind(cluster, cluster.pods[uid])
    if isinstance(fact, AttachLimits):
        cluster.snapshot.neighbours.put_limits(fact.node, dict(fact.limits))
        cluster.snapshot.gains += 1
