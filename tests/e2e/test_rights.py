"""What the scheduler may change of pods, on a real API server that asks the shipped roles, those of components/elastic
too. etcd and kube-apiserver alone."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from central.kube.transport.http_client import MERGE, Client, connect
from central.kube.write import leader_label, objects_writer, size_writer
from central.model import member_files
from central.model.decisions import Patch, SetSize
from protos.names import CENTRAL_ACCOUNT, NAMESPACE
from tests.benchmarks import plane
from tests.manifests.manifests import with_components

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Json = dict[str, Any]
APPLY = "application/apply-patch+yaml"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SPACED = f"{RBAC}/namespaces/{NAMESPACE}"
PLACES = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts",
    "ClusterRole": f"{RBAC}/clusterroles",
    "ClusterRoleBinding": f"{RBAC}/clusterrolebindings",
    "Role": f"{SPACED}/roles",
    "RoleBinding": f"{SPACED}/rolebindings",
}
SPACES = (NAMESPACE, "team")


class Cluster:
    """admin: may do everything. central: has the scheduler's token."""

    def __init__(self, admin: Client, central: Client) -> None:
        self.admin, self.central = admin, central

    def pod(self, space: str, name: str) -> Json:
        found: Json = self.admin.get(path(space, name))
        return found

    def labelled(self) -> list[str]:
        selector = f"labelSelector={leader_label.LABEL}%3Dtrue"
        found = self.admin.get(f"{path(NAMESPACE)}?{selector}")["items"]
        return [each["metadata"]["name"] for each in found]


def path(space: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{space}/pods" + (f"/{name}" if name else "")


def _apply(admin: Client, at: str, raw: Json) -> None:
    target = f"{at}/{raw['metadata']['name']}?fieldManager=test&force=true"
    reply = admin.request("PATCH", target, orjson.dumps(raw), APPLY)
    assert reply.ok, reply.body


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with plane.running("--authorization-mode=RBAC") as api:
        for raw in (*with_components("elastic"), _named("Namespace", "v1", "team")):
            if raw["kind"] in PLACES:
                _apply(api.client, PLACES[raw["kind"]], raw)
        container = {"name": "c", "image": "good"}
        for space in SPACES:
            for name in ("a", "b"):
                raw = {**_named("Pod", "v1", name), "spec": {"containers": [container]}}
                _apply(api.client, path(space), raw)
        spec: Json = {"template": {"spec": {"containers": [container], "restartPolicy": "Never"}}}
        raw = {**_named("Job", "batch/v1", "sized"), "spec": spec}
        _apply(api.client, "/apis/batch/v1/namespaces/team/jobs", raw)
        central = connect(str(_kubeconfig(api, tmp_path_factory.mktemp("central"))))
        yield Cluster(api.client, central)
        central.close()


def _named(kind: str, version: str, name: str) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}


def _kubeconfig(api: plane.Plane, folder: Path) -> Path:
    """With a token of the scheduler's ServiceAccount."""
    asked = f"{PLACES['ServiceAccount']}/{CENTRAL_ACCOUNT}/token"
    reply = api.client.request("POST", asked, b'{"spec":{"expirationSeconds":3600}}')
    assert reply.ok, reply.body
    config = yaml.safe_load(api.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": reply.json()["status"]["token"]}
    made = folder / "kubeconfig"
    made.write_text(yaml.safe_dump(config))
    return made


@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("part", ["", "/status", "/ephemeralcontainers", "/resize"])
def test_no_right_reaches_the_containers_of_a_pod(cluster: Cluster, space: str, part: str) -> None:
    """An image of an agent would be root on every node with a GPU."""
    evil = {"name": "c", "image": "evil"}
    for field in ("containers", "ephemeralContainers"):
        patch = orjson.dumps({"spec": {field: [evil]}})
        cluster.central.request("PATCH", path(space, "b") + part, patch, MERGE)
    assert "evil" not in str(cluster.pod(space, "b"))
    assert cluster.pod(space, "b")["spec"]["containers"][0]["image"] == "good"


def test_the_leader_is_labelled(cluster: Cluster) -> None:
    for leader in ("a", "b", "a"):
        assert leader_label.set_label(cluster.central, NAMESPACE, leader, leads=True)
        assert cluster.labelled() == [leader]
    assert leader_label.set_label(cluster.central, NAMESPACE, "a", leads=False)
    assert cluster.labelled() == []


def test_members_have_their_files_and_leave_in_order(cluster: Cluster) -> None:
    """Annotations of pods: those of an elastic Job's members, and the cost of those that a controller deletes first."""
    uid = cluster.pod("team", "a")["metadata"]["uid"]
    files = member_files.MemberFiles(
        *(f"{number}" for number in range(len(member_files.ANNOTATIONS)))
    )
    answer = objects_writer.execute(
        cluster.central, Patch("Pod", "team", "a", uid, member_files.patch(files))
    )
    assert answer.why == ""
    leaving = SetSize("Job", "team", "sized", "u", 1, leaving=(("a", uid),), rank=7)
    size_writer.write(cluster.central, leaving)
    notes = cluster.pod("team", "a")["metadata"]["annotations"]
    assert notes.pop("controller.kubernetes.io/pod-deletion-cost") == "-7"
    assert sorted(notes.values()) == sorted(files)
    other = objects_writer.execute(
        cluster.central, Patch("Pod", "team", "b", uid, member_files.patch(files))
    )
    assert "uid" in other.why, "it is another pod's"
