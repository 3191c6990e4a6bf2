"""What is said of pods' controllers, and pods as those make them."""

from typing import TYPE_CHECKING

from central.core.facts import OwnerSeen, PodSeen
from central.core.learning import pods

if TYPE_CHECKING:
    from central.core.cluster import Cluster


def pod(cluster: "Cluster", fact: PodSeen) -> None:
    made = cluster.owners.told(fact, cluster.now, known=fact.uid in cluster.pods)
    if made is not None:
        pods.seen(cluster, made)


def seen(cluster: "Cluster", fact: OwnerSeen) -> None:
    for made in cluster.owners.learn(fact):
        pods.seen(cluster, made)


def release(cluster: "Cluster", now: float) -> None:
    for made in cluster.owners.due(now) if cluster.owners.held else ():
        pods.seen(cluster, made)
