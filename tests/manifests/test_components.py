"""What can be added to the shipped manifests, built by kustomize as people build it."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.manifests.manifests import FOLDER

pytestmark = pytest.mark.slow

Json = dict[str, Any]
COMPONENTS = sorted(path.name for path in (FOLDER / "components").iterdir())


def built(folder: Path, *components: str) -> dict[tuple[str, str], Json]:
    """By kind and name."""
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
    documents = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


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
    found = built(tmp_path, "network", "pdb")
    agent = found["DaemonSet", "lockstep-agent"]["spec"]["template"]
    centre = found["Deployment", "lockstep-central"]["spec"]["template"]
    for template, kind, name, field in (
        (agent, "NetworkPolicy", "lockstep-agent", "podSelector"),
        (centre, "NetworkPolicy", "lockstep-central", "podSelector"),
        (centre, "PodDisruptionBudget", "lockstep-central", "selector"),
    ):
        labels = found[kind, name]["spec"][field]["matchLabels"]
        assert labels.items() <= template["metadata"]["labels"].items()
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
