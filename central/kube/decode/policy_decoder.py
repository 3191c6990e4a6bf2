"""The cluster's policies as facts: Queues, PriorityClasses, PodDisruptionBudgets and DeviceClasses."""

from collections.abc import Iterator
from dataclasses import replace

from central.kube.decode import device_claim_decoder, fields, queue_policy
from central.kube.decode.fields import FieldError
from central.kube.decode.pod_affinity import label_expressions
from central.kube.decode.quantities import parse_time
from central.kube.decode.queue_policy import amounts_field
from central.model import limits
from central.model.amounts import Amounts
from central.model.facts import BudgetSeen, DeviceClassSeen, PrioritySeen, QueueSeen
from central.model.json_types import Json
from central.model.resources import GPU_EQUIVALENTS, GPU_UNITS
from protos import names

_STATES = ("", "Open", "Closed", "Closing", "Unknown")
_MOST_WEIGHT = 65535
_UNSUPPORTED = {
    "affinity": "groups of nodes are not supported; give the pods a node selector",
    "extendClusters": "other clusters are not supported",
}


def decode_device_class(raw: Json) -> DeviceClassSeen:
    with fields.identifying("DeviceClass", raw):
        seen = DeviceClassSeen(fields.identity(raw["metadata"], namespaced=False)[1], "")
    return fields.or_error(seen, _device_class, raw, seen)


def _device_class(raw: Json, seen: DeviceClassSeen) -> DeviceClassSeen:
    spec = raw.get("spec") or {}
    resource = fields.text(spec, "extendedResourceName", limits.NAME)
    chosen = device_claim_decoder.selectors(spec, "spec")
    created = parse_time(raw["metadata"].get("creationTimestamp"))
    return replace(seen, resource=resource, selectors=chosen, created=created)


def decode_queue(raw: Json) -> QueueSeen:
    with fields.identifying("Queue", raw):
        _, name, uid = fields.identity(raw["metadata"], namespaced=False)
        seen = QueueSeen(name, uid=uid)
    return fields.or_error(seen, _queue, raw, seen)


def _queue(raw: Json, seen: QueueSeen) -> QueueSeen:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    # spec.state is the desired state; CRDs without it have only the observed one. A state that follows from a
    # queue above is not the queue's own.
    states = fields.text(spec, "state"), fields.text(status, "state")
    for part, state in zip(("spec", "status"), states, strict=True):
        if state not in _STATES:
            raise FieldError(f'{part}.state: "{state}" is neither Open nor Closed')
    own = "" if fields.text(status, "closedBy") else states[1]
    for field, why in _UNSUPPORTED.items():
        if spec.get(field):
            raise FieldError(f"spec.{field}: {why}")
    strategy = fields.choice(
        "spec.dequeueStrategy", fields.text(spec, "dequeueStrategy"), "", "fifo", "traverse"
    )
    guarantee = (spec.get("guarantee") or {}).get("resource")
    found = replace(
        queue_policy.decode(spec, raw["metadata"], seen),
        weight=fields.integer(spec, "weight", "spec", 1, _MOST_WEIGHT),
        priority=fields.integer(spec, "priority", "spec", 0),
        parent=fields.text(spec, "parent", limits.NAME),
        capability=amounts_field(spec.get("capability"), "spec.capability"),
        guarantee=amounts_field(guarantee, "spec.guarantee.resource"),
        deserved=amounts_field(spec.get("deserved"), "spec.deserved"),
        reclaimable=fields.switch(spec, "reclaimable", "spec"),
        fifo=strategy == "fifo",
        closed=(states[0] or own) in ("Closed", "Closing"),
        command=fields.text(raw["metadata"].get("annotations") or {}, names.COMMAND),
    )
    return replace(found, error=_contradiction(found))


def _contradiction(seen: QueueSeen) -> str:
    """Neither guarantee nor deserved may exceed the capability."""
    capability = dict(_in_units(seen.capability))
    for field, amounts in (("guarantee.resource", seen.guarantee), ("deserved", seen.deserved)):
        for resource, amount in _in_units(amounts):
            if amount > capability.get(resource, amount):
                name = names.GPU if resource == GPU_EQUIVALENTS else resource
                return f"spec.{field}.{name}: exceeds spec.capability"
    return ""


def _in_units(amounts: Amounts) -> Iterator[tuple[str, int]]:
    """Yields the amounts, with whole GPUs as GPU equivalents."""
    for resource, amount in amounts:
        yield (GPU_EQUIVALENTS, amount * GPU_UNITS) if resource == names.GPU else (resource, amount)


def decode_priority_class(raw: Json) -> PrioritySeen:
    return fields.identified("PriorityClass", _priority_class, raw)


def _priority_class(raw: Json) -> PrioritySeen:
    _, name, _ = fields.identity(raw["metadata"], namespaced=False)
    return PrioritySeen(name, fields.whole(raw["value"]))


def decode_budget(raw: Json) -> BudgetSeen:
    return fields.identified("PodDisruptionBudget", _budget, raw)


def _budget(raw: Json) -> BudgetSeen:
    meta, status = raw["metadata"], raw.get("status") or {}
    selector = (raw.get("spec") or {}).get("selector")
    namespace, name, _ = fields.identity(meta)
    seen = BudgetSeen(
        namespace,
        name,
        None if selector is None else tuple(label_expressions(selector, "spec.selector")),
        _disruptions_allowed(meta, status),
        tuple(sorted(fields.mapping(status, "disruptedPods", "status", limits.REPLICAS))),
    )
    hash(seen)
    return seen


def _disruptions_allowed(meta: Json, status: Json) -> int:
    """0 until the disruption controller has seen the budget's current generation."""
    if fields.whole(status.get("observedGeneration")) < fields.whole(meta.get("generation")):
        return 0
    return fields.whole(status.get("disruptionsAllowed"))
