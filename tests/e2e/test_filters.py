"""The nodes that may take a pod, as kube-scheduler's own filters have it on a real API server, against
ours and against the plain reading of them that the unit tests use."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode import storage_decoder
from central.kube.decode.decoder import Decoder
from central.scheduler.apply import apply
from central.scheduler.scheduler import Scheduler
from tests.benchmarks import plane
from tests.benchmarks.plane import Plane
from tests.central.kube import naive_filters
from tests.central.kube.naive_filters import World
from tests.central.kube.random_worlds import SPACES, Maker
from tests.central.scheduler.invariants import check_invariants
from tests.e2e import scheduler
from tests.e2e.world import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]
Json = dict[str, Any]
SCHEDULER = "default-scheduler"
CLAIMS, VOLUMES = "/api/v1/persistentvolumeclaims", "/api/v1/persistentvolumes"
CLASSES, CSINODES = "/apis/storage.k8s.io/v1/storageclasses", "/apis/storage.k8s.io/v1/csinodes"


@pytest.fixture(scope="module")
def api() -> Iterator[Plane]:
    with plane.running() as made:
        for name in SPACES:
            _make(made, "/api/v1/namespaces", {"metadata": {"name": name}})
        yield made


@pytest.mark.parametrize("seed", range(4))
def test_kube_scheduler_would_take_the_same_nodes(api: Plane, seed: int) -> None:
    maker = Maker(seed, old=True)
    maker.made = seed * 1000  # claims keep their names: nobody takes their finalizers off here
    made = maker.world(nodes=9, pods=9)
    waiting = [maker.pod() for _ in range(100)]
    for pod in waiting:
        if maker.chance(0.3):
            maker.claim(made, pod)
    for node in made.nodes.values():
        _make(api, "/api/v1/nodes", node)
    _make_storage(api, made)
    for pod in made.pods.values():
        _make_pod(api, pod)
    asking = {_make_pod(api, pod) for pod in waiting}
    try:
        with scheduler.asked(api) as answers:
            until("every pod to be judged", lambda: asking <= _judged(api), 180)
        _compare(api, asking, answers)
    finally:
        for name in SPACES:
            _drop(api, f"/api/v1/namespaces/{name}/pods?gracePeriodSeconds=0")
        _drop(api, "/api/v1/nodes")
        _drop(api, CSINODES)


def _compare(api: Plane, asking: set[str], answers: scheduler.Answers) -> None:
    """The world is what the API server says, defaults and all."""
    nodes = api.client.get("/api/v1/nodes")["items"]
    pods = api.client.get("/api/v1/pods")["items"]
    world = World({node["metadata"]["name"]: node for node in nodes})
    world.pods = {pod["metadata"]["uid"]: pod for pod in pods}
    reader, cluster = Decoder((SCHEDULER,), ()), new_scheduler()
    for node in nodes:
        apply(cluster, reader.node(node))
    for pod in pods:
        apply(cluster, reader.pod(pod))
    _tell_storage(api, world, cluster)
    check_invariants(cluster)
    sizes: Counter[int] = Counter()
    for uid in sorted(asking):
        judged = answers.get(uid, [set()])
        assert all(found == judged[0] for found in judged), "kube-scheduler is of two minds"
        view = cluster.state.snapshot.view(cluster.state.pods[uid].spec).refresh()
        able = not view.spec.unsupported
        ours = {
            name
            for name, row in cluster.state.snapshot.columns.row.items()
            if able and view.by_row[row]
        }
        pod = world.pods[uid]
        assert ours == naive_filters.feasible(world, pod) == judged[0], pod["spec"]
        sizes[len(ours)] += 1
    assert sizes[0] > 3
    assert sum(count for size, count in sizes.items() if 0 < size < len(nodes)) > 20


def _tell_storage(api: Plane, world: World, cluster: Scheduler) -> None:
    for raw in api.client.get(CLAIMS)["items"]:
        world.claims[(raw["metadata"]["namespace"], raw["metadata"]["name"])] = raw
        apply(cluster, storage_decoder.decode_claim(raw))
    for raw in api.client.get(VOLUMES)["items"]:
        world.volumes[raw["metadata"]["name"]] = raw
        apply(cluster, storage_decoder.decode_volume(raw))
    for raw in api.client.get(CLASSES)["items"]:
        world.classes[raw["metadata"]["name"]] = raw
        apply(cluster, storage_decoder.decode_storage_class(raw))
    for raw in api.client.get(CSINODES)["items"]:
        world.csinodes[raw["metadata"]["name"]] = raw
        apply(cluster, storage_decoder.decode_csi_node(raw))


def _make_storage(api: Plane, made: World) -> None:
    known = {raw["metadata"]["name"] for raw in api.client.get(CLASSES)["items"]}
    for name, raw in made.classes.items():
        if name not in known:
            _make(api, CLASSES, raw)
    for raw in made.csinodes.values():
        _make(api, CSINODES, raw)
    for raw in made.volumes.values():
        _make(api, VOLUMES, raw)
        if "status" in raw:  # no volume controller runs here
            _patch(api, f"{VOLUMES}/{raw['metadata']['name']}/status", {"status": raw["status"]})
    for (space, _), raw in made.claims.items():
        _make(api, f"/api/v1/namespaces/{space}/persistentvolumeclaims", raw)


def _make(api: Plane, path: str, body: Json) -> Json:
    reply = api.client.request("POST", path, json.dumps(body).encode())
    assert reply.ok, reply.error()
    made: Json = reply.json()
    return made


def _make_pod(api: Plane, pod: Json) -> str:
    """Its uid."""
    meta = {key: pod["metadata"][key] for key in ("name", "namespace", "labels")}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods"
    spec = {**pod["spec"], "schedulerName": SCHEDULER}
    made = _make(api, path, {"metadata": meta, "spec": spec})
    if pod["status"]["phase"] != "Pending":
        status = {"status": {"phase": pod["status"]["phase"]}}
        _patch(api, f"{path}/{meta['name']}/status", status)
    uid: str = made["metadata"]["uid"]
    return uid


def _patch(api: Plane, path: str, body: Json) -> None:
    patch = json.dumps(body).encode()
    reply = api.client.request("PATCH", path, patch, "application/merge-patch+json")
    assert reply.ok, reply.error()


def _drop(api: Plane, path: str) -> None:
    assert api.client.request("DELETE", path).ok


def _judged(api: Plane) -> set[str]:
    return {
        pod["metadata"]["uid"]
        for pod in api.client.get("/api/v1/pods")["items"]
        for condition in pod["status"].get("conditions") or ()
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    }
