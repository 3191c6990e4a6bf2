"""Queues and priority classes as raw JSON -> facts: whose turn it is, and what they may
use. Pure; nothing is raised but Malformed.

A Queue that can't be used is a fact all the same: QueueSeen.error is a sentence that begins with the
field.
"""

from dataclasses import replace

from central.kube.decode.podspec import amounts
from central.kube.errors import BROKEN, Malformed, Unreadable, text, what, who
from central.model.facts import Amounts, PrioritySeen, QueueSeen
from central.model.json_types import Json
from protos import names

_STATES = ("", "Open", "Closed", "Closing", "Unknown")
_MOST_WEIGHT = 65535
_NOT_HERE = {
    "affinity": "groups of nodes are not supported; give the pods a node selector",
    "extendClusters": "there is one cluster",
}


def queue(raw: Json) -> QueueSeen:
    try:
        seen = QueueSeen(text(raw["metadata"], "name"), uid=text(raw["metadata"], "uid"))
        hash(seen)
    except BROKEN as error:
        raise Malformed(f"Queue {who(raw)}: {what(error)}") from error
    if not seen.name:
        raise Malformed("Queue without a name")
    try:
        return _queue(raw, seen)
    except BROKEN as error:
        return replace(seen, error=what(error))


def _queue(raw: Json, seen: QueueSeen) -> QueueSeen:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    # What is wished; where the definition knows no wish, what was last brought about.
    states = text(spec, "state"), text(status, "state")
    for part, state in zip(("spec", "status"), states, strict=True):
        if state not in _STATES:
            raise Unreadable(f'{part}.state: "{state}" is neither Open nor Closed')
    for field, why in _NOT_HERE.items():
        if spec.get(field):
            raise Unreadable(f"spec.{field}: {why}")
    strategy = text(spec, "dequeueStrategy")
    if strategy not in ("", "fifo", "traverse"):
        raise Unreadable(f'spec.dequeueStrategy: "{strategy}" is neither fifo nor traverse')
    guarantee = (spec.get("guarantee") or {}).get("resource")
    reclaimable = spec.get("reclaimable")
    if reclaimable not in (None, True, False):
        raise Unreadable(f"spec.reclaimable: {reclaimable!r} is neither true nor false")
    found = replace(
        seen,
        weight=_whole(spec, "weight", 1, 1, _MOST_WEIGHT),
        priority=_whole(spec, "priority", 0, 0, 2**31 - 1),
        parent=text(spec, "parent"),
        capability=_amounts(spec.get("capability"), "spec.capability"),
        guarantee=_amounts(guarantee, "spec.guarantee.resource"),
        deserved=_amounts(spec.get("deserved"), "spec.deserved"),
        reclaimable=reclaimable is not False,
        fifo=strategy == "fifo",
        closed=(states[0] or states[1]) in ("Closed", "Closing"),
        command=text(raw["metadata"].get("annotations") or {}, names.COMMAND),
    )
    return replace(found, error=_contradiction(found))


def _whole(spec: Json, field: str, default: int, least: int, most: int) -> int:
    value = spec.get(field)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Unreadable(f"spec.{field}: {value!r} is not a whole number from {least} to {most}")
    return value


def _amounts(quantities: Json | None, field: str) -> Amounts:
    return tuple(sorted(amounts(quantities, field).items()))


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


def priority(raw: Json) -> PrioritySeen:
    try:
        return PrioritySeen(text(raw["metadata"], "name"), int(raw["value"]))
    except BROKEN as error:
        raise Malformed(f"PriorityClass {who(raw)}: {what(error)}") from error
