"""A day with the Helm chart on a real cluster: taken over from kustomize and installed anew, looked at, a job that
runs and one that waits with a reason, one that gives way, a GPU lost, an upgrade, and off again."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT, STATE
from tests.e2e.test_uninstall import REST
from tests.e2e.world import NAMESPACE, World, pod, podgroup, shipped, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control
from tests.manifests import helm_program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
VALUES = {
    "components": {"watch": {"enabled": True}, "mps": {"enabled": True}}
}  # as the tests install
URGENT = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "chart-urgent"},
    "value": 1000,
}


@pytest.fixture
def values(cluster: World, tmp_path: Path) -> Iterator[Path]:
    """A file of values. Afterwards the cluster is as the other tests want it."""
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(VALUES))
    yield file
    _helm("uninstall", "lockstep", "--ignore-not-found")
    verbs.kubectl("delete", "priorityclass", "chart-urgent", "--ignore-not-found")
    cluster.kubectl("apply", "-f", "-", stdin=shipped("watch", "mps"))
    _ready(cluster)


def _helm(*argv: str | Path) -> str:
    where = ("--kubeconfig", verbs.kubeconfig(), "--namespace", NAMESPACE)
    done = helm_program.run(*argv, *where)
    assert not done.returncode, done.stderr
    return done.stdout


def _ready(cluster: World) -> None:
    cluster.forget_centre()
    until(
        "8 allocatable GPUs on every node", lambda: set(cluster.allocatable().values()) == {8}, 180
    )
    until("every agent's report", lambda: all(v.topology.gpus for v in cluster.views()), 60)


def _gang(name: str, members: int, gpus: int, priority: str = "") -> list[dict[str, Any]]:
    pods = [pod(f"{name}-{i}", gpus, gang=name) for i in range(members)]
    group = podgroup(name, members)
    if priority:
        group["spec"]["priorityClassName"] = priority
        for each in pods:
            each["spec"]["priorityClassName"] = priority
    return [group, *pods]


def test_helm_takes_over_what_kustomize_installed(
    cluster: World, namespace: str, values: Path
) -> None:
    """docs/how-to/helm.md: pods of users go on running, with their GPUs."""
    cluster.apply(namespace, *_gang("stays", 2, 6))
    before = {p["metadata"]["uid"] for p in cluster.running(namespace, 2)}
    held = cluster.agreed()
    chart = ROOT / "daemonset/chart"
    _helm("install", "lockstep", chart, "-f", values, "--take-ownership", "--wait")
    listed = json.loads(_helm("list", "-o", "json"))
    assert [(r["name"], r["status"]) for r in listed] == [("lockstep", "deployed")]
    _ready(cluster)
    assert {p["metadata"]["uid"] for p in cluster.running(namespace, 2)} == before
    assert cluster.agreed() == held


def test_a_day(cluster: World, namespace: str, values: Path) -> None:
    cluster.kubectl("delete", "namespace", NAMESPACE, "--wait=true", "--timeout=120s")
    for kind, name in REST:
        cluster.kubectl("delete", kind, name)
    cluster.kubectl("delete", "-f", str(ROOT / "daemonset/crds"), "--timeout=120s")
    cluster.kubectl("create", "namespace", NAMESPACE)
    label = "pod-security.kubernetes.io/enforce=privileged"
    cluster.kubectl("label", "namespace", NAMESPACE, label)
    said = _helm("install", "lockstep", ROOT / "daemonset/chart", "-f", values, "--wait")
    assert "lockstep topology" in said
    _ready(cluster)

    looked = cluster.lockstep("topology")
    assert all(node in looked for node in cluster.nodes)

    cluster.apply(namespace, *_gang("first", 2, 8))
    held = {p["metadata"]["uid"] for p in cluster.running(namespace, 2)}
    cluster.apply(namespace, *_gang("second", 1, 4))
    waits = "0 of 16 GPUs free"
    until("a reason", lambda: waits in cluster.lockstep("explain", f"{namespace}/second"))
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(URGENT))
    cluster.apply(namespace, *_gang("urgent", 1, 8, "chart-urgent"))

    def bound(gang: str) -> bool:
        pods = [p for p in cluster.pods(namespace) if p["metadata"]["name"].startswith(gang)]
        return bool(pods) and all(p["status"]["phase"] == "Running" for p in pods)

    until("the urgent gang to run", lambda: bound("urgent"), 90)
    left = [p for p in cluster.pods(namespace) if p["metadata"]["name"].startswith("first")]
    assert not [p for p in left if p["status"]["phase"] == "Running"], "a gang goes as a whole"
    until("the second gang to run", lambda: bound("second"), 60)

    (second,) = (p for p in cluster.pods(namespace) if p["metadata"]["name"] == "second-0")
    node = second["spec"]["nodeName"]
    control = Control(STATE / "hardware" / node / "driver" / CONTROL)
    control.passing_xid(7)
    until("7 allocatable GPUs", lambda: cluster.allocatable()[node] == 7, 30)
    assert "GPU7: XID 94" in cluster.lockstep("topology", node)

    running = {
        p["metadata"]["uid"] for p in cluster.pods(namespace) if p["status"]["phase"] == "Running"
    }
    assert not running & held
    _helm(
        *("upgrade", "lockstep", ROOT / "daemonset/chart", "-f", values),
        *("--set", "scheduler.flags.patience=1200", "--wait"),
    )
    deployment = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/lockstep-central"
    (container,) = cluster.api.get(deployment)["spec"]["template"]["spec"]["containers"]
    assert "--patience=1200" in container["args"]
    still = {
        p["metadata"]["uid"] for p in cluster.pods(namespace) if p["status"]["phase"] == "Running"
    }
    assert running <= still
    until("8 allocatable GPUs again", lambda: cluster.allocatable()[node] == 8, 90)

    _helm("uninstall", "lockstep", "--wait")
    until("no GPUs to give", lambda: set(cluster.allocatable().values()) == {0}, 90)
    still = {
        p["metadata"]["uid"] for p in cluster.pods(namespace) if p["status"]["phase"] == "Running"
    }
    assert running <= still, "running pods keep their GPUs"
    assert cluster.podgroup(namespace, "urgent")["spec"]["minMember"] == 1, "the CRDs are kept"


def test_agents_with_captures_as_in_kind(cluster: World, namespace: str, values: Path) -> None:
    """docs/getting-started/kind.md: each node reports a captured machine, with UUIDs of its own, and a gang starts."""
    chart, kind = ROOT / "daemonset/chart", ROOT / "daemonset/kind/values.yaml"
    _helm(
        "upgrade",
        "--install",
        "lockstep",
        chart,
        "-f",
        values,
        "-f",
        kind,
        "--take-ownership",
        "--wait",
    )
    _ready(cluster)
    gpus = [gpu for view in cluster.views() for gpu in view.topology.gpus]
    assert {gpu.model for gpu in gpus} == {"NVIDIA H100 80GB HBM3"}
    assert len({gpu.uuid for gpu in gpus}) == len(gpus)
    cluster.apply(namespace, *_gang("first", 2, 8))
    cluster.running(namespace, 2)
    cluster.agreed()


def _running(cluster: World, namespace: str) -> set[str]:
    pods = cluster.pods(namespace)
    return {p["metadata"]["uid"] for p in pods if p["status"]["phase"] == "Running"}


def _workload(cluster: World, kind: str, name: str) -> Any:
    return cluster.api.get(f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{name}")


def _spec_of(cluster: World) -> tuple[Any, Any]:
    """What the scheduler's and the agents' pods are to be."""
    deployment = _workload(cluster, "deployments", "lockstep-central")
    daemonset = _workload(cluster, "daemonsets", "lockstep-agent")
    return deployment["spec"]["template"]["spec"], daemonset["spec"]["template"]["spec"]


def _crds(cluster: World) -> dict[str, str]:
    """uid by name: one that is made anew has another, and has lost its objects."""
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    names = {
        yaml.safe_load(file.read_text())["metadata"]["name"]
        for file in (ROOT / "daemonset/chart/files/crds").iterdir()
    }
    found = {c["metadata"]["name"]: c["metadata"]["uid"] for c in cluster.api.get(path)["items"]}
    return {name: found[name] for name in names}


def _revisions() -> list[tuple[int, str, str]]:
    listed = json.loads(_helm("history", "lockstep", "-o", "json"))
    return [(each["revision"], each["status"], each["description"]) for each in listed]


def _budgets(cluster: World) -> list[str]:
    path = f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets"
    return [each["metadata"]["name"] for each in cluster.api.get(path)["items"]]


def test_an_upgrade_is_rolled_back(cluster: World, namespace: str, values: Path) -> None:
    """Upgrades change flags of both programs and add objects, one names an image that does not exist. After each
    rollback the objects are as they were, users' pods have kept running with their GPUs, and new gangs start."""
    chart = ROOT / "daemonset/chart"
    _helm("upgrade", "--install", "lockstep", chart, "-f", values, "--take-ownership", "--wait")
    _ready(cluster)
    first = _revisions()[-1][0]
    crds, specs, budgets = _crds(cluster), _spec_of(cluster), _budgets(cluster)
    cluster.apply(namespace, *_gang("stays", 2, 5))
    stays = {p["metadata"]["uid"] for p in cluster.running(namespace, 2)}
    held = cluster.agreed()

    changes = (
        "scheduler.flags.patience=1200",
        "agent.flags.report-every=7",
        "components.pdb.enabled=true",
    )
    _helm(
        *("upgrade", "lockstep", chart, "-f", values, "--wait"),
        *(word for change in changes for word in ("--set", change)),
    )
    scheduler, agent = _spec_of(cluster)
    assert "--patience=1200" in scheduler["containers"][0]["args"]
    assert "--report-every=7" in agent["containers"][0]["args"]
    assert set(_budgets(cluster)) > set(budgets)
    _ready(cluster)
    assert cluster.agreed() == held

    _helm("rollback", "lockstep", str(first), "--wait")
    assert _revisions()[-1] == (first + 2, "deployed", f"Rollback to {first}")
    assert (_spec_of(cluster), _budgets(cluster), _crds(cluster)) == (specs, budgets, crds)
    _ready(cluster)
    assert _running(cluster, namespace) == stays
    assert cluster.agreed() == held

    broken = ("--set", "scheduler.image.tag=no-such-tag", "--wait", "--timeout", "20s")
    where = ("--kubeconfig", verbs.kubeconfig(), "--namespace", NAMESPACE)
    failed = helm_program.run("upgrade", "lockstep", chart, "-f", values, *broken, *where)
    assert failed.returncode, "no image of this tag exists"
    assert _revisions()[-1][1] == "failed"
    cluster.apply(namespace, *_gang("meanwhile", 1, 3))
    until("the old scheduler to place a gang", lambda: len(_running(cluster, namespace)) == 3, 90)
    _helm("rollback", "lockstep", "--wait")
    assert _revisions()[-1][1] == "deployed"
    assert _spec_of(cluster) == specs
    cluster.forget_centre()
    cluster.apply(namespace, *_gang("after", 1, 3))
    until("a gang to start after it", lambda: len(_running(cluster, namespace)) == 4, 90)
    assert stays <= _running(cluster, namespace)

    running = _running(cluster, namespace)
    _helm("uninstall", "lockstep", "--wait")
    assert _crds(cluster) == crds, "users' Jobs, Queues and PodGroups outlive an uninstallation"
    assert cluster.podgroup(namespace, "stays")["spec"]["minMember"] == 2
    assert _running(cluster, namespace) == running
