"""Gangs come with their first pod or PodGroup, gain and lose members, and go with the last of both."""

from central.scheduler.inventory.pods import Pod
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang, GangKey, key_of


def get_or_create(state: ClusterState, key: GangKey) -> Gang:
    gang = state.gangs.get(key)
    if gang is None:
        gang = state.gangs[key] = Gang(key)
    state.pending.changed(gang)
    return gang


def object_deleted(state: ClusterState, key: GangKey) -> None:
    gang = state.gangs.get(key)
    if gang is not None:
        gang.object = None
        state.pending.changed(gang)
        _drop_if_empty(state, gang)


def join(state: ClusterState, pod: Pod, *, first_sight: bool) -> None:
    key = key_of(pod.seen)
    if key is not None:
        gang = get_or_create(state, key)
        gang.members[pod.seen.uid] = pod
        gang.invalidate_counts()
        if first_sight and pod.seen.phase == "Running":
            gang.started = True  # it ran before the scheduler started


def leave(state: ClusterState, pod: Pod) -> None:
    gang = state.gang_of(pod)
    if gang is not None:
        gang.members.pop(pod.seen.uid, None)
        gang.invalidate_counts()
        state.pending.changed(gang)
        _drop_if_empty(state, gang)


def member_changed(state: ClusterState, pod: Pod) -> None:
    gang = state.gang_of(pod)
    if gang is not None:
        gang.invalidate_counts()
        state.pending.changed(gang)


def _drop_if_empty(state: ClusterState, gang: Gang) -> None:
    if not gang.members and gang.object is None:
        state.gangs.pop(gang.key, None)
        state.pending.forget(gang)
        state.observer.gang_forgotten(gang)
