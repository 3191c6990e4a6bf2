"""ResourceSlices, ResourceClaims and DeviceTaintRules as facts."""

from copy import deepcopy
from typing import Any

import pytest

from central.kube.decode.api_kinds import kinds
from central.kube.decode.decoder import Decoder
from central.kube.decode.device_claim_decoder import (
    decode_device_claim,
    decode_slice,
    decode_taint_rule,
    pod_device_claims,
    unready,
)
from central.kube.decode.fields import FieldError, MalformedObject
from central.model import limits
from central.model.device_claims import (
    CounterValue,
    Device,
    DeviceAttribute,
    DeviceClaimGone,
    DeviceClaimSeen,
    DeviceClaimSpec,
    DeviceConstraint,
    DeviceId,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    DeviceUse,
    PodDeviceClaim,
    SharedCapacity,
    SliceSeen,
    TaintRuleSeen,
)
from central.model.facts import DeviceClassSeen
from central.model.pod_rules import Requirement

Json = dict[str, Any]
TERM = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
ZONE = ((Requirement("zone", "In", ("z",)),),)
SLICE: Json = {
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d.example",
        "pool": {"name": "p", "generation": 3, "resourceSliceCount": 2},
        "nodeName": "n",
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "model": {"string": "h100"},
                    "other.example/index": {"int": 0},
                    "ecc": {"bool": False},
                    "version": {"version": "1.0.0"},
                },
                "capacity": {"memory": {"value": "80Gi"}},
                "taints": [{"key": "k", "value": "v", "effect": "NoExecute"}],
            }
        ],
    },
}
CLAIM: Json = {
    "metadata": {
        "namespace": "ns",
        "name": "c",
        "uid": "u",
        "ownerReferences": [{"kind": "Pod", "controller": True, "uid": "pod-uid"}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "one",
                    "exactly": {
                        "deviceClassName": "gpus",
                        "count": 2,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "tolerations": [{"key": "k", "operator": "Exists"}],
                    },
                },
                {
                    "name": "two",
                    "firstAvailable": [
                        {"name": "a", "deviceClassName": "gpus", "allocationMode": "All"},
                        {"name": "b", "deviceClassName": "tpus"},
                    ],
                },
            ],
            "constraints": [{"requests": ["one"], "matchAttribute": "d.example/root"}],
        }
    },
}


def changed(raw: Json, path: str, value: object) -> Json:
    copy = deepcopy(raw)
    *above, last = path.split("/")
    part: Any = copy
    for key in above:
        part = part[int(key)] if key.isdigit() else part.setdefault(key, {})
    part[int(last) if last.isdigit() else last] = value
    return copy


def test_a_slice() -> None:
    attributes = (
        DeviceAttribute("d.example/ecc", "bool", False),
        DeviceAttribute("d.example/model", "string", "h100"),
        DeviceAttribute("other.example/index", "int", 0),
        DeviceAttribute("d.example/version", "version", "1.0.0"),
    )
    taint = DeviceTaint("k", "v", "NoExecute")
    device = Device("gpu-0", attributes, (("d.example/memory", "80Gi"),), (taint,))
    assert decode_slice(SLICE) == SliceSeen("s", "d.example", "p", 3, 2, "n", (device,))


@pytest.mark.parametrize(
    ("fields", "places"),
    [
        ({"allNodes": True}, ()),
        ({"nodeSelector": {"nodeSelectorTerms": [TERM]}}, (ZONE,)),
        ({}, ((),)),
    ],
)
def test_the_nodes_of_a_slice_or_device(fields: Json, places: object) -> None:
    raw = changed(SLICE, "spec/nodeName", None)
    raw["spec"] |= fields
    assert decode_slice(raw).devices[0].places == places
    own = changed(raw, "spec/perDeviceNodeSelection", True)
    own["spec"]["devices"][0]["nodeName"] = "m"
    only = (((Requirement("metadata.name", "In", ("m",), field=True),),),)
    assert decode_slice(own).devices[0].places == only


def test_a_device_with_an_unsupported_field_says_so() -> None:
    found = decode_slice(changed(SLICE, "spec/devices/0/nodeAllocatableResources", [1]))
    assert found.devices[0].unsupported == "spec.devices.nodeAllocatableResources"


def test_a_device_with_conditions() -> None:
    raw = changed(SLICE, "spec/devices/0/bindsToNode", True)
    raw = changed(raw, "spec/devices/0/bindingConditions", ["Attached", "Ready"])
    raw = changed(raw, "spec/devices/0/bindingFailureConditions", ["Broken"])
    (found,) = decode_slice(raw).devices
    assert (found.binds_to_node, found.unsupported) == (True, "")
    assert found.conditions == (("Attached", "Ready"), ("Broken",))


NOT_READY = "device d/p/x is not ready: condition Ready is not True"
FAILED = "device d/p/x failed: condition Broken is True (no cable)"


@pytest.mark.parametrize(
    ("conditions", "share", "expected"),
    [
        ({}, None, (NOT_READY, False)),
        ({"Ready": "Unknown"}, None, (NOT_READY, False)),
        ({"Ready": "True"}, None, ("", False)),
        ({"Ready": "True"}, "1", ("", False)),
        ({"Ready": "True"}, "2", (NOT_READY, False)),
        ({"Ready": "True", "Broken": "True"}, None, (FAILED, True)),
        ({"Broken": "True"}, "1", (FAILED, True)),
        ({"Ready": "True", "Broken": "False"}, None, ("", False)),
    ],
)
def test_what_an_allocated_claim_waits_for(
    conditions: dict[str, str], share: str | None, expected: tuple[str, bool]
) -> None:
    """share: the id in the status of the device"""
    names = {"driver": "d", "pool": "p", "device": "x"}
    result = {**names, "bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    given = {**result, "request": "one", "shareID": "1"}
    told = [
        {"type": key, "status": conditions[key], "reason": "Cable", "message": "no cable"}
        for key in conditions
    ]
    own = {**names, "conditions": told} | ({"shareID": share} if share else {})
    status = {"allocation": {"devices": {"results": [given]}}, "devices": [own]}
    assert unready(status) == expected
    assert decode_device_claim({**CLAIM, "status": status}).unready == bool(expected[0])


def test_devices_share_counters() -> None:
    """A slice has either devices or counters."""
    memory = {"memory": {"value": "40Gi"}, "cores": {"value": "3"}}
    part = [{"counterSet": "gpu-0", "counters": memory}]
    found = decode_slice(changed(SLICE, "spec/devices/0/consumesCounters", part))
    values = (CounterValue("gpu-0", "cores", "3"), CounterValue("gpu-0", "memory", "40Gi"))
    assert (found.devices[0].consumes, found.devices[0].unsupported) == (values, "")
    shared = changed(SLICE, "spec/sharedCounters", [{"name": "gpu-0", "counters": memory}])
    assert decode_slice(shared).counters == values
    alike = [{**part[0], "compatibilityGroups": ["a"]}]
    found = decode_slice(changed(SLICE, "spec/devices/0/consumesCounters", alike))
    assert found.devices[0].unsupported == "spec.devices.consumesCounters.compatibilityGroups"


def test_a_device_that_claims_share() -> None:
    span = {"min": "1Gi", "max": "8Gi", "step": "1Gi"}
    capacity = {
        "memory": {"value": "80Gi", "requestPolicy": {"default": "8Gi", "validRange": span}},
        "x.example/cores": {
            "value": "8",
            "requestPolicy": {"default": "1", "validValues": ["1", "2"]},
        },
        "y": {"value": "3", "requestPolicy": None},
    }
    raw = changed(SLICE, "spec/devices/0/capacity", capacity)
    assert decode_slice(raw).devices[0].shared is None
    raw = changed(raw, "spec/devices/0/allowMultipleAllocations", True)
    (found,) = decode_slice(raw).devices
    assert (found.unsupported, found.shared) == (
        "",
        (
            SharedCapacity("memory", "80Gi", "8Gi", (), "1Gi", "8Gi", "1Gi"),
            SharedCapacity("x.example/cores", "8", "1", ("1", "2")),
            SharedCapacity("y", "3"),
        ),
    )
    part = [{"counterSet": "g", "counters": {"memory": {"value": "1"}}}]
    (found,) = decode_slice(changed(raw, "spec/devices/0/consumesCounters", part)).devices
    assert (found.unsupported, found.consumes) == ("", (CounterValue("g", "memory", "1"),))
    policy = "spec/devices/0/capacity/memory/requestPolicy"
    for path, value, why in (
        ("default", "x", 'requestPolicy.default: "x" is not a quantity'),
        ("validValues", [None], "requestPolicy.validValues: None is not a quantity"),
        ("validRange/step", "-1", 'requestPolicy.validRange.step: "-1" is below zero'),
    ):
        with pytest.raises(FieldError, match=r"spec\.devices\.capacity\.memory") as error:
            decode_slice(changed(raw, f"{policy}/{path}", value))
        assert why in str(error.value)


def test_an_attribute_may_be_a_list() -> None:
    lists = {"m": {"strings": ["a", "b"]}, "n": {"ints": [1]}, "o": {"floats": [1.5]}}
    found = decode_slice(changed(SLICE, "spec/devices/0/attributes", lists))
    assert found.devices[0].attributes == (
        DeviceAttribute("d.example/m", "strings", ("a", "b")),
        DeviceAttribute("d.example/n", "ints", (1,)),
        DeviceAttribute("d.example/o", "floats", ""),
    )


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        ("spec/pool", None, "spec.pool"),
        ("spec/devices", [{}] * 129, "spec.devices: 129 entries; at most 128 are accepted"),
        ("spec/devices/0/attributes/model", {"string": 3}, "model: not the value of an attribute"),
        (
            "spec/devices/0/consumesCounters",
            [{"counterSet": "g", "counters": {"m": {"value": "x"}}}],
            "spec.devices.consumesCounters.counters.m: ",
        ),
        ("spec/sharedCounters", {"name": "g"}, "spec.sharedCounters: {1 fields} is not a list"),
        ("spec/devices/0/attributes/model", {"int": True}, "model: not the value of an attribute"),
        (
            "spec/devices/0/attributes/model",
            {"ints": ["1"]},
            "model: not the value of an attribute",
        ),
        ("spec/devices/0/attributes/model", {"bools": "yes"}, "bools: 'yes' is not a list"),
        (
            "spec/devices/0/attributes/model",
            {"string": "x" * 254},
            "model: not the value of an attribute",
        ),
        ("spec/devices/0/capacity/memory", {"value": "much"}, '"much" is not a quantity'),
        ("spec/nodeName", 3, "nodeName: 3 is not a string"),
        ("metadata/name", "", "metadata.name"),
    ],
)
def test_a_slice_that_cannot_be_read_is_malformed(path: str, value: object, why: str) -> None:
    (kind,) = [each for each in kinds(Decoder((), ())) if each.resource.kind == "ResourceSlice"]
    with pytest.raises(MalformedObject, match="ResourceSlice") as error:
        kind.seen(changed(SLICE, path, value))
    assert why in str(error.value)


def test_a_claim() -> None:
    one = DeviceRequest("one", "gpus", 2, ("true",), (DeviceToleration("k", "Exists", "", ""),))
    two = (DeviceRequest("two/a", "gpus", 0), DeviceRequest("two/b", "tpus", 1))
    same = DeviceConstraint("d.example/root", False, ("one",))
    spec = DeviceClaimSpec(((one,), two), (same,))
    assert decode_device_claim(CLAIM) == DeviceClaimSeen("ns", "c", "u", spec, pod="pod-uid")


def test_a_request_with_admin_access() -> None:
    for value in (True, False):
        found = decode_device_claim(changed(CLAIM, f"{EXACTLY}/adminAccess", value)).spec
        assert [each.admin for request in found.requests for each in request] == [
            value,
            False,
            False,
        ]


def test_the_status_of_a_claim() -> None:
    result = {"request": "one", "driver": "d", "pool": "p", "device": "x"}
    allocation = {
        "devices": {"results": [result, {**result, "device": "y", "adminAccess": True}]},
        "nodeSelector": {"nodeSelectorTerms": [TERM]},
    }
    status = {"allocation": allocation, "reservedFor": [{"resource": "pods", "uid": "a"}]}
    found = decode_device_claim({**CLAIM, "status": status})
    assert found.allocated == tuple(DeviceId("d", "p", each) for each in "xy")
    assert (found.requests, found.admin) == (("one", "one"), (False, True))
    assert (found.places, found.reserved) == ((ZONE,), ("a",))
    assert found.uses == (DeviceUse(DeviceId("d", "p", "x")),), "adminAccess takes no device"


def test_the_shares_that_a_claim_has() -> None:
    result = {"request": "one", "driver": "d", "pool": "p", "device": "x"}
    share = {"shareID": "1", "consumedCapacity": {"memory": "1Gi", "x.example/cores": "2"}}
    results = [result, {**result, **share}, {**result, "shareID": "2"}]
    allocation = {"devices": {"results": results}}
    found = decode_device_claim({**CLAIM, "status": {"allocation": allocation}})
    assert found.allocated == (DeviceId("d", "p", "x"),) * 3
    assert found.requests == ("one",) * 3
    assert found.consumed == (None, (("memory", "1Gi"), ("x.example/cores", "2")), ())


def test_the_capacity_that_a_request_asks_for() -> None:
    asked = {"requests": {"memory": "1Gi", "d.example/cores": 2}}
    found = decode_device_claim(changed(CLAIM, f"{EXACTLY}/capacity", asked))
    assert found.spec.requests[0][0].capacity == (("d.example/cores", "2"), ("memory", "1Gi"))


def test_a_claim_of_a_podgroup() -> None:
    owner = {"kind": "PodGroup", "apiVersion": "scheduling.k8s.io/v1beta1", "name": "g"}
    user = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "u1"}
    made = changed(CLAIM, "metadata/ownerReferences", [{**owner, "uid": "u1", "controller": True}])
    found = decode_device_claim(made)
    assert (found.pod, found.group) == ("", "g")
    found = decode_device_claim({**CLAIM, "status": {"reservedFor": [user]}})
    assert (found.pod, found.group, found.reserved) == ("pod-uid", "g", ("u1",))
    for other in ({"apiVersion": "scheduling.volcano.sh/v1beta1"}, {"controller": False}):
        owners = [{**owner, "uid": "u1", "controller": True, **other}]
        assert not decode_device_claim(changed(CLAIM, "metadata/ownerReferences", owners)).group
    pods = [{"resource": "podgroups", "name": "g", "uid": "u1"}]
    assert not decode_device_claim({**CLAIM, "status": {"reservedFor": pods}}).group


EXACTLY = "spec/devices/requests/0/exactly"


@pytest.mark.parametrize(
    ("path", "value", "why"),
    [
        (
            f"{EXACTLY}/capacity",
            {"requests": {'a"]': "1"}},
            'requests[one].exactly.capacity.requests.a"]: not the name of a capacity',
        ),
        (f"{EXACTLY}/capacity", {"requests": {"a": "x"}}, "exactly.capacity.requests.a: "),
        (f"{EXACTLY}/capacity", {"requests": ["a"]}, "capacity.requests: "),
        (f"{EXACTLY}/derivedAttributes", [1], "exactly.derivedAttributes: not supported"),
        (f"{EXACTLY}/allocationMode", "Some", "exactly.allocationMode: 'Some' is not supported"),
        (f"{EXACTLY}/count", 33, "spec.devices.requests: 34 devices in all, more than 32"),
        (f"{EXACTLY}/count", 2**63, "exactly.count: not a number from 1 to 32"),
        (f"{EXACTLY}/count", 0, "exactly.count: not a number from 1 to 32"),
        (f"{EXACTLY}/selectors", [{"new": 1}], "exactly.selectors: only cel is supported"),
        (
            "spec/devices/requests/0",
            {"name": "one"},
            "requests[one]: needs exactly or firstAvailable",
        ),
        ("spec/devices/constraints", [{"other": 1}], "only matchAttribute and distinctAttribute"),
        ("spec/devices/requests", [{}] * 33, "spec.devices.requests: 33 entries"),
        ("spec/devices", 3, "spec.devices"),
    ],
)
def test_a_claim_that_cannot_be_allocated_says_why(path: str, value: object, why: str) -> None:
    found = decode_device_claim(changed(CLAIM, path, value))
    assert why in found.error
    assert (found.namespace, found.name) == ("ns", "c")


def test_a_taint_rule() -> None:
    spec = {"deviceSelector": {"pool": "p"}, "taint": {"key": "k", "effect": "NoSchedule"}}
    found = decode_taint_rule({"metadata": {"name": "r"}, "spec": spec})
    assert found == TaintRuleSeen("r", DeviceTaint("k", "", "NoSchedule"), "", "p", "")


def test_the_claims_of_a_pod() -> None:
    spec = {
        "resourceClaims": [
            {"name": "a", "resourceClaimName": "mine"},
            {"name": "b", "resourceClaimTemplateName": "t"},
            {"name": "c", "resourceClaimTemplateName": "t"},
            {"name": "d", "resourceClaimTemplateName": "t"},
        ]
    }
    status = {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "made"}, {"name": "d"}]}
    assert pod_device_claims(spec, status) == (
        PodDeviceClaim("a", "mine"),
        PodDeviceClaim("b", "", "t"),
        PodDeviceClaim("c", "made", "t"),
    ), "d needs no claim"
    spec["resourceClaims"] = [{"name": "a"}] * (limits.CLAIMS + 1)
    with pytest.raises(FieldError, match="resourceClaims: 65 entries"):
        pod_device_claims(spec, {})


def test_the_kinds_are_known() -> None:
    named = {each.resource.full_name: each for each in kinds(Decoder((), ()))}
    gone = named["resourceclaims.resource.k8s.io"].gone(CLAIM)
    assert gone == DeviceClaimGone("ns", "c")
    raw = {"metadata": {"name": "d"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}}
    kind = named["deviceclasses.resource.k8s.io"]
    assert kind.seen(raw) == DeviceClassSeen("d", "", ("true",))
    bad = kind.seen({"metadata": {"name": "d"}, "spec": {"selectors": [{"other": 1}]}})
    assert bad == DeviceClassSeen("d", "", (), "spec.selectors: only cel is supported")
    optional = [each.optional and each.dispensable for each in named.values()]
    assert sum(optional) >= 4
