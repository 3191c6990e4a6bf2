"""MIG slices as the driver reports them: their profiles, and that their GPU is not allocated whole."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.health import gpu_health
from agent.machine import capture
from agent.machine.facts import GpuFacts, Machine, SliceFacts
from agent.machine.slice_profiles import profile
from agent.machine.survey import survey
from protos import slicing, topology_json, wire
from tests.agent.nvml_fixture import CAPTURES, Hardware, library

pytestmark = pytest.mark.slow

MIB = 1 << 20
A100 = GpuFacts(0, model="NVIDIA A100-SXM4-40GB", memory_bytes=40536 * MIB)
H100 = GpuFacts(0, model="NVIDIA H100 80GB HBM3", memory_bytes=81559 * MIB)
A30 = GpuFacts(0, model="NVIDIA A30", memory_bytes=24576 * MIB)
MACHINE = capture.load(CAPTURES / "dgx-a100-mig-8.json")


@pytest.mark.parametrize(
    ("gpu", "mib", "gi", "ci", "expected"),
    [
        (A100, 4864, 1, 1, "1g.5gb"),
        (A100, 9856, 1, 1, "1g.10gb"),
        (A100, 9984, 2, 2, "2g.10gb"),
        (A100, 20096, 3, 3, "3g.20gb"),
        (A100, 20096, 3, 1, "1c.3g.20gb"),
        (A100, 20096, 4, 4, "4g.20gb"),
        (A100, 40192, 7, 7, "7g.40gb"),
        (H100, 9984, 1, 1, "1g.10gb"),
        (H100, 40448, 4, 4, "4g.40gb"),
        (H100, 81152, 7, 7, "7g.80gb"),
        (A30, 5952, 1, 1, "1g.6gb"),
        (A30, 12032, 2, 2, "2g.12gb"),
        (replace(A30, memory_bytes=0), 5952, 1, 1, "1g.6gb"),
    ],
)
def test_a_profile_by_size(gpu: GpuFacts, mib: int, gi: int, ci: int, expected: str) -> None:
    part = SliceFacts("MIG-1", "", 1, 0, gi, ci, mib * MIB)
    assert profile(gpu, part) == expected
    assert profile(gpu, replace(part, name=f"{gpu.model} MIG {expected}")) == expected


@pytest.mark.parametrize("named", ["1g.5gb+me", "1g.12gb-me", "1c.3g.20gb", "2g.20gb+me.all"])
def test_profiles_that_only_the_name_tells_apart(named: str) -> None:
    assert profile(A100, SliceFacts("MIG-1", f"NVIDIA A100 MIG {named}")) == named
    assert "+" not in slicing.resource(named)
    assert slicing.resource("1g.5gb+me") == "nvidia.com/mig-1g.5gb.me"


def test_slices_are_read_back_through_nvml(nvml_folder: Path, tmp_path: Path) -> None:
    hardware = Hardware(nvml_folder, tmp_path)
    hardware.install(MACHINE)
    file = tmp_path / "captured.json"
    file.write_text(hardware.seen("capture"))
    assert capture.load(file).nvml.gpus == MACHINE.nvml.gpus
    table = hardware.seen("topology")
    sixth = survey(MACHINE).gpus[6]
    assert [part.profile for part in sixth.slices] == ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"]
    assert f"  GPU6  3g.20gb  gi 1   ci 0  {sixth.slices[0].uuid}\n" in table
    assert table.count("1g.5gb") == 9


def test_mig_mode_without_slices_and_a_pending_mode_are_shown(
    nvml_folder: Path, tmp_path: Path
) -> None:
    gpus = list(MACHINE.nvml.gpus)
    gpus[5] = replace(gpus[5], mig_change=True)
    gpus[6] = replace(gpus[6], slices=(), mig_change=True)
    machine = replace(MACHINE, nvml=replace(MACHINE.nvml, gpus=tuple(gpus)))
    hardware = Hardware(nvml_folder, tmp_path)
    hardware.install(machine)
    table = hardware.seen("topology")
    assert "GPU5: MIG mode is on after the next reset" in table
    assert "GPU6: MIG mode is on without slices (nvidia-smi mig -i 6 -cgi" in table
    assert "GPU6: MIG mode is off after the next reset" in table
    assert "Not fit" not in table


def test_a_driver_without_mig(tmp_path: Path) -> None:
    lacks = ("nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount")
    hardware = Hardware(library(tmp_path / "lib", lacks), tmp_path)
    hardware.install(MACHINE)
    assert "MIG" not in hardware.seen("topology")


@pytest.mark.parametrize(
    "lacks",
    [
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ],
)
def test_a_driver_that_lists_no_slices(lacks: str, tmp_path: Path) -> None:
    """The GPU is in MIG mode nevertheless."""
    hardware = Hardware(library(tmp_path / "lib", (lacks,)), tmp_path)
    hardware.install(MACHINE)
    assert "GPU6: MIG mode is on without slices" in hardware.seen("topology")


def test_a_gpu_in_mig_mode_is_healthy_but_not_allocatable_whole() -> None:
    seen = survey(MACHINE)
    assert all(gpu.healthy for gpu in seen.gpus)
    assert seen.healthy_mask() == 0b0011_1111
    assert seen.islands == ((0, 1, 2, 3, 4, 5), (6,), (7,))
    assert seen.weak == ()
    assert topology_json.to_json("n", seen)["gpus"][6]["mig"]  # type: ignore[index]
    assert wire.from_topology(wire.to_topology(seen)) == seen


def test_two_slices_with_one_uuid_are_refused() -> None:
    seen = survey(MACHINE)
    message = wire.to_topology(seen)
    message.gpus[7].slices[0].uuid = message.gpus[6].slices[0].uuid
    with pytest.raises(ValueError, match="two MIG slices have the same uuid"):
        wire.from_topology(message)
    twice = replace(MACHINE.nvml.gpus[6], slices=MACHINE.nvml.gpus[6].slices[:1] * 2)
    gpus = (*MACHINE.nvml.gpus[:6], twice, MACHINE.nvml.gpus[7])
    text = capture.dumps(replace(MACHINE, nvml=replace(MACHINE.nvml, gpus=gpus)))
    with pytest.raises(capture.CaptureError, match=r"gpus\[6\].slices\[1\].uuid: MIG-"):
        capture.loads(text)


def test_slice_changes_are_seen_while_another_gpu_is_lost() -> None:
    known = survey(MACHINE)
    gpus = list(MACHINE.nvml.gpus)
    gpus[0] = GpuFacts(0, fault="lost")
    gpus[6] = replace(gpus[6], slices=gpus[6].slices[:1])
    now = survey(Machine(replace(MACHINE.nvml, gpus=tuple(gpus)), MACHINE.sysfs))
    kept_layout = gpu_health.keep_layout(known, now)
    assert len(kept_layout.gpus[6].slices) == 1
    gone = replace(MACHINE.nvml, gpus=(*MACHINE.nvml.gpus[:7], GpuFacts(7, fault="lost")))
    kept = gpu_health.keep_layout(known, survey(Machine(gone, MACHINE.sysfs)))
    assert kept.gpus[7].mig
    assert len(kept.gpus[7].slices) == 7
