"""What the owner of an object reads when it is set aside: an Event about it, and the status that only the scheduler writes.

    gang        Event on its PodGroup and its first pod; its status says why from now on (gang_status.py)
    PodGroup    Event, and a status of its own as long as no pods make it a gang
    Pod         Event, and its condition PodScheduled while it has no node; of one gang the first ones
    report      Event on the node
    others      Event; Jobs and what creates Jobs have it in their status (object_fence.py)

Design: docs/design/containment.md
"""

from typing import cast

from central.model.decisions import PODS_SHOWN, Decision, EmitWarning, UpdateGangStatus
from central.model.event_objects import about, build_event
from central.model.event_reasons import SET_ASIDE
from central.model.facts import ElasticSeen, GangSeen, NodeReported, PodSeen
from central.model.facts.elastic_facts import SIZED_KINDS
from central.model.pending_causes import SET_ASIDE as FAILED
from central.model.phases import PENDING, UNKNOWN
from central.scheduler.quarantine import ACCOUNT, GANG, PODGROUP, SetAside, SetAsideKey
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.status.pod_warning import pod_warning

NODE = "Node"
EVENT_KINDS = frozenset(  # of central.kube.resource_paths
    {
        *("Pod", NODE, PODGROUP, "Queue", "HyperNode", "Namespace", "PriorityClass"),
        *("Job", "CronJob", "JobFlow", "JobTemplate", "Command", "PodDisruptionBudget"),
        *("PersistentVolumeClaim", "PersistentVolume", "StorageClass", "CSINode", "CSIDriver"),
        "CSIStorageCapacity",
    }
)


def take(scheduler: Scheduler) -> list[Decision]:
    """Those that are not written yet."""
    decisions: list[Decision] = []
    for key, found in scheduler.quarantine.take_warnings():
        try:
            decisions += _of(scheduler, key, found)
        except Exception as error:  # noqa: BLE001  any bug; the log and the metric have it in any case
            scheduler.quarantine.note(key, (found.namespace, found.name), error)
    return decisions


def _of(scheduler: Scheduler, key: SetAsideKey, found: SetAside) -> list[Decision]:
    if key.kind in (GANG, ACCOUNT):
        gang = scheduler.state.gangs.get(cast("GangKey", key.identity))
        return _of_gang(scheduler, gang, found.why) if gang is not None else []
    match found.content:
        case GangSeen() as group if not key.of_decision:
            return _of_podgroup(scheduler, group, found.why)
        case PodSeen() as pod:
            if not _is_shown(scheduler, pod, found):
                return []
            return [_event(key.kind, found, pod.uid), *_condition(pod, found.why)]
        case NodeReported():
            return [_event(NODE, found, found.name)]
        case ElasticSeen() as sized:
            version, place = SIZED_KINDS[sized.kind].api_version, (found.namespace, found.name)
            concerning = about(version, sized.kind, *place, sized.uid)
            return [build_event(concerning, SET_ASIDE, found.why, scheduler.state.now)]
        case _:
            pass
    if key.kind not in EVENT_KINDS:
        return []
    uid = found.name if key.kind == NODE else _uid(found.content)
    return [_event(key.kind, found, uid)]


def _of_gang(scheduler: Scheduler, gang: Gang, why: str) -> list[Decision]:
    scheduler.state.pending.publish(gang)
    pod = min(gang.members.values(), key=lambda each: each.seen.order, default=None)
    if pod is not None:
        return [pod_warning(gang, pod, why, SET_ASIDE)]
    return _of_group(gang.object, why) if gang.object is not None else []


def _of_group(group: GangSeen, why: str) -> list[Decision]:
    # its pods say it: without any it may be another scheduler's
    if group.declared or group.native_version:
        return []
    place = group.namespace, "", "", group.uid, group.name
    return [EmitWarning(*place, why, SET_ASIDE, PODGROUP)]


def _of_podgroup(scheduler: Scheduler, group: GangSeen, why: str) -> list[Decision]:
    event = _of_group(group, why)
    gang = scheduler.state.gangs.get((group.namespace, group.name, True))
    if gang is not None and gang.members:
        scheduler.state.pending.publish(gang)
        return event
    place = group.namespace, group.name
    update = UpdateGangStatus(*place, UNKNOWN, why, True, past_turns=group.past_turns, cause=FAILED)
    return [*event, update] if event else []


def _is_shown(scheduler: Scheduler, pod: PodSeen, found: SetAside) -> bool:
    """The gang says how many others there are. Else thousands of its pods would keep the reasons of others waiting, behind
    two writes each."""
    if pod.gang_key is None:
        return True
    aside = scheduler.quarantine.members_aside(pod.gang_key)
    return any(each is found for each in aside[:PODS_SHOWN])


def _condition(pod: PodSeen, why: str) -> list[Decision]:
    if pod.node or not pod.ours or pod.gated:
        return []
    place = pod.namespace, pod.name
    return [UpdateGangStatus(*place, PENDING, why, False, (pod.name,), cause=FAILED)]


def _event(kind: str, found: SetAside, uid: str) -> EmitWarning:
    return EmitWarning(found.namespace, "", "", uid, found.name, found.why, SET_ASIDE, kind)


def _uid(content: object) -> str:
    return getattr(content, "uid", "") or getattr(getattr(content, "spec", None), "uid", "")
