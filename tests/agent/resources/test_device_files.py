from pathlib import Path

import pytest

from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.cdi import Injection
from agent.resources.device_files import DeviceFiles, gpu_files
from agent.resources.whole_gpu import WholeGpuResource
from tests.fakes import machines

MINORS = {"GPU-a": 3, "GPU-b": 0, "GPU-c": -1}


def machine(root: Path, *names: str) -> Path:
    for name in names:
        (root / name).touch()
    return root


def test_those_that_exist(tmp_path: Path) -> None:
    assert gpu_files(["GPU-a"], MINORS, "auto", tmp_path) == ()
    dev = machine(tmp_path, "nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm")
    assert gpu_files(["GPU-a"], MINORS, "auto", dev) == (
        "/dev/nvidia3",
        "/dev/nvidiactl",
        "/dev/nvidia-uvm",
    )
    assert gpu_files(["GPU-c"], MINORS, "auto", dev) == ()
    assert gpu_files(["GPU-a"], MINORS, "never", dev) == ()


def test_all_or_an_error(tmp_path: Path) -> None:
    dev = machine(tmp_path, "nvidia0", "nvidiactl")
    with pytest.raises(ValueError, match="--pass-device-nodes=always"):
        gpu_files(["GPU-b"], MINORS, "always", dev)
    machine(tmp_path, "nvidia-uvm")
    assert len(gpu_files(["GPU-b"], MINORS, "always", dev)) == 3


def imex(policy: str, dev: Path, channel: int = 0) -> tuple[int, tuple[str, ...]]:
    return DeviceFiles(AgentNode("n"), {}, policy, dev, dev, imex_channel=channel).imex()


def test_an_imex_channel_where_the_node_has_it(tmp_path: Path) -> None:
    assert imex("auto", tmp_path) == (-1, ())
    with pytest.raises(ValueError, match="nvidia-caps-imex-channels/channel0 is missing"):
        imex("always", tmp_path)
    (tmp_path / "nvidia-caps-imex-channels").mkdir()
    (tmp_path / "nvidia-caps-imex-channels/channel0").touch()
    assert imex("auto", tmp_path) == (0, ("/dev/nvidia-caps-imex-channels/channel0",))
    assert imex("never", tmp_path) == (0, ())
    assert imex("auto", tmp_path, -1) == (-1, ())


def test_containers_with_whole_gpus_get_the_channel(tmp_path: Path) -> None:
    (tmp_path / "nvidia-caps-imex-channels").mkdir()
    (tmp_path / "nvidia-caps-imex-channels/channel0").touch()
    node = AgentNode("n")
    node.set_topology(survey(machines.machine()))
    files = DeviceFiles(node, {}, "auto", tmp_path, tmp_path, imex_channel=0)
    plain = Injection("env", "lockstep.dev/gpu", "LOCKSTEP_GPU", None, dict)
    given = WholeGpuResource(files.of, plain, imex=files.imex).response(
        [machines.uuid(2)], node.state
    )
    assert given.envs["NVIDIA_IMEX_CHANNELS"] == "0"
    assert given.device_nodes == ("/dev/nvidia-caps-imex-channels/channel0",)
    without = WholeGpuResource(files.of, plain).response([machines.uuid(2)], node.state)
    assert "NVIDIA_IMEX_CHANNELS" not in without.envs
