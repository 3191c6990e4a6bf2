"""Objects of Kubernetes' own controllers that a real scheduler sizes, with the API in memory: as requests, as what
people see, and with the rights that components/elastic ships."""

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from central.controllers.elastic_objects import LAG_S
from central.kube.resource_paths import SIZED
from central.kube.transport.http_client import MERGE
from tests.central.controllers import test_sized_roles
from tests.central.controllers.test_elastic_objects import indexed, sized
from tests.central.custom_resources import DEFINITIONS, definition
from tests.central.kube import controller_fixtures as fixtures
from tests.fakes.faulty_cluster import FaultyCluster
from tests.fakes.hollow_nodes import bare_node
from tests.fakes.request_log import RequestLog
from tests.manifests.manifests import FOLDER, documents

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

APPS, BATCH = "/apis/apps/v1/namespaces/default", "/apis/batch/v1/namespaces/default"
PATHS = {
    "Deployment": f"{APPS}/deployments",
    "StatefulSet": f"{APPS}/statefulsets",
    "Job": f"{BATCH}/jobs",
}
PODS = "/api/v1/namespaces/default/pods"
SIZED_GROUPS = {path.group for path in SIZED.values()}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[FaultyCluster, RequestLog]]:
    nodes = [bare_node("n0", gpus=0)]
    with FaultyCluster(nodes, flags=("--elastic-controllers",)) as made:
        made.start_api()
        with RequestLog(int(made.api.url.rpartition(":")[2])) as log:
            config = made.kubeconfig.read_text()
            made.kubeconfig.write_text(config.replace(made.api.url, log.url))
            made.start_scheduler()
            made.start_nodes()
            made.start_controllers()
            made.wait_for_scheduler()
            yield made, log


@pytest.fixture
def box(running: tuple[FaultyCluster, RequestLog]) -> Iterator[tuple[FaultyCluster, RequestLog]]:
    """The cluster without pods. Each test names its objects anew: Events of others stay."""
    cluster, log = running
    log.requests.clear()
    yield running
    for path in (*PATHS.values(), f"{APPS}/replicasets", PODS):
        for each in cluster.client.get(path)["items"]:
            cluster.client.request("DELETE", f"{path}/{each['metadata']['name']}")
    cluster.wait("all pods to be gone", lambda: not cluster.client.get(PODS)["items"])


def bound(cluster: FaultyCluster, app: str) -> list[str]:
    found = cluster.client.get(PODS)["items"]
    return [
        pod["metadata"]["name"]
        for pod in found
        if pod["metadata"]["labels"].get("app") == app
        and pod["spec"].get("nodeName")
        and "deletionTimestamp" not in pod["metadata"]
    ]


def of(cpu: str, raw: Json) -> Json:
    [container] = raw["spec"]["template"]["spec"]["containers"]
    container["resources"]["requests"]["cpu"] = cpu
    return raw


def capacity(cluster: FaultyCluster) -> int:
    node = cluster.client.get("/api/v1/nodes/n0")
    return int(node["status"]["allocatable"]["cpu"])


def events(cluster: FaultyCluster, name: str) -> dict[str, str]:
    found = cluster.client.get("/api/v1/namespaces/default/events")["items"]
    return {
        each["reason"]: each["message"] for each in found if each["involvedObject"]["name"] == name
    }


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "Job", "IndexedJob"])
def test_it_grows_into_the_room_and_gives_it_back(
    box: tuple[FaultyCluster, RequestLog], kind: str
) -> None:
    cluster, log = box
    cpus = capacity(cluster)
    each = f"{1000 * cpus // 8}m"
    name, other = kind.lower(), f"beside-{kind.lower()}"
    made = indexed(name, 2, 8, 2) if kind == "IndexedJob" else sized(kind, name, 2, 8, 2)
    path = PATHS[kind.removeprefix("Indexed")]
    cluster.create(path, of(each, made))
    cluster.wait("eight pods", lambda: len(bound(cluster, name)) == 8)
    assert events(cluster, name)["Grew"] == "8 of 2 to 8: there is room for more"

    needs = sized("Deployment", other, 3, 3, 3)
    needs["metadata"]["annotations"] = {"lockstep.dev/gang-min": "3"}
    cluster.create(PATHS["Deployment"], of(each, needs))
    cluster.wait("the gang to run", lambda: len(bound(cluster, other)) == 3)
    assert len(bound(cluster, name)) == 5
    cluster.wait("the Event", lambda: "Shrank" in events(cluster, name))
    assert events(cluster, name)["Shrank"] == f"5 of 2 to 8: room for deployment/{other}"
    spec = cluster.client.get(f"{path}/{name}")["spec"]
    assert spec.get("replicas", spec.get("parallelism")) == 5
    if kind == "IndexedJob":
        assert spec["completions"] == 5
    if kind in ("IndexedJob", "StatefulSet"):
        assert sorted(bound(cluster, name)) == [f"{name}-{number}" for number in range(5)]
    assert not any("eviction" in request.resource for request in log.requests), "nobody is evicted"
    _check_rights(log)


SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
OTHERS = {
    "jobsets": definition("jobset.x-k8s.io", "v1alpha2", "JobSet"),
    "leaderworkersets": definition(
        "leaderworkerset.x-k8s.io", "v1", "LeaderWorkerSet", scale=SCALE
    ),
    "rayclusters": definition("ray.io", "v1", "RayCluster"),
}


def _asked_for(specs: dict[str, Json]) -> list[Json]:
    """The pods that their controllers create for these specs."""
    job = specs["jobsets"]["replicatedJobs"][1]["template"]["spec"]
    group = specs["rayclusters"]["workerGroupSpecs"][1]
    return [
        fixtures.jobset_pod("train", "driver", 0, 0),
        *(fixtures.jobset_pod("train", "workers", 0, i) for i in range(job["parallelism"])),
        *(
            pod
            for replica in range(specs["leaderworkersets"]["replicas"])
            for pod in fixtures.leaderworkerset_pods(replica)
        ),
        *fixtures.ray_pods()[:3],
        *(fixtures.ray_pod("gpu", i) for i in range(group["replicas"])),
    ]


def test_objects_of_other_projects_are_sized(box: tuple[FaultyCluster, RequestLog]) -> None:
    cluster, log = box
    played = {
        "jobsets": test_sized_roles.jobset(),
        "leaderworkersets": test_sized_roles.leaderworkerset(),
        "rayclusters": test_sized_roles.raycluster(),
    }
    paths: dict[str, str] = {}
    made: set[str] = set()
    for plural, raw in played.items():
        cluster.create(DEFINITIONS, OTHERS[plural])
        path = f"/apis/{raw['apiVersion']}/namespaces/default/{plural}"
        raw["metadata"]["namespace"] = "default"
        cluster.create(path, raw)
        paths[plural] = f"{path}/{raw['metadata']['name']}"

    def specs() -> dict[str, Json]:
        return {plural: cluster.client.get(path)["spec"] for plural, path in paths.items()}

    def sizes() -> list[int]:
        """Their controllers are played meanwhile: other sizes wait for the pods of the first one."""
        found = specs()
        for pod in _asked_for(found):
            if (name := pod["metadata"]["name"]) not in made:
                made.add(name)
                pod["metadata"]["namespace"] = "default"
                pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1m"}}
                cluster.create(PODS, pod)
        job = found["jobsets"]["replicatedJobs"][1]["template"]["spec"]
        groups = found["rayclusters"]["workerGroupSpecs"]
        return [job["parallelism"], found["leaderworkersets"]["replicas"], groups[1]["replicas"]]

    cluster.wait("all of them to be at their most", lambda: sizes() == [6, 3, 6])
    found = specs()
    jobs = found["jobsets"]["replicatedJobs"]
    assert [each["name"] for each in jobs] == ["driver", "workers"]
    assert jobs[1]["template"]["spec"]["completions"] == 6
    assert found["rayclusters"]["workerGroupSpecs"][0]["replicas"] == 2
    for name in ("train", "serve", "tune"):
        cluster.wait("the Event", partial(_has_grown, cluster, name))
    assert events(cluster, "serve")["Grew"] == "3 of 1 to 3: there is room for more"
    _check_rights(log)
    for path in paths.values():
        cluster.client.request("DELETE", path)


def _has_grown(cluster: FaultyCluster, name: str) -> bool:
    return "Grew" in events(cluster, name)


def _check_rights(log: RequestLog) -> None:
    """Writes of sizes and marks, held against the component."""
    [role] = [
        each
        for each in documents(FOLDER / "chart/files/elastic/rights.yaml")
        if each["kind"] == "ClusterRole"
    ]
    allowed = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    asked = {
        (request.group, request.resource, request.verb)
        for request in log.requests
        if request.verb == "patch" and (request.group in SIZED_GROUPS or request.resource == "pods")
    }
    assert asked
    assert asked <= allowed


def test_a_wrong_range_is_said_on_the_object_and_nothing_is_written(
    box: tuple[FaultyCluster, RequestLog],
) -> None:
    cluster, _ = box
    cluster.create(PATHS["Deployment"], sized("Deployment", "wrong", 5, 3, 4))
    cluster.wait("the Event", lambda: "InvalidSpec" in events(cluster, "wrong"))
    why = "annotation lockstep.dev/elastic-min: 5 is above lockstep.dev/elastic-max, 3"
    assert events(cluster, "wrong")["InvalidSpec"] == why
    assert cluster.client.get(f"{PATHS['Deployment']}/wrong")["spec"]["replicas"] == 4


def test_whoever_changes_the_size_again_and_again_is_not_fought(
    box: tuple[FaultyCluster, RequestLog],
) -> None:
    cluster, _ = box
    path = f"{PATHS['Deployment']}/fought"
    cluster.create(PATHS["Deployment"], sized("Deployment", "fought", 2, 4, 2))

    def size() -> int:
        return int(cluster.client.get(path)["spec"]["replicas"])

    for _ in range(3):
        # A change that comes between a write and what the watch shows of it is seen as one after LAG_S.
        cluster.wait("it to be in its range", lambda: size() == 4, 3 * LAG_S)
        cluster.client.request("PATCH", path, b'{"spec":{"replicas":9}}', MERGE)
    cluster.wait("the Event", lambda: "SizeRefused" in events(cluster, "fought"))
    assert "another client changes spec.replicas, too" in events(cluster, "fought")["SizeRefused"]
    assert size() == 9
