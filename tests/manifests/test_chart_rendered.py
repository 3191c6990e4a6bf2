"""The Helm chart as Helm renders it: the same objects as the kustomization, with each component too."""

import re
from collections.abc import Iterator
from pathlib import Path, PurePath
from typing import Any

import pytest
import yaml

from tests.docs.pages import DOCS
from tests.manifests import helm_program
from tests.manifests.chart_files import CHART, COMMANDS, COMPONENTS, flags, in_values
from tests.manifests.test_components import objects

pytestmark = [pytest.mark.slow, pytest.mark.timeout(helm_program.BUILD_S)]

NAMESPACE = "lockstep-system"
SPECIAL: dict[str, dict[str, Any]] = {  # what a kustomization has in a copy of the folder
    "namespaces": {"names": ["team-a", "team-b"]},
    "critical-quota": {"namespaces": ["team-a", "team-b"]},
}
Objects = dict[tuple[str, str, str], Any]


def rendered(folder: Path, values: dict[str, Any], namespace: str = NAMESPACE) -> Objects:
    values = {"namespace": {"create": True}, "crds": {"keep": False}, **values}
    return by_key(helm_program.template(CHART, values, folder, namespace))


def by_key(manifests: list[Any]) -> Objects:
    made = {}
    for each in manifests:
        meta = each["metadata"]
        key = (each["kind"], meta.get("namespace", ""), meta["name"])
        assert key not in made, f"{key} twice"
        made[key] = comparable(each)
    return made


def comparable(each: Any) -> Any:
    """Without orders that mean nothing: of flags, of volumes and of their mounts. Of a flag that is
    given twice the last one holds."""
    spec = each.get("spec", {}).get("template", {}).get("spec")
    for container in (spec or {}).get("containers", ()):
        command, *given = container["args"]
        last = {flag.partition("=")[0]: flag for flag in given}
        container["args"] = [command, *sorted(last.values())]
        container["volumeMounts"].sort(key=lambda mount: str(mount["name"]))
    if spec:
        spec["volumes"].sort(key=lambda volume: str(volume["name"]))
    return each


def kustomized(folder: Path, *components: str) -> Objects:
    return by_key(objects(folder, *components))


def chosen(*components: str) -> dict[str, Any]:
    return {in_values(name): {"enabled": True, **SPECIAL.get(name, {})} for name in components}


def test_the_defaults_are_the_kustomization(tmp_path: Path) -> None:
    assert rendered(tmp_path, {}) == kustomized(tmp_path)


@pytest.mark.parametrize("name", COMPONENTS)
def test_each_component_is_that_of_the_kustomization(tmp_path: Path, name: str) -> None:
    wanted = kustomized(tmp_path, name)
    found = rendered(tmp_path, {"components": chosen(name)})
    assert found == wanted
    assert found != kustomized(tmp_path)


def test_all_components_together(tmp_path: Path) -> None:
    """kernel after rdma, as its first lines say: both set --cgroup-root."""
    ordered = [*(name for name in COMPONENTS if name != "kernel"), "kernel"]
    wanted = kustomized(tmp_path, *ordered)
    assert rendered(tmp_path, {"components": chosen(*ordered)}) == wanted


def values_on_pages() -> Iterator[Any]:
    """Each example of values for the chart: YAML whose first words are keys of values.yaml."""
    keys = yaml.safe_load((CHART / "values.yaml").read_text()).keys()
    for page in sorted((DOCS / "how-to").glob("*.md")):
        blocks = re.findall(r"^```yaml\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for at, block in enumerate(blocks):
            parts = list(yaml.safe_load_all(block))
            values = parts[0] if len(parts) == 1 and isinstance(parts[0], dict) else {"": 0}
            kustomization = isinstance(values.get("components"), list)
            if values.keys() <= keys and not kustomization:
                yield pytest.param(values, id=f"{page.stem}-{at}")


@pytest.mark.parametrize("values", list(values_on_pages()))
def test_values_on_pages_are_accepted_and_change_the_objects(tmp_path: Path, values: Any) -> None:
    assert rendered(tmp_path, values) != rendered(tmp_path, {})


def test_lint() -> None:
    done = helm_program.run("lint", "--strict", CHART)
    assert not done.returncode, done.stdout + done.stderr


def test_the_crds_survive_and_the_namespace_is_not_made_by_default(tmp_path: Path) -> None:
    found = by_key(helm_program.template(CHART, {}, tmp_path, NAMESPACE))
    definitions = [each for (kind, *_), each in found.items() if kind == "CustomResourceDefinition"]
    assert len(definitions) == 8
    for each in definitions:
        assert each["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [key for key in found if key[0] == "Namespace"]


def test_another_namespace_is_named_everywhere(tmp_path: Path) -> None:
    values = {"components": chosen(*COMPONENTS)}
    found = rendered(tmp_path, values, "gpu")
    for key, each in found.items():
        assert NAMESPACE not in yaml.safe_dump(each), key


WORKLOADS = {
    "scheduler.flags": "lockstep-central",
    "agent.flags": "lockstep-agent",
    "components.cpuNodes.flags": "lockstep-agent-cpu",
    "components.mps.flags": "lockstep-keeper",
}


@pytest.mark.parametrize("path", COMMANDS)
def test_every_flag_can_be_set(tmp_path: Path, path: str) -> None:
    """One after the other would take minutes, so all at once; the schema knows their kinds."""
    given: dict[str, Any] = {}
    for name, action in flags(COMMANDS[path]).items():
        number = "7:7" if name.endswith("listen") else 1500000
        given[name] = True if action.nargs == 0 else [*(action.choices or [number])][-1]
    values: dict[str, Any] = {"flags": given, "extraArgs": ["--more"]}
    for key in reversed(path.split(".")[:-1]):
        values = {key: {**values, "enabled": True} if key in ("mps", "cpuNodes") else values}
    workload = WORKLOADS[path]
    found = rendered(tmp_path, values)
    [each] = [
        each
        for (_, _, name), each in found.items()
        if name == workload and "template" in each.get("spec", {})
    ]
    args = each["spec"]["template"]["spec"]["containers"][0]["args"]
    for name, value in given.items():
        assert (f"--{name}" if value is True else f"--{name}={value}") in args
    assert "--more" in args


def test_placement_and_metadata_reach_the_pods(tmp_path: Path) -> None:
    pod: dict[str, Any] = {
        "nodeSelector": {"pool": "infra"},
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "podAnnotations": {"a": "b"},
        "podLabels": {"c": "d"},
        "extraEnv": [{"name": "E", "value": "1"}],
        "extraVolumes": [{"name": "v", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "v", "mountPath": "/v"}],
        "priorityClassName": "mine",
        "resources": {"limits": {"memory": "9Gi"}},
        "image": {"repository": "r.example/x", "digest": "sha256:" + "0" * 64},
    }
    values = {
        "imagePullSecrets": [{"name": "s"}],
        "commonLabels": {"team": "infra"},
        "scheduler": {**pod, "replicas": 3, "affinity": {}},
        "agent": {**pod, "runtimeClassName": "nvidia", "sharing": {"default": "0-3: mps"}},
    }
    found = rendered(tmp_path, values)
    assert found["ConfigMap", NAMESPACE, "lockstep-sharing"]["data"] == {"default": "0-3: mps"}
    assert all(each["metadata"]["labels"]["team"] == "infra" for each in found.values())
    for kind, name in (("Deployment", "lockstep-central"), ("DaemonSet", "lockstep-agent")):
        template = found[kind, NAMESPACE, name]["spec"]["template"]
        spec, container = template["spec"], template["spec"]["containers"][0]
        assert template["metadata"]["annotations"] == pod["podAnnotations"]
        assert pod["podLabels"].items() <= template["metadata"]["labels"].items()
        assert pod["nodeSelector"].items() <= spec["nodeSelector"].items()
        assert spec["tolerations"] == pod["tolerations"]
        assert spec["priorityClassName"] == "mine"
        assert spec["imagePullSecrets"] == [{"name": "s"}]
        assert container["image"] == "r.example/x@" + pod["image"]["digest"]
        assert container["resources"]["limits"]["memory"] == "9Gi"
        assert pod["extraEnv"][0] in container["env"]
        assert pod["extraVolumeMounts"][0] in container["volumeMounts"]
        assert pod["extraVolumes"][0] in spec["volumes"]
    assert found["Deployment", NAMESPACE, "lockstep-central"]["spec"]["replicas"] == 3
    agent = found["DaemonSet", NAMESPACE, "lockstep-agent"]["spec"]["template"]["spec"]
    assert agent["runtimeClassName"] == "nvidia"


def test_checks_without_copies_need_no_cuda(tmp_path: Path) -> None:
    found = rendered(tmp_path, {"components": {"preflight": {"enabled": True, "depth": "links"}}})
    agent = found["DaemonSet", NAMESPACE, "lockstep-agent"]["spec"]["template"]["spec"]
    [container] = agent["containers"]
    assert "--preflight=links" in container["args"]
    assert {"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "utility"} in container["env"]
    assert container["resources"]["limits"]["memory"] == "512Mi"


def test_a_kubelet_elsewhere(tmp_path: Path) -> None:
    found = rendered(tmp_path, {"agent": {"flags": {"kubelet-dir": "/data/kubelet"}}})
    spec = found["DaemonSet", NAMESPACE, "lockstep-agent"]["spec"]["template"]["spec"]
    paths = [each.get("hostPath", {}).get("path", "") for each in spec["volumes"]]
    mounts = [each["mountPath"] for each in spec["containers"][0]["volumeMounts"]]
    for folder in ("device-plugins", "pod-resources"):
        assert f"/data/kubelet/{folder}" in paths
        assert f"/data/kubelet/{folder}" in mounts


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ("agent.flags.servre=a:1", "servre"),
        ("scheduler.flags.placement=packed", "placement"),
        ("scheduler.replicas=-1", "replicas"),
        ("components.mops.enabled=true", "mops"),
        ("agent.image.digest=latest", "digest"),
        ("components.namespaces.enabled=true", "components.namespaces.names"),
        ("components.criticalQuota.enabled=true", "components.criticalQuota.namespaces"),
        ("scheduler.flags.metrics-listen=null", "scheduler.flags.metrics-listen"),
    ],
)
def test_a_wrong_value_is_refused_by_its_name(given: str, named: str) -> None:
    done = helm_program.run("template", "lockstep", CHART, "--set", given)
    assert done.returncode
    assert named in done.stderr


def test_a_flag_set_to_null_is_left_out(tmp_path: Path) -> None:
    found = rendered(
        tmp_path, {"scheduler": {"flags": {"console-listen": None, "leader-elect": False}}}
    )
    spec = found["Deployment", NAMESPACE, "lockstep-central"]["spec"]["template"]["spec"]
    args = " ".join(spec["containers"][0]["args"])
    assert "console-listen" not in args
    assert "leader-elect" not in args


def test_the_history_on_a_claim_of_one_node(tmp_path: Path) -> None:
    claim = {"persistentVolumeClaim": {"claimName": "lockstep-history"}}
    values = {
        "scheduler": {"replicas": 1, "strategy": {"type": "Recreate"}},
        "components": {"history": {"enabled": True, "size": 64, "volume": claim}},
    }
    spec = rendered(tmp_path, values)["Deployment", NAMESPACE, "lockstep-central"]["spec"]
    assert spec["strategy"] == {"type": "Recreate"}
    pod = spec["template"]["spec"]
    assert {"name": "history", **claim} in pod["volumes"]
    assert "--history-size=64" in pod["containers"][0]["args"]


def test_policies_have_the_names_that_the_scheduler_serves(tmp_path: Path) -> None:
    values = {"components": chosen("admission")}
    for given, listed in (
        (["a", "b"], '["a","b"]'),
        ("c", '["c"]'),
        (None, '["lockstep","volcano"]'),
    ):
        flag = {"scheduler": {"flags": {"scheduler-names": given}}}
        found = rendered(tmp_path, {**values, **flag})
        policy = found["ValidatingAdmissionPolicy", "", "lockstep-disruption"]
        assert f" in {listed}" in policy["spec"]["matchConditions"][0]["expression"]


def test_nodes_of_kind_read_captures(tmp_path: Path) -> None:
    """The files that daemonset/kind names exist, where its cluster puts them and its chart's agents read them."""
    folder = CHART.parent / "kind"
    made = rendered(tmp_path, yaml.safe_load((folder / "values.yaml").read_text()))
    pod = made["DaemonSet", NAMESPACE, "lockstep-agent"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    (capture,) = (
        PurePath(each.partition("=")[2])
        for each in container["args"]
        if each.startswith("--capture=")
    )
    (volume,) = (each for each in pod["volumes"] if each["name"] == "captures")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "captures")
    workers = yaml.safe_load((folder / "cluster.yaml").read_text())["nodes"][1:]
    for worker in workers:
        (put,) = worker["extraMounts"]
        assert put["containerPath"] == volume["hostPath"]["path"]
        assert (
            CHART.parents[1] / put["hostPath"] / capture.relative_to(mount["mountPath"])
        ).is_file()
        assert worker["labels"]["lockstep.dev/agent"] == "true"
    assert len(workers) == 4
