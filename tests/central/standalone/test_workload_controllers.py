"""Kubernetes' own controllers beside the in-memory API, with bare nodes whose pods run and end."""

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from central.kube.transport.http_client import MERGE, Client, connect
from central.standalone.apiserver import StandaloneApi
from central.standalone.run_length import LONGEST_S, UNKNOWN_S, demo_run_s
from central.standalone.workload_controllers import WorkloadControllers
from tests.fakes.hollow_nodes import HollowNodes, bare_node

BATCH, APPS = "/apis/batch/v1/namespaces/default", "/apis/apps/v1/namespaces/default"
PODS = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with StandaloneApi() as api:
        made = connect(str(api.write_kubeconfig(tmp_path / "kubeconfig")))
        with HollowNodes(made, [bare_node("n")], tmp_path, run_s=demo_run_s):
            controllers = WorkloadControllers(made)
            controllers.start()
            yield made
            controllers.stop()
        made.close()


def controller(version: str, kind: str, name: str, sleep: str = "0.2", **spec: Any) -> Json:
    """Its pods run at once: they need no scheduler."""
    never = {"restartPolicy": "Never"} if kind == "Job" else {}
    container = {"name": "main", "image": "x", "command": ["sh", "-c", f"sleep {sleep}"]}
    template = {
        "metadata": {"labels": {"app": name}},
        "spec": {"nodeName": "n", "containers": [container], **never},
    }
    selector = {} if kind == "Job" else {"selector": {"matchLabels": {"app": name}}}
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": name},
        "spec": {"template": template, **selector, **spec},
    }


def post(client: Client, path: str, obj: Json) -> Json:
    reply = client.request("POST", path, json.dumps(obj).encode())
    assert reply.ok, reply.error()
    found: Json = reply.json()
    return found


def names(client: Client, phase: str = "Running") -> list[str]:
    pods = client.get(PODS)["items"]
    return sorted(
        pod["metadata"]["name"]
        for pod in pods
        if pod["status"]["phase"] == phase and "deletionTimestamp" not in pod["metadata"]
    )


def until(holds: Callable[[], Any], seen: Callable[[], Any] = lambda: None) -> None:
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, seen()
        time.sleep(0.02)


def test_a_job_runs_its_pods_and_is_complete(client: Client) -> None:
    post(client, f"{BATCH}/jobs", controller("batch/v1", "Job", "j", parallelism=2, completions=3))

    def conditions() -> Any:
        return client.get(f"{BATCH}/jobs/j").get("status", {}).get("conditions")

    until(conditions, lambda: client.get(PODS))
    status = client.get(f"{BATCH}/jobs/j")["status"]
    assert [each["type"] for each in status["conditions"]] == ["Complete"]
    assert (status["succeeded"], status["active"]) == (3, 0)
    assert names(client, "Succeeded") == ["j-0", "j-1", "j-2"]


def test_a_suspended_job_has_no_pods_until_it_is_resumed(client: Client) -> None:
    job = controller("batch/v1", "Job", "j", "30", parallelism=2, completions=2, suspend=True)
    post(client, f"{BATCH}/jobs", job)
    until(lambda: client.get(f"{BATCH}/jobs/j").get("status"))
    assert client.get(PODS)["items"] == []
    client.request("PATCH", f"{BATCH}/jobs/j", b'{"spec": {"suspend": false}}', MERGE)
    until(lambda: len(names(client)) == 2)
    client.request("PATCH", f"{BATCH}/jobs/j", b'{"spec": {"suspend": true}}', MERGE)
    until(lambda: not client.get(PODS)["items"])


def failed_pods(client: Client, count: int) -> bool:
    return len(names(client, "Failed")) == count


def test_a_job_whose_pods_fail_ends(client: Client) -> None:
    post(client, f"{BATCH}/jobs", controller("batch/v1", "Job", "j", "30", backoffLimit=1))
    failed = {"status": {"phase": "Failed"}}
    for count in (1, 2):
        until(lambda: names(client))
        [name] = names(client)
        client.request("PATCH", f"{PODS}/{name}/status", json.dumps(failed).encode(), MERGE)
        until(partial(failed_pods, client, count))

    def ended() -> list[str]:
        status = client.get(f"{BATCH}/jobs/j").get("status", {})
        return [each["type"] for each in status.get("conditions", ())]

    until(lambda: ended() == ["Failed"], ended)
    assert names(client) == []


def test_a_statefulset_starts_one_by_one_and_keeps_names(client: Client) -> None:
    post(client, f"{APPS}/statefulsets", controller("apps/v1", "StatefulSet", "s", replicas=3))
    until(lambda: names(client) == ["s-0", "s-1", "s-2"])
    client.request("DELETE", f"{PODS}/s-1")
    until(lambda: names(client) == ["s-0", "s-1", "s-2"])
    waits = controller("apps/v1", "StatefulSet", "w", replicas=3)
    del waits["spec"]["template"]["spec"]["nodeName"]  # nobody places its pods
    post(client, f"{APPS}/statefulsets", waits)
    post(client, f"{APPS}/replicasets", {**waits, "kind": "ReplicaSet", "metadata": {"name": "r"}})
    until(lambda: names(client, "Pending") == ["r-0", "r-1", "r-2", "w-0"])


def test_a_deployment_scales_rolls_out_and_is_deleted(client: Client) -> None:
    post(client, f"{APPS}/deployments", controller("apps/v1", "Deployment", "web", replicas=2))
    until(lambda: len(names(client)) == 2)
    before = names(client)
    scale = b'{"spec": {"replicas": 3}}'
    client.request("PATCH", f"{APPS}/deployments/web/scale", scale, MERGE)
    until(lambda: len(names(client)) == 3)
    assert {*before} < {*names(client)}
    template = {"spec": {"template": {"metadata": {"labels": {"app": "web", "v": "2"}}}}}
    client.request("PATCH", f"{APPS}/deployments/web", json.dumps(template).encode(), MERGE)
    until(lambda: len(names(client)) == 3 and not {*before} & {*names(client)})

    def ready() -> bool:
        status = client.get(f"{APPS}/deployments/web")["status"]
        return (status["updatedReplicas"], status["readyReplicas"]) == (3, 3)

    until(ready, lambda: client.get(f"{APPS}/deployments/web"))
    client.request("DELETE", f"{APPS}/deployments/web")
    until(lambda: not client.get(PODS)["items"])
    assert client.get(f"{APPS}/replicasets")["items"] == []


def test_a_malformed_controller_stops_no_other(client: Client) -> None:
    post(client, f"{APPS}/replicasets", controller("apps/v1", "ReplicaSet", "bad", replicas="x"))
    deployment = controller("apps/v1", "Deployment", "worse")
    del deployment["spec"]["template"]
    post(client, f"{APPS}/deployments", deployment)
    post(client, f"{APPS}/replicasets", controller("apps/v1", "ReplicaSet", "good", replicas=1))
    until(lambda: names(client) == ["good-0"])


@pytest.mark.parametrize(
    ("policy", "command", "annotation", "wanted"),
    [
        ("Never", ["sh", "-c", "env; sleep 5"], "", 5.0),
        ("Never", ["sleep", "0.5"], "", 0.5),
        ("OnFailure", ["sleep", "3600"], "", LONGEST_S),
        ("Never", ["sleep", "infinity"], "", LONGEST_S),
        ("Never", ["sh", "-c", "sleep 1; sleep 2"], "", 2.0),
        ("Never", ["python", "train.py"], "", UNKNOWN_S),
        ("Never", ["oversleep", "7"], "", UNKNOWN_S),
        ("Never", ["sleep", "5"], "90s", 90.0),
        ("Always", ["sleep", "5"], "", None),
        ("Always", ["sleep", "5"], "3s", 3.0),
        ("", ["sleep", "5"], "", None),
    ],
)
def test_how_long_a_pod_runs(
    policy: str, command: list[str], annotation: str, wanted: float | None
) -> None:
    spec: Json = {"containers": [{"name": "main", "command": command}]}
    metadata: Json = {"name": "p"}
    if annotation:
        metadata["annotations"] = {"lockstep.dev/runs-for": annotation}
    if policy:
        spec["restartPolicy"] = policy
    assert demo_run_s({"metadata": metadata, "spec": spec}) == wanted
