"""Who belongs to which gang: members join and leave, and a gang that nothing speaks of any more is
forgotten."""

from typing import TYPE_CHECKING

from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang, GangKey, key_of

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster


def know(cluster: "Cluster", key: GangKey) -> Gang:
    gang = cluster.gangs.get(key)
    if gang is None:
        gang = cluster.gangs[key] = Gang(key)
    cluster.changed[key] = gang
    return gang


def gone(cluster: "Cluster", key: GangKey) -> None:
    gang = cluster.gangs.get(key)
    if gang is not None:
        gang.object = None
        cluster.changed[key] = gang
        _drop_if_empty(cluster, gang)


def join(cluster: "Cluster", pod: Pod, *, first_sight: bool) -> None:
    key = key_of(pod.seen)
    if key is not None:
        gang = know(cluster, key)
        gang.members[pod.seen.uid] = pod
        gang.touch()
        if first_sight and pod.seen.phase == "Running":
            gang.started = True  # it ran before we came


def leave(cluster: "Cluster", pod: Pod) -> None:
    gang = cluster.gang_of(pod)
    if gang is not None:
        gang.members.pop(pod.seen.uid, None)
        gang.touch()
        cluster.changed[gang.key] = gang
        _drop_if_empty(cluster, gang)


def touch(cluster: "Cluster", pod: Pod) -> None:
    gang = cluster.gang_of(pod)
    if gang is not None:
        gang.touch()
        cluster.changed[gang.key] = gang


def _drop_if_empty(cluster: "Cluster", gang: Gang) -> None:
    if not gang.members and gang.object is None:
        cluster.gangs.pop(gang.key, None)
        cluster.changed.pop(gang.key, None)
        cluster.file(gang, waiting=False, partial=False)
        cluster.queues.forget(gang)
        cluster.statuses.forget(gang.key)
        cluster.anteroom.forget(gang.key)
        cluster.snapshot.gains += cluster.pledges.forget(gang.key)
        cluster.snapshot.gains += cluster.queues.lines.forget(gang.key)
