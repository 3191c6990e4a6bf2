"""Hollow nodes on the standalone API; a trivial binder stands in for the scheduler."""

import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from central.kube.decode import quantities
from central.kube.transport.http_client import Client, connect
from central.standalone.apiserver import StandaloneApi
from central.standalone.hollow_node import HollowNode
from central.standalone.local_cluster import CAPTURES
from tests.fakes.hollow_nodes import HollowNodes, bare_node

PODS = "/api/v1/namespaces/default/pods"
Json = dict[str, Any]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with StandaloneApi() as api:
        client = connect(str(api.write_kubeconfig(tmp_path / "kubeconfig")))
        yield client
        client.close()


@pytest.fixture
def short() -> Iterator[Path]:
    """For sockets, whose paths may not be long."""
    with tempfile.TemporaryDirectory(prefix="ls-", dir="/tmp") as made:
        yield Path(made)


def call(client: Client, method: str, path: str, body: Json | None = None) -> Json:
    reply = client.request(method, path, None if body is None else orjson.dumps(body))
    assert reply.ok, reply.body
    answer: Json = reply.json()
    return answer


def bind(client: Client, name: str, node: str, gpus: int = 0, **annotations: str) -> None:
    resources = {"limits": {"nvidia.com/gpu": gpus}} if gpus else {}
    named = {key.replace("_", "-"): value for key, value in annotations.items()}
    metadata = {"name": name, "annotations": {f"lockstep.dev/{k}": v for k, v in named.items()}}
    containers = [{"name": "main", "image": "x:1", "resources": resources}]
    call(client, "POST", PODS, {"metadata": metadata, "spec": {"containers": containers}})
    target = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    call(client, "POST", f"{PODS}/{name}/binding", target)


def until(what: str, holds: Callable[[], object], patience_s: float = 10.0) -> None:
    deadline = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < deadline, f"never saw {what}"
        time.sleep(0.02)


def phase(client: Client, name: str) -> str:
    return str(call(client, "GET", f"{PODS}/{name}")["status"]["phase"])


def gone(client: Client, name: str) -> bool:
    return client.request("GET", f"{PODS}/{name}").status == 404


def test_bare_nodes_run_their_pods(client: Client, tmp_path: Path) -> None:
    nodes = [bare_node(f"n{at}", {"lockstep.dev/rack": "r"}, gpus=4) for at in range(20)]
    with HollowNodes(client, nodes, tmp_path):
        listed = call(client, "GET", "/api/v1/nodes?labelSelector=lockstep.dev/rack=r")["items"]
        assert len(listed) == 20
        assert listed[0]["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        for at in range(20):
            bind(client, f"p{at}", f"n{at}", runs_for="100ms" if at < 10 else "1h")
        until("half to succeed", lambda: phase(client, "p9") == "Succeeded")
        until("half to run", lambda: phase(client, "p19") == "Running")
        call(client, "DELETE", f"{PODS}/p19")
        until("a deleted pod to go", lambda: gone(client, "p19"))


def test_a_pod_that_a_kubelet_cannot_read_stops_no_other(client: Client, short: Path) -> None:
    node = HollowNode("n", {}, CAPTURES / "dgx-a100-8.json")
    with HollowNodes(client, [node], short):
        limits = {"example.com/thing": "1k"}
        odd = {"metadata": {"name": "odd"}, "spec": {"nodeName": "n", "containers": [
            {"name": "main", "image": "x:1", "resources": {"limits": limits}}
        ]}}  # fmt: skip
        call(client, "POST", PODS, odd)
        bind(client, "good", "n")
        until("the other pod to run", lambda: phase(client, "good") == "Running")
        assert phase(client, "odd") == "Pending"


def test_bare_nodes_can_be_left_alone(client: Client, tmp_path: Path) -> None:
    with HollowNodes(client, [bare_node("n")], tmp_path, run_bare=False):
        bind(client, "p", "n", gpus=1)
        assert phase(client, "p") == "Pending"


def test_a_node_with_a_kubelet_and_an_agent(client: Client, short: Path) -> None:
    """The real agent registers, its GPUs become allocatable, a bound pod is admitted with two of
    them, and both are free again when the pod has gone."""
    node = HollowNode("a", {}, CAPTURES / "dgx-a100-8.json")
    with HollowNodes(client, [node], short) as hollow:
        status = call(client, "GET", "/api/v1/nodes/a")["status"]
        assert "nvidia.com/gpu" not in status["allocatable"]
        hollow.start_agents()

        def gpus() -> object:
            shown = call(client, "GET", "/api/v1/nodes/a")["status"]["allocatable"]
            return shown.get("nvidia.com/gpu")

        until("the GPUs", lambda: gpus() == "8")
        bind(client, "p", "a", gpus=2)
        until("the pod to run", lambda: phase(client, "p") == "Running")
        held = hollow.kubelets["a"].held()
        assert len(held["default", "p", "main"]["nvidia.com/gpu"]) == 2
        bind(client, "too-big", "a", gpus=7)
        until("the other to be refused", lambda: phase(client, "too-big") == "Failed")
        call(client, "DELETE", f"{PODS}/p")
        until("the pod to go", lambda: gone(client, "p"))
        bind(client, "next", "a", gpus=8)
        until("the next to run", lambda: phase(client, "next") == "Running")
        agent = call(client, "GET", "/api/v1/namespaces/lockstep-system/pods")["items"][0]
        assert agent["status"]["phase"] == "Running"
    assert hollow.agents["a"].ended == 0


def test_what_happened_while_nobody_watched(client: Client, tmp_path: Path) -> None:
    with HollowNodes(client, [bare_node("n")], tmp_path):
        bind(client, "p", "n")
        until("the pod to run", lambda: phase(client, "p") == "Running")
    call(client, "DELETE", f"{PODS}/p")
    bind(client, "q", "n")
    with HollowNodes(client, [bare_node("n")], tmp_path):
        until("the old pod to go", lambda: gone(client, "p"))
        until("the new pod to run", lambda: phase(client, "q") == "Running")


@pytest.mark.parametrize(("text", "wanted"), [("10s", 10), ("1h30m", 5400), ("250ms", 0.25)])
def test_durations(text: str, wanted: float) -> None:
    assert quantities.parse_duration(text) == wanted


@pytest.mark.parametrize("text", ["", "10", "ten seconds", "5s!", "-1s"])
def test_durations_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        quantities.parse_duration(text)
