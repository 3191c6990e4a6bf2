"""Kubernetes' own controllers on a real API server create and delete the pods of objects that the scheduler sizes."""

from typing import Any

import orjson
import pytest

from central.model.json_types import Json
from protos.names import GANG_MIN
from tests.central.controllers.test_elastic_objects import indexed, sized
from tests.e2e.controllers.stage import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.controllers, pytest.mark.timeout(900)]
PATHS = {"Deployment": "apps/v1", "StatefulSet": "apps/v1", "Job": "batch/v1"}
PLURALS = {kind: f"{kind.lower()}s" for kind in PATHS}


def path(kind: str, name: str, namespace: str) -> str:
    return f"/apis/{PATHS[kind]}/namespaces/{namespace}/{PLURALS[kind]}/{name}"


def with_gpus(raw: Json, gpus: int = 1) -> Json:
    [container] = raw["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
    container["image"] = "registry.example/work"
    return raw


def create(stage: Stage, raw: Json, namespace: str) -> None:
    raw["metadata"]["namespace"] = namespace
    stage.apply_text(orjson.dumps(raw).decode())


def bound(stage: Stage, app: str, namespace: str) -> list[Any]:
    found = stage.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return [
        pod
        for pod in found
        if pod["metadata"]["labels"].get("app") == app
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def events(stage: Stage, name: str, namespace: str) -> dict[str, str]:
    found = stage.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    return {
        each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == name
    }


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "IndexedJob"])
def test_it_grows_gives_way_and_grows_again(sizing: Stage, kind: str) -> None:
    stage, namespace = sizing, f"of-{kind.lower()}"
    stage.kubectl("create", "namespace", namespace)
    made = indexed("e", 2, 16, 2) if kind == "IndexedJob" else sized(kind, "e", 2, 16, 2)
    place = path(kind.removeprefix("Indexed"), "e", namespace)
    create(stage, with_gpus(made), namespace)
    stage.wait("all GPUs to be used", lambda: len(bound(stage, "e", namespace)) == 16)

    # Of a Job that is not Indexed nobody knows who leaves among pods of the same second, so no node is asked for.
    pods = 8 if kind == "Job" else 1
    needs = with_gpus(sized("Deployment", "r", pods, pods, pods), gpus=8 // pods)
    needs["metadata"]["annotations"] = {GANG_MIN: str(pods)} if pods > 1 else {}
    create(stage, needs, namespace)
    stage.wait("eight GPUs for others", lambda: len(bound(stage, "r", namespace)) == pods)
    left = bound(stage, "e", namespace)
    assert 2 <= len(left) <= 8
    if kind == "Deployment":  # its pods are chosen
        assert len(left) == 8
        assert len({pod["spec"]["nodeName"] for pod in left}) == 1
    if kind in ("StatefulSet", "IndexedJob"):
        numbers = sorted(int(pod["metadata"]["name"].split("-")[1]) for pod in left)
        assert numbers == list(range(len(left)))
    whose = "deployment/r" if kind == "Job" else "r-"
    assert f"{len(left)} of 2 to 16: room for {whose}" in events(stage, "e", namespace)["Shrank"]
    assert not stage.get(place).get("status", {}).get("failed")

    stage.kubectl("-n", namespace, "delete", "deployment", "r")
    stage.wait("it to grow again", lambda: len(bound(stage, "e", namespace)) == 16)
    managers = stage.get(place)["metadata"]["managedFields"]
    assert any(each["manager"] == "lockstep-elastic" for each in managers)
    stage.kubectl("delete", "namespace", namespace)


def test_a_horizontalpodautoscaler_is_left_in_charge(sizing: Stage) -> None:
    stage, namespace = sizing, "scaled"
    stage.kubectl("create", "namespace", namespace)
    create(stage, with_gpus(sized("Deployment", "e", 2, 4, 4)), namespace)
    stage.wait("its pods", lambda: len(bound(stage, "e", namespace)) == 4)
    place = path("Deployment", "e", namespace)
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "e", "namespace": namespace},
        "spec": {"replicas": 7},
    }
    target = f"{place}/scale?fieldManager=kube-controller-manager"
    reply = stage.client.request("PUT", target, orjson.dumps(scale))
    assert reply.ok, reply.error()
    stage.wait("the Event", lambda: "SizeRefused" in events(stage, "e", namespace))
    assert (
        "a HorizontalPodAutoscaler writes spec.replicas"
        in (events(stage, "e", namespace)["SizeRefused"])
    )
    assert stage.get(place)["spec"]["replicas"] == 7
    stage.kubectl("delete", "namespace", namespace)
