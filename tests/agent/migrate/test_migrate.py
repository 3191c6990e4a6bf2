"""lockstep-agent migrate: what other device plugins' configuration and pods become."""

import json
from pathlib import Path
from typing import Any

import pytest

from agent.__main__ import main
from agent.machine.facts import Unusable
from agent.migrate.translate import plugin_config, pod
from agent.sharing import sharing_mode
from protos.gpu_sharing import WHOLE

TIME_SLICES = """
version: v1
flags: {migStrategy: mixed, plugin: {deviceListStrategy: [envvar, cdi-cri]}}
sharing:
  timeSlicing:
    renameByDefault: true
    resources: [{name: nvidia.com/gpu, replicas: 4}]
imex: {channelIDs: [0]}
"""
MPS = """
version: v1
sharing: {mps: {resources: [{name: nvidia.com/gpu, replicas: 3}]}}
"""


def workload(limits: dict[str, object], annotations: dict[str, str] | None = None) -> Any:
    main = {"name": "main", "resources": {"limits": limits}}
    template = {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [main]}}
    return {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "team"},
        "spec": {"template": template},
    }


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["migrate", *arguments]) == 0
    return capsys.readouterr().out


def write(folder: Path, name: str, content: object) -> str:
    file = folder / name
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(file)


def test_time_slices(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = {
        "kind": "ConfigMap",
        "metadata": {"name": "plugin", "namespace": "gpu-operator"},
        "data": {"default": TIME_SLICES, "other": "some: text"},
    }
    pods = {"kind": "DeploymentList", "items": [workload({"nvidia.com/gpu.shared": "2"})]}
    files = write(tmp_path, "config.json", config), write(tmp_path, "pods.json", pods)
    assert run(capsys, *files).splitlines() == [
        "ConfigMap gpu-operator/plugin, default:",
        '  ConfigMap lockstep-sharing, key default or the node\'s name: "all"',
        "  pods: nvidia.com/gpu.shared: 1 becomes lockstep.dev/gpu-share: 25",
        "  daemonset/kustomization.yaml: components/mig",
        "  daemonset/kustomization.yaml: components/cdi",
        "  the agent's arguments: --imex-channel=0",
        "Deployment team/web:",
        "  containers[main]: nvidia.com/gpu.shared: 2 -> lockstep.dev/gpu-share: 50",
    ]


def test_mps(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "config.yaml", MPS)
    found = json.loads(run(capsys, file, "-o", "json"))["configs"][file]
    assert (found["sharing"], found["share"], found["components"]) == ("all: mps", 33, ["mps"])
    sharing_mode.parse(found["sharing"])  # raises ValueError


@pytest.mark.parametrize("replicas", range(2, 101))
def test_as_many_shares_fit_as_replicas(replicas: int) -> None:
    rows = [{"name": "nvidia.com/gpu", "replicas": replicas}]
    config = plugin_config({"version": "v1", "sharing": {"timeSlicing": {"resources": rows}}}, "f")
    assert config.share * replicas <= WHOLE < (config.share + 1) * replicas
    assert not config.notes


def test_what_has_no_equivalent_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each setting by its path, and the exit code says that there is something."""
    rows = [
        {"name": "nvidia.com/mig-1g.5gb", "replicas": 2},
        {"name": "nvidia.com/gpu", "replicas": 200, "devices": ["0", "1"]},
        {"name": "nvidia.com/gpu", "replicas": 4},
    ]
    config = {
        "version": "v1",
        "flags": {
            "migStrategy": "single",
            "gdsEnabled": True,
            "mofedEnabled": False,
            "plugin": {"deviceIDStrategy": "uuid", "cdiAnnotationPrefix": "x/"},
        },
        "resources": {"gpus": [{"pattern": "*", "name": "gpu"}]},
        "sharing": {
            "mps": {"resources": rows, "failRequestsGreaterThanOne": False},
            "timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 8}]},
        },
        "imex": {"required": True},
    }
    file = write(tmp_path, "config.json", config)
    assert main(["migrate", file, "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)["configs"][file]
    assert (found["sharing"], found["share"]) == ("all: mps", 1)
    assert [note.partition(":")[0] for note in found["notes"]] == [file, "resources"]
    mps = f"{file}: sharing.mps.resources"
    assert [each.rpartition(": ")[0] or each for each in found["lost"]] == [
        f"{mps}[0]",
        f"{mps}[1]",
        f"{mps}[1].devices: ['0', '1']",
        f"{mps}[2]",
        f"{file}: sharing.timeSlicing.resources[0]",
        "flags.migStrategy single: slices are offered as nvidia.com/mig-PROFILE, not as nvidia.com/gpu",
        "flags.gdsEnabled",
        "flags.plugin.cdiAnnotationPrefix",
        "imex.required",
    ]
    assert main(["migrate", file]) == 1
    assert "  no equivalent: flags.gdsEnabled: True" in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize(
    ("resource", "lost"),
    [
        ("nvidia.com/gpu", False),
        ("nvidia.com/mig-1g.10gb", False),
        ("nvidia.com/mig-1g.10gb.shared", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/a100", True),
        ("volcano.sh/vgpu-number", True),
        ("aliyun.com/gpu-mem", True),
        ("example.com/fpga", False),
    ],
)
@pytest.mark.parametrize("where", [("containers", "limits"), ("initContainers", "requests")])
def test_a_resource_that_is_not_offered_here_is_named(
    resource: str,
    lost: bool,
    where: tuple[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    kind, part = where
    spec = {kind: [{"name": "main", "resources": {part: {resource: "1"}}}]}
    file = write(tmp_path, "pod.json", {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    assert main(["migrate", file]) == int(lost)
    assert (
        f"{kind}[main]: {resource}: 1 -> no such resource here" in capsys.readouterr().out
    ) == lost


def test_resource_claims_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = {"resourceClaims": [{"name": "gpu"}], "containers": [{"name": "main"}]}
    file = write(tmp_path, "pod.json", {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    assert main(["migrate", file]) == 1
    assert (
        "served by a DRA driver alone: without one request nvidia.com/gpu"
        in capsys.readouterr().out
    )


def test_hami(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    limits: dict[str, object] = {
        "nvidia.com/gpu": 1,
        "nvidia.com/gpumem": 10000,
        "nvidia.com/gpucores": 30,
    }
    file = write(tmp_path, "pods.json", workload(limits, {"nvidia.com/use-gputype": "A100"}))
    shown = run(capsys, file, "--gpu-memory", "40000").splitlines()
    assert shown == [
        "Deployment team/web:",
        "  metadata.annotations: nvidia.com/use-gputype -> use the annotation lockstep.dev/gpu-model",
        "  containers[main]: nvidia.com/gpu: 1, nvidia.com/gpumem: 10000, nvidia.com/gpucores: 30 -> "
        "lockstep.dev/gpu-share: 30",
        "  metadata.annotations: nvidia.com/gpumem: 10000 -> lockstep.dev/gpu-memory: 10000Mi",
    ]
    assert "lockstep.dev/gpu-share: 50" in run(capsys, file, "--gpu-memory", "20000")


@pytest.mark.parametrize(
    ("limits", "after"),
    [
        ({"nvidia.com/gpumem-percentage": 40}, "lockstep.dev/gpu-share: 40"),
        ({"nvidia.com/gpucores": 100}, "lockstep.dev/gpu-share: 100"),
        ({"nvidia.com/gpumem": 1000}, "--gpu-memory"),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpucores": 50}, "use whole GPUs"),
    ],
)
def test_hamis_requests(limits: dict[str, object], after: str) -> None:
    made = workload(limits)["spec"]["template"]
    assert after in next(pod(made, None, 0)).after


def test_whole_gpus_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path, "pods.json", workload({"nvidia.com/gpu": 8}))
    assert run(capsys, file).startswith("nothing to change")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"version": "v2", "sharing": {}}, 'version: must be "v1"'),
        ({"version": "v1", "sharing": {"mps": {"resources": [{"replicas": 1}]}}}, "[0].replicas"),
        ({"version": "v1", "sharing": {"mps": {"resources": "all"}}}, "must be a list"),
        ({"version": "v1", "flags": [1]}, "flags: must be an object"),
        (workload({"nvidia.com/gpucores": "half"}), '"half" is not a whole number'),
        ("{", "not JSON"),
        ("a: [", "not YAML"),
        ("- 1", "not an object"),
    ],
)
def test_bad_input_is_named(
    content: object, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, "bad", content)
    assert main(["migrate", file]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert file in said


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "/none"]) == 2
    assert "/none can't be read" in capsys.readouterr().err


def test_the_version_is_asked_for() -> None:
    with pytest.raises(Unusable):
        plugin_config({}, "f")
