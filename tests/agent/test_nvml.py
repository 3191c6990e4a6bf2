"""nvml.read() through the real nvidia-ml-py on the fake library: what drivers and GPUs lack.

Each machine is read by a process of its own, since a process loads NVML once."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine import capture
from agent.machine.facts import GpuFacts, Machine, NvmlFacts
from tests.agent.nvml_box import nvml_box
from tests.agent.nvml_fixture import CAPTURES, Hardware, library
from tests.fakes.nodebox import gpus, pod
from tests.fakes.nvml import build

OLD_DRIVER = (
    "nvmlDeviceGetNvLinkRemoteDeviceType",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetNumaNodeId",
    "nvmlDeviceGetModuleId",
    "nvmlDeviceGetMemoryAffinity",
    "nvmlDeviceGetCpuAffinityWithinScope",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCurrentClocksEventReasons",  # its older name is known
)


def named(name: str) -> Machine:
    return capture.load(CAPTURES / f"{name}.json")


def read(folder: Path, machine: Machine, tmp_path: Path) -> NvmlFacts:
    hardware = Hardware(folder, tmp_path / "machine")
    hardware.install(machine)
    return capture.loads(hardware.seen("capture")).nvml


def without(machine: Machine, **changes: object) -> Machine:
    """The machine with every GPU changed."""
    gpus = tuple(replace(gpu, **changes) for gpu in machine.nvml.gpus)  # type: ignore[arg-type]
    return replace(machine, nvml=replace(machine.nvml, gpus=gpus))


def test_queries_that_an_old_driver_lacks_have_defaults(tmp_path: Path) -> None:
    old = library(tmp_path / "old", hide=OLD_DRIVER)
    told = read(old, without(named("gb200-nvl72-tray-4"), clock_events=0x40), tmp_path)
    assert told.cuda_version == ""
    for gpu in told.gpus:
        assert (gpu.fabric, gpu.memory_numa, gpu.memory_affinity) == (None, -1, "")
        assert {link.remote for link in gpu.nvlinks} == {""}
        assert gpu.uuid.startswith("GPU-")
        assert gpu.clock_events == 0x40


def test_gpus_without_pci_addresses_are_allocated_and_keep_their_health(tmp_path: Path) -> None:
    """Jetson, and other machines whose GPU is no PCI device."""
    bare = library(tmp_path / "bare", hide=("nvmlDeviceGetPciInfo_v3",))
    with nvml_box(bare) as box:
        assert [line for line in box.hardware.seen("topology").splitlines() if "GPU7" in line]
        with box.running():
            box.control.set("lost", 6, build.GPU_IS_LOST)
            box.assert_healthy(7)
            assert sorted(gpus(box.kubelet.add_pod(pod("a", 7)))) == [0, 1, 2, 3, 4, 5, 7]


def test_queries_that_a_gpu_does_not_support_have_defaults(
    nvml_folder: Path, tmp_path: Path
) -> None:
    bare = Machine(NvmlFacts("1", "1", "", (GpuFacts(0, uuid="GPU-0", pci="0000:05:00.0"),)))
    expected = replace(bare.nvml.gpus[0], p2p_nvlink=(-1,), ancestors=(-1,))
    hardware = Hardware(nvml_folder, tmp_path / "machine")
    (tmp_path / "machine/sys").mkdir(parents=True)
    hardware.install_profile(build.profile(bare))
    assert capture.loads(hardware.seen("capture")).nvml.gpus == (expected,)


def test_a_gpu_that_fell_off_the_bus_keeps_its_place(nvml_folder: Path, tmp_path: Path) -> None:
    machine = named("dgx-a100-8")
    listed = list(machine.nvml.gpus)
    listed[2] = replace(listed[2], fault="GPU is lost")
    told = read(
        nvml_folder, replace(machine, nvml=replace(machine.nvml, gpus=tuple(listed))), tmp_path
    )
    assert [gpu.index for gpu in told.gpus] == list(range(8))
    assert told.gpus[2] == GpuFacts(2, fault="NVML can't reach it: GPU is lost")
    assert told.gpus[0].p2p_nvlink == (-1, 0, -1, 0, 0, 0, 0, 0)


def test_no_gpus_is_no_error(nvml_folder: Path, tmp_path: Path) -> None:
    assert read(nvml_folder, Machine(NvmlFacts("1", "1")), tmp_path) == NvmlFacts("1", "1")


def test_mig_mode_is_read(nvml_folder: Path, tmp_path: Path) -> None:
    told = read(nvml_folder, without(named("single-gpu"), mig=True), tmp_path)
    assert told.gpus[0].mig


def test_affinities_of_odd_forms(nvml_folder: Path, tmp_path: Path) -> None:
    for text in ("0", "3,5,7", "0-63", "63-64", "0-3,127-128,2047"):
        told = read(nvml_folder, without(named("single-gpu"), cpu_affinity=text), tmp_path)
        assert told.gpus[0].cpu_affinity == text


def test_the_library_knows_its_profile_by_its_own_place(nvml_folder: Path, tmp_path: Path) -> None:
    hardware = Hardware(None, tmp_path / "machine")
    hardware.install(named("pcie-plx-8"))
    place = tmp_path / "host/usr/lib64"
    place.mkdir(parents=True)
    (place / build.LIBRARY).write_bytes((nvml_folder / build.LIBRARY).read_bytes())
    profile = hardware.folder / build.PROFILE
    (place / build.PROFILE).write_text(profile.read_text())
    profile.unlink()
    environment = ("--driver-root", str(tmp_path / "host"), "--sysfs-root", str(hardware.sysfs))
    done = hardware.run("capture", *environment)
    assert done.returncode == 2, "LOCKSTEP_FAKE_NVML names a file that is not there: no driver"
    done = hardware.run_as_installed("capture", *environment)
    assert capture.loads(done.stdout).nvml == named("pcie-plx-8").nvml


@pytest.mark.parametrize(
    ("error", "words"), [(18, "have different versions"), (9, "the NVIDIA driver is not loaded")]
)
def test_a_driver_that_was_replaced_is_found_at_another_place(
    error: int, words: str, nvml_folder: Path, tmp_path: Path
) -> None:
    """The toolkit's mount on the loader's path still has the old library, or one that finds no driver. First both
    places have the right one, then the old driver is gone, then the new library is there."""
    program = """
import sys
from pathlib import Path
from agent import nvml
old, new, mismatch, working = map(Path, sys.argv[2:])
def look():
    try:
        return str(len(nvml.read(sys.argv[1]).gpus))
    except nvml.NvmlError as error:
        return str(error)
print(look())
old.write_text(mismatch.read_text())
new.write_text(mismatch.read_text())
print(look())
new.write_text(working.read_text())
print(look())
print(look())
old.write_text(working.read_text())
new.write_text(mismatch.read_text())
print(look())
"""
    loader, host = tmp_path / "loader", tmp_path / "host/usr/lib64"
    profile = build.profile(named("dgx1-v100-8"))
    for place in (loader, host):
        place.mkdir(parents=True)
        (place / build.LIBRARY).write_bytes((nvml_folder / build.LIBRARY).read_bytes())
        (place / build.PROFILE).write_text(profile)
    (tmp_path / "mismatch").write_text(f"init_error {error}\n")
    (tmp_path / "working").write_text(profile)
    files = (loader / build.PROFILE, host / build.PROFILE, tmp_path / "mismatch")
    hardware = Hardware(loader, tmp_path / "machine")
    done = hardware.python_as_installed(
        program, str(tmp_path / "host"), *map(str, files), str(tmp_path / "working")
    )
    assert done.stderr == ""
    first, gone, *later = done.stdout.splitlines()
    assert (first, later) == ("8", ["8", "8", "8"])
    assert words in gone


def test_a_driver_that_is_loaded_later_is_found_by_the_same_process(
    nvml_folder: Path, tmp_path: Path
) -> None:
    program = """
import sys
from pathlib import Path
from agent import nvml
try:
    nvml.read()
except nvml.NvmlError as error:
    print(error)
Path(sys.argv[1]).write_text(Path(sys.argv[2]).read_text())
print(len(nvml.read().gpus), len(nvml.read().gpus))
"""
    hardware = Hardware(nvml_folder, tmp_path / "machine")
    hardware.install_profile(build.no_driver())
    working = tmp_path / "working"
    working.write_text(build.profile(named("dgx1-v100-8")))
    done = hardware.python(program, str(hardware.folder / build.PROFILE), str(working))
    assert done.stderr == ""
    assert done.stdout.splitlines()[0].startswith("the NVIDIA driver is not loaded")
    assert done.stdout.splitlines()[1] == "8 8"
