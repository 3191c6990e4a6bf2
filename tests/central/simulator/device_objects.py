"""Manifests of devices and of what claims them."""

from typing import Any

Json = dict[str, Any]
DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"


def device_class(name: str = DRIVER, **spec: Any) -> Json:
    chosen = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return {
        "apiVersion": API,
        "kind": "DeviceClass",
        "metadata": {"name": name},
        "spec": {"selectors": chosen, **spec},
    }


def devices(node: str, count: int, **attributes: Any) -> Json:
    """A ResourceSlice of the node. attributes: of all of the devices; a list has one for each."""

    def one(index: int) -> Json:
        values = {k: v[index] if isinstance(v, list) else v for k, v in attributes.items()}
        kinds = {str: "string", int: "int", bool: "bool"}
        return {
            "name": f"gpu-{index}",
            "attributes": {key: {kinds[type(value)]: value} for key, value in values.items()},
            "capacity": {"memory": {"value": "80Gi"}},
        }

    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec: Json = {"driver": DRIVER, "nodeName": node, "pool": pool}
    spec["devices"] = [one(index) for index in range(count)]
    return {
        "apiVersion": API,
        "kind": "ResourceSlice",
        "metadata": {"name": f"{node}-{DRIVER}"},
        "spec": spec,
    }


def asks(count: int = 1, *selectors: str, **exactly: Any) -> Json:
    """The spec of a claim with one request."""
    chosen = [{"cel": {"expression": each}} for each in selectors]
    found = {"deviceClassName": DRIVER, "count": count, "selectors": chosen, **exactly}
    return {"devices": {"requests": [{"name": "gpu", "exactly": found}]}}


def template(name: str, spec: Json) -> Json:
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": spec},
    }


def resource_claim(name: str, spec: Json, **status: Any) -> Json:
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name},
        "spec": spec,
        "status": status,
    }


def claiming(pod: Json, *templates: str, claims: tuple[str, ...] = ()) -> Json:
    """The pod with claims from these templates, and with these claims."""
    entries = [{"name": each, "resourceClaimTemplateName": each} for each in templates]
    entries += [{"name": each, "resourceClaimName": each} for each in claims]
    pod["spec"]["resourceClaims"] = entries
    return pod
