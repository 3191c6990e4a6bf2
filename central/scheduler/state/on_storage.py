"""Which pods are of one kind, as rules, namespaces and volumes come and go."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from central.model.facts import NamespaceGone, NamespaceSeen, PodSeen
from central.model.volumes import AttachLimits, StorageFact, Volumes, VolumeSeen
from central.scheduler.inventory.pods import Pod
from central.scheduler.state import on_gang

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def learn(cluster: "Cluster", pod: Pod, before: PodSeen | None) -> None:
    """Gives the pod its kind, and those their new one of whom its rules speak."""
    spec = pod.seen.spec
    if before is None or before.spec != spec:
        fresh = cluster.kinds.learn(spec)
        for uid in cluster.kinds.spoken_of(fresh):
            rekind(cluster, cluster.pods[uid])
    pod.spec = cluster.kinds.of(pod.seen)
    file(cluster, pod.seen, before)


def file(cluster: "Cluster", seen: PodSeen | None, before: PodSeen | None) -> None:
    for uid in cluster.kinds.file(seen, before):
        if uid in cluster.pods:
            rekind(cluster, cluster.pods[uid])


def rekind(cluster: "Cluster", pod: Pod) -> None:
    """Where it is, it stays: only what is counted there changes."""
    kind = cluster.kinds.of(pod.seen)
    if kind == pod.spec:
        return
    pod.spec = kind
    if pod.charged_spec is not None:
        row = cluster.snapshot.row[pod.node]
        cluster.snapshot.give(row, pod.charged_spec)
        cluster.snapshot.take(row, kind)
        pod.charged_spec = kind
    on_gang.touch(cluster, pod)


def namespace(cluster: "Cluster", fact: NamespaceSeen | NamespaceGone) -> None:
    labels = dict(fact.labels) if isinstance(fact, NamespaceSeen) else None
    if cluster.kinds.put_namespace(fact.name, labels):
        for pod in cluster.pods.values():
            if pod.seen.namespace == fact.name:
                rekind(cluster, pod)


def storage(cluster: "Cluster", fact: StorageFact) -> None:
    for uid in cluster.kinds.storage.apply(fact):
        rekind(cluster, cluster.pods[uid])
    if isinstance(fact, VolumeSeen) and fact.free:
        cluster.snapshot.gains += 1  # who waits for such a volume is asked again
    if isinstance(fact, AttachLimits):
        cluster.snapshot.neighbours.put_limits(fact.node, dict(fact.limits))
        cluster.snapshot.gains += 1


def seated(cluster: "Cluster", pods: Sequence[Pod]) -> None:
    """The volumes that their seats took are these pods' own from now on."""
    snapshot, storage = cluster.snapshot, cluster.kinds.storage
    seats: dict[tuple[int, Volumes], list[Pod]] = {}
    for pod in pods:
        volumes = pod.spec.volumes
        if volumes is not None and (volumes.wants or volumes.shared):
            seats.setdefault((snapshot.row[pod.node], volumes), []).append(pod)
    shared: dict[str, str] = {}
    for (row, volumes), there in seats.items():
        lots, common = snapshot.neighbours.stock.settled(row, volumes)
        shared |= common
        wants = [want for want, count in volumes.wants for _ in range(count)]
        for pod, lot in zip(there, lots, strict=False):
            storage.plan(pod.seen, zip(wants, lot, strict=True), shared)
    sharing = [cluster.pods[uid] for claim in shared for uid in storage.users(claim)]
    gains = snapshot.gains
    for pod in (*(pod for there in seats.values() for pod in there), *sharing):
        rekind(cluster, pod)
    snapshot.gains = gains  # nothing was freed: they are only counted otherwise


def unseated(cluster: "Cluster", pod: Pod) -> None:
    """It lost its seat, or never had one: what was planned for its claims is there for others."""
    if pod.seen.claims:
        for uid in cluster.kinds.storage.unplan(pod.seen):
            if uid in cluster.pods:
                rekind(cluster, cluster.pods[uid])
