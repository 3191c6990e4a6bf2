"""What is said of pods' controllers, and pods as those make them."""

from central.model.facts import OwnerSeen, PodSeen
from central.scheduler.state import on_pod
from central.scheduler.state.cluster_state import ClusterState


def pod(state: ClusterState, fact: PodSeen) -> None:
    made = state.owners.told(fact, state.now, known=fact.uid in state.pods)
    if made is not None:
        on_pod.seen(state, made)


def seen(state: ClusterState, fact: OwnerSeen) -> None:
    for made in state.owners.learn(fact):
        on_pod.seen(state, made)


def release(state: ClusterState, now: float) -> None:
    for made in state.owners.due(now) if state.owners.held else ():
        on_pod.seen(state, made)
