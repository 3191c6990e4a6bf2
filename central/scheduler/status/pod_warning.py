"""A warning about one pod, as an Event on the pod and on its gang's PodGroup if it has one."""

from central.model.decisions import EmitWarning
from central.scheduler.inventory.pods import Pod
from central.scheduler.state.gangs import Gang


def pod_warning(gang: Gang | None, pod: Pod, why: str, reason: str) -> EmitWarning:
    group = gang.object if gang is not None else None
    owner = group.uid if group is not None else ""
    name = group.name if group is not None and owner else ""
    version = group.native_version if group is not None else ""
    seen = pod.seen
    return EmitWarning(
        seen.namespace, name, owner, seen.uid, seen.name, why, reason, native_version=version
    )
