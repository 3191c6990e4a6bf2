"""Handlers of facts about pods' controllers, and pods with the defaults that these set."""

from central.model.facts import OwnerSeen, PodSeen
from central.scheduler.state import on_pod
from central.scheduler.state.cluster_state import ClusterState


def admit_pod(state: ClusterState, fact: PodSeen) -> None:
    made = state.owners.admit(fact, state.now, known=fact.uid in state.pods)
    if made is not None:
        on_pod.update_pod(state, made)


def update_owner(state: ClusterState, fact: OwnerSeen) -> None:
    for made in state.owners.update(fact):
        on_pod.update_pod(state, made)


def release_held_pods(state: ClusterState, now: float) -> None:
    for made in state.owners.expire_held(now) if state.owners.held else ():
        on_pod.update_pod(state, made)
