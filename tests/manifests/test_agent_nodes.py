"""What of the host the agent sees, and on which nodes it runs."""

from collections.abc import Callable
from typing import Any

import pytest

from agent.gpu_setup.nvidia_tools import BINARIES
from agent.nvml.library import FOLDERS
from protos.names import AGENT
from tests.manifests.manifests import with_components

PLANE = {"node-role.kubernetes.io/control-plane": ""}
GPU_LABELS = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
)
COMPONENTS = ("cdi", "gke", "kernel", "mps", "rdma", "watch")


def pods(*components: str) -> dict[str, Any]:
    """The DaemonSets' pod specs by name."""
    return {
        each["metadata"]["name"]: each["spec"]["template"]["spec"]
        for each in with_components(*components)
        if each["kind"] == "DaemonSet"
    }


def host_paths(spec: Any) -> dict[str, str]:
    """The host's paths by the paths in the container."""
    paths = {v["name"]: v["hostPath"]["path"] for v in spec["volumes"] if "hostPath" in v}
    mounts = spec["containers"][0]["volumeMounts"]
    return {m["mountPath"]: paths[m["name"]] for m in mounts if m["name"] in paths}


def runs(spec: Any, labels: dict[str, str]) -> bool:
    """Whether the node affinity accepts a node with these labels."""
    rule = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    operators: dict[str, Callable[[str, Any], bool]] = {
        "In": lambda key, values: labels.get(key) in values,
        "Exists": lambda key, _: key in labels,
        "DoesNotExist": lambda key, _: key not in labels,
    }
    return any(
        all(operators[e["operator"]](e["key"], e.get("values")) for e in term["matchExpressions"])
        for term in rule["nodeSelectorTerms"]
    )


def test_the_agent_sees_no_more_of_the_host_than_it_reads() -> None:
    seen = host_paths(pods()["lockstep-agent"])
    kubelet = "/var/lib/kubelet"
    assert seen == {
        f"{kubelet}/device-plugins": f"{kubelet}/device-plugins",
        f"{kubelet}/pod-resources": f"{kubelet}/pod-resources",
        **{f"/host{path}": path for path in ("/sys", "/proc", "/dev", "/usr", "/run/nvidia")},
    }
    for spec in pods(*COMPONENTS).values():
        for path in host_paths(spec).values():
            assert path.startswith(
                (
                    "/sys",
                    "/proc",
                    "/dev",
                    "/usr",
                    "/run/",
                    "/var/run/cdi",
                    kubelet,
                    "/home/kubernetes/bin",
                )
            )
            assert path not in ("/run/", kubelet, f"{kubelet}/pods")


def test_only_the_kubelets_folder_is_writable() -> None:
    spec = pods()["lockstep-agent"]
    seen = host_paths(spec)
    mounts = spec["containers"][0]["volumeMounts"]
    writable = {m["mountPath"] for m in mounts if m["mountPath"] in seen and not m.get("readOnly")}
    assert {path.removeprefix("/var/lib/kubelet/") for path in writable} == {
        "device-plugins",
        "pod-resources",  # a socket
    }


@pytest.mark.parametrize("folder", [*FOLDERS, *BINARIES])
def test_every_place_of_a_driver_is_mounted(folder: str) -> None:
    """Those that no distribution but one has come with its component."""
    agent = pods("gke")["lockstep-agent"]
    spec = agent if folder in FOLDERS or "kubernetes" in folder else pods("mps")["lockstep-keeper"]
    path = f"/host/{folder}"
    if folder == "home/kubernetes/bin/nvidia/bin":
        return  # gpu-setup finds the programs of GKE's driver through NVIDIA's runtime
    assert any(path.startswith(f"{mount}/") for mount in host_paths(spec))


@pytest.mark.parametrize("name", ["lockstep-agent", "lockstep-keeper"])
def test_the_agent_runs_on_gpu_nodes_only(name: str) -> None:
    spec = pods("mps")[name]
    assert not runs(spec, {})
    assert not runs(spec, PLANE)
    for label in GPU_LABELS:
        assert runs(spec, {label: "true"})
        assert not runs(spec, {label: "false"})
        assert not runs(spec, {label: "true"} | PLANE)
        assert runs(
            spec, {label: "true", "node-role.kubernetes.io/master": ""}
        )  # retired since 1.20
        assert not runs(spec, {label: "true", AGENT: "false"})
    assert runs(spec, {AGENT: "true"})
    assert runs(spec, {AGENT: "true"} | PLANE), "who asks for it gets it"


def test_all_nodes_are_all_but_the_control_plane() -> None:
    spec = pods("all-nodes")["lockstep-agent"]
    assert runs(spec, {})
    assert not runs(spec, PLANE)
    assert not runs(spec, {AGENT: "false"})


def test_nodes_of_gke() -> None:
    spec = pods("gke")["lockstep-agent"]
    assert runs(spec, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})
    assert not runs(spec, {})
