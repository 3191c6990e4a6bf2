"""PodGroups of scheduling.k8s.io, and objects of controllers, with a real scheduler process, agents and hollow
kubelets, on the in-memory API."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from central.model.json_types import Json
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from protos.names import BLOCK, GPU, RACK
from tests.central.custom_resources import DEFINITIONS, definition
from tests.central.kube import controller_fixtures as made
from tests.central.kube.native_objects import groups, podgroup, podgroup_definition
from tests.fakes.faulty_cluster import FaultyCluster

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/default/pods"
VERSION = "v1alpha2"


@contextmanager
def bare() -> Iterator[FaultyCluster]:
    """The API alone, without CRDs of other projects."""
    nodes = [
        HollowNode(f"n{i}", {RACK: f"r{i}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for i in range(2)
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
        with FaultyCluster(nodes) as local:
            local.start_api()
            yield local


@pytest.fixture(scope="module")
def box() -> Iterator[FaultyCluster]:
    with bare() as local:
        local.create(DEFINITIONS, podgroup_definition(VERSION))
        local.create(DEFINITIONS, definition("ray.io", "v1", "RayCluster", status={}))
        start(local)
        yield local


def start(local: FaultyCluster) -> None:
    local.start_scheduler()
    local.start_nodes()
    local.wait_for_scheduler()
    local.start_agents()


def create_pods(box: FaultyCluster, name: str, count: int, **metadata: Json) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "4"}}}
    group = {"podGroupName": name}
    for rank in range(count):
        meta = {"name": f"{name}-{rank}", **metadata}
        spec = {"schedulerName": "lockstep", "schedulingGroup": group, "containers": [container]}
        box.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def condition(box: FaultyCluster, name: str) -> tuple[str, str, str]:
    found = box.client.get(f"{groups(VERSION)}/{name}")
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == "PodGroupScheduled":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def test_gangs_of_kubernetes_own_podgroups(box: FaultyCluster) -> None:
    constraint = {"topology": [{"key": RACK}]}
    for name, pods in (("train", 2), ("big", 3)):
        box.create(groups(VERSION), podgroup(name, pods, schedulingConstraints=constraint))
        create_pods(box, name, pods)
    box.wait("the gang", lambda: condition(box, "train")[:2] == ("True", "Scheduled"))
    nodes = {box.client.get(f"{PODS}/train-{rank}")["spec"]["nodeName"] for rank in range(2)}
    assert len(nodes) == 1

    box.wait("the reason", lambda: condition(box, "big")[:2] == ("False", "Unschedulable"))
    box.wait("the agents' GPUs", lambda: "fits 2 of 3" in condition(box, "big")[2])

    def says_the_same() -> bool:
        """A status is written a moment later than what `explain` reads."""
        explained = box.explain("podgroup/big")
        return explained is not None and explained.reason == condition(box, "big")[2]

    box.wait("one reason", says_the_same)

    annotations = {"scheduling.k8s.io/group-name": "volcano"}
    create_pods(box, "two", 1, annotations=annotations)
    box.wait("the refusal", lambda: "a pod belongs to one gang" in pod_reason(box, "two-0"))


def pod_reason(box: FaultyCluster, name: str) -> str:
    conditions = box.client.get(f"{PODS}/{name}").get("status", {}).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")


def test_a_ray_cluster_starts_with_every_group(box: FaultyCluster) -> None:
    space = f"namespaces/{made.SPACE}"
    box.create("/api/v1/namespaces", {"metadata": {"name": made.SPACE}})
    box.create(f"/apis/ray.io/v1/{space}/rayclusters", made.raycluster())
    *first, gpu = made.ray_pods()
    for raw in first:
        box.create(f"/api/v1/{space}/pods", raw)
    box.wait("the reason", lambda: "task gpu needs 1 more pod" in ray_reason(box))
    box.create(f"/api/v1/{space}/pods", gpu)
    box.wait("the start", lambda: "10 of 10 pods placed" in ray_reason(box))
    box.wait("the bindings", lambda: all(raw["spec"].get("nodeName") for raw in pods(box)))
    assert len(pods(box)) == 10
    assert not box.client.get(f"/apis/ray.io/v1/{space}/rayclusters/tune").get("status")


def pods(box: FaultyCluster) -> list[Json]:
    return list(box.client.get(f"/api/v1/namespaces/{made.SPACE}/pods")["items"])


def ray_reason(box: FaultyCluster) -> str:
    found = box.explain("raycluster/tune", made.SPACE)
    return found.reason if found is not None else ""


def test_the_first_cluster_of_a_kind_that_is_new_starts_whole() -> None:
    """Its CRD, the object and most pods come before the scheduler has noticed the kind."""
    with bare() as local:
        start(local)
        local.wait("GPUs of both nodes", lambda: gpus(local) == 16)
        space = f"namespaces/{made.SPACE}"
        local.create("/api/v1/namespaces", {"metadata": {"name": made.SPACE}})
        local.create(DEFINITIONS, definition("ray.io", "v1", "RayCluster", status={}))
        local.create(f"/apis/ray.io/v1/{space}/rayclusters", made.raycluster())
        *first, gpu = made.ray_pods()
        for raw in first:
            local.create(f"/api/v1/{space}/pods", raw)
        local.wait("the reason", lambda: "task gpu needs 1 more pod" in ray_reason(local))
        assert not [raw for raw in pods(local) if raw["spec"].get("nodeName")], "a part has started"
        local.create(f"/api/v1/{space}/pods", gpu)
        local.wait("the start", lambda: "10 of 10 pods placed" in ray_reason(local))


def gpus(box: FaultyCluster) -> int:
    found = box.client.get("/api/v1/nodes")["items"]
    return sum(int(each["status"].get("allocatable", {}).get(GPU, 0)) for each in found)
