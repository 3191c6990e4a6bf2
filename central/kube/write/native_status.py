"""The status of PodGroups of scheduling.k8s.io, as kube-scheduler writes it: a condition that stays True once the
minimum was placed, whatever becomes of the pods later, and one from the group's preemption until it runs again."""

from collections.abc import Sequence
from dataclasses import replace

from central.kube.resource_paths import BY_KIND, COMPOSITE_PODGROUP, NATIVE_PODGROUP, ResourcePath
from central.model import limits, native_podgroup, past_turns
from central.model.decisions import UpdateGangStatus
from central.model.json_types import Json
from central.model.pending_causes import CAUSES, PREEMPTED
from central.model.phases import COMPLETED, INQUEUE, PENDING, RUNNING
from central.model.timestamps import stamp

DISRUPTION = "DisruptionTarget"


def podgroup(gang: str, native_version: str) -> tuple[ResourcePath, str]:
    """Returns the path on which the gang's PodGroup is served, and its name there."""
    if not native_version:
        return BY_KIND["PodGroup"], gang
    composite = native_podgroup.is_composite(gang)
    path = replace(COMPOSITE_PODGROUP if composite else NATIVE_PODGROUP, version=native_version)
    return path, native_podgroup.podgroup_name(gang)


def parts(update: UpdateGangStatus) -> list[UpdateGangStatus]:
    """The status of each PodGroup of a CompositePodGroup's gang; one that is not placed has the gang's reason."""
    states = {
        True: RUNNING,
        False: PENDING if update.phase in (RUNNING, COMPLETED) else update.phase,
    }
    return [
        update._replace(
            gang=native_podgroup.gang_name(name),
            phase=states[placed],
            podgroups=(),
            past_turns=None,
        )
        for name, placed in update.podgroups
    ]


def patch(found: Json, update: UpdateGangStatus, now: float) -> Json | None:
    """The merge patch for the PodGroup as it was found; None: its conditions stay. It holds for that
    resourceVersion only, because it replaces the list of conditions."""
    conditions = (found.get("status") or {}).get("conditions") or ()
    after = [*conditions]
    if (scheduled := _scheduled(found, conditions, update, now)) is not None:
        after = _with(after, scheduled)
    disrupted = any(each["type"] == DISRUPTION for each in after)
    if update.cause == PREEMPTED and not disrupted:
        own = {"type": DISRUPTION, "status": "True", "reason": "PreemptionByScheduler"}
        after.append(_condition(found, update, stamp(now), **own))
    elif update.phase in (RUNNING, COMPLETED):
        after = [each for each in after if each["type"] != DISRUPTION]
    if update.past_turns is None:
        after = [each for each in after if each["type"] != past_turns.CONDITION]
    elif update.past_turns != past_turns.read(conditions):
        after = _with(after, past_turns.condition(update.past_turns, now))
    if after == [*conditions]:
        return None
    return {
        "metadata": {"resourceVersion": found["metadata"]["resourceVersion"]},
        "status": {"conditions": after},
    }


def _with(conditions: list[Json], one: Json) -> list[Json]:
    if one in conditions:
        return conditions
    return [*(each for each in conditions if each["type"] != one["type"]), one]


def _scheduled(
    found: Json, conditions: Sequence[Json], update: UpdateGangStatus, now: float
) -> Json | None:
    """Returns the new condition; None if it stays the same."""
    status, reason = "True", "Scheduled"
    if update.phase not in (RUNNING, COMPLETED):
        status, reason = "False", CAUSES.get(update.cause, "")
    kind = native_podgroup.condition_type(update.native_version, update.gang)
    before: Json = next((each for each in conditions if each["type"] == kind), {})
    if not reason or update.phase == INQUEUE or (before.get("status") == "True" != status):
        return None
    since = before.get("lastTransitionTime") if before.get("status") == status else stamp(now)
    return _condition(found, update, type=kind, status=status, reason=reason, since=since)


def _condition(found: Json, update: UpdateGangStatus, since: str | None, **more: str) -> Json:
    return {
        **more,
        "message": update.reason[: limits.TEXT],
        "observedGeneration": found["metadata"].get("generation", 0),
        "lastTransitionTime": since,
    }
