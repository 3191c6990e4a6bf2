"""The status that Kubernetes' own controllers write on batch Jobs, ReplicaSets, Deployments and StatefulSets, as far as
people read it. Pure."""

import hashlib

import orjson

from central.controllers.builtin_controllers import BuiltinController, replica_set
from central.model.json_types import Json


def of_controller(one: BuiltinController, running: int, failed: int, now: str) -> Json:
    """running, failed: of its pods."""
    if one.kind == "Job":
        return _of_job(one, running, failed, now)
    count = {"replicas": len(one.pods), "readyReplicas": running, "availableReplicas": running}
    if one.kind == "StatefulSet":
        count |= {"currentReplicas": len(one.pods), "updatedReplicas": len(one.pods)}
    return {**count, "observedGeneration": one.raw["metadata"].get("generation", 1)}


def _of_job(one: BuiltinController, running: int, failed: int, now: str) -> Json:
    old = one.raw.get("status") or {}
    status: Json = {
        "active": len(one.pods),
        "ready": running,
        "succeeded": len(one.done),
        "failed": failed,
        "startTime": old.get("startTime") or now,
    }
    if old.get("conditions"):
        return {
            **status,
            **{key: old[key] for key in ("conditions", "completionTime") if key in old},
        }
    if one.over:
        complete = one.done and failed <= backoff_limit(one.raw)
        condition = {"type": "Complete" if complete else "Failed", "status": "True"}
        if not complete:
            condition |= {"reason": "BackoffLimitExceeded"}
        status |= {"conditions": [{**condition, "lastTransitionTime": now}], "completionTime": now}
    return status


def backoff_limit(job: Json) -> int:
    return int(job["spec"].get("backoffLimit", 6))


def of_deployment(deployment: Json, replica_sets: list[Json]) -> Json:
    """replica_sets: those of the Deployment."""
    statuses = [each.get("status") or {} for each in replica_sets]
    current = replica_set_name(deployment)
    updated = [
        (each.get("status") or {}).get("replicas", 0)
        for each in replica_sets
        if each["metadata"]["name"] == current
    ]
    ready = sum(each.get("readyReplicas", 0) for each in statuses)
    return {
        "replicas": sum(each.get("replicas", 0) for each in statuses),
        "updatedReplicas": sum(updated),
        "readyReplicas": ready,
        "availableReplicas": ready,
        "observedGeneration": deployment["metadata"].get("generation", 1),
    }


def replica_set_name(deployment: Json) -> str:
    template = orjson.dumps(deployment["spec"]["template"], option=orjson.OPT_SORT_KEYS)
    return f"{deployment['metadata']['name']}-{hashlib.sha256(template).hexdigest()[:8]}"


def replica_set_of(deployment: Json) -> Json:
    """The ReplicaSet of the Deployment's present template."""
    made = replica_set(deployment)
    spec, labels = deployment["spec"], deployment["spec"]["template"].get("metadata") or {}
    made["metadata"] |= {"name": replica_set_name(deployment), "labels": labels.get("labels") or {}}
    made["spec"] = {
        "replicas": spec.get("replicas", 1),
        "selector": spec.get("selector") or {},
        "template": spec["template"],
    }
    return made
