"""Objects of controllers of pods whose size the scheduler decides, by their annotations lockstep.dev/elastic-min and
elastic-max. Of Kubernetes' own controllers, annotations on the template count where the object has none.

Design: docs/design/elastic-controllers.md
"""

from dataclasses import replace
from typing import Any

from central.kube.decode import elastic_parts, elastic_range, fields, gang_annotations
from central.kube.decode.fields import FieldError
from central.kube.resource_paths import SIZED
from central.model import limits
from central.model.facts import ElasticGone, ElasticSeen
from central.model.facts.elastic_facts import BY_COST, BY_INDEX, BY_NAME, NEWEST
from central.model.jobspec import ElasticTask
from central.model.json_types import Json

KINDS = tuple(SIZED)
# Who leaves first, and the labels of pods with the index of their unit and their own in it.
_MEMBERS = {
    "JobSet": (BY_INDEX, ("", "jobset.sigs.k8s.io/job-index")),
    "LeaderWorkerSet": (
        BY_INDEX,
        ("leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"),
    ),
    "RayCluster": (BY_NAME, ("", "")),
}


def decode(kind: str, raw: Json, *, owned: bool = False) -> ElasticSeen | ElasticGone:
    """owned: also an object whose own controller would be the one to size. Raises MalformedObject."""
    (namespace, name, uid), above, notes = fields.identified(kind, _head, raw, kind)
    if not elastic_range.is_elastic(notes) or (above and not owned):
        return ElasticGone(kind, namespace, name)
    gang = above or f"{kind.lower()}/{name}"
    nothing = ElasticTask(name, 1, 1)
    seen = ElasticSeen(kind, namespace, name, uid, gang, nothing, 0)
    return fields.or_error(seen, _part if kind in _MEMBERS else _object, kind, raw, notes, seen)


def _head(raw: Json, kind: str) -> tuple[tuple[str, str, str], str, dict[str, Any]]:
    """Returns the object's identity, the controller above it and its annotations. Raises DECODE_ERRORS."""
    meta = raw["metadata"]
    return fields.identity(meta), gang_annotations.above(kind, meta), _annotations(raw)


def gone(kind: str, raw: Json) -> ElasticGone:
    meta = raw["metadata"]
    return ElasticGone(kind, meta["namespace"], meta["name"])


def _annotations(raw: Json) -> dict[str, Any]:
    spec = raw.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    found: dict[str, Any] = {}
    for part in (template, raw):
        notes = (part.get("metadata") or {}).get("annotations") if isinstance(part, dict) else None
        found |= notes if isinstance(notes, dict) else {}
    return found


def _part(kind: str, raw: Json, notes: dict[str, Any], seen: ElasticSeen) -> ElasticSeen:
    """Reads an object with roles, or whose pods are created and deleted in groups. Raises FieldError."""
    _, above = gang_annotations.controller_of(raw["metadata"])
    if above.startswith("trainjob/"):
        raise FieldError(
            f"metadata.ownerReferences: {above} sets the number of its nodes itself, and it cannot change"
        )
    found = elastic_parts.read(kind, raw, notes)
    leaves, indexes = _MEMBERS[kind]
    return replace(
        seen,
        task=elastic_range.task(seen.name, notes, found.sizes, found.unit),
        size=0 if "deletionTimestamp" in raw["metadata"] else found.size,
        leaves=leaves,
        completions=kind == "JobSet",
        ends=kind == "JobSet",
        role=found.role,
        unit=found.unit,
        indexes=indexes,
        place=found.place,
        ceiling=found.ceiling,
    )


def _object(kind: str, raw: Json, notes: dict[str, Any], seen: ElasticSeen) -> ElasticSeen:
    """Raises FieldError."""
    spec = fields.mapping(raw, "spec", "", limits.LABELS)
    task = elastic_range.task(seen.name, notes, elastic_range.read(notes))
    if kind == "Job":
        found = _job(raw, spec, seen)
    else:
        size = 1 if spec.get("replicas") is None else fields.integer(spec, "replicas", "spec", 0)
        found = replace(seen, size=size, leaves=BY_COST)
    if kind == "StatefulSet":
        found = replace(found, leaves=BY_INDEX)
        if fields.text(spec, "podManagementPolicy") != "Parallel":
            raise FieldError(
                "spec.podManagementPolicy: OrderedReady creates a pod when the one before is ready, so that they "
                "cannot "
                "start together; an elastic StatefulSet needs Parallel"
            )
    if "deletionTimestamp" in raw["metadata"]:
        found = replace(found, size=0)
    return replace(found, task=task)


def _job(raw: Json, spec: Json, seen: ElasticSeen) -> ElasticSeen:
    size = 1 if spec.get("parallelism") is None else fields.integer(spec, "parallelism", "spec", 0)
    status = fields.mapping(raw, "status", "", limits.LABELS)
    ended = any(
        isinstance(each, dict)
        and each.get("type") in ("Complete", "Failed", "FailureTarget", "SuccessCriteriaMet")
        and each.get("status") == "True"
        for each in status.get("conditions") or ()
    )
    completions = spec.get("completions")
    together = spec.get("completionMode") == "Indexed" and completions == size
    return replace(
        seen,
        size=0 if ended or spec.get("suspend") is True else size,
        leaves=BY_INDEX if together else NEWEST,
        completions=together,
        ends=together or completions is None,
    )
