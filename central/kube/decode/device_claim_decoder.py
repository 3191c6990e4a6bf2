"""ResourceSlices, ResourceClaims, DeviceTaintRules and the claims of pods as facts.

A device or claim with a field that Lockstep does not support becomes a fact with a sentence that names the field. A
slice that cannot be read is skipped, and its pool counts as incomplete.

Design: docs/design/device-claims.md
"""

import re
from dataclasses import replace
from typing import Any

from central.kube.decode import fields, podspec
from central.kube.decode.fields import FieldError
from central.kube.decode.quantities import InvalidQuantity, parse_exact
from central.model import limits
from central.model.device_claims import (
    EXTENDED,
    VALUE_KINDS,
    Consumed,
    CounterValue,
    Device,
    DeviceAttribute,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceConstraint,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    Places,
    PodDeviceClaim,
    SharedCapacity,
    SliceSeen,
    TaintRuleSeen,
    qualified,
)
from central.model.json_types import Json
from central.model.pod_rules import Requirement

GROUP = "scheduling.k8s.io"
GROUPS = (GROUP, "podgroups")  # apiGroup and resource of a PodGroup that uses a claim
FINALIZER = "resource.kubernetes.io/delete-protection"
EXACT, ALL = "ExactCount", "All"
_TYPES = dict(zip(VALUE_KINDS, (str, int, bool, str), strict=True))
CONDITIONS = ("bindingConditions", "bindingFailureConditions")
DEVICE = ("driver", "pool", "device")
_UNSUPPORTED_IN_DEVICE = ("nodeAllocatableResources",)
_UNSUPPORTED_IN_REQUEST = ("derivedAttributes",)
_CAPACITY = re.compile(r"(?:[A-Za-z0-9.-]{1,63}/)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_WHERE = "spec.devices.capacity"
_KEPT = 100_000
_attributes: dict[DeviceAttribute, DeviceAttribute] = {}  # equal ones share one tuple


# --- slices --------------------------------------------------------------------


def decode_slice(raw: Json) -> SliceSeen:
    spec = raw["spec"]
    pool = fields.mapping(spec, "pool", "spec", limits.DEVICE_ATTRIBUTES)
    if not pool:
        raise FieldError("spec.pool: missing")
    driver = fields.text(spec, "driver", limits.NAME)
    node = fields.text(spec, "nodeName", limits.NAME)
    places = () if node or spec.get("perDeviceNodeSelection") else _places(spec, "spec")
    return SliceSeen(
        fields.identity(raw["metadata"], namespaced=False)[1],
        driver,
        fields.text(pool, "name", limits.NAME),
        fields.whole(pool.get("generation")),
        fields.whole(pool.get("resourceSliceCount")),
        node,
        tuple(
            _device(each, driver, node, places)
            for each in fields.entries(spec, "devices", "spec", limits.SLICE_DEVICES)
        ),
        _counters(spec, "sharedCounters", "name", "spec"),
    )


def _counters(part: Json, key: str, name: str, field: str) -> tuple[CounterValue, ...]:
    found, where = [], f"{field}.{key}"
    for each in fields.entries(part, key, field, limits.DEVICE_ATTRIBUTES):
        there = fields.mapping(each, "counters", where, limits.DEVICE_ATTRIBUTES)
        of = fields.text(each, name, limits.NAME)
        for counter in sorted(there):
            if len(counter) > limits.NAME:
                raise FieldError(f"{where}.counters.{counter:.80}: the name is too long")
            found.append(CounterValue(of, counter, _value(counter, there, f"{where}.counters")))
    return tuple(found)


def _places(part: Json, field: str) -> Places:
    """The nodes of a slice or device that no single node has."""
    if node := fields.text(part, "nodeName", limits.NAME):
        return (((Requirement("metadata.name", "In", (node,), field=True),),),)
    if selector := part.get("nodeSelector"):
        return (podspec.node_terms(selector, f"{field}.nodeSelector"),)
    return () if part.get("allNodes") else ((),)


def _device(raw: Json, driver: str, node: str, places: Places) -> Device:
    used = [field for field in _UNSUPPORTED_IN_DEVICE if raw.get(field)]
    consumes = _counters(raw, "consumesCounters", "counterSet", "spec.devices")
    if consumes and any(each.get("compatibilityGroups") for each in raw["consumesCounters"]):
        used.append("consumesCounters.compatibilityGroups")
    shared = raw.get("allowMultipleAllocations") is True
    attributes = fields.mapping(raw, "attributes", "spec.devices", limits.DEVICE_ATTRIBUTES)
    capacity = fields.mapping(raw, "capacity", "spec.devices", limits.DEVICE_ATTRIBUTES)
    own = not node and any(raw.get(key) for key in ("nodeName", "nodeSelector", "allNodes"))
    return Device(
        fields.text(raw, "name", limits.NAME),
        tuple(_attribute(name, attributes, driver) for name in sorted(attributes)),
        tuple(
            (qualified(name, driver), _value(name, capacity, _WHERE)) for name in sorted(capacity)
        ),
        tuple(map(_taint, fields.entries(raw, "taints", "spec.devices", limits.DEVICE_TAINTS))),
        _places(raw, "spec.devices") if own else places,
        consumes,
        f"spec.devices.{used[0]}" if used else "",
        tuple(_shared_capacity(name, capacity) for name in sorted(capacity)) if shared else None,
        raw.get("bindsToNode") is True,
        _conditions(raw, "spec.devices"),
    )


def _conditions(part: Json, field: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    wait, fail = (fields.strings(part, key, field, limits.DEVICE_ATTRIBUTES) for key in CONDITIONS)
    return wait, fail


def _shared_capacity(name: str, capacity: Json) -> SharedCapacity:
    if len(name) > limits.NAME:
        raise FieldError(f"{_WHERE}.{name:.80}: the name is too long")
    policy = fields.mapping(capacity[name], "requestPolicy", _WHERE, limits.DEVICE_ATTRIBUTES)
    field = f"{_WHERE}.{name}.requestPolicy"
    span = fields.mapping(policy, "validRange", field, limits.DEVICE_ATTRIBUTES)
    values = fields.entries(policy, "validValues", field, limits.DEVICE_ATTRIBUTES)
    return SharedCapacity(
        name,
        _value(name, capacity, _WHERE),
        _quantity("default", policy, field) if "default" in policy else "",
        tuple(_quantity_text(each, f"{field}.validValues") for each in values),
        *(
            _quantity(key, span, f"{field}.validRange") if key in span else ""
            for key in ("min", "max", "step")
        ),
    )


def _quantity(key: str, part: Json, field: str) -> str:
    return _quantity_text(part[key], f"{field}.{key:.80}")


def _quantity_text(value: Any, field: str) -> str:
    """The quantity as written. Raises FieldError."""
    try:
        parse_exact(value)
    except InvalidQuantity as error:
        raise FieldError(f"{field}: {error}") from error
    return str(value)


def _attribute(name: str, attributes: Json, driver: str) -> DeviceAttribute:
    """An attribute of an unknown kind has the kind's name and no value."""
    value = fields.mapping(attributes, name, "spec.devices.attributes", limits.DEVICE_ATTRIBUTES)
    kind = next((key for key in value if key.removesuffix("s") in _TYPES), "")
    found: Any = value.get(kind, "") if kind else ""
    is_list = kind.endswith("s")
    if is_list:
        found = tuple(
            fields.entries(value, kind, "spec.devices.attributes", limits.DEVICE_ATTRIBUTES)
        )
    right = _TYPES.get(kind.removesuffix("s"), str)
    if len(name) > limits.NAME or any(
        type(each) is not right or (right is not int and len(str(each)) > limits.NAME)
        for each in (found if is_list else (found,))
    ):
        raise FieldError(f"spec.devices.attributes.{name:.80}: not the value of an attribute")
    if len(_attributes) >= _KEPT:
        _attributes.clear()
    full = qualified(name, driver)
    made = DeviceAttribute(full, kind or next(iter(value), ""), found)
    return _attributes.setdefault(made, made)


def _value(name: str, some: Json, field: str) -> str:
    """The quantity of a capacity or counter."""
    value = fields.mapping(some, name, field, limits.DEVICE_ATTRIBUTES)
    return _quantity_text(value.get("value"), f"{field}.{name:.80}")


def _taint(raw: Json) -> DeviceTaint:
    return DeviceTaint(*(fields.text(raw, key, limits.NAME) for key in ("key", "value", "effect")))


def decode_taint_rule(raw: Json) -> TaintRuleSeen:
    spec = raw["spec"]
    chosen = spec.get("deviceSelector") or {}
    return TaintRuleSeen(
        fields.identity(raw["metadata"], namespaced=False)[1],
        _taint(spec["taint"]),
        *(fields.text(chosen, key, limits.NAME) for key in ("driver", "pool", "device")),
    )


# --- claims --------------------------------------------------------------------


def decode_device_claim(raw: Json) -> DeviceClaimSeen:
    """Raises DECODE_ERRORS if the claim's name or status cannot be read."""
    meta = raw["metadata"]
    namespace, name, uid = fields.identity(meta)
    seen = DeviceClaimSeen(
        namespace,
        name,
        uid,
        DeviceClaimSpec(()),
        **_status(raw.get("status") or {}, *_owner(meta)),
        deleting="deletionTimestamp" in meta,
    )
    return fields.or_error(seen, _with_spec, raw, seen)


def _with_spec(raw: Json, seen: DeviceClaimSeen) -> DeviceClaimSeen:
    return replace(seen, spec=claim_spec(raw["spec"]))


def _owner(meta: Json) -> tuple[str, str]:
    """Returns the uid of the pod, or the name of the PodGroup, for which the claim was made."""
    for owner in fields.entries(meta, "ownerReferences", "metadata", limits.OWNERS):
        if not owner.get("controller"):
            continue
        if owner.get("kind") == "Pod":
            return fields.text(owner, "uid", limits.NAME), ""
        if owner.get("kind") == "PodGroup" and fields.text(owner, "apiVersion").startswith(
            f"{GROUP}/"
        ):
            return "", fields.text(owner, "name", limits.NAME)
    return "", ""


def _status(status: Json, pod: str, group: str) -> Json:
    """pod, group: for which the claim was made"""
    users = fields.entries(status, "reservedFor", "status", limits.CLAIM_CONSUMERS)
    groups = (each for each in users if (each.get("apiGroup"), each.get("resource")) == GROUPS)
    found: Json = {
        "reserved": tuple(fields.text(each, "uid", limits.NAME) for each in users),
        "pod": pod,
        "group": group or next((fields.text(each, "name", limits.NAME) for each in groups), ""),
    }
    if (allocation := status.get("allocation")) is None:
        return found
    devices = allocation.get("devices") or {}
    results = fields.entries(devices, "results", "status.allocation", limits.CLAIM_DEVICES)
    found["allocated"] = tuple(
        DeviceId(*(fields.text(each, key, limits.NAME) for key in DEVICE)) for each in results
    )
    found["requests"] = tuple(fields.text(each, "request", limits.NAME) for each in results)
    if any(each.get("shareID") for each in results):
        found["consumed"] = tuple(
            _consumed(each) if each.get("shareID") else None for each in results
        )
    if any(each.get("adminAccess") is True for each in results):
        found["admin"] = tuple(each.get("adminAccess") is True for each in results)
    found["unready"] = bool(unready(status)[0])
    if (selector := allocation.get("nodeSelector")) is not None:
        found["places"] = (podspec.node_terms(selector, "status.allocation.nodeSelector"),)
    return found


def unready(status: Json) -> tuple[str, bool]:
    """Returns which condition of which device of an allocated claim keeps its pods from being bound, empty: none; and
    whether the device has failed."""
    devices = (status.get("allocation") or {}).get("devices") or {}
    told = fields.entries(status, "devices", "status", limits.CLAIM_DEVICES)
    waits = ""
    for result in fields.entries(devices, "results", "status.allocation", limits.CLAIM_DEVICES):
        needed, failing = _conditions(result, "status.allocation")
        found: Json = {}
        for each in told:
            same = all(each.get(key) == result.get(key) for key in DEVICE)
            if same and each.get("shareID") in (None, result.get("shareID")):
                some = fields.entries(
                    each, "conditions", "status.devices", limits.DEVICE_ATTRIBUTES
                )
                found |= {one.get("type"): one for one in some if one.get("status") == "True"}
        name = "/".join(str(result.get(key)) for key in DEVICE)
        for condition in failing if needed else ():
            if (one := found.get(condition)) is not None:
                why = fields.text(one, "message") or fields.text(one, "reason")
                return f"device {name} failed: condition {condition} is True ({why:.200})", True
        lacking = (each for each in needed if each not in found)
        if not waits and (lacks := next(lacking, "")):
            waits = f"device {name} is not ready: condition {lacks} is not True"
    return waits, False


def _consumed(result: Json) -> Consumed:
    return _amounts(result, "consumedCapacity", "status.allocation")


def claim_spec(spec: Json) -> DeviceClaimSpec:
    """Raises DECODE_ERRORS."""
    devices = spec.get("devices") or {}
    requests = fields.entries(devices, "requests", "spec.devices", limits.CLAIM_DEVICES)
    constraints = fields.entries(devices, "constraints", "spec.devices", limits.CLAIM_DEVICES)
    found = DeviceClaimSpec(tuple(map(_request, requests)), tuple(map(_constraint, constraints)))
    if (least := found.least_devices) > limits.CLAIM_DEVICES:
        raise FieldError(
            f"spec.devices.requests: {least} devices in all, more than {limits.CLAIM_DEVICES}"
        )
    return found


def _request(raw: Json) -> tuple[DeviceRequest, ...]:
    """Alternatives that need more devices than a claim can have are left out, except for the last."""
    name = fields.text(raw, "name", limits.NAME)
    field = f"spec.devices.requests[{name}]"
    if (exactly := raw.get("exactly")) is not None:
        return (_alternative(exactly, name, f"{field}.exactly"),)
    some = fields.entries(raw, "firstAvailable", field, limits.CLAIM_ALTERNATIVES)
    if not some:
        raise FieldError(f"{field}: needs exactly or firstAvailable")
    found = [
        _alternative(
            each, f"{name}/{fields.text(each, 'name', limits.NAME)}", f"{field}.firstAvailable"
        )
        for each in some
    ]
    return tuple(each for each in found if each.count <= limits.CLAIM_DEVICES) or (found[-1],)


def _alternative(raw: Json, name: str, field: str) -> DeviceRequest:
    for key in _UNSUPPORTED_IN_REQUEST:
        if raw.get(key):
            raise FieldError(f"{field}.{key}: not supported")
    mode = fields.text(raw, "allocationMode") or EXACT
    if mode not in (EXACT, ALL):
        raise FieldError(f"{field}.allocationMode: {mode!r} is not supported")
    count = raw.get("count", 1)
    if type(count) is not int or not 0 < count < 2**63:
        raise FieldError(f"{field}.count: not a number from 1 to {limits.CLAIM_DEVICES}")
    return DeviceRequest(
        name,
        fields.text(raw, "deviceClassName", limits.NAME),
        0 if mode == ALL else count,
        selectors(raw, field),
        tuple(map(_toleration, fields.entries(raw, "tolerations", field, limits.DEVICE_TAINTS))),
        _amounts(
            fields.mapping(raw, "capacity", field, limits.DEVICE_ATTRIBUTES),
            "requests",
            f"{field}.capacity",
        ),
        raw.get("adminAccess") is True,
    )


def _amounts(raw: Json, key: str, field: str) -> Consumed:
    """Quantities of capacities. Raises FieldError."""
    amounts = fields.mapping(raw, key, field, limits.DEVICE_ATTRIBUTES)
    for name in amounts:
        if _CAPACITY.fullmatch(name) is None:
            raise FieldError(f"{field}.{key}.{name:.80}: not the name of a capacity")
    return tuple((name, _quantity(name, amounts, f"{field}.{key}")) for name in sorted(amounts))


def selectors(raw: Json, field: str) -> tuple[str, ...]:
    """The CEL expressions of a request or DeviceClass. Raises FieldError."""
    found = []
    for each in fields.entries(raw, "selectors", field, limits.CLAIM_DEVICES):
        expression = fields.text(each.get("cel") or {}, "expression", limits.CEL_TEXT)
        if not expression:
            raise FieldError(f"{field}.selectors: only cel is supported")
        found.append(expression)
    return tuple(found)


def _toleration(raw: Json) -> DeviceToleration:
    key, value, effect = (
        fields.text(raw, each, limits.NAME) for each in ("key", "value", "effect")
    )
    return DeviceToleration(key, fields.text(raw, "operator") or "Equal", value, effect)


def _constraint(raw: Json) -> DeviceConstraint:
    requests = fields.strings(raw, "requests", "spec.devices.constraints", limits.CLAIM_DEVICES)
    same = fields.text(raw, "matchAttribute", limits.NAME)
    distinct = fields.text(raw, "distinctAttribute", limits.NAME)
    if bool(same) == bool(distinct):
        raise FieldError(
            "spec.devices.constraints: only matchAttribute and distinctAttribute are supported"
        )
    return DeviceConstraint(same or distinct, bool(distinct), requests)


# --- pods ----------------------------------------------------------------------


def group_device_claims(spec: Json) -> tuple[PodDeviceClaim, ...]:
    """The claims that the pods of a PodGroup share. Raises DECODE_ERRORS."""
    return tuple(map(_entry, fields.entries(spec, "resourceClaims", "spec", limits.CLAIMS)))


def _entry(raw: Json) -> PodDeviceClaim:
    """An entry of a pod or PodGroup. Raises FieldError."""
    keys = ("name", "resourceClaimName", "resourceClaimTemplateName")
    made = PodDeviceClaim(*(fields.text(raw, key, limits.NAME) for key in keys))
    if bool(made.claim) == bool(made.template):
        raise FieldError(
            f"spec.resourceClaims[{made.name}]: needs either resourceClaimName or resourceClaimTemplateName"
        )
    return made


def pod_device_claims(spec: Json, status: Json) -> tuple[PodDeviceClaim, ...]:
    """The pod's claims, with the names of those that were made from templates. Raises DECODE_ERRORS."""
    made: dict[str, Any] = {
        fields.text(each, "name", limits.NAME): fields.text(each, "resourceClaimName", limits.NAME)
        for each in fields.entries(status, "resourceClaimStatuses", "status", limits.CLAIMS)
    }
    found = []
    for each in fields.entries(spec, "resourceClaims", "spec", limits.CLAIMS):
        name, claim, template = _entry(each)
        if claim or made.get(name, "") or name not in made:  # else the pod needs none
            found.append(PodDeviceClaim(name, claim or made.get(name, ""), template))
    extended = fields.mapping(status, "extendedResourceClaimStatus", "status", limits.CLAIMS)
    if claim := fields.text(extended, "resourceClaimName", limits.NAME):
        found.append(PodDeviceClaim(EXTENDED, claim))
    return tuple(found)
