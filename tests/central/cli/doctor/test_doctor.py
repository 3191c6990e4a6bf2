"""`lockstep doctor` on an API server with the shipped installation, whole and broken in one place each."""

import datetime
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from central.cli.doctor import bundle, checks
from central.cli.doctor.installation import Installation
from central.kube.transport.http_client import Client, Unreachable
from protos.names import GPU, NAMESPACE
from tests.central.cli.conftest import client, lockstep, put
from tests.central.cli.run_cli import Lockstep
from tests.central.custom_resources import DEFINITIONS, definition
from tests.fakes.faulty_api import Fault, FaultyApi
from tests.manifests.manifests import one, shipped

__all__ = ["client", "lockstep", "put"]  # fixtures

Json = dict[str, Any]
Objects = dict[tuple[str, str], Json]
PATHS = {
    "Deployment": f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments",
    "DaemonSet": f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets",
    "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
    "Node": "/api/v1/nodes",
    "ConfigMap": f"/api/v1/namespaces/{NAMESPACE}/configmaps",
    "Lease": f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    "CustomResourceDefinition": DEFINITIONS,
    "Queue": "/apis/scheduling.volcano.sh/v1beta1/queues",
    "PodGroup": "/apis/scheduling.volcano.sh/v1beta1/namespaces/default/podgroups",
}
READY = {"type": "Ready", "status": "True"}
SECRETS = ("hunter2", "s3cr3t-env", "eyJhbGciOi.eyJzdWIi.c2ln", "abc-bearer", "annotated-secret")
denied: set[str] = set()  # resources that are forbidden, or rights that are denied
withdrawn: set[str] = set()  # resources that the scheduler's role does not name


@cache
def rules() -> list[Json]:
    """Of the scheduler's shipped ClusterRole."""
    found: list[Json] = one("ClusterRole", "lockstep-central")["rules"]
    return found


class ReviewingApi(FaultyApi):
    """Reviews the scheduler's rights by its shipped ClusterRole, without the rules for `withdrawn` resources."""

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path.endswith("/subjectaccessreviews") and "subjectaccessreviews" not in denied:
            asked = (await request.json())["spec"]["resourceAttributes"]
            allowed = asked["resource"] not in withdrawn and any(
                asked["group"] in rule["apiGroups"]
                and asked["resource"] in rule["resources"]
                and asked["verb"] in rule["verbs"]
                for rule in rules()
            )
            return web.json_response({"status": {"allowed": allowed}}, status=201)
        return await super()._handle(request)


def faults(method: str, path: str) -> Fault | None:
    """Forbids lists of these plurals, and denies all reviews."""
    parts = path.partition("?")[0].split("/")
    if method == "GET" and denied & set(parts):
        status = {"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden"}
        return Fault(403, orjson.dumps({**status, "message": "forbidden"}))
    if parts[-1].endswith("accessreviews") and parts[-1] in denied:
        return Fault(201, orjson.dumps({"status": {"allowed": False}}))
    if parts[-1] == "version" and "demo" not in denied:
        version = "v1.30.4-eks" if "old version" in denied else "v1.37.0"
        return Fault(200, orjson.dumps({"gitVersion": version}))
    return None


@pytest.fixture
def api() -> Iterator[FaultyApi]:
    denied.clear()
    withdrawn.clear()
    with ReviewingApi(faults=faults) as server:
        yield server


def authority(days: float) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "lockstep")])
    now = datetime.datetime.now(datetime.UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=30))
    signed = made.not_valid_after(now + datetime.timedelta(days=days)).sign(key, hashes.SHA256())
    return signed.public_bytes(serialization.Encoding.PEM).decode()


def pod(name: str, app: str, node: str, **status: Any) -> Json:
    return {
        "metadata": {"name": name, "labels": {"app.kubernetes.io/name": app}},
        "spec": {
            "nodeName": node,
            "containers": [{"name": "c", "image": f"ghcr.io/lockstep/{app}:1"}],
        },
        "status": {"phase": "Running", "conditions": [READY], **status},
    }


def node(name: str, has: int = 8, offers: int = 8) -> Json:
    status = {"capacity": {GPU: str(has)}, "allocatable": {GPU: str(offers)}, "conditions": [READY]}
    return {
        "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true"}},
        "status": status,
    }


def whole() -> Objects:
    """The objects of an installation on two nodes that lacks nothing."""
    renewed = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    made: list[tuple[str, Json]] = [
        (each["kind"], deepcopy(each))
        for each in shipped()
        if each["kind"] in ("Deployment", "DaemonSet")
    ]
    for kind, each in made:
        each["status"] = {"readyReplicas": 2} if kind == "Deployment" else {"numberReady": 2}
        each["spec"]["template"]["spec"]["containers"][0]["image"] = "r.example/lockstep/x:0.1.0"
    definitions = [each for each in shipped() if each["kind"] == "CustomResourceDefinition"]
    made += [("CustomResourceDefinition", each) for each in definitions]
    made += [("Node", node(name)) for name in ("n1", "n2")]
    made += [("Pod", pod(f"central-{n}", "lockstep-central", "n1")) for n in "ab"]
    made += [("Pod", pod(f"agent-{n}", "lockstep-agent", n)) for n in ("n1", "n2")]
    made.append(
        ("ConfigMap", {"metadata": {"name": "lockstep-ca"}, "data": {"ca.crt": authority(300)}})
    )
    spec = {"holderIdentity": "central-a_1", "renewTime": renewed}
    made.append(("Lease", {"metadata": {"name": "lockstep-central"}, "spec": spec}))
    made.append(
        ("Queue", {"metadata": {"name": "q"}, "spec": {"weight": 1}, "status": {"state": "Open"}})
    )
    return {(kind, each["metadata"]["name"]): each for kind, each in made}


@pytest.fixture
def install(
    client: Client, put: Callable[[str, Json], Json], monkeypatch: pytest.MonkeyPatch
) -> Callable[[Objects], None]:
    monkeypatch.setattr("central.cli.doctor.doctor_command.version", lambda: "0.1.0")

    def install(objects: Objects) -> None:
        put("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        put(DEFINITIONS, definition("apps", "v1", "DaemonSet", status={}))
        put(DEFINITIONS, definition("node.k8s.io", "v1", "RuntimeClass", "Cluster"))
        for (kind, _), each in objects.items():
            put(PATHS[kind], each)

    return install


Install = Callable[[Objects], None]


def found(lockstep: Lockstep, code: int = 0) -> dict[str, list[tuple[str, str]]]:
    """Levels and texts by check."""
    said: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(lockstep("doctor", "-o", "json", code=code).partition("\nlockstep:")[0])[
        "findings"
    ]:
        said.setdefault(each["check"], []).append((each["level"], each["text"]))
    return said


def test_a_whole_installation_has_a_line_for_each_check(
    install: Install, lockstep: Lockstep
) -> None:
    install(whole())
    lines = lockstep("doctor").splitlines()
    assert [line.split()[0] for line in lines] == ["ok"] * len(checks.CHECKS)
    assert "ok    nodes        16 GPUs on 2 nodes" in lines


def _waiting(reason: str) -> Json:
    return {
        "conditions": [],
        "containerStatuses": [
            {
                "name": "c",
                "image": "r/x:1",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"waiting": {"reason": reason}},
            }
        ],
    }


def _lost_image(objects: Objects) -> None:
    objects["Deployment", "lockstep-central"]["status"] = {"readyReplicas": 0}
    objects["Pod", "central-a"]["status"] = _waiting("ImagePullBackOff")


def _changed(kind: str, name: str, *path: str, value: Any) -> Callable[[Objects], None]:
    def change(objects: Objects) -> None:
        at = objects[kind, name]
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value

    return change


def _without(kind: str, name: str) -> Callable[[Objects], None]:
    return lambda objects: void(objects.pop((kind, name)))


def void(_: object) -> None:
    """Takes a value and returns None."""


def _added(kind: str, obj: Json) -> Callable[[Objects], None]:
    return lambda objects: objects.update({(kind, obj["metadata"]["name"]): obj})


def _denied(*what: str) -> Callable[[Objects], None]:
    return lambda _: denied.update(what)


def _withdrawn(*resources: str) -> Callable[[Objects], None]:
    return lambda _: withdrawn.update(resources)


def _workload(name: str, image: str) -> Json:
    template = {
        "metadata": {"labels": {"a": name}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"a": name}}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def _gang(queue: str) -> Json:
    return {
        "metadata": {"name": "g"},
        "spec": {"minMember": 1, "queue": queue},
        "status": {"phase": "Pending"},
    }


BROKEN: dict[str, tuple[Callable[[Objects], None], str, str, str]] = {  # change, check, level, text
    "no definition": (_without("CustomResourceDefinition", "queues.scheduling.volcano.sh"), "definitions", "fail", "missing: queues.scheduling.volcano.sh; install again"),
    "no scheduler": (_without("Deployment", "lockstep-central"), "scheduler", "fail", "kubectl apply -k daemonset"),
    "no image": (_lost_image, "scheduler", "fail", "0 of 2 replicas are ready; central-a: ImagePullBackOff r/x:1; push the image"),
    "scaled to nothing": (_changed("Deployment", "lockstep-central", "spec", "replicas", value=0), "scheduler", "fail", "--replicas=2"),
    "one replica": (_changed("Deployment", "lockstep-central", "status", value={"readyReplicas": 1}), "scheduler", "warn", "1 of 2 replicas"),
    "never led": (_without("Lease", "lockstep-central"), "leader", "fail", "no replica has ever led"),
    "old lease": (_changed("Lease", "lockstep-central", "spec", "renewTime", value="2026-01-01T00:00:00.000000Z"), "leader", "fail", "no replica leads"),
    "clock": (_changed("Lease", "lockstep-central", "spec", "renewTime", value="2096-01-01T00:00:00.000000Z"), "leader", "warn", "the clocks differ"),
    "no certificate": (_without("ConfigMap", "lockstep-ca"), "certificate", "fail", "the leader writes it"),
    "expired": (_changed("ConfigMap", "lockstep-ca", "data", value={"ca.crt": authority(-1)}), "certificate", "fail", "expired on"),
    "expires": (_changed("ConfigMap", "lockstep-ca", "data", value={"ca.crt": authority(3)}), "certificate", "warn", "expires in 2 days"),
    "garbled": (_changed("ConfigMap", "lockstep-ca", "data", value={"ca.crt": "no"}), "certificate", "fail", "no readable certificate"),
    "no rights": (_denied("subjectaccessreviews"), "rights", "fail", "may not create pods/binding, create pods/eviction"),
    "an older role": (_withdrawn("resourceclaims/status"), "rights", "fail", "lockstep-central may not patch resourceclaims/status.resource.k8s.io; install again: kubectl apply -k daemonset, or helm upgrade, with its ClusterRoles"),
    "volumes unread": (_withdrawn("csinodes"), "rights", "fail", "may not watch csinodes.storage.k8s.io; install again"),
    "JobSets unread": (_withdrawn("jobsets", "rayclusters"), "rights", "warn", "may not watch jobsets.jobset.x-k8s.io, rayclusters.ray.io: they count as not installed"),
    "no rights of mine": (_denied("selfsubjectaccessreviews"), "own rights", "warn", "you may not create jobs.batch.volcano.sh in default"),
    "old Kubernetes": (_denied("old version"), "kubernetes", "fail", "v1.30.4-eks is too old"),
    "half upgraded": (
        _changed("DaemonSet", "lockstep-agent", "spec", "template", "spec", "containers", value=[{"name": "c", "image": "r:5000/a:0.0.9@sha256:1"}]),
        "versions", "warn", "lockstep-central 0.1.0, lockstep-agent 0.0.9",
    ),
    "no agents": (_without("DaemonSet", "lockstep-agent"), "agents", "fail", "no DaemonSet"),
    "runtime class": (_changed("DaemonSet", "lockstep-agent", "spec", "template", "spec", "runtimeClassName", value="nvidia"), "agents", "fail", "RuntimeClass nvidia does not exist"),
    "no agent on a node": (_without("Pod", "agent-n2"), "agents", "fail", "n2 has none; kubectl label node n2 lockstep.dev/agent=true"),
    "an agent that crashes": (_changed("Pod", "agent-n2", "status", value=_waiting("CrashLoopBackOff")), "agents", "fail", "n2: it ends again and again; kubectl -n lockstep-system logs agent-n2 --previous"),
    "no GPUs offered": (_added("Node", node("n2", 0, 0)), "nodes", "warn", "n2 offers no nvidia.com/gpu"),
    "a GPU is unhealthy": (_added("Node", node("n2", 8, 7)), "nodes", "warn", "n2: 1 of 8 GPUs are unhealthy; lockstep topology n2"),
    "another plugin": (_added("DaemonSet", _workload("nvdp", "nvcr.io/nvidia/k8s-device-plugin:v0.17.0")), "plugins", "fail", "DaemonSet lockstep-system/nvdp"),
    "volcano": (_added("Deployment", _workload("volcano-scheduler", "vc-scheduler:1")), "schedulers", "fail", "lockstep migrate check"),
    "no such queue": (_added("PodGroup", _gang("gone")), "queues", "warn", "pending gangs that name the queue gone"),
    "closed queue": (
        lambda o: (_changed("Queue", "q", "status", value={"state": "Closed"})(o), _added("PodGroup", _gang("q"))(o), None)[-1],
        "queues", "warn", "the queue q, which is closed",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_installation_is_said_with_what_to_do(
    install: Install, lockstep: Lockstep, case: str
) -> None:
    change, check, level, text = BROKEN[case]
    objects = whole()
    change(objects)
    install(objects)
    said = found(lockstep, code=1 if level == "fail" else 0)
    assert any(each[0] == level and text in each[1] for each in said.pop(check)), said
    others = {name: rows for name, rows in said.items() if rows[0][0] != "ok"}
    assert not others, "only the check that is meant"


def test_nothing_installed(client: Client, lockstep: Lockstep) -> None:
    said = found(lockstep, code=1)
    for check in ("scheduler", "leader", "certificate", "agents"):
        assert said[check][0][0] == "fail"
    assert said["nodes"] == [
        (
            "warn",
            "no node has GPUs or a label of GPU nodes; kubectl label node NODE lockstep.dev/agent=true",
        )
    ]


def test_nothing_installed_is_no_fault_of_a_demo(client: Client, lockstep: Lockstep) -> None:
    """`lockstep demo` tells its user about a cluster in which the scheduler and agents are processes."""
    denied.add("demo")
    said = found(lockstep)
    for check in ("definitions", "scheduler", "leader", "certificate", "agents"):
        assert said[check] == [
            ("skip", "not checked: nothing is installed in the local cluster of a demo")
        ]


def test_a_user_without_rights_gets_the_checks_that_can_be_made(
    install: Install, lockstep: Lockstep
) -> None:
    install(whole())
    denied.update(
        (
            "nodes",
            "pods",
            "deployments",
            "daemonsets",
            "customresourcedefinitions",
            "leases",
            "configmaps",
            "queues",
        )
    )
    said = found(lockstep)
    assert said["nodes"] == [("skip", "not checked: you may not list nodes; ask an administrator")]
    assert said["leader"][0][1].startswith(
        "not checked: you may not read namespaces/lockstep-system/leases"
    )
    assert said["kubernetes"][0][0] == said["own rights"][0][0] == "ok"


def test_many_broken_nodes_are_counted(install: Install, lockstep: Lockstep) -> None:
    objects = whole()
    for number in range(30):
        objects["Node", f"m{number}"] = node(f"m{number}", 8, 7)
    install(objects)
    rows = found(lockstep, code=1)["nodes"]
    assert len(rows) == 21
    assert rows[-1] == ("warn", "and 10 more nodes with such a problem")


def test_the_bundle_has_no_secret(install: Install, lockstep: Lockstep, tmp_path: Path) -> None:
    objects = whole()
    leaky = objects["Pod", "agent-n1"]
    leaky["metadata"]["annotations"] = {"a": SECRETS[4]}
    leaky["spec"]["containers"][0] |= {
        "env": [{"name": "KEY", "value": SECRETS[1]}],
        "args": [f"--otlp-endpoint=http://u:{SECRETS[0]}@h", f"--token={SECRETS[2]}"],
    }
    leaky["status"]["message"] = f"Authorization: Bearer {SECRETS[3]}; password={SECRETS[0]}"
    objects["Pod", "tenant"] = pod("tenant", "x", "n1")
    install(objects)
    file = tmp_path / "report.tar.gz"
    lockstep("doctor", "--bundle", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    with tarfile.open(file) as archive:
        parts = {entry.name.partition("/")[2]: archive.extractfile(entry) for entry in archive}
        texts = {name: part.read().decode() for name, part in parts.items() if part}
    assert {"doctor.txt", "about.json", "nodes.json", "pods.json", "logs/agent-n1.txt"} <= set(
        texts
    )
    for name, text in texts.items():
        assert not [secret for secret in SECRETS if secret in text], name
        assert "BEGIN" not in text
    (kept,) = [
        each for each in json.loads(texts["pods.json"]) if each["metadata"]["name"] == "agent-n1"
    ]
    assert kept["containers"][0]["args"] == [
        "--otlp-endpoint=http://REDACTED@h",
        "--token=REDACTED",
    ]
    assert "annotations" not in kept["metadata"]
    refused = lockstep("doctor", "--bundle", str(file), code=2)
    assert refused == f"lockstep: {file}: File exists\n"


def test_an_api_server_that_goes_away_leaves_no_part_of_a_bundle(tmp_path: Path) -> None:
    class Away:
        def request(self, *_: object, **__: object) -> Any:
            raise Unreachable("gone")

    one_pod = {"metadata": {"name": "agent", "namespace": NAMESPACE}}
    found = Installation(NAMESPACE, 0.0, "1", "v1.37.0", {"Pod": [one_pod]})
    with pytest.raises(Unreachable):
        bundle.write(tmp_path / "b.tar.gz", Away(), found, [])  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("text", [
    "token: abcd1234", "LOCKSTEP_TOKEN=abcd1234", '"password": "abcd1234"', "Authorization: Basic abcd1234", "bearer abcd1234",
    "https://user:abcd1234@host/x", "aws_secret_access_key = abcd1234", "-----BEGIN RSA PRIVATE KEY-----\nabcd1234\n-----END RSA PRIVATE KEY-----",
    "-----BEGIN PRIVATE KEY-----\\nabcd1234", "x eyJabcd1234.eyJabcd1234.abcd1234 y",
])  # fmt: skip
def test_texts_lose_credentials(text: str) -> None:
    assert "abcd1234" not in bundle.redacted(f"before {text} after")
    assert bundle.redacted("3 of 8 GPUs on n1: Xid 79") == "3 of 8 GPUs on n1: Xid 79"


def test_an_api_server_that_does_not_answer_is_one_sentence(
    lockstep: Lockstep, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "nowhere").write_text(json.dumps(config))
    said = lockstep("doctor", "--kubeconfig", str(tmp_path / "nowhere"), code=5)
    assert said.startswith("lockstep: the API server does not answer: ")
