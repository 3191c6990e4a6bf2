"""PodGroups of scheduling.k8s.io with a real scheduler process, agents and hollow kubelets, on the in-memory API."""

import tempfile
from collections.abc import Iterator

import pytest

from central.model.json_types import Json
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES, LocalCluster
from protos.names import BLOCK, GPU, RACK
from tests.central.kube.native_objects import DEFINITIONS, definition, groups, podgroup

pytestmark = pytest.mark.slow
PODS = "/api/v1/namespaces/default/pods"
VERSION = "v1alpha2"


@pytest.fixture
def box(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalCluster]:
    nodes = [
        HollowNode(f"n{i}", {RACK: f"r{i}", BLOCK: "b"}, CAPTURES / "dgx-a100-8.json")
        for i in range(2)
    ]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # sockets' paths must be short
    with LocalCluster(nodes) as made:
        made.start_api()
        made.create(DEFINITIONS, definition(VERSION))
        made.start_scheduler()
        made.start_nodes()
        made.wait_for_scheduler()
        made.start_agents()
        yield made


def create_pods(box: LocalCluster, name: str, count: int, **metadata: Json) -> None:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "4"}}}
    group = {"podGroupName": name}
    for rank in range(count):
        meta = {"name": f"{name}-{rank}", **metadata}
        spec = {"schedulerName": "lockstep", "schedulingGroup": group, "containers": [container]}
        box.create(PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})


def condition(box: LocalCluster, name: str) -> tuple[str, str, str]:
    found = box.client.get(f"{groups(VERSION)}/{name}")
    for each in found.get("status", {}).get("conditions", ()):
        if each["type"] == "PodGroupScheduled":
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def test_gangs_of_kubernetes_own_podgroups(box: LocalCluster) -> None:
    constraint = {"topology": [{"key": RACK}]}
    for name, pods in (("train", 2), ("big", 3)):
        box.create(groups(VERSION), podgroup(name, pods, schedulingConstraints=constraint))
        create_pods(box, name, pods)
    box.wait("the gang", lambda: condition(box, "train")[:2] == ("True", "Scheduled"))
    nodes = {box.client.get(f"{PODS}/train-{rank}")["spec"]["nodeName"] for rank in range(2)}
    assert len(nodes) == 1

    box.wait("the reason", lambda: condition(box, "big")[:2] == ("False", "Unschedulable"))
    box.wait("the agents' GPUs", lambda: "fits 2 of 3" in condition(box, "big")[2])
    explained = box.explain("podgroup/big")
    assert explained is not None
    assert explained.reason == condition(box, "big")[2]

    annotations = {"scheduling.k8s.io/group-name": "volcano"}
    create_pods(box, "two", 1, annotations=annotations)
    box.wait("the refusal", lambda: "a pod belongs to one gang" in pod_reason(box, "two-0"))


def pod_reason(box: LocalCluster, name: str) -> str:
    conditions = box.client.get(f"{PODS}/{name}").get("status", {}).get("conditions", ())
    return next((c["message"] for c in conditions if c["type"] == "PodScheduled"), "")
