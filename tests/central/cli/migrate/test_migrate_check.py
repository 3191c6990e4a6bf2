"""`lockstep migrate check` against an API server, with objects as Volcano, Kueue and NVIDIA's device plugin write
them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from central.cli import object_pages
from central.cli.main import MIGRATE_SOURCES
from central.cli.migrate import cluster_objects, migrate_command
from central.standalone.apiserver import StandaloneApi
from protos.names import RACK
from tests.central.cli.conftest import api, client, lockstep, put
from tests.central.cli.run_cli import JOBS, PODS, Json, Lockstep, mpi
from tests.central.custom_resources import DEFINITIONS, definition
from tests.manifests.manifests import ROOT

__all__ = ["api", "client", "lockstep", "put"]  # fixtures

Put = Callable[[str, Json], Json]
DEPLOYMENTS = "/apis/apps/v1/namespaces/{}/deployments"
QUEUES = "/apis/scheduling.volcano.sh/v1beta1/queues"
GPU_CONTAINER = {"name": "m", "image": "i", "resources": {"limits": {"nvidia.com/gpu": "8"}}}


@pytest.fixture
def volcano_system(put: Put) -> None:
    put("/api/v1/namespaces", {"metadata": {"name": "volcano-system"}})


def workload(name: str, image: str, kind: str = "Deployment") -> Json:
    template = {
        "metadata": {"labels": {"app": name}}, "spec": {"containers": [{"name": "c", "image": image}]},
    }  # fmt: skip
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": 1, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def checked(lockstep: Lockstep, *argv: str, code: int = 0) -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = json.loads(
        lockstep("migrate", "check", *argv, "-o", "json", code=code)
    )["findings"]
    return found


def test_an_empty_cluster_has_nothing_to_change(lockstep: Lockstep) -> None:
    assert lockstep("migrate", "check") == "Nothing of volcano, kueue, kube-scheduler was found.\n"


@pytest.mark.usefixtures("volcano_system")
def test_volcano_at_work_must_go_first(put: Put, lockstep: Lockstep) -> None:
    for name, image in (
        ("volcano-scheduler", "vc-scheduler"),
        ("volcano-controllers", "vc-controller-manager"),
    ):
        put(
            DEPLOYMENTS.format("volcano-system"),
            workload(name, f"docker.io/volcanosh/{image}:v1.12.0"),
        )
    put(JOBS, mpi("runs", "Running"))
    put(JOBS, mpi("ended", "Completed"))
    ours = mpi("ours", "Running")
    put(JOBS, {**ours, "spec": {**ours["spec"], "schedulerName": "lockstep"}})
    numa = mpi("numa", "Pending")
    numa["spec"]["tasks"][0]["topologyPolicy"] = "single-numa-node"
    numa["metadata"]["annotations"] = {"sla-waiting-time": "1h"}
    put(JOBS, numa)
    put(
        QUEUES,
        {"metadata": {"name": "q"}, "spec": {"weight": 1, "affinity": {"nodeGroupAffinity": {}}}},
    )
    vgpu = {"name": "m", "image": "i", "resources": {"limits": {"volcano.sh/vgpu-number": "1"}}}
    put(
        PODS,
        {"metadata": {"name": "p"}, "spec": {"schedulerName": "volcano", "containers": [vgpu]}},
    )
    text = lockstep("migrate", "check", "volcano", code=1)
    assert "Remove before Lockstep starts:\n" in text
    assert "workload volcano-system/volcano-scheduler: remove it" in text
    assert "workload volcano-system/volcano-controllers: remove it" in text
    assert "2 active Jobs (default/numa, default/runs): wait for their end" in text
    assert (
        "1 Job (default/numa): topologyPolicy restricted and single-numa-node are refused" in text
    )
    assert "sla-waiting-time has no effect: use --patience" in text
    assert "1 Queue (q): spec.affinity has no effect" in text
    assert "1 pod (default/p): have schedulerName volcano, which Lockstep serves too" in text
    assert "ask for volcano.sh/vgpu-number: use lockstep.dev/gpu-share" in text
    assert "default/ended" not in text


@pytest.mark.usefixtures("volcano_system")
def test_a_scheduler_that_is_scaled_to_zero_is_no_obstacle(put: Put, lockstep: Lockstep) -> None:
    stopped = workload("volcano-scheduler", "volcanosh/vc-scheduler:v1.12.0")
    stopped["spec"]["replicas"] = 0
    put(DEPLOYMENTS.format("volcano-system"), stopped)
    assert checked(lockstep, "volcano") == {"volcano": []}


def cluster_queue(name: str, *flavours: Json, **spec: Any) -> Json:
    groups = [{"coveredResources": ["nvidia.com/gpu"], "flavors": list(flavours)}]
    return {"metadata": {"name": name}, "spec": {"resourceGroups": groups, **spec}}


def flavour(name: str, **quota: str) -> Json:
    return {"name": name, "resources": [{"name": "nvidia.com/gpu", **quota}]}


def test_quotas_of_kueue_become_queues(put: Put, lockstep: Lockstep) -> None:
    put(DEFINITIONS, definition("kueue.x-k8s.io", "v1beta1", "ClusterQueue", "Cluster"))
    put(DEFINITIONS, definition("kueue.x-k8s.io", "v1beta1", "LocalQueue"))
    path = "/apis/kueue.x-k8s.io/v1beta1/"
    put(f"{path}clusterqueues", cluster_queue("alone", flavour("h100", nominalQuota="16")))
    put(f"{path}clusterqueues", cluster_queue(
        "team", flavour("h100", nominalQuota="32", borrowingLimit="8", lendingLimit="24"),
        flavour("a100", nominalQuota="10", borrowingLimit="0"), cohort="research",
    ))  # fmt: skip
    put(
        f"{path}clusterqueues",
        cluster_queue("free", flavour("h100", nominalQuota="4"), cohort="research"),
    )
    put(f"{path}clusterqueues", cluster_queue("odd", flavour("h100", nominalQuota="many")))
    put(
        f"{path}namespaces/default/localqueues",
        {"metadata": {"name": "main"}, "spec": {"clusterQueue": "team"}},
    )
    labels = {"kueue.x-k8s.io/queue-name": "main"}
    put(
        PODS,
        {"metadata": {"name": "held", "labels": labels}, "spec": {"containers": [GPU_CONTAINER]}},
    )
    found = {each["about"]: each["text"] for each in checked(lockstep, "kueue")["kueue"]}
    assert found["ClusterQueue alone"] == (
        "make a Queue alone: deserved {nvidia.com/gpu: 16}, capability {nvidia.com/gpu: 16}"
    )
    assert found["ClusterQueue team"].startswith(
        "make a Queue team: deserved {nvidia.com/gpu: 42}, guarantee {nvidia.com/gpu: 8}, "
        "capability {nvidia.com/gpu: 50}, parent research (a Queue too); quota of the flavours h100, a100 "
    )
    assert found["ClusterQueue free"] == (
        "make a Queue free: deserved {nvidia.com/gpu: 4}, parent research (a Queue too)"
    )
    assert "is not a quantity" in found["ClusterQueue odd"]
    assert found["LocalQueue default/main"].endswith("scheduling.volcano.sh/queue-name: team")
    assert "1 workload (default/held)" in found


def test_a_device_plugin_must_leave_and_pods_need_another_scheduler(
    put: Put, lockstep: Lockstep
) -> None:
    put(DEFINITIONS, definition("apps", "v1", "DaemonSet"))
    image = "nvcr.io/nvidia/k8s-device-plugin:v0.17.1"
    plugin = workload("nvdp-nvidia-device-plugin", image, "DaemonSet")
    del plugin["spec"]["replicas"]
    put("/apis/apps/v1/namespaces/default/daemonsets", plugin)
    for name, scheduler in (("a", "default-scheduler"), ("b", "lockstep")):
        put(
            PODS,
            {
                "metadata": {"name": name},
                "spec": {"schedulerName": scheduler, "containers": [GPU_CONTAINER]},
            },
        )
    found = checked(lockstep, "kube-scheduler", code=1)["kube-scheduler"]
    levels = {each["about"]: each["level"] for each in found}
    assert levels == {
        "DaemonSet default/nvdp-nvidia-device-plugin": "stop", "1 pod (default/a)": "change"}  # fmt: skip


def test_only_nodes_without_a_rack_are_to_be_labelled(put: Put, lockstep: Lockstep) -> None:
    for name, labels, gpus in (("a", {RACK: "r1"}, "8"), ("b", {}, "8"), ("c", {}, "0")):
        status = {"capacity": {"nvidia.com/gpu": gpus}}
        put("/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})
    [found] = checked(lockstep, "kube-scheduler")["kube-scheduler"]
    assert (found["level"], found["about"]) == ("note", "1 GPU node (b)")


def test_lists_are_bounded(put: Put, lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_pages, "PAGE", 2)
    monkeypatch.setattr(cluster_objects, "MOST", 4)
    for number in range(6):
        put(PODS, {"metadata": {"name": f"p{number}"}, "spec": {"containers": [GPU_CONTAINER]}})
    [pods] = checked(lockstep, "kube-scheduler")["kube-scheduler"]
    assert pods["about"].startswith("4 pods")


def test_the_command_names_its_sources() -> None:
    assert tuple(migrate_command.SOURCES) == MIGRATE_SOURCES


def test_an_unknown_source(lockstep: Lockstep) -> None:
    assert "slurm" in lockstep("migrate", "check", "slurm", code=2)


@pytest.mark.usefixtures("volcano_system")
def test_the_scheduler_does_not_start_beside_volcano(
    api: StandaloneApi, put: Put, tmp_path: Path
) -> None:
    put("/api/v1/namespaces", {"metadata": {"name": "lockstep-system"}})
    meta = {"name": "volcano-scheduler-5b", "labels": {"app": "volcano-scheduler"}}
    spec = {"serviceAccountName": "volcano-scheduler", "containers": [{"name": "c", "image": "i"}]}
    put("/api/v1/namespaces/volcano-system/pods", {"metadata": meta, "spec": spec})
    kubeconfig = api.write_kubeconfig(tmp_path / "other-kubeconfig")
    command = [sys.executable, "-m", "central", "central", "--kubeconfig", str(kubeconfig)]
    command += ["--listen", "127.0.0.1:0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode
    named = "Volcano runs on this cluster (volcano-system/volcano-scheduler-5b)"
    assert named in done.stderr
    assert "or start with --beside-volcano" in done.stderr
