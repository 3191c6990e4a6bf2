from pathlib import Path

import pytest

from agent.resources.device_files import gpu_files

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
