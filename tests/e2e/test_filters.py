"""The nodes that may take a pod, as kube-scheduler's own filters have it on a real API server, against
ours and against the plain reading of them that the unit tests use."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from central.core.cluster import Cluster
from central.kube.objects import Reader
from tests.benchmarks import plane
from tests.benchmarks.plane import Plane
from tests.central.kube import oracle
from tests.central.kube.oracle import World
from tests.central.kube.worlds import SPACES, Maker
from tests.e2e import scheduler
from tests.e2e.world import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
Json = dict[str, Any]
SCHEDULER = "default-scheduler"


@pytest.fixture(scope="module")
def api() -> Iterator[Plane]:
    with plane.running() as made:
        for name in SPACES:
            _make(made, "/api/v1/namespaces", {"metadata": {"name": name}})
        yield made


@pytest.mark.parametrize("seed", range(4))
def test_kube_scheduler_would_take_the_same_nodes(api: Plane, seed: int) -> None:
    maker = Maker(seed, old=True)
    made = maker.world(nodes=9, pods=9)
    for node in made.nodes.values():
        _make(api, "/api/v1/nodes", node)
    for pod in made.pods.values():
        _make_pod(api, pod)
    asking = {_make_pod(api, maker.pod()) for _ in range(100)}
    try:
        with scheduler.asked(api) as answers:
            until("every pod to be judged", lambda: asking <= _judged(api), 60)
        _compare(api, asking, answers)
    finally:
        for name in SPACES:
            _drop(api, f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
        _drop(api, "/api/v1/nodes")


def _compare(api: Plane, asking: set[str], answers: scheduler.Answers) -> None:
    """The world is what the API server says, defaults and all."""
    nodes = api.client.get("/api/v1/nodes")["items"]
    pods = api.client.get("/api/v1/pods")["items"]
    world = World({node["metadata"]["name"]: node for node in nodes})
    world.pods = {pod["metadata"]["uid"]: pod for pod in pods}
    reader, cluster = Reader((SCHEDULER,), ()), Cluster()
    for node in nodes:
        cluster.apply(reader.node(node))
    for pod in pods:
        cluster.apply(reader.pod(pod))
    cluster.check()
    sizes: Counter[int] = Counter()
    for uid in sorted(asking):
        judged = answers.get(uid, [set()])
        assert all(found == judged[0] for found in judged), "kube-scheduler is of two minds"
        view = cluster.snapshot.view(cluster.pods[uid].spec).refresh()
        ours = {name for name, row in cluster.snapshot.row.items() if view.cap[row]}
        assert ours == judged[0], world.pods[uid]["spec"]
        assert oracle.feasible(world, world.pods[uid]) == judged[0], world.pods[uid]["spec"]
        sizes[len(ours)] += 1
    assert sizes[0] > 3
    assert sum(count for size, count in sizes.items() if 0 < size < len(nodes)) > 20


def _make(api: Plane, path: str, body: Json) -> Json:
    reply = api.client.request("POST", path, json.dumps(body).encode())
    assert reply.ok, reply.refusal()
    made: Json = reply.json()
    return made


def _make_pod(api: Plane, pod: Json) -> str:
    """Its uid."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods"
    spec = {**pod["spec"], "schedulerName": SCHEDULER}
    made = _make(api, path, {"metadata": meta, "spec": spec})
    if pod["status"]["phase"] != "Pending":
        patch = json.dumps({"status": {"phase": pod["status"]["phase"]}}).encode()
        path += f"/{meta['name']}/status"
        reply = api.client.request("PATCH", path, patch, "application/merge-patch+json")
        assert reply.ok, reply.refusal()
    uid: str = made["metadata"]["uid"]
    return uid


def _drop(api: Plane, path: str) -> None:
    assert api.client.request("DELETE", path).ok


def _judged(api: Plane) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in api.client.get("/api/v1/pods")["items"]
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }
