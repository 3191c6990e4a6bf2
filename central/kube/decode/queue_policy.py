"""The fields of a Queue that Volcano's API does not have: who may use it, and limits. They are in its spec or, for
clusters with Volcano's own CRD, which drops unknown fields, as JSON in the annotation lockstep.dev/queue-policy.

    access:
      namespaces: [team-a]
      namespaceSelector: {matchLabels: {team: a}}
      users: ["system:serviceaccount:ci:trainer"]
      groups: ["system:serviceaccounts:team-b"]
    borrowingLimit: {nvidia.com/gpu: 8}
    lendingLimit: {nvidia.com/gpu: 4}
    maxRunningGangs: 20
    perNamespace: {maxRunningGangs: 4, resources: {nvidia.com/gpu: 16}}
    perUser: {maxRunningGangs: 2, resources: {nvidia.com/gpu: 8}}
    minRuntime: 10m
    idleTimeout: 1h
    quantum: 10m
    reservations: false
    shareBy: namespace
    strictPriority: 1
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from central.kube.decode import fields
from central.kube.decode.effective_requests import resource_amounts
from central.kube.decode.fields import FieldError
from central.kube.decode.pod_affinity import label_expressions
from central.kube.decode.quantities import parse_exact
from central.model import limits
from central.model.facts import Amounts, QueueAccess, QueueSeen
from central.model.json_types import Json
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from protos import names

FIELDS = (
    *("access", "borrowingLimit", "lendingLimit", "maxRunningGangs", "perNamespace"),
    *("perUser", "minRuntime", "idleTimeout", "quantum", "reservations", "shareBy"),
    "strictPriority",
)
_ACCESS = ("namespaces", "namespaceSelector", "users", "groups")
_PER_TENANT = ("maxRunningGangs", "resources")


def decode(spec: Json, meta: Json, seen: QueueSeen) -> QueueSeen:
    """Raises FieldError. A rule that cannot be read must not leave the queue open, so unknown fields of the
    annotation are errors, too."""
    where, given = "spec", spec
    if text := fields.text(meta.get("annotations") or {}, names.QUEUE_POLICY):
        where = f"annotation {names.QUEUE_POLICY}"
        if any(spec.get(field) is not None for field in FIELDS):
            raise FieldError(f"{where}: the spec has such fields, too; use one of the two")
        given = fields.known(_parsed(text, where), where, FIELDS)
    per_namespace = fields.known(given.get("perNamespace"), f"{where}.perNamespace", _PER_TENANT)
    per_user = fields.known(given.get("perUser"), f"{where}.perUser", _PER_TENANT)
    return replace(
        seen,
        access=_access(given.get("access"), f"{where}.access"),
        borrowing_limit=amounts_field(given.get("borrowingLimit"), f"{where}.borrowingLimit"),
        lending_limit=amounts_field(given.get("lendingLimit"), f"{where}.lendingLimit"),
        running_gangs=_count(given, where),
        reserves=fields.switch(given, "reservations", where),
        namespace_gangs=_count(per_namespace, f"{where}.perNamespace"),
        namespace_amounts=amounts_field(
            per_namespace.get("resources"), f"{where}.perNamespace.resources"
        ),
        user_gangs=_count(per_user, f"{where}.perUser"),
        user_amounts=amounts_field(per_user.get("resources"), f"{where}.perUser.resources"),
        min_runtime_s=fields.duration(given, "minRuntime", where),
        quantum_s=fields.duration(given, "quantum", where),
        idle_s=fields.duration(given, "idleTimeout", where),
        by_namespace=_share_by(given, where),
        strict_priority=fields.integer(given, "strictPriority", where, 0),
    )


def _share_by(given: Json, where: str) -> bool:
    value = given.get("shareBy")
    if value not in (None, "namespace"):
        raise FieldError(f'{where}.shareBy: {fields.shown(value)} is not "namespace"')
    return value is not None


def amounts_field(quantities: Json | None, field: str) -> Amounts:
    if not isinstance(quantities or {}, dict):
        raise FieldError(f"{field}: {fields.shown(quantities)} is not an object")
    if len(quantities or ()) > limits.RESOURCES:
        raise FieldError(fields.too_long(field, quantities or (), limits.RESOURCES))
    others = {name: value for name, value in (quantities or {}).items() if name != names.GPU}
    found = dict(resource_amounts(others, field))
    if (gpus := (quantities or {}).get(names.GPU)) is not None:
        found.update(_gpus(gpus, f"{field}.{names.GPU}"))
    return tuple(sorted(found.items()))


def _gpus(quantity: Any, field: str) -> Mapping[str, int]:
    """Whole GPUs, or else GPU equivalents: to shares and slices a part of a GPU is worth something."""
    gpus = fields.parsed(field, parse_exact, quantity)
    if gpus.denominator == 1:
        return {names.GPU: int(gpus)}
    return {GPU_EQUIVALENTS: round(gpus * GPU_UNITS)}


def _access(part: Any, where: str) -> QueueAccess | None:
    if part is None:
        return None
    part = fields.known(part, where, _ACCESS)
    selector = part.get("namespaceSelector")
    found = {
        key: fields.strings(part, key, where, limits.VALUES) for key in _ACCESS if key != _ACCESS[1]
    }
    if selector is not None:
        selector = label_expressions(
            fields.known(
                selector, f"{where}.namespaceSelector", ("matchLabels", "matchExpressions")
            ),
            f"{where}.namespaceSelector",
        )
    return QueueAccess(found["namespaces"], selector, found["users"], found["groups"])


def _count(part: Json, where: str) -> int | None:
    if part.get("maxRunningGangs") is None:
        return None
    return fields.integer(part, "maxRunningGangs", where, 0)


def _parsed(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise FieldError(f"{where}: not JSON") from None
