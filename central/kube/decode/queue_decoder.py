"""Queues and priority classes as raw JSON -> facts: whose turn it is, and what they may
use. Pure; nothing is raised but Malformed.

A Queue that can't be used is a fact all the same: QueueSeen.error is a sentence that begins with the
field.
"""

from dataclasses import replace

from central.kube.decode.podspec import resource_amounts
from central.kube.errors import (
    DECODE_ERRORS,
    FieldError,
    MalformedObject,
    error_text,
    object_name,
    text_field,
)
from central.model.facts import Amounts, PrioritySeen, QueueSeen
from central.model.json_types import Json
from protos import names

_STATES = ("", "Open", "Closed", "Closing", "Unknown")
_MOST_WEIGHT = 65535
_NOT_HERE = {
    "affinity": "groups of nodes are not supported; give the pods a node selector",
    "extendClusters": "there is one cluster",
}


def decode_queue(raw: Json) -> QueueSeen:
    try:
        seen = QueueSeen(
            text_field(raw["metadata"], "name"), uid=text_field(raw["metadata"], "uid")
        )
        hash(seen)
    except DECODE_ERRORS as error:
        raise MalformedObject(f"Queue {object_name(raw)}: {error_text(error)}") from error
    if not seen.name:
        raise MalformedObject("Queue without a name")
    try:
        return _queue(raw, seen)
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))


def _queue(raw: Json, seen: QueueSeen) -> QueueSeen:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    # What is wished; where the definition knows no wish, what was last brought about.
    states = text_field(spec, "state"), text_field(status, "state")
    for part, state in zip(("spec", "status"), states, strict=True):
        if state not in _STATES:
            raise FieldError(f'{part}.state: "{state}" is neither Open nor Closed')
    for field, why in _NOT_HERE.items():
        if spec.get(field):
            raise FieldError(f"spec.{field}: {why}")
    strategy = text_field(spec, "dequeueStrategy")
    if strategy not in ("", "fifo", "traverse"):
        raise FieldError(f'spec.dequeueStrategy: "{strategy}" is neither fifo nor traverse')
    guarantee = (spec.get("guarantee") or {}).get("resource")
    reclaimable = spec.get("reclaimable")
    if reclaimable not in (None, True, False):
        raise FieldError(f"spec.reclaimable: {reclaimable!r} is neither true nor false")
    found = replace(
        seen,
        weight=_whole(spec, "weight", 1, 1, _MOST_WEIGHT),
        priority=_whole(spec, "priority", 0, 0, 2**31 - 1),
        parent=text_field(spec, "parent"),
        capability=_amounts(spec.get("capability"), "spec.capability"),
        guarantee=_amounts(guarantee, "spec.guarantee.resource"),
        deserved=_amounts(spec.get("deserved"), "spec.deserved"),
        reclaimable=reclaimable is not False,
        fifo=strategy == "fifo",
        closed=(states[0] or states[1]) in ("Closed", "Closing"),
        command=text_field(raw["metadata"].get("annotations") or {}, names.COMMAND),
    )
    return replace(found, error=_contradiction(found))


def _whole(spec: Json, field: str, default: int, least: int, most: int) -> int:
    value = spec.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise FieldError(f"spec.{field}: {value!r} is not a whole number from {least} to {most}")
    return value


def _amounts(quantities: Json | None, field: str) -> Amounts:
    return tuple(sorted(resource_amounts(quantities, field).items()))


def _contradiction(seen: QueueSeen) -> str:
    """A queue can't be promised more than it may use."""
    capability = dict(seen.capability)
    for field, promised in (
        ("guarantee.resource", seen.guarantee),
        ("deserved", seen.deserved),
    ):
        for resource, amount in promised:
            if amount > capability.get(resource, amount):
                return f"spec.{field}.{resource}: it is more than spec.capability allows"
    return ""


def decode_priority_class(raw: Json) -> PrioritySeen:
    try:
        return PrioritySeen(text_field(raw["metadata"], "name"), int(raw["value"]))
    except DECODE_ERRORS as error:
        raise MalformedObject(f"PriorityClass {object_name(raw)}: {error_text(error)}") from error
