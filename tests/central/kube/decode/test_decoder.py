"""Nodes, and objects of unexpected shape."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from central.kube.decode.fields import MalformedObject
from central.model.facts import NodeSeen, Taint
from central.model.json_types import Json
from protos import names
from tests.central.kube.raw_objects import gang, pod, reader


@pytest.mark.parametrize("raw", [{}, {"metadata": {}}, {"metadata": None}, {"metadata": 7}])
def test_objects_without_a_name_are_malformed(raw: Json) -> None:
    read = reader()
    for convert in (read.pod, read.node, read.gang):
        with pytest.raises(MalformedObject):
            convert(raw)


def test_a_node() -> None:
    seen = reader().node(
        {
            "metadata": {"name": "n1", "labels": {names.RACK: "r1"}},
            "spec": {"unschedulable": True, "taints": [{"key": "gpu", "effect": "NoSchedule"}]},
            "status": {
                "allocatable": {"cpu": "63500m", "memory": "512Gi", names.GPU: "8", "pods": "110"},
                "conditions": [
                    {"type": "MemoryPressure", "status": "False"},
                    {"type": "Ready", "status": "True"},
                ],
            },
        }
    )
    assert seen.allocatable == {"cpu": 63500, "memory": 512 * 2**30, names.GPU: 8, "pods": 110}
    assert (seen.ready, seen.unschedulable) == (True, True)
    assert seen.taints == (Taint("gpu", "", "NoSchedule"),)
    assert not reader().node({"metadata": {"name": "n2"}}).ready


def test_features_that_a_kubelet_declares_and_a_pod_needs() -> None:
    """Of those that the kubelet of Kubernetes 1.37 declares, three concern scheduling."""
    declared = ["RestartAllContainersOnContainerExits", "ExtendWebSocketsToKubelet"]
    modern = {"metadata": {"name": "n"}, "status": {"declaredFeatures": declared}}
    assert reader().node(modern).features == ("RestartAllContainersOnContainerExits",)
    both = reader().pod(pod(hostUsers=False, hostNetwork=True))
    assert both.spec.features == ("UserNamespacesHostNetworkSupport",)
    assert reader().pod(pod(hostNetwork=True)).spec.features == ()
    other = pod(hostUsers=False, hostNetwork=True, schedulerName="default-scheduler")
    assert reader().pod(other).spec.features == ()


def test_topology_annotations_may_be_combined() -> None:
    wishes = {names.TOPOLOGY_REQUIRED: names.RACK, names.TOPOLOGY_PREFERRED: "island"}
    seen = reader().gang(gang({"minMember": 2}, wishes))
    assert (seen.topology_required, seen.topology_preferred) == (names.RACK, "island")
    alone = reader().pod(pod(metadata={"annotations": wishes}))
    assert (alone.topology_required, alone.topology_preferred) == (names.RACK, "island")
    unknown = {names.TOPOLOGY_REQUIRED: "rack"}
    assert (
        reader()
        .gang(gang({}, unknown))
        .error.startswith('annotation lockstep.dev/topology-required: "rack" is not one of')
    )
    assert (
        "topology-required" in reader().pod(pod(metadata={"annotations": unknown})).spec.unsupported
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "1", "Always"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "name",
                    "resources",
                    "requests",
                    "limits",
                    "cpu",
                    "metadata",
                    "spec",
                    "key",
                    "operator",
                    "values",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


FIELDS = [
    [
        "containers",
        "initContainers",
        "nodeSelector",
        "affinity",
        "tolerations",
        "overhead",
        "schedulingGates",
    ],
    ["networkTopology", "minMember", "queue", "taints"],
]


@given(
    st.dictionaries(st.sampled_from(FIELDS[0] + FIELDS[1]), JSON, max_size=4),
    st.dictionaries(st.sampled_from(["labels", "annotations", "creationTimestamp"]), JSON),
)
def test_unexpected_shapes_raise_only_malformed_object(spec: Json, meta: Json) -> None:
    raw: Json = {"metadata": {"name": "p", "namespace": "n", "uid": "u", **meta}}
    raw["spec"] = {"schedulerName": "lockstep", **spec}
    raw["status"] = spec
    raw = json.loads(json.dumps(raw))
    read = reader()
    for convert in (read.pod, read.node, read.gang):
        with contextlib.suppress(MalformedObject):
            seen = convert(raw)
            assert isinstance(seen, NodeSeen) or hash(seen)
