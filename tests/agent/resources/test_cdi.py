"""CDI specs on disk, and the answer to Allocate in each mode."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.resources.cdi import NVIDIA, Injection, Specs, spec
from agent.resources.device_resource import ContainerResponse

KIND = "lockstep.dev/gpu"
CLASSIC = ContainerResponse(
    {"NVIDIA_VISIBLE_DEVICES": "GPU-a", "LOCKSTEP_GPUS": "0"}, ("/dev/nvidia0", "/dev/nvidiactl")
)


class Machine:
    def __init__(self, root: Path) -> None:
        self.files: dict[str, tuple[str, ...]] = {
            "GPU-a": ("/dev/nvidia0", "/dev/nvidiactl"),
            "GPU-b": ("/dev/nvidia1", "/dev/nvidiactl"),
        }
        self.specs = Specs(root)

    def injection(self, mode: str, kind: str = KIND) -> Injection:
        return Injection(mode, kind, "LOCKSTEP_GPU", self.specs, lambda: self.files)

    def written(self) -> Any:
        return json.loads(self.specs.file(KIND).read_text())


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "cdi")


def test_a_spec_is_what_runtimes_read(machine: Machine) -> None:
    assert machine.injection("cdi").refresh()
    assert machine.written() == {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "containerEdits": {"deviceNodes": [{"path": "/dev/nvidiactl"}]},
        "devices": [
            {
                "name": f"GPU-{name}",
                "containerEdits": {
                    "env": [f"LOCKSTEP_GPU_{place}=GPU-{name}"],
                    "deviceNodes": [{"path": f"/dev/nvidia{place}"}],
                },
            }
            for place, name in enumerate("ab")
        ],
    }
    assert [path.name for path in machine.specs.directory.iterdir()] == ["lockstep.dev-gpu.json"]


def test_one_device_has_its_files_itself() -> None:
    (device,) = spec(KIND, {"GPU-a": ("/dev/nvidia0", "/dev/nvidiactl")}, "X")["devices"]
    assert len(device["containerEdits"]["deviceNodes"]) == 2


def test_gpus_that_are_gone_leave_the_spec_and_the_last_takes_it_along(machine: Machine) -> None:
    made = machine.injection("both")
    made.refresh()
    del machine.files["GPU-b"]
    made.refresh()
    assert [device["name"] for device in machine.written()["devices"]] == ["GPU-a"]
    machine.files.clear()
    assert made.refresh()
    assert not machine.specs.file(KIND).exists()
    machine.files["GPU-a"] = ("/dev/nvidia0",)
    assert made.refresh()
    machine.specs.file(KIND).unlink()  # an administrator cleans up
    assert made.refresh()
    assert machine.written()["devices"]


def test_what_each_mode_says(machine: Machine) -> None:
    assert machine.injection("env").apply(["GPU-a"], CLASSIC) == CLASSIC
    assert not machine.specs.directory.exists()
    both = machine.injection("both").apply(["GPU-a"], CLASSIC)
    assert both.cdi_devices == ("lockstep.dev/gpu=GPU-a",)
    assert (both.envs, both.device_nodes) == (CLASSIC.envs, CLASSIC.device_nodes)
    cdi = machine.injection("cdi").apply(["GPU-a"], CLASSIC)
    assert cdi.device_nodes == ()
    assert cdi.envs == CLASSIC.envs  # NVIDIA's runtime adds the driver's libraries


def test_nvidias_own_specs_are_only_named(machine: Machine) -> None:
    cdi = machine.injection("cdi", NVIDIA).apply(["GPU-a"], CLASSIC)
    assert cdi.cdi_devices == ("nvidia.com/gpu=GPU-a",)
    assert cdi.envs == {"NVIDIA_VISIBLE_DEVICES": "void", "LOCKSTEP_GPUS": "0"}
    assert not machine.specs.directory.exists()


def test_a_directory_that_cant_be_written(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "cdi").write_text("a file")
    machine = Machine(tmp_path / "cdi")
    assert machine.injection("both").apply(["GPU-a"], CLASSIC) == CLASSIC
    with pytest.raises(ValueError, match=r"no CDI spec of lockstep.dev/gpu for GPU-a"):
        machine.injection("cdi").apply(["GPU-a"], CLASSIC)
    assert caplog.text.count("lockstep.dev-gpu.json: ") == 1
    (tmp_path / "cdi").unlink()
    assert machine.injection("cdi").apply(["GPU-a"], CLASSIC).cdi_devices


def test_a_device_without_files_has_no_name(machine: Machine) -> None:
    with pytest.raises(ValueError, match=r"no CDI spec .* for GPU-c"):
        machine.injection("cdi").apply(["GPU-c"], CLASSIC)


@pytest.mark.parametrize("mode", ["env", "cdi", "both"])
def test_the_drivers_directory_is_mounted_in_every_mode(machine: Machine, mode: str) -> None:
    mounts = (("/home/kubernetes/bin/nvidia", "/usr/local/nvidia"),)
    injection = Injection(mode, KIND, "X", machine.specs, lambda: machine.files, mounts=mounts)
    other = ("/run/mps", "/mps", False)
    given = injection.apply(["GPU-a"], replace(CLASSIC, mounts=(other,)))
    assert given.mounts == (other, ("/home/kubernetes/bin/nvidia", "/usr/local/nvidia", True))
