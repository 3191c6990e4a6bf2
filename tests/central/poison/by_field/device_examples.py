"""Devices, and claims of them, rich and valid. See examples.py."""

from collections.abc import Callable

from central.model.json_types import Json
from tests.central.poison.generator import WHEN, meta

Example = Callable[[], Json]
TERMS = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [{"key": "k", "operator": "In", "values": ["a"]}],
            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n0"]}],
        }
    ]
}
CHOSEN = [{"cel": {"expression": "true"}}]


def _device() -> Json:
    return {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "h100"},
            "x.example/index": {"int": 0},
            "ecc": {"bool": False},
            "version": {"version": "1.0.0"},
            "roots": {"strings": ["pci0", "pci1"]},
        },
        "capacity": {"memory": {"value": "80Gi"}},
        "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
    }


def device_slice(**spec: object) -> Json:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    fields = {"driver": "d.example", "pool": pool, "devices": [_device()], **spec}
    return {"metadata": meta("", name="s"), "spec": fields}


def _slice_of_node() -> Json:
    return device_slice(nodeName="n0")


def _slice_of_some_nodes() -> Json:
    return device_slice(nodeSelector=TERMS)


def _slice_of_all_nodes() -> Json:
    raw = device_slice(perDeviceNodeSelection=True)
    own = {**_device(), "name": "a", "nodeName": "n0"}
    some = {**_device(), "name": "b", "nodeSelector": TERMS}
    every = {**_device(), "name": "c", "allNodes": True}
    raw["spec"]["devices"] = [own, some, every]
    return raw


def _unsupported_devices() -> Json:
    counters = {"memory": {"value": "80Gi"}}
    raw = device_slice(allNodes=True, sharedCounters=[{"name": "c", "counters": counters}])
    fields: Json = {
        "consumesCounters": [
            {"counterSet": "c", "counters": counters, "compatibilityGroups": ["g"]}
        ],
        "nodeAllocatableResources": {"cpu": {}},
    }
    raw["spec"]["devices"] = [
        {**_device(), "name": key.lower(), key: fields[key]} for key in fields
    ]
    return raw


def _slice_of_shared_devices() -> Json:
    span = {"min": "1Gi", "max": "80Gi", "step": "1Gi"}
    policy = {"default": "1Gi", "validRange": span, "validValues": ["1Gi", "2Gi"]}
    raw = device_slice(nodeName="n0")
    raw["spec"]["devices"][0] |= {
        "allowMultipleAllocations": True,
        "bindsToNode": True,
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
        "capacity": {"memory": {"value": "80Gi", "requestPolicy": policy}},
    }
    return raw


def _exactly() -> Json:
    return {
        "deviceClassName": "d",
        "capacity": {"requests": {"memory": "80Gi"}},
        "allocationMode": "ExactCount",
        "count": 2,
        "selectors": CHOSEN,
        "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoExecute"}],
    }


def device_claim() -> Json:
    constraints = [
        {"requests": ["a"], "matchAttribute": "d.example/root"},
        {"distinctAttribute": "d.example/rail"},
    ]
    some = {"name": "b", "firstAvailable": [{"name": "x", **_exactly()}]}
    requests = [{"name": "a", "exactly": _exactly()}, some]
    return {
        "metadata": meta(),
        "spec": {"devices": {"requests": requests, "constraints": constraints}},
        "status": {},
    }


def _unsupported_claim() -> Json:
    raw = device_claim()
    unused: Json = {"adminAccess": False, "capacity": {}, "derivedAttributes": []}
    one, other = raw["spec"]["devices"]["requests"]
    one["exactly"] |= unused
    other["firstAvailable"][0] |= unused
    return raw


def _allocated_claim() -> Json:
    raw = device_claim()
    raw["metadata"] |= {
        "deletionTimestamp": WHEN,
        "ownerReferences": [{"kind": "Pod", "controller": True, "uid": "u-p"}],
    }
    given = {"request": "a", "driver": "d.example", "pool": "p", "device": "gpu-0"}
    share = {
        "device": "y",
        "shareID": "1",
        "consumedCapacity": {"memory": "1Gi"},
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
    }
    told = {"type": "broken", "status": "True", "reason": "Cable", "message": "none"}
    raw["status"] = {
        "allocation": {
            "devices": {
                "results": [
                    given,
                    {**given, "device": "x", "adminAccess": True},
                    {**given, **share},
                ]
            },
            "nodeSelector": TERMS,
        },
        "devices": [
            {**given, "device": "y", "shareID": "1", "conditions": [told]},
            {**given, "device": "y", "shareID": "1", "conditions": [{**told, "message": ""}]},
        ],
        "reservedFor": [{"apiGroup": "", "resource": "pods", "name": "p", "uid": "u-p"}],
    }
    return raw


def _taint_rule() -> Json:
    chosen = {"driver": "d.example", "pool": "p", "device": "gpu-0"}
    taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
    return {"metadata": meta("", name="r"), "spec": {"deviceSelector": chosen, "taint": taint}}


def _device_class() -> Json:
    spec = {"extendedResourceName": "example.com/d", "selectors": CHOSEN}
    return {"metadata": meta("", name="d"), "spec": spec}


EXAMPLES: dict[str, tuple[Example, ...]] = {
    "deviceclasses.resource.k8s.io": (_device_class,),
    "resourceslices.resource.k8s.io": (
        _slice_of_node,
        _slice_of_some_nodes,
        _slice_of_all_nodes,
        _slice_of_shared_devices,
        _unsupported_devices,
    ),
    "devicetaintrules.resource.k8s.io": (_taint_rule,),
    "resourceclaims.resource.k8s.io": (device_claim, _unsupported_claim, _allocated_claim),
}
