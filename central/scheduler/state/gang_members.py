"""The gangs of pods: who joins and leaves, when their counts are taken again, and when they are forgotten."""

from central.model.facts import GangGone, GangSeen
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import UNKNOWN, Gang, GangKey


def get_or_create(state: ClusterState, key: GangKey) -> Gang:
    gang = state.gangs.get(key)
    if gang is None:
        gang = state.gangs[key] = Gang(key, state.pending.columns)
        gang.object = state.owners.replicated.add(key)
    state.pending.changed(gang)
    return gang


def join(state: ClusterState, pod: Pod, *, first_sight: bool) -> None:
    if (key := pod.seen.gang_key) is not None:
        gang = get_or_create(state, key)
        gang.members[pod.seen.uid] = pod
        gang.invalidate_counts()
        if first_sight and pod.seen.phase == "Running" and not gang.started:
            # it ran before the scheduler started
            gang.started, gang.published.completed = True, UNKNOWN


def leave(state: ClusterState, pod: Pod) -> None:
    gang = state.gang_of(pod)
    if gang is not None:
        gang.members.pop(pod.seen.uid, None)
        gang.published.completed += pod.seen.phase == "Succeeded"
        if not gang.members and pod.seen.phase == "Succeeded" and not gang.published.of_job:
            # All have, and pods that come now are another run. A Job may make one anew, and says when it restarts.
            gang.published.completed = 0
        gang.invalidate_counts()
        _changed_or_gone(state, gang)


def member_changed(state: ClusterState, pod: Pod) -> None:
    gang = state.gang_of(pod)
    if gang is not None:
        gang.invalidate_counts()
        state.pending.changed(gang)


def touch(state: ClusterState, pod: Pod) -> None:
    """Records a change of the devices or amounts that the pod holds. Its gang is otherwise unchanged."""
    gang = state.gang_of(pod)
    if gang is not None:
        state.pending.touch(gang)


def update_replicas(state: ClusterState, namespace: str, name: str) -> None:
    for key in state.owners.replicated.replicas_of(namespace, name):
        gang = state.gangs[key]
        gang.object = state.owners.replicated.for_replica(key)
        state.pending.changed(gang)


def drop_replicated(state: ClusterState, namespace: str, name: str) -> None:
    """Forgets an object that stands for each of its replicas, and updates their gangs."""
    if state.owners.replicated.objects.pop((namespace, name), None) is not None:
        update_replicas(state, namespace, name)


def set_object(state: ClusterState, fact: GangSeen) -> None:
    gang = get_or_create(state, (fact.namespace, fact.name, True))
    if gang.object is None:
        gang.published.completed = UNKNOWN
    gang.object = fact


def delete_group(state: ClusterState, fact: GangGone) -> None:
    if state.owners.composites.remove((fact.namespace, fact.name)):
        return
    state.owners.withdraw(fact.namespace, fact.name)
    drop_replicated(state, fact.namespace, fact.name)
    drop_object(state, fact.namespace, fact.name)


def drop_object(state: ClusterState, namespace: str, name: str) -> None:
    """The gang of this name has no object any more."""
    gang = state.gangs.get((namespace, name, True))
    if gang is not None and gang.object is not None:
        gang.object = None
        _changed_or_gone(state, gang)


def of_object(state: ClusterState, namespace: str, name: str) -> list[str]:
    """uids of the pods that are in the gang of this name, or in that of a replica."""
    keys = [(namespace, name, True), *state.owners.replicated.replicas_of(namespace, name)]
    return [uid for key in keys if key in state.gangs for uid in state.gangs[key].members]


def _changed_or_gone(state: ClusterState, gang: Gang) -> None:
    """Records a change that may have left nothing of the gang."""
    if gang.members or (gang.object is not None and not gang.object.each_replica):
        state.pending.changed(gang)
        return
    state.gangs.pop(gang.key, None)
    state.owners.replicated.drop(gang.key)
    state.pending.forget(gang)
    state.observer.gang_forgotten(gang)
