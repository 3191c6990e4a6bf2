"""Defaulting and validation of created and changed objects: pod defaults, priorities, names, immutable fields.
Pure."""

import base64
import re
from collections.abc import Callable
from typing import Any

from central.model.json_types import Json
from central.standalone import schema as schemas
from central.standalone.api_errors import ApiError, bad_request, invalid
from central.standalone.served_kinds import Resource

_NAME = re.compile(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")
_SYSTEM_PRIORITIES = {
    "system-node-critical": 2_000_001_000,
    "system-cluster-critical": 2_000_000_000,
}
PriorityClasses = Callable[[], list[Json]]


def check_name(resource: Resource, name: str) -> None:
    if len(name) > 253 or not _NAME.match(name):
        why = (
            f'Invalid value: "{name}": a lowercase RFC 1123 subdomain must consist of lower case '
            "alphanumeric characters, '-' or '.'"
        )
        raise invalid(resource.kind, resource.group, name, [("metadata.name", why)])


def created(resource: Resource, obj: Json, priorities: PriorityClasses) -> Json:
    """A new object as it is stored. obj has its final metadata."""
    check_name(resource, obj["metadata"]["name"])
    if resource.custom:
        # With a status subresource, status cannot be set at creation.
        if "status" in resource.subresources:
            obj = {key: value for key, value in obj.items() if key != "status"}
        return custom(resource, obj)
    match resource.kind:
        case "Pod":
            return _pod(obj, priorities)
        case "Node":
            return node(obj)
        case "Namespace":
            return {"spec": {"finalizers": []}, **obj, "status": {"phase": "Active"}}
        case "CustomResourceDefinition":
            return {**obj, "status": _established(obj)}
        case "Secret":
            return _secret(obj)
        case "Job" | "PodDisruptionBudget":
            return {**obj, "status": {}}
        case _:
            return obj


def _secret(obj: Json) -> Json:
    """stringData is write-only and merged into data."""
    plain = {
        name: base64.b64encode(text.encode()).decode()
        for name, text in (obj.get("stringData") or {}).items()
    }
    rest = {key: value for key, value in obj.items() if key != "stringData"}
    return {**rest, "type": obj.get("type", "Opaque"), "data": (obj.get("data") or {}) | plain}


def changed(resource: Resource, old: Json, new: Json) -> Json:
    """The changed object as it is stored. Raises ApiError if the change is forbidden."""
    if resource.custom:
        return custom(resource, new)
    if resource.kind == "Pod" and _fixed(old["spec"]) != _fixed(new["spec"]):
        why = (
            "Forbidden: pod updates may not change fields other than `spec.containers[*].image`, "
            "`spec.initContainers[*].image`, `spec.activeDeadlineSeconds`, `spec.tolerations` "
            "(only additions to existing tolerations)"
        )
        raise invalid("Pod", "", new["metadata"]["name"], [("spec", why)])
    return new


def resized(old: Json, new: Json) -> Json:
    """The pod with the resources that a resize in place asks for. Raises ApiError if it asks for more than that."""
    if _without_resources(old["spec"]) != _without_resources(new["spec"]):
        why = "Forbidden: only cpu and memory resources are mutable"
        raise invalid("Pod", "", new["metadata"]["name"], [("spec", why)])
    return {**old, "metadata": new["metadata"], "spec": new["spec"]}


def _without_resources(spec: Json) -> Json:
    kept = {key: value for key, value in spec.items() if key != "resources"}
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{**container, "resources": None} for container in kept[kind]]
    return kept


def node(obj: Json) -> Json:
    status = dict(obj.get("status") or {})
    for kind in ("capacity", "allocatable"):
        if kind in status:
            status[kind] = amounts(status[kind])
    return {"spec": {}, **obj, "status": status}


def custom(resource: Resource, obj: Json) -> Json:
    if resource.schema is None:
        return obj
    obj = schemas.prune(resource.schema, obj)
    causes = list(schemas.faults(resource.schema, obj))
    if causes:
        raise invalid(resource.kind, resource.group, obj["metadata"]["name"], causes)
    return obj


def _fixed(spec: Json) -> Json:
    free = ("activeDeadlineSeconds", "tolerations", "terminationGracePeriodSeconds")
    kept = {key: value for key, value in spec.items() if key not in free}
    for kind in ("containers", "initContainers"):
        if kind in kept:
            kept[kind] = [{**container, "image": ""} for container in kept[kind]]
    return kept


def _pod(obj: Json, priorities: PriorityClasses) -> Json:
    spec = obj.get("spec")
    name = obj["metadata"]["name"]
    if not isinstance(spec, dict) or not spec.get("containers"):
        raise invalid("Pod", "", name, [("spec.containers", "Required value")])
    for kind in ("containers", "initContainers"):
        for at, container in enumerate(spec.get(kind) or []):
            if not container.get("name"):
                raise invalid("Pod", "", name, [(f"spec.{kind}[{at}].name", "Required value")])
    account = spec.get("serviceAccountName") or "default"
    spec = {
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "securityContext": {},
        "enableServiceLinks": True,
        **spec,
        "serviceAccountName": account,
        "serviceAccount": account,
        "tolerations": _tolerations(spec.get("tolerations") or []),
        **_priority(spec, priorities),
    }
    for kind in ("containers", "initContainers"):
        if kind in spec:
            spec[kind] = [_container(container) for container in spec[kind]]
    return {**obj, "spec": spec, "status": {"phase": "Pending", "qosClass": _qos(spec)}}


def amounts(listed: Json) -> Json:
    """Quantities as the server shows them: strings, even if the user wrote numbers."""
    return {name: str(amount) for name, amount in (listed or {}).items()}


def _container(container: Json) -> Json:
    resources: Json = {
        kind: listed if kind == "claims" else amounts(listed)
        for kind, listed in (container.get("resources") or {}).items()
    }
    if limits := resources.get("limits"):
        # Without a request the limit is the request.
        resources = {**resources, "requests": {**limits, **(resources.get("requests") or {})}}
    image = container.get("image", "")
    latest = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
    return {
        "imagePullPolicy": "Always" if latest else "IfNotPresent",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        **container,
        "resources": resources,
    }


def _tolerations(given: list[Json]) -> list[Json]:
    lasting = {"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    return given + [
        {"key": key, **lasting}
        for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
        if not any(toleration.get("key") in (key, None) for toleration in given)
    ]


def _priority(spec: Json, priorities: PriorityClasses) -> Json:
    name = spec.get("priorityClassName")
    known = priorities()
    if not name:
        default = next((one for one in known if one.get("globalDefault")), None)
        if default is None:
            return {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
        name = default["metadata"]["name"]
    if name in _SYSTEM_PRIORITIES:
        policy, value = "PreemptLowerPriority", _SYSTEM_PRIORITIES[name]
    else:
        found = next((one for one in known if one["metadata"]["name"] == name), None)
        if found is None:
            raise ApiError(403, "Forbidden", f"no PriorityClass with name {name} was found")
        policy, value = found.get("preemptionPolicy", "PreemptLowerPriority"), found["value"]
    return {"priorityClassName": name, "priority": value, "preemptionPolicy": policy}


def _qos(spec: Json) -> str:
    asked = [container.get("resources") or {} for container in spec["containers"]]
    if not any((one.get("requests") or one.get("limits")) for one in asked):
        return "BestEffort"
    for one in asked:
        limits, requests = one.get("limits") or {}, one.get("requests") or {}
        if any(name not in limits or limits[name] != requests[name] for name in ("cpu", "memory")):
            return "Burstable"
    return "Guaranteed"


def _established(obj: Json) -> Json:
    names = obj["spec"]["names"]
    conditions: list[Any] = [
        {"type": "NamesAccepted", "status": "True", "reason": "NoConflicts"},
        {"type": "Established", "status": "True", "reason": "InitialNamesAccepted"},
    ]
    stored = [version["name"] for version in obj["spec"]["versions"] if version.get("storage")]
    return {"conditions": conditions, "acceptedNames": names, "storedVersions": stored}


def object_of(resource: Resource, namespace: str, body: Any) -> Json:
    """A request's body as an object of this kind, with its namespace set."""
    if not isinstance(body, dict) or not isinstance(body.get("metadata"), dict):
        raise bad_request("the body is not an object with metadata")
    kind, version = body.get("kind", resource.kind), body.get("apiVersion", resource.api_version)
    if (kind, version) != (resource.kind, resource.api_version):
        raise bad_request(
            f"{kind} in version {version} is not what this path serves: {resource.kind} in version "
            f"{resource.api_version}"
        )
    metadata = dict(body["metadata"])
    if resource.namespaced:
        if metadata.get("namespace", namespace) != namespace:
            raise bad_request(
                f"the namespace of the object ({metadata['namespace']}) does not match the namespace on the request "
                f"({namespace})"
            )
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    return {**body, "kind": resource.kind, "apiVersion": resource.api_version, "metadata": metadata}
