"""Claims, volumes, storage classes and CSI objects, field by field."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from central.kube.decode import storage_decoder
from central.kube.decode.fields import DECODE_ERRORS, FieldError
from central.model.json_types import Json
from central.model.pod_rules import Expression, Requirement
from central.model.volumes import (
    AttachLimits,
    CapacitySeen,
    ClaimSeen,
    DriverSeen,
    StorageClassSeen,
    VolumeSeen,
)

GIB = 2**30
CLAIM: Json = {
    "metadata": {
        "namespace": "ns",
        "name": "data",
        "uid": "u1",
        "annotations": {
            "pv.kubernetes.io/bind-completed": "yes",
            "volume.kubernetes.io/selected-node": "n1",
        },
    },
    "spec": {
        "volumeName": "pv1",
        "storageClassName": "fast",
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "resources": {"requests": {"storage": "3Gi"}},
        "volumeMode": "Block",
        "selector": {
            "matchLabels": {"row": "7"},
            "matchExpressions": [{"key": "disk", "operator": "In", "values": ["a", "b"]}],
        },
    },
    "status": {"phase": "Bound"},
}
READ_CLAIM = ClaimSeen(
    "ns",
    "data",
    "pv1",
    bound=True,
    storage_class="fast",
    selected_node="n1",
    size=3 * GIB,
    uid="u1",
    modes=("ReadOnlyMany", "ReadWriteOnce"),
    block=True,
    selector=(Expression("row", "In", ("7",)), Expression("disk", "In", ("a", "b"))),
)


def changed(raw: Json, path: str, value: Any) -> Json:
    """A copy with another value; None: without the field. path: a/b/c."""
    made = copy.deepcopy(raw)
    *folders, name = path.split("/")
    part = made
    for each in folders:
        part = part.setdefault(each, {})
    if value is None:
        part.pop(name, None)
    else:
        part[name] = value
    return made


def test_a_claim() -> None:
    assert storage_decoder.decode_claim(CLAIM) == READ_CLAIM
    bare = {"metadata": {"namespace": "ns", "name": "data"}}
    assert storage_decoder.decode_claim(bare) == ClaimSeen("ns", "data")
    nulls = {**bare, "spec": None, "status": None}
    assert storage_decoder.decode_claim(nulls) == ClaimSeen("ns", "data")


@pytest.mark.parametrize(
    ("path", "value", "field", "read"),
    [
        ("metadata/annotations", {}, "bound", False),
        ("spec/volumeName", None, "bound", False),
        ("spec/volumeName", None, "volume", ""),
        ("status/phase", "Lost", "lost", True),
        ("metadata/deletionTimestamp", "2026-01-01T00:00:00Z", "deleting", True),
        ("spec/storageClassName", None, "storage_class", ""),
        ("spec/accessModes", ["ReadWriteOncePod"], "one_pod", True),
        ("spec/accessModes", ["ReadWriteOncePod"], "modes", ("ReadWriteOncePod",)),
        ("spec/volumeMode", "Filesystem", "block", False),
        ("spec/volumeMode", None, "block", False),
        ("spec/resources", {}, "size", 0),
        ("spec/resources", {"requests": {"storage": 0}}, "size", 0),
        ("spec/selector", None, "selector", ()),
    ],
)
def test_each_field_of_a_claim(path: str, value: object, field: str, read: object) -> None:
    found = storage_decoder.decode_claim(changed(CLAIM, path, value))
    assert getattr(found, field) == read


def test_the_old_annotation_of_the_class_takes_precedence() -> None:
    raw = changed(CLAIM, "metadata/annotations", {storage_decoder.OLD_CLASS: "slow"})
    assert storage_decoder.decode_claim(raw).storage_class == "slow"


VOLUME: Json = {
    "metadata": {"name": "pv1", "labels": {"row": "7", "a": "b"}},
    "spec": {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce", "ReadOnlyMany"],
        "storageClassName": "fast",
        "volumeMode": "Block",
        "csi": {"driver": "csi.example.com"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "host", "operator": "In", "values": ["n1"]}]}
                ]
            }
        },
        "claimRef": {"namespace": "ns", "name": "data", "uid": "u1"},
    },
    "status": {"phase": "Bound"},
}
PLACE = ((Requirement("host", "In", ("n1",)),),)


def test_a_volume() -> None:
    assert storage_decoder.decode_volume(VOLUME) == VolumeSeen(
        "pv1",
        (PLACE,),
        "csi.example.com",
        storage_class="fast",
        size=5 * GIB,
        modes=("ReadOnlyMany", "ReadWriteOnce"),
        block=True,
        labels=(("a", "b"), ("row", "7")),
        phase="Bound",
        claim=("ns", "data"),
        claim_uid="u1",
    )
    assert storage_decoder.decode_volume({"metadata": {"name": "pv1"}}) == VolumeSeen("pv1")


@pytest.mark.parametrize(
    ("path", "value", "field", "read"),
    [
        ("spec/nodeAffinity", None, "places", ()),
        ("spec/nodeAffinity", {}, "places", ()),
        ("spec/csi", None, "driver", ""),
        ("spec/volumeMode", "Filesystem", "block", False),
        ("spec/capacity", None, "size", 0),
        ("spec/claimRef", None, "claim", None),
        ("spec/claimRef", None, "claim_uid", ""),
        ("spec/claimRef", {"namespace": "ns", "name": "data"}, "claim_uid", ""),
        ("status", None, "phase", ""),
        ("metadata/deletionTimestamp", "2026-01-01T00:00:00Z", "deleting", True),
        ("metadata/annotations", {storage_decoder.OLD_CLASS: "slow"}, "storage_class", "slow"),
    ],
)
def test_each_field_of_a_volume(path: str, value: object, field: str, read: object) -> None:
    found = storage_decoder.decode_volume(changed(VOLUME, path, value))
    assert getattr(found, field) == read


def test_a_terms_list_without_terms_is_no_place_at_all() -> None:
    raw = changed(VOLUME, "spec/nodeAffinity", {"required": {"nodeSelectorTerms": []}})
    assert storage_decoder.decode_volume(raw).places == ((),)  # no node


@pytest.mark.parametrize("prefix", ["topology.kubernetes.io", "failure-domain.beta.kubernetes.io"])
@pytest.mark.parametrize("kind", ["zone", "region"])
def test_the_zone_of_a_volume(prefix: str, kind: str) -> None:
    """As kube-scheduler has it: several with __, and nodes without zones can use every volume."""
    key = f"{prefix}/{kind}"
    raw = changed(VOLUME, "metadata/labels", {key: "a__b"})
    affinity, zones = storage_decoder.decode_volume(raw).places
    assert affinity == PLACE
    inside, outside = zones
    assert inside == (Requirement(key, "In", ("a", "b")),)
    assert {each.key for each in outside} == {
        f"{one}/{other}"
        for one in ("topology.kubernetes.io", "failure-domain.beta.kubernetes.io")
        for other in ("zone", "region")
    }
    assert {(each.operator, each.values) for each in outside} == {("DoesNotExist", ())}


def test_a_storage_class() -> None:
    raw: Json = {"metadata": {"name": "fast"}, "provisioner": "csi.example.com"}
    assert storage_decoder.decode_storage_class(raw) == StorageClassSeen("fast", "csi.example.com")
    assert not storage_decoder.decode_storage_class({**raw, "volumeBindingMode": "Immediate"}).waits
    late = {
        **raw,
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowedTopologies": [
            {
                "matchLabelExpressions": [
                    {"key": "zone", "values": ["a", "b"]},
                    {"key": "rack", "values": ["r1"]},
                ]
            },
            {"matchLabelExpressions": [{"key": "zone", "values": ["c"]}]},
        ],
    }
    assert storage_decoder.decode_storage_class(late) == StorageClassSeen(
        "fast",
        "csi.example.com",
        True,
        (
            (Requirement("zone", "In", ("a", "b")), Requirement("rack", "In", ("r1",))),
            (Requirement("zone", "In", ("c",)),),
        ),
    )


def test_the_capacity_of_a_class() -> None:
    raw: Json = {
        "metadata": {"namespace": "kube-system", "name": "c1"},
        "storageClassName": "fast",
        "capacity": "7Gi",
        "nodeTopology": {
            "matchLabels": {"zone": "a", "rack": "r1"},
            "matchExpressions": [{"key": "host", "operator": "NotIn", "values": ["n1"]}],
        },
    }
    place = (
        Requirement("rack", "In", ("r1",)),
        Requirement("zone", "In", ("a",)),
        Requirement("host", "NotIn", ("n1",)),
    )
    expected = CapacitySeen("kube-system", "c1", "fast", (place,), 7 * GIB)
    assert storage_decoder.decode_capacity(raw) == expected
    both = storage_decoder.decode_capacity({**raw, "maximumVolumeSize": "2Gi"})
    assert both.most == 2 * GIB
    everywhere = storage_decoder.decode_capacity({**raw, "nodeTopology": {}})
    assert everywhere.places == ((),)
    nowhere = storage_decoder.decode_capacity({**raw, "nodeTopology": None, "capacity": None})
    assert (nowhere.places, nowhere.most) == ((), 0)


@pytest.mark.parametrize(
    ("spec", "tracked"),
    [
        ({"storageCapacity": True}, True),
        ({"storageCapacity": False}, False),
        ({}, False),
        (None, False),
    ],
)
def test_whether_a_driver_reports_its_capacity(spec: Json | None, tracked: bool) -> None:
    found = storage_decoder.decode_csi_driver({"metadata": {"name": "d"}, "spec": spec})
    assert found == DriverSeen("d", tracked)


def test_how_many_volumes_a_node_attaches() -> None:
    drivers = [
        {"name": "z", "allocatable": {"count": 3}},
        {"name": "a", "allocatable": {"count": 0}},
        {"name": "unlimited", "allocatable": {}},
        {"name": "silent"},
    ]
    raw = {"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}
    assert storage_decoder.decode_csi_node(raw) == AttachLimits("n1", (("a", 0), ("z", 3)))
    assert storage_decoder.decode_csi_node({"metadata": {"name": "n1"}}) == AttachLimits("n1", ())


def test_the_claims_of_a_pod() -> None:
    spec: Json = {
        "volumes": [
            {"name": "v", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "tmp", "emptyDir": {}},
            {
                "name": "own",
                "ephemeral": {
                    "volumeClaimTemplate": {"spec": {"resources": {"requests": {"storage": "1Gi"}}}}
                },
            },
        ]
    }
    assert storage_decoder.claim_names("p", spec) == ("data", "p-own")
    raw = {"metadata": {"namespace": "ns", "name": "p", "uid": "u"}, "spec": spec}
    assert storage_decoder.ephemeral_claims(raw) == (
        ClaimSeen("ns", "p-own", size=GIB, uid="u-p-own"),
    )
    assert storage_decoder.ephemeral_claims({**raw, "spec": {}}) == ()


def test_a_volume_name_that_cannot_be_printed_is_refused() -> None:
    """A reason names the claim that is made of it."""
    spec = {"volumes": [{"name": "a\nERROR all is lost", "ephemeral": {"volumeClaimTemplate": {}}}]}
    with pytest.raises(FieldError, match="name"):
        storage_decoder.claim_names("p", spec)


@pytest.mark.parametrize(
    ("read", "raw", "path", "value", "field"),
    [
        (storage_decoder.decode_claim, CLAIM, "spec/volumeName", "x" * 254, "volumeName"),
        (storage_decoder.decode_claim, CLAIM, "spec/volumeName", 7, "volumeName"),
        (storage_decoder.decode_claim, CLAIM, "spec/accessModes", ["m"] * 65, "spec.accessModes"),
        (storage_decoder.decode_claim, CLAIM, "metadata/name", "x" * 254, "metadata.name"),
        (storage_decoder.decode_volume, VOLUME, "spec/csi/driver", "x" * 254, "driver"),
        (storage_decoder.decode_volume, VOLUME, "metadata/labels", {"a": 7}, "metadata.labels.a"),
        (storage_decoder.decode_volume, VOLUME, "spec/storageClassName", "x" * 254, "storageClass"),
    ],
)
def test_what_exceeds_its_bound_names_the_field(
    read: Callable[[Json], object], raw: Json, path: str, value: object, field: str
) -> None:
    with pytest.raises(FieldError, match=f"^{field}"):
        read(changed(raw, path, value))


@pytest.mark.parametrize("size", ["much", "-1Gi", [], {}, True])
def test_a_size_that_is_none_is_an_error(size: object) -> None:
    raw = changed(CLAIM, "spec/resources", {"requests": {"storage": size}})
    with pytest.raises(DECODE_ERRORS):
        storage_decoder.decode_claim(raw)
