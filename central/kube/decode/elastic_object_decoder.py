"""Objects of Kubernetes' own controllers whose size the scheduler decides, by their annotations lockstep.dev/elastic-min
and elastic-max. Annotations on the template count where the object has none.

Design: docs/design/0156-sizes-of-other-controllers.md
"""

from dataclasses import replace
from typing import Any

from central.kube.decode import elastic_decoder, gang_annotations
from central.kube.decode.fields import (
    FieldError,
    identifying,
    identity,
    int_field,
    map_field,
    or_error,
    text_field,
)
from central.model import limits
from central.model.facts import ElasticGone, ElasticSeen
from central.model.facts.elastic_facts import BY_COST, BY_INDEX, NEWEST
from central.model.jobspec import EVEN, OBJECTIVES, ElasticTask
from central.model.json_types import Json
from protos.names import ELASTIC_MAX, ELASTIC_MIN, ELASTIC_OBJECTIVE, ELASTIC_STEP

KINDS = ("Deployment", "ReplicaSet", "StatefulSet", "Job")


def decode(kind: str, raw: Json, *, owned: bool = False) -> ElasticSeen | ElasticGone:
    """owned: also an object whose own controller would be the one to size. Raises MalformedObject."""
    with identifying(kind, raw):
        meta = raw["metadata"]
        namespace, name, uid = identity(meta)
        above = gang_annotations.above(kind, meta)
    notes = _annotations(raw)
    if not notes.keys() & {ELASTIC_MIN, ELASTIC_MAX} or (above and not owned):
        return ElasticGone(kind, namespace, name)
    gang = above or f"{kind.lower()}/{name}"
    nothing = ElasticTask(name, 1, 1)
    seen = ElasticSeen(kind, namespace, name, uid, gang, nothing, 0)
    return or_error(seen, _object, kind, raw, notes, seen)


def gone(kind: str, raw: Json) -> ElasticGone:
    meta = raw["metadata"]
    return ElasticGone(kind, meta["namespace"], meta["name"])


def _annotations(raw: Json) -> dict[str, Any]:
    template = (raw.get("spec") or {}).get("template") or {}
    found: dict[str, Any] = {}
    for part in (template, raw):
        notes = (part.get("metadata") or {}).get("annotations") if isinstance(part, dict) else None
        found |= notes if isinstance(notes, dict) else {}
    return found


def _object(kind: str, raw: Json, notes: dict[str, Any], seen: ElasticSeen) -> ElasticSeen:
    """Raises FieldError."""
    spec = map_field(raw, "spec", "", limits.LABELS)
    task = _task(seen.name, notes)
    if kind == "Job":
        found = _job(raw, spec, seen)
    else:
        size = 1 if spec.get("replicas") is None else int_field(spec, "replicas", "spec", 0)
        found = replace(seen, size=size, leaves=BY_COST)
    if kind == "StatefulSet":
        found = replace(found, leaves=BY_INDEX)
        if text_field(spec, "podManagementPolicy") != "Parallel":
            raise FieldError(
                "spec.podManagementPolicy: OrderedReady creates a pod when the one before is ready, so that they cannot "
                "start together; an elastic StatefulSet needs Parallel"
            )
    if "deletionTimestamp" in raw["metadata"]:
        found = replace(found, size=0)
    return replace(found, task=task)


def _job(raw: Json, spec: Json, seen: ElasticSeen) -> ElasticSeen:
    size = 1 if spec.get("parallelism") is None else int_field(spec, "parallelism", "spec", 0)
    status = map_field(raw, "status", "", limits.LABELS)
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


def _task(name: str, notes: dict[str, Any]) -> ElasticTask:
    """Raises FieldError."""
    least, most = _number(notes, ELASTIC_MIN), _number(notes, ELASTIC_MAX)
    step = _number(notes, ELASTIC_STEP) if ELASTIC_STEP in notes else 1
    if least > most:
        raise FieldError(f"annotation {ELASTIC_MIN}: {least} is above {ELASTIC_MAX}, {most}")
    if (most - least) % step:
        raise FieldError(
            f"annotation {ELASTIC_STEP}: {step} does not divide {most - least}, which is {ELASTIC_MAX} less "
            f"{ELASTIC_MIN}"
        )
    objective = notes.get(ELASTIC_OBJECTIVE, EVEN)
    if objective not in OBJECTIVES:
        raise FieldError(
            f'annotation {ELASTIC_OBJECTIVE}: "{str(objective)[:40]}" is not one of {", ".join(OBJECTIVES)}'
        )
    speeds = elastic_decoder.speeds(notes)
    allowed = range(least, most + 1, step)
    return ElasticTask(
        name,
        least,
        most,
        step,
        objective,
        cost_s=elastic_decoder.cost_s(notes),
        yields=elastic_decoder.yields(notes),
        speeds=speeds,
        useful=speeds.useful(allowed) if speeds else (),
    )


def _number(notes: dict[str, Any], key: str) -> int:
    """Raises FieldError."""
    value = notes.get(key)
    if value is None:
        other = ELASTIC_MAX if key == ELASTIC_MIN else ELASTIC_MIN
        raise FieldError(f"annotation {key}: missing beside {other}")
    text = str(value)
    digits = text.lstrip("0") if len(text) <= limits.AMOUNT_TEXT else ""
    if digits.isascii() and digits.isdigit() and int(digits[:11]) <= limits.REPLICAS:
        return int(digits)
    raise FieldError(
        f'annotation {key}: "{text:.32}" is not a whole number from 1 to {limits.REPLICAS}'
    )
