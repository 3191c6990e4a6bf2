"""Pending pods of other schedulers for which surplus of elastic gangs may leave (--yield-to-others).

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Iterable
from typing import Any

from central.model.json_types import Json

SCHEDULED, UNSCHEDULABLE = "PodScheduled", "Unschedulable"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pending_spec(meta: Json, spec: Json, status: Json) -> Json | None:
    """The spec of a pod whose scheduler has found no node for it and evicts none for it, without its preferences. None:
    it is no such pod, or where it fits cannot be told from its requests, node selectors, node affinity and tolerations,
    as rules about other pods or volumes decide as well. Never raises."""
    try:
        if not _awaits(meta, spec, status) or _has_other_rules(spec):
            return None
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        nodes = {REQUIRED: affinity[REQUIRED]} if affinity.get(REQUIRED) else {}
    except (AttributeError, TypeError, KeyError):
        return None
    kept = {**spec, "affinity": {"nodeAffinity": nodes}} if nodes else {**spec, "affinity": None}
    return {**kept, "topologySpreadConstraints": None}


def _awaits(meta: Json, spec: Json, status: Json) -> bool:
    if spec.get("nodeName") or "deletionTimestamp" in meta or spec.get("schedulingGates"):
        return False
    if status.get("nominatedNodeName") or spec.get("preemptionPolicy") == "Never":
        return False
    return any(
        one.get("type") == SCHEDULED
        and one.get("status") == "False"
        and one.get("reason") == UNSCHEDULABLE
        for one in status.get("conditions") or ()
    )


def _has_other_rules(spec: Json) -> bool:
    affinity = spec.get("affinity") or {}
    if any((affinity.get(kind) or {}).get(REQUIRED) for kind in ("podAffinity", "podAntiAffinity")):
        return True
    spreads = spec.get("topologySpreadConstraints") or ()
    if any(one.get("whenUnsatisfiable") != "ScheduleAnyway" for one in spreads):
        return True
    if spec.get("hostNetwork") or _has_host_ports(spec):
        return True
    return bool(spec.get("resourceClaims")) or _has_volume_claims(spec.get("volumes") or ())


def _has_host_ports(spec: Json) -> bool:
    containers = (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
    return any(port.get("hostPort") for one in containers for port in one.get("ports") or ())


def _has_volume_claims(volumes: Iterable[dict[str, Any]]) -> bool:
    return any("persistentVolumeClaim" in one or "ephemeral" in one for one in volumes)
