"""What is said of pods' controllers, and pods as those make them."""

from typing import TYPE_CHECKING

from central.model.facts import OwnerSeen, PodSeen
from central.scheduler.state import on_pod

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def pod(cluster: "Cluster", fact: PodSeen) -> None:
    made = cluster.owners.told(fact, cluster.now, known=fact.uid in cluster.pods)
    if made is not None:
        on_pod.seen(cluster, made)


def seen(cluster: "Cluster", fact: OwnerSeen) -> None:
    for made in cluster.owners.learn(fact):
        on_pod.seen(cluster, made)


def release(cluster: "Cluster", now: float) -> None:
    for made in cluster.owners.due(now) if cluster.owners.held else ():
        on_pod.seen(cluster, made)
