"""What can be added to the shipped manifests, built by kustomize as people build it."""

import copy
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.flags import parser
from agent.nvml.library import FOLDERS
from agent.settings import settings
from central.cli import main
from central.server import settings as server_settings
from tests.manifests.manifests import FOLDER, parsed

pytestmark = pytest.mark.slow

Json = dict[str, Any]
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())


_built: dict[tuple[str, ...], list[Json]] = {}  # by components, of this process


def built(folder: Path, *components: str) -> dict[tuple[str, str], Json]:
    """By kind and name."""
    return {(each["kind"], each["metadata"]["name"]): each for each in objects(folder, *components)}


def objects(folder: Path, *components: str) -> list[Json]:
    """What `kubectl apply -k` applies with these components."""
    if components not in _built:
        _built[components] = _kustomized(folder, *components)
    return copy.deepcopy(_built[components])


def _kustomized(folder: Path, *components: str) -> list[Json]:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("there is no kubectl to build with")
    base = Path(os.path.relpath(FOLDER, folder))
    chosen = [str(base / "components" / name) for name in components]
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [str(base)],
        **({"components": chosen} if chosen else {}),
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    done = subprocess.run(
        [kubectl, "kustomize", str(folder)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    return parsed(done.stdout)


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_builds_and_changes_something(tmp_path: Path, name: str) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    without = built(alone)
    assert built(tmp_path, name) != without


def test_all_of_them_together(tmp_path: Path) -> None:
    found = built(tmp_path, *COMPONENTS)
    kinds = {kind for kind, _ in found}
    assert {"PodDisruptionBudget", "NetworkPolicy", "DaemonSet", "Deployment"} <= kinds
    spaces = {each["metadata"].get("namespace") for each in found.values()}
    assert spaces - {"team-a", "team-b"} == {"lockstep-system", None}


def test_policies_speak_of_the_pods_that_there_are(tmp_path: Path) -> None:
    found = built(tmp_path, "network", "pdb", "console")
    agent = found["DaemonSet", "lockstep-agent"]["spec"]["template"]
    centre = found["Deployment", "lockstep-central"]["spec"]["template"]
    for template, kind, name, field in (
        (agent, "NetworkPolicy", "lockstep-agent", "podSelector"),
        (centre, "NetworkPolicy", "lockstep-central", "podSelector"),
        (centre, "PodDisruptionBudget", "lockstep-central", "selector"),
    ):
        selector = found[kind, name]["spec"][field]
        labels = template["metadata"]["labels"]
        assert selector.get("matchLabels", {}).items() <= labels.items()
        for each in selector.get("matchExpressions", ()):
            assert labels[each["key"]] in each["values"]
    served = {port["containerPort"] for port in centre["spec"]["containers"][0]["ports"]}
    opened = found["NetworkPolicy", "lockstep-central"]["spec"]["ingress"][0]["ports"]
    assert {port["port"] for port in opened} == served
    (metrics,) = found["NetworkPolicy", "lockstep-agent"]["spec"]["ingress"][0]["ports"]
    assert metrics["port"] in {p["containerPort"] for p in agent["spec"]["containers"][0]["ports"]}
    centres, names = found["NetworkPolicy", "lockstep-agent"]["spec"]["egress"]
    (server,) = [a for a in agent["spec"]["containers"][0]["args"] if a.startswith("--server=")]
    assert server.endswith(f":{centres['ports'][0]['port']}")
    assert {port["port"] for port in names["ports"]} == {53}
    replicas = found["Deployment", "lockstep-central"]["spec"]["replicas"]
    assert found["PodDisruptionBudget", "lockstep-central"]["spec"]["maxUnavailable"] < replicas


def test_the_quota_forbids_the_class_that_is_shipped(tmp_path: Path) -> None:
    """In each namespace of the example, for a PriorityClass that exists, and never in the system namespace."""
    found = built(tmp_path, "critical-quota")
    quotas = list(yaml.safe_load_all((FOLDER / "components/critical-quota/quota.yaml").read_text()))
    spaces = {each["metadata"]["namespace"] for each in quotas}
    assert spaces == {"team-a", "team-b"}
    assert ("ResourceQuota", "no-lockstep-critical") in found
    for quota in quotas:
        assert quota["spec"]["hard"] == {"pods": "0"}
        (scope,) = quota["spec"]["scopeSelector"]["matchExpressions"]
        assert (scope["scopeName"], scope["operator"]) == ("PriorityClass", "In")
        for name in scope["values"]:
            assert ("PriorityClass", name) in found


def test_the_agent_leaves_a_node_that_nvidias_operator_drains(tmp_path: Path) -> None:
    pod = built(tmp_path, "gpu-operator")["DaemonSet", "lockstep-agent"]["spec"]["template"]["spec"]
    assert pod["nodeSelector"]["nvidia.com/gpu.deploy.device-plugin"] == "true"
    assert pod["runtimeClassName"] == "nvidia"


def test_the_rights_to_read_mig_slices(tmp_path: Path) -> None:
    template = built(tmp_path, "mig")["DaemonSet", "lockstep-agent"]["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert {"name": "NVIDIA_MIG_MONITOR_DEVICES", "value": "all"} in container["env"]
    security = container["securityContext"]
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SYS_ADMIN"]}
    assert security["allowPrivilegeEscalation"]


GPU_NODES = (
    {"nvidia.com/gpu.present": "true"},
    {"feature.node.kubernetes.io/pci-10de.present": "true"},
    {"feature.node.kubernetes.io/pci-0302_10de.present": "true"},
    {"lockstep.dev/agent": "true"},
)
OPERATED = ({"nvidia.com/gpu.deploy.device-plugin": "true"},)
DRAINED = tuple(
    {"nvidia.com/gpu.deploy.device-plugin": value}
    for value in ("false", "paused-for-driver-upgrade", "paused-for-mig-change")
)
CPU_NODES: tuple[Json, ...] = (
    {},
    {"nvidia.com/gpu.present": "false"},
    {"lockstep.dev/agent": "cpu"},
)
NO_AGENT = ({"lockstep.dev/agent": "false"}, {"node-role.kubernetes.io/control-plane": ""})


def runs_on(pod: Json, labels: Json) -> bool:
    """Whether a DaemonSet runs this pod on a node with these labels."""
    labels = {"kubernetes.io/os": "linux", **labels}
    affinity = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return pod["nodeSelector"].items() <= labels.items() and any(
        all(_holds(each, labels) for each in term["matchExpressions"])
        for term in affinity["nodeSelectorTerms"]
    )


def _holds(expression: Json, labels: Json) -> bool:
    value, values = labels.get(expression["key"]), expression.get("values", ())
    holds = {
        "In": value in values,
        "NotIn": value not in values,
        "Exists": value is not None,
        "DoesNotExist": value is None,
    }
    return holds[expression["operator"]]


def agents_of(tmp_path: Path, *components: str) -> Json:
    found = built(tmp_path, *components)
    names = ("lockstep-agent", "lockstep-agent-cpu")
    return {name: found["DaemonSet", name]["spec"]["template"]["spec"] for name in names}


@pytest.mark.parametrize("operator", [False, True])
def test_each_node_has_the_agent_that_its_runtime_can_start(tmp_path: Path, operator: bool) -> None:
    chosen = ("cpu-nodes", *(["gpu-operator"] if operator else []))
    agents = agents_of(tmp_path, *chosen)
    gpu, cpu = agents["lockstep-agent"], agents["lockstep-agent-cpu"]
    assert ("runtimeClassName" in gpu) == operator
    assert "runtimeClassName" not in cpu
    assert not {each["name"] for each in cpu["volumes"]} & {"driver", "driver-container"}
    present = {"nvidia.com/gpu.present": "true"}
    gpu_nodes = [{**each, **present} for each in OPERATED] if operator else [*GPU_NODES]
    for labels in gpu_nodes:
        assert (runs_on(gpu, labels), runs_on(cpu, labels)) == (True, False), labels
    for labels in CPU_NODES:
        assert (runs_on(gpu, labels), runs_on(cpu, labels)) == (False, True), labels
    for labels in NO_AGENT:
        assert (runs_on(gpu, labels), runs_on(cpu, labels)) == (False, False), labels
    for labels in DRAINED if operator else ():
        drained = {**labels, **present}
        assert (runs_on(gpu, drained), runs_on(cpu, drained)) == (False, False), drained


def test_the_agent_on_cpu_nodes_is_the_agent(tmp_path: Path) -> None:
    """The same image, identity and places; its arguments are some of the agent's."""
    agents = agents_of(tmp_path, "cpu-nodes")
    gpu, cpu = agents["lockstep-agent"], agents["lockstep-agent-cpu"]
    (on_gpus,), (on_cpus,) = gpu["containers"], cpu["containers"]
    assert set(on_cpus["args"]) < set(on_gpus["args"])
    assert settings(parser().parse_args(on_cpus["args"])).server
    for field in ("image", "securityContext", "livenessProbe", "readinessProbe", "ports"):
        assert on_cpus[field] == on_gpus[field]
    for each in cpu["volumes"]:
        assert each in gpu["volumes"]
    for each in on_cpus["volumeMounts"]:
        assert each in on_gpus["volumeMounts"]
    for field in ("serviceAccountName", "priorityClassName", "tolerations", "securityContext"):
        assert cpu[field] == gpu[field]


def test_gke_gives_containers_the_driver_that_the_agent_reads(tmp_path: Path) -> None:
    spec = built(tmp_path, "gke")["DaemonSet", "lockstep-agent"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    chosen = settings(parser().parse_args(container["args"]))
    ((host, inside),) = chosen.driver_mount
    assert inside == "/usr/local/nvidia"
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    (volume,) = [each for each in spec["volumes"] if each["name"] == "gke-driver"]
    assert volume["hostPath"]["path"] == host
    assert mounts["gke-driver"] == f"{chosen.driver_root}{host}"
    assert f"{host}/lib64".lstrip("/") in FOLDERS
    assert container["securityContext"]["privileged"]
    assert runs_on(spec, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})


def test_preflight_has_what_copies_need(tmp_path: Path) -> None:
    spec = built(tmp_path, "preflight")["DaemonSet", "lockstep-agent"]["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    assert settings(parser().parse_args(container["args"])).preflight == "copy"
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["NVIDIA_DRIVER_CAPABILITIES"] == "compute,utility"
    assert container["resources"]["limits"]["memory"] == "4Gi"


def test_the_history_lies_on_a_volume_with_more_than_its_size(tmp_path: Path) -> None:
    found = built(tmp_path, "history")["Deployment", "lockstep-central"]["spec"]
    spec = found["template"]["spec"]
    (container,) = spec["containers"]
    chosen = server_settings.settings(main.parser().parse_args(container["args"]))
    mounts = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert chosen.history == f"{mounts['history']}/history.db"
    (volume,) = [each for each in spec["volumes"] if each["name"] == "history"]
    # Beside the file: its write-ahead log (8 MiB), and a damaged file that was kept.
    assert volume["emptyDir"]["sizeLimit"] == "1Gi"
    assert chosen.history_mib + 8 < 1024
