"""Labels, conditions and taints of nodes, against the in-memory API."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from central.kube.transport.http_client import Client, Reply, connect
from central.kube.write.node_writer import NodeWriter
from central.kube.write.pod_requests import Refused
from central.kube.write.retrying import Retry
from central.model.facts import Taint
from central.standalone.apiserver import StandaloneApi
from tests.central.kube.api_fixtures import kubeconfig, node

NODES = "/api/v1/nodes"
TAINT = Taint("lockstep.dev/gpu-unhealthy", "", "NoSchedule")
OTHER = {"key": "team", "value": "a", "effect": "NoExecute"}
SAME_KEY = {"key": TAINT.key, "value": "x", "effect": "NoExecute"}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    with StandaloneApi() as api:
        made = connect(kubeconfig(tmp_path, api.url))
        body = {**node("n1"), "spec": {"taints": [OTHER, SAME_KEY]}}
        body["metadata"]["labels"] = {"team": "a", "nvidia.com/gpu.count": "8"}
        body["status"] = {"conditions": [{"type": "Ready", "status": "True"}]}
        assert made.request("POST", NODES, json.dumps(body).encode()).ok
        yield made
        made.close()


def read(client: Client) -> Any:
    return client.get(f"{NODES}/n1")


def condition(client: Client, kind: str = "GpuUnhealthy") -> Any:
    (found,) = [each for each in read(client)["status"]["conditions"] if each["type"] == kind]
    return found


def written(status: str, at: str, reason: str = "x") -> dict[str, str]:
    times = {"lastHeartbeatTime": at, "lastTransitionTime": at}
    return {"type": "GpuUnhealthy", "status": status, "reason": reason, "message": "m", **times}


def test_labels(client: Client) -> None:
    changes = {"nvidia.com/gpu.count": None, "nvidia.com/gpu.family": "hopper"}
    NodeWriter(client).set_labels("n1", changes)
    assert read(client)["metadata"]["labels"] == {"team": "a", "nvidia.com/gpu.family": "hopper"}


def test_a_condition_beside_others(client: Client) -> None:
    writer = NodeWriter(client)
    first, second, third = (f"2026-11-23T00:00:0{n}Z" for n in range(3))
    writer.set_condition("n1", written("False", first))
    writer.set_condition("n1", written("False", second, "y"))
    assert condition(client) == {**written("False", second, "y"), "lastTransitionTime": first}
    writer.set_condition("n1", written("True", third))
    assert condition(client) == written("True", third)
    assert condition(client, "Ready")["status"] == "True"


def test_a_taint_beside_others(client: Client) -> None:
    writer = NodeWriter(client)
    mine = {"key": TAINT.key, "effect": TAINT.effect}
    for _ in range(2):
        writer.set_taint("n1", TAINT, present=True)
        assert read(client)["spec"]["taints"] == [OTHER, SAME_KEY, mine]
    valued = Taint(TAINT.key, "v", TAINT.effect)
    writer.set_taint("n1", valued, present=True)
    assert read(client)["spec"]["taints"] == [OTHER, SAME_KEY, {**mine, "value": "v"}]
    for _ in range(2):
        writer.set_taint("n1", TAINT, present=False)
        assert read(client)["spec"]["taints"] == [OTHER, SAME_KEY]


class Interrupted:
    """The client, with something that happens before each patch."""

    def __init__(self, client: Client, before: Callable[[], None]) -> None:
        self._client, self._before = client, before
        self.server = client.server

    def request(self, method: str, *args: Any, **more: Any) -> Reply:
        if method == "PATCH":
            self._before()
        return self._client.request(method, *args, **more)


def test_a_taint_that_comes_in_between_is_not_lost(client: Client) -> None:
    theirs = {"key": "maintenance", "effect": "NoSchedule"}

    def meddle() -> None:
        body = {"spec": {"taints": [theirs]}}
        kind = "application/merge-patch+json"
        assert client.request("PATCH", f"{NODES}/n1", json.dumps(body).encode(), kind).ok

    with pytest.raises(Retry):
        NodeWriter(Interrupted(client, meddle)).set_taint("n1", TAINT, present=True)  # type: ignore[arg-type]
    assert read(client)["spec"]["taints"] == [theirs]


def test_a_node_that_is_gone(client: Client) -> None:
    writer = NodeWriter(client)
    changes: tuple[Callable[[], None], ...] = (
        lambda: writer.set_labels("n2", {"a": "b"}),
        lambda: writer.set_condition("n2", written("True", "2026-11-23T00:00:00Z")),
        lambda: writer.set_taint("n2", TAINT, present=True),
    )
    for change in changes:
        with pytest.raises(Refused):
            change()
