"""NVML's facts, settings and usage, read in this process: what the fake library was given is what comes back, and a
call that the driver refuses takes away its own field alone."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import pynvml
import pytest

from agent.machine import capture
from agent.machine.facts import GpuFacts, NvLink, Platform, Wear
from agent.nvml import computemode, library, memorylimits, processes, reader, usage
from agent.nvml.events import EventListener
from agent.nvml.library import Answer, NvmlError, opened, query, recorded, try_query
from agent.nvml.memorylimits import MemoryLimit
from agent.nvml.usage import Usage
from tests.agent.nvml_driver import Driver, loaded, of
from tests.agent.nvml_fixture import CAPTURES, NAMES
from tests.fakes.eventually import eventually
from tests.fakes.nvml import build

MIB = 1 << 20
NOT_SUPPORTED, NO_PERMISSION, NOT_FOUND, GPU_IS_LOST = 3, 4, 6, 15
UNSUPPORTED = (2, 3, 4, 6, 7, 13, 25, 999)


@pytest.fixture
def driver(nvml_folder: Path, tmp_path: Path) -> Iterator[Driver]:
    with loaded(nvml_folder, tmp_path) as made:
        yield made


def gpus(name: str) -> tuple[GpuFacts, ...]:
    return capture.load(CAPTURES / f"{name}.json").nvml.gpus


# --- facts --------------------------------------------------------------------------


def test_every_machine_is_read_as_it_was_captured(driver: Driver) -> None:
    for name in NAMES:
        machine = capture.load(CAPTURES / f"{name}.json")
        driver.install(machine)
        assert reader.read(driver.root) == machine.nvml, name


def test_affinities_are_the_kernels_lists(driver: Driver) -> None:
    random = Random(1)
    for most in (1, 2, 64, 65, 300, 2047):
        chosen = sorted({random.choice((0, 63, 64, random.randint(0, most))) for _ in range(40)})
        breaks = [0, *(i for i, (one, other) in enumerate(pairwise(chosen), 1) if other > one + 1)]
        runs = [chosen[i:j] for i, j in pairwise([*breaks, len(chosen)])]
        text = ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs)
        driver.install(of(GpuFacts(0, uuid="G", pci="0000:01:00.0", cpu_affinity=text)))
        [found] = reader.read(driver.root).gpus
        assert (found.cpu_affinity, found.memory_affinity) == (text, "")


RICH = replace(
    next(gpu for gpu in gpus("dgx-a100-mig-8") if gpu.slices),
    index=0,
    minor=0,
    module_id=3,
    serial="s1",
    memory_numa=1,
    memory_affinity="0,3-9",
    mig_change=True,
    pcie_generation=5,
    pcie_width=16,
    platform=Platform("rack", 1, 2, 3, 4),
    wear=Wear(2, 5, 1, True, False, True, 1),
    p2p_nvlink=(-1, 0),
    ancestors=(-1, 30),
    nvlinks=(NvLink(0, True, "gpu", "0000:02:00.0"), NvLink(1, False), NvLink(2, True, "switch")),
)
NEIGHBOUR = GpuFacts(1, uuid="G1", pci="0000:02:00.0", p2p_nvlink=(0, -1), ancestors=(30, -1))
NO_ROWS = replace(RICH.wear, rows_remapped=0, rows_pending=False, rows_failed=False)
LACKS: dict[str, dict[str, Any]] = {
    "nvmlDeviceGetName": {"model": ""},
    "nvmlDeviceGetMinorNumber": {"minor": -1},
    "nvmlDeviceGetSerial": {"serial": ""},
    "nvmlDeviceGetModuleId": {"module_id": -1},
    "nvmlDeviceGetCudaComputeCapability": {"capability": ""},
    "nvmlDeviceGetMemoryInfo": {"memory_bytes": 0},
    "nvmlDeviceGetNumaNodeId": {"memory_numa": -1},
    "nvmlDeviceGetCpuAffinityWithinScope": {"cpu_affinity": ""},
    "nvmlDeviceGetMemoryAffinity": {"memory_affinity": ""},
    "nvmlDeviceGetMigMode": {"mig": False, "mig_change": False, "slices": ()},
    "nvmlDeviceGetMigDeviceHandleByIndex": {"slices": ()},
    "nvmlDeviceGetGpuInstanceId": {"slices": ()},
    "nvmlDeviceGetComputeInstanceId": {"slices": ()},
    "nvmlDeviceGetMaxPcieLinkGeneration": {"pcie_generation": 0},
    "nvmlDeviceGetMaxPcieLinkWidth": {"pcie_width": 0},
    "nvmlDeviceGetPlatformInfo": {"platform": None},
    "nvmlDeviceGetRemappedRows": {"wear": NO_ROWS},
    "nvmlDeviceGetRetiredPagesPendingStatus": {"wear": replace(RICH.wear, pages_pending=False)},
    "nvmlDeviceGetTotalEccErrors": {"wear": replace(RICH.wear, ecc_volatile=-1, ecc_aggregate=-1)},
    "nvmlDeviceGetFieldValues": {"wear": replace(RICH.wear, recovery=-1)},
    "nvmlDeviceGetP2PStatus": {"p2p_nvlink": (-1, -1)},
    "nvmlDeviceGetTopologyCommonAncestor": {"ancestors": (-1, -1)},
    "nvmlDeviceGetAttributes_v2": {
        "slices": tuple(
            replace(part, gi_slices=0, ci_slices=0, memory_bytes=0) for part in RICH.slices
        )
    },
}


def test_a_call_that_is_refused_takes_its_own_field_away(driver: Driver) -> None:
    driver.install(of(RICH, NEIGHBOUR))
    assert reader.read(driver.root).gpus[0] == RICH
    by_their_own = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor")
    for number, (call, fields) in enumerate(LACKS.items()):
        for error in (UNSUPPORTED[number % len(UNSUPPORTED)], NO_PERMISSION):
            driver.control.fail(call, error)
            found = reader.read(driver.root).gpus[0]
            assert replace(found, denied=()) == replace(RICH, **fields), (call, error)
            told = error == NO_PERMISSION and call not in by_their_own
            assert bool(found.denied) == told, call
        driver.control.fail(call, 0)
    assert reader.read(driver.root).gpus[0] == RICH


def test_a_call_that_a_gpu_fails_is_its_fault_and_its_identity_stays(driver: Driver) -> None:
    driver.install(of(RICH, NEIGHBOUR))
    who = GpuFacts(0, RICH.uuid, RICH.model, RICH.pci, minor=RICH.minor)
    told = "NVML can't read it: "
    theirs = ("nvmlDeviceGetP2PStatus", "nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetName", "nvmlDeviceGetMinorNumber")  # fmt: skip
    for call in LACKS.keys() - set(theirs):
        driver.control.fail(call, GPU_IS_LOST)
        found = reader.read(driver.root).gpus[0]
        assert found.fault.startswith(told), call
        assert replace(found, fault="") == who
        driver.control.fail(call, 0)
    driver.control.set("lost", 0, GPU_IS_LOST)
    lost, other = reader.read(driver.root).gpus
    assert lost.fault
    assert (lost.index, other.index, other.p2p_nvlink) == (0, 1, (-1, -1))


def test_versions_that_a_driver_does_not_tell_are_empty(driver: Driver) -> None:
    found = reader.read(driver.root)
    assert (found.driver_version, found.nvml_version, found.cuda_version) == ("580.1", "13.580.1", "13.0")  # fmt: skip
    for call in ("DriverVersion", "NVMLVersion", "CudaDriverVersion_v2"):
        driver.control.fail(f"nvmlSystemGet{call}", NOT_SUPPORTED)
    found = reader.read(driver.root)
    assert (found.driver_version, found.nvml_version, found.cuda_version) == ("", "", "")


# --- usage -----------------------------------------------------------------------------


def test_usage_is_what_each_gpu_reports(driver: Driver) -> None:
    driver.install(of(*gpus("dgx-a100-8")[:2]))
    one, other = (gpu.uuid for gpu in gpus("dgx-a100-8")[:2])
    for key, value in (("used", 7 * MIB), ("utilization", 42), ("temperature", 61), ("power", 350_500)):  # fmt: skip
        driver.control.set(key, 1, value)
    for link, errors in ((0, 3), (1, 4), (2, 50)):
        driver.control.set("link_errors", 1, link, errors)
    first, second = usage.read(driver.root, {other: (0, 1)})
    assert (first.uuid, first.link_errors) == (one, None)
    assert second == Usage(other, 7 * MIB, 0.42, 61, 350.5, 7)
    for call in ("MemoryInfo", "UtilizationRates", "Temperature", "PowerUsage"):
        driver.control.fail(f"nvmlDeviceGet{call}", NOT_SUPPORTED)
    bare = (Usage(one), Usage(other, link_errors=50))
    assert usage.read(driver.root, {other: (2, 99)}) == bare
    assert usage.read(driver.root, {other: (99,)}) == (Usage(one), Usage(other))
    driver.control.set("lost", 0, GPU_IS_LOST)
    assert usage.read(driver.root, {}) == (Usage(other),)


def test_of_slices_the_memory_is_told(driver: Driver) -> None:
    driver.install(of(RICH))
    part = RICH.slices[0]
    driver.control.set("slice_used", 0, part.gi, 5)
    whole, *parts = usage.read(driver.root, {})
    assert whole.uuid == RICH.uuid
    assert [each.uuid for each in parts] == [each.uuid for each in RICH.slices]
    assert parts[0] == Usage(part.uuid, 5 * MIB)
    driver.install(of(replace(RICH, mig=False, slices=())))
    assert [each.uuid for each in usage.read(driver.root, {})] == [RICH.uuid]


def test_memory_of_processes_is_told_by_pid(driver: Driver) -> None:
    driver.install(of(GpuFacts(0, uuid="G0", pci="0000:01:00.0"), NEIGHBOUR))
    driver.control.set("process", 0, 11, 3)
    driver.control.set("process", 0, 12, 4)
    wanted: dict[str, Any] = {"G0": {11: 3 * MIB, 12: 4 * MIB}, "G1": {}, "G2": None}
    assert processes.read(driver.root, tuple(wanted)) == wanted
    driver.control.fail("nvmlDeviceGetComputeRunningProcesses_v3", NOT_SUPPORTED)
    assert processes.read(driver.root, ["G0"]) == {"G0": None}


# --- settings ---------------------------------------------------------------------------


def test_the_compute_mode_is_that_which_was_set(driver: Driver) -> None:
    driver.install(of(GpuFacts(0, uuid="G0", pci="0000:01:00.0"), NEIGHBOUR))
    for mode in (3, 1, 2, 0):
        computemode.write(driver.root, "G0", mode)
        assert (computemode.read(driver.root, "G0"), computemode.read(driver.root, "G1")) == (mode, 0)  # fmt: skip
    could_not = "could not set the compute mode of GPU G0"
    with pytest.raises(NvmlError, match=f"^{could_not}: Invalid"):
        computemode.write(driver.root, "G0", 4)
    driver.control.set("admin", 0, 0)
    with pytest.raises(NvmlError, match=f"^{could_not}: capability SYS_ADMIN is missing$"):
        computemode.write(driver.root, "G0", 1)
    with pytest.raises(NvmlError, match=r"^NVML stopped answering: Not Found"):
        computemode.read(driver.root, "G9")


def test_a_memory_limit_is_that_of_its_cgroup(driver: Driver, tmp_path: Path) -> None:
    driver.install(of(GpuFacts(0, uuid="G0", pci="0000:01:00.0")))
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "cgroup.controllers").touch()
    driver.control.set("limit_used", 0, 5 * MIB)
    limit = MemoryLimit(64 * MIB, 5 * MIB)
    assert memorylimits.write(driver.root, "G0", one, 64 * MIB) == limit
    assert memorylimits.read(driver.root, "G0", one) == limit
    assert memorylimits.read(driver.root, "G0", other).limit == 2**64 - 1
    sentences = {
        13: "this driver does not limit GPU memory by cgroup (615",
        NOT_SUPPORTED: "this driver does not limit GPU memory by cgroup (615",
        NO_PERMISSION: "could not {} the GPU memory limit: the agent lacks the capability SYS_ADMIN",
        NOT_FOUND: "could not {} the GPU memory limit: Not Found",
    }
    calls: dict[str, Callable[[], object]] = {
        "set": lambda: memorylimits.write(driver.root, "G0", one, MIB),
        "read": lambda: memorylimits.read(driver.root, "G0", one),
    }
    for error, sentence in sentences.items():
        driver.control.fail("nvmlDeviceSetMemoryLimits_v1", error)
        driver.control.fail("nvmlDeviceGetMemoryLimits_v1", error)
        for verb, call in calls.items():
            with pytest.raises(NvmlError) as failure:
                call()
            assert str(failure.value).startswith(sentence.format(verb))


# --- the library -----------------------------------------------------------------------


@pytest.mark.parametrize("folder", library.FOLDERS)
def test_the_library_is_found_wherever_drivers_install_it(
    nvml_folder: Path, tmp_path: Path, folder: str
) -> None:
    made = Driver(nvml_folder, tmp_path / "host", f"opt/{folder}")
    made.install(of(NEIGHBOUR))
    link = tmp_path / "host" / folder / build.LIBRARY
    link.parent.mkdir(parents=True)
    (tmp_path / "host/etc").mkdir()
    inside = Path("/etc/alternatives")  # absolute, as the host sees it
    (tmp_path / f"host{inside}").symlink_to(f"/opt/{folder}/{build.LIBRARY}")
    link.symlink_to(inside)
    try:
        assert len(reader.read(tmp_path / "host").gpus) == 1
    finally:
        library._forget()


def test_where_there_is_no_library_the_fix_is_told(tmp_path: Path) -> None:
    with pytest.raises(NvmlError, match=f"is not on the loader's path or below {tmp_path}: inst"):
        reader.read(tmp_path)
    with pytest.raises(NvmlError, match="is not on the loader's path: install the NVIDIA driver"):
        reader.read()
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64" / build.LIBRARY).write_text("no library")
    with pytest.raises(NvmlError, match=f"^could not load NVIDIA's library {build.LIBRARY}: "):
        reader.read(tmp_path)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (9, "the NVIDIA driver is not loaded: load the kernel module"),
        (18, "the NVIDIA driver's library and kernel module have different versions"),
        (NO_PERMISSION, "no permission to open the NVIDIA driver's devices"),
        (999, "could not initialise NVML: Unknown Error"),
    ],
)
def test_a_driver_that_cannot_be_used_is_told_and_used_once_it_can(
    driver: Driver, error: int, sentence: str
) -> None:
    driver.profile(f"init_error {error}\n")
    for _ in range(2):
        with pytest.raises(NvmlError, match=f"^{sentence}"):
            reader.read(driver.root)
        assert pynvml.nvmlLib is None
    driver.install(of(NEIGHBOUR))
    assert len(reader.read(driver.root).gpus) == 1


def test_answers_are_collected_for_a_thread_and_a_block(driver: Driver) -> None:
    driver.install(of(NEIGHBOUR))
    driver.control.fail("nvmlDeviceGetName", NO_PERMISSION)
    driver.control.fail("nvmlDeviceGetSerial", NOT_SUPPORTED)
    with opened(driver.root):
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert query(pynvml.nvmlDeviceGetName, handle) is None, "outside of a block"
        with recorded() as answers:
            assert query(pynvml.nvmlDeviceGetName, handle) is None
            assert query(pynvml.nvmlDeviceGetSerial, handle) is None
            assert query(pynvml.nvmlDeviceGetUUID, handle) == "G1"
        assert answers == {
            "nvmlDeviceGetName": Answer.DENIED,
            "nvmlDeviceGetSerial": Answer.UNSUPPORTED,
            "nvmlDeviceGetUUID": Answer.VALUE,
        }
        driver.control.fail("nvmlDeviceGetUUID", GPU_IS_LOST)
        assert try_query(pynvml.nvmlDeviceGetUUID, handle) is None
        with pytest.raises(pynvml.NVMLError):
            query(pynvml.nvmlDeviceGetUUID, handle)
    assert library._inside == 0
    with (
        pytest.raises(NvmlError, match=r"^NVML stopped answering: GPU is lost"),
        opened(driver.root),
    ):
        pynvml.nvmlDeviceGetUUID(handle)
    assert library._inside == 0


def test_events_are_told_with_the_gpu_the_xid_and_the_instance(driver: Driver) -> None:
    silent = GpuFacts(2, uuid="G2", pci="0000:03:00.0")
    driver.install(of(GpuFacts(0, uuid="G0", pci="0000:01:00.0"), NEIGHBOUR, silent))
    driver.control.set("events", 2, 0)
    found: list[tuple[str, int, int, int]] = []
    stop, listener = threading.Event(), EventListener(driver.root, lambda *told: found.append(told))
    thread = threading.Thread(target=listener.run, args=(stop,), daemon=True)
    thread.start()
    try:
        eventually(lambda: listener.listening == 2)
        driver.control.xid(1, 79)
        driver.control.xid(0, 94, 3, 0)
        eventually(lambda: len(found) == 2)
    finally:
        stop.set()
        driver.control.xid(0, 1)  # ends the wait
        thread.join(10)
    assert found[:2] == [("G1", 79, -1, -1), ("G0", 94, 3, 0)]
    assert (listener.listening, thread.is_alive()) == (0, False)
