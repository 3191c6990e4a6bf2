"""The status of PodGroups of scheduling.k8s.io, as kube-scheduler writes it: one condition, which stays True once
the minimum was placed, whatever becomes of the pods later."""

from dataclasses import replace

from central.kube.resource_paths import BY_KIND, NATIVE_PODGROUP, ResourcePath
from central.model import limits, native_podgroup
from central.model.decisions import UpdateGangStatus
from central.model.json_types import Json
from central.model.phases import COMPLETED, PENDING, RUNNING, UNKNOWN
from central.model.timestamps import stamp

# Status and reason of the condition, by the gang's phase. Unknown: a bug keeps it from being scheduled.
_OUTCOMES = {
    RUNNING: ("True", "Scheduled"),
    COMPLETED: ("True", "Scheduled"),
    PENDING: ("False", "Unschedulable"),
    UNKNOWN: ("False", "SchedulerError"),
}


def podgroup(gang: str, native_version: str) -> tuple[ResourcePath, str]:
    """Where the gang's PodGroup is served, and its name there."""
    if not native_version:
        return BY_KIND["PodGroup"], gang
    path = replace(NATIVE_PODGROUP, version=native_version)
    return path, native_podgroup.podgroup_name(gang)


def patch(found: Json, update: UpdateGangStatus, now: float) -> Json | None:
    """The merge patch for the PodGroup as it was found; None: its condition stays. It holds for that
    resourceVersion only, because it replaces the list of conditions."""
    if update.phase not in _OUTCOMES:
        return None
    kind = native_podgroup.CONDITIONS[update.native_version]
    status, reason = _OUTCOMES[update.phase]
    conditions = (found.get("status") or {}).get("conditions") or ()
    before: Json = next((each for each in conditions if each["type"] == kind), {})
    if before.get("status") == "True" and status != "True":
        return None
    meta = found["metadata"]
    condition = {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": update.reason[: limits.TEXT],
        "observedGeneration": meta.get("generation", 0),
        "lastTransitionTime": before.get("lastTransitionTime")
        if before.get("status") == status
        else stamp(now),
    }
    if condition == before:
        return None
    others = [each for each in conditions if each["type"] != kind]
    return {
        "metadata": {"resourceVersion": meta["resourceVersion"]},
        "status": {"conditions": [*others, condition]},
    }
