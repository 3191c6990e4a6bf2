"""A warning about one pod, as an Event on the pod and on its gang's PodGroup if it has one."""

from central.model.decisions import EmitWarning
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang


def pod_warning(gang: Gang | None, pod: Pod, why: str, reason: str) -> EmitWarning:
    owner = gang.object.uid if gang is not None and gang.object is not None else ""
    name = gang.name if gang is not None and owner else ""
    seen = pod.seen
    return EmitWarning(seen.namespace, name, owner, seen.uid, seen.name, why, reason)
