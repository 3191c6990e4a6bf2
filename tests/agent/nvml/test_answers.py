"""What each query's return code means: not supported here, a finding, or a fault of the GPU. NVML is the fake
library."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from agent.machine import capture, plausible, unanswered
from agent.machine.facts import GpuFacts, Machine, NvmlFacts, Platform, Wear
from agent.machine.survey import survey
from agent.nvml import library, reader
from agent.nvml.library import Answer
from tests.agent.nvml_driver import Driver, loaded, of
from tests.agent.nvml_fixture import CAPTURES
from tests.fakes.nvml import build

CODES = sorted(
    value for name, value in vars(pynvml).items() if name.startswith("NVML_ERROR_") and value
)
NEWER = (31, 77, -5)  # no codes of this binding
UNSUPPORTED = {2, 3, 6, 7, 13, 21, 22, 24, 25, 26}
DENIED, CORRUPT, GPU_IS_LOST, UNKNOWN = 4, 14, 15, 999
MEMORY, MIG_MODE = "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMigMode"
SYMBOLS = {  # of queries with other names
    "ecc": "nvmlDeviceGetTotalEccErrors",
    "recovery": "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPciInfo": "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetNvLinkRemotePciInfo": "nvmlDeviceGetNvLinkRemotePciInfo_v2",
}


def machine(name: str) -> Machine:
    return capture.load(CAPTURES / f"{name}.json")


@pytest.fixture
def driver(nvml_folder: Path, tmp_path: Path) -> Iterator[Driver]:
    with loaded(nvml_folder, tmp_path) as made:
        yield made


def install(driver: Driver, name: str, **changes: Any) -> None:
    """A machine whose GPUs answer every query: two at most, with slices if it has some. changes: to the second one."""
    sliced = [gpu for gpu in machine(name).nvml.gpus if gpu.slices]
    gpus = [
        replace(
            gpu,
            index=index,
            p2p_nvlink=(),
            ancestors=(),
            serial=f"s{index}",
            module_id=index,
            memory_numa=index,
            pcie_generation=5,
            pcie_width=16,
            platform=Platform("rack", 1, 2, 3, index),
            wear=Wear(0, 0, recovery=0),
            mig_change=gpu.mig,
        )
        for index, gpu in enumerate((sliced or machine(name).nvml.gpus)[:2])
    ]
    if changes:
        gpus[1] = replace(gpus[1], **changes)
    driver.install(of(*gpus))
    for key in ("pages", "rows_pending"):
        for gpu in gpus:
            driver.control.set(key, gpu.index, 0)


class Surveys:
    """Surveys of a driver, as the agent makes them one after the other."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.answered: unanswered.Answered = {}
        self.notes: tuple[str, ...] = ()

    def unhealthy(self) -> dict[int, str]:
        found, self.notes = plausible.checked(Machine(reader.read(self.driver.root)))
        self.answered, nvml = unanswered.since(self.answered, found.nvml)
        gpus = survey(Machine(nvml)).gpus
        return {gpu.index: gpu.why for gpu in gpus if not gpu.healthy}


def asked(driver: Driver) -> list[str]:
    """The calls of the library that a survey queries with an answer, without numbers."""
    gpu = reader.read(driver.root).gpus[0]
    names = {name.partition("(")[0] for name in gpu.answered}
    return sorted({SYMBOLS.get(name, name) for name in names} - {"nvmlDeviceGetUUID"})


def test_each_code_has_its_class() -> None:
    expected = dict.fromkeys(CODES, Answer.FAULT)
    expected |= dict.fromkeys(UNSUPPORTED, Answer.UNSUPPORTED)
    expected |= {DENIED: Answer.DENIED, CORRUPT: Answer.CORRUPT, UNKNOWN: Answer.UNKNOWN}
    expected |= dict.fromkeys(NEWER, Answer.UNKNOWN)
    assert {code: library.classify(code) for code in expected} == expected


@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("hgx-h100-8", (*CODES, *NEWER)),
        ("dgx-a100-mig-8", (CORRUPT, GPU_IS_LOST, UNKNOWN)),
        ("l40s-4", (CORRUPT, GPU_IS_LOST, UNKNOWN)),
    ],
)
def test_each_query_with_each_code(driver: Driver, name: str, codes: tuple[int, ...]) -> None:
    """One GPU fails a query that it answered before and that the one beside it answers. In MIG mode a denied query has
    a finding of its own."""
    install(driver, name)
    calls = asked(driver)
    assert len(calls) >= 16
    for call in calls:
        surveys = Surveys(driver)
        assert surveys.unhealthy() == {}
        for code in codes:
            driver.control.fail(call, code, 1)
            found = surveys.unhealthy()
            noted = "GPU 1: its InfoROM is corrupted (" in "".join(surveys.notes)
            kind = library.classify(code)
            if kind in (Answer.UNSUPPORTED, Answer.CORRUPT):
                assert (found, noted) == ({}, code == CORRUPT), (call, code)
            elif kind is not Answer.DENIED:
                assert list(found) == [1], (call, code)
                assert found[1].startswith("NVML "), (call, code)
            driver.control.forget("fail")
        assert surveys.unhealthy() == {}, call


def test_a_half_dead_gpu_is_told_by_those_beside_it_and_by_its_past(driver: Driver) -> None:
    install(driver, "hgx-h100-8")
    driver.control.set("erring", 1, UNKNOWN)
    after_a_restart = Surveys(driver).unhealthy()
    assert list(after_a_restart) == [1]
    assert after_a_restart[1].startswith("NVML answers UNKNOWN to ")
    assert after_a_restart[1].endswith(" more queries, which a GPU like it answers")
    driver.control.forget("erring")
    install(driver, "single-gpu")
    surveys = Surveys(driver)
    assert surveys.unhealthy() == {}
    driver.control.fail("nvmlDeviceGetSerial", UNKNOWN)
    assert surveys.unhealthy() == {0: "NVML answers UNKNOWN to Serial, which it answered before"}
    assert Surveys(driver).unhealthy() == {}, "the GPU may never have told its serial number"
    driver.control.forget("fail")
    assert surveys.unhealthy() == {}
    driver.control.set("erring", 0, UNKNOWN)
    assert Surveys(driver).unhealthy() == {0: "NVML reports no memory"}, "alone, and no past"


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetMaxMigDeviceCount",
        "nvmlDeviceGetMigDeviceHandleByIndex",
        "nvmlDeviceGetGpuInstanceId",
        "nvmlDeviceGetComputeInstanceId",
    ],
)
def test_unknown_slices_are_no_empty_list(driver: Driver, call: str) -> None:
    """In the first survey, without a GPU beside it that answers: it would have no slices, and nobody would know."""
    install(driver, "dgx-a100-mig-8")
    driver.control.fail(call, UNKNOWN)
    found = Surveys(driver).unhealthy()
    assert list(found) == [0, 1]
    assert found[0].startswith(f"NVML answers UNKNOWN to {call.removeprefix('nvmlDeviceGet')}")
    driver.control.forget("fail")
    assert Surveys(driver).unhealthy() == {}


def test_what_a_kind_of_gpu_cannot_tell_is_no_fault(driver: Driver) -> None:
    install(driver, "hgx-h100-8")
    for call in asked(driver):
        if call != MEMORY:
            driver.control.fail(call, UNKNOWN)
    surveys = Surveys(driver)
    for _ in range(2):
        assert surveys.unhealthy() == {}


@pytest.mark.parametrize(
    ("call", "changes", "faults"),
    [
        ("nvmlDeviceGetSerial", {}, [1]),
        ("nvmlDeviceGetSerial", {"device_id": 0x20B010DE}, []),
        ("nvmlDeviceGetSerial", {"mig": True}, []),
        # its slices would be offered as a whole GPU
        (MIG_MODE, {"mig": True, "mig_change": True}, [1]),
    ],
)
def test_a_gpu_of_another_model_or_mode_is_not_alike(
    driver: Driver, call: str, changes: dict[str, Any], faults: list[int]
) -> None:
    install(driver, "hgx-h100-8", **changes)
    if call == MIG_MODE:  # the other one answers it: its mode is about to change
        text = (driver.folder / build.PROFILE).read_text()
        driver.profile(text.replace("\ngpu\n", "\ngpu\nmig 0 1\n", 1))
    driver.control.fail(call, UNKNOWN, 1)
    assert list(Surveys(driver).unhealthy()) == faults


def test_a_new_driver_begins_a_new_past() -> None:
    told = GpuFacts(0, "G", device_id=1, memory_bytes=1, answered=("a", "b"))
    silent = replace(told, answered=("a",), unknown=("b",))
    known, _ = unanswered.since({}, NvmlFacts("1", gpus=(told,)))
    assert unanswered.since(known, NvmlFacts("1", gpus=(silent,)))[1].gpus[0].fault
    assert not unanswered.since(known, NvmlFacts("2", gpus=(silent,)))[1].gpus[0].fault
    in_mig = replace(silent, mig=True)
    assert not unanswered.since(known, NvmlFacts("1", gpus=(in_mig,)))[1].gpus[0].fault
    no_mode = replace(in_mig, unknown=("b", MIG_MODE))
    assert unanswered.since(known, NvmlFacts("1", gpus=(no_mode,)))[1].gpus[0].fault


def test_the_far_end_of_a_link_counts_only_beside_gpus_that_are_well() -> None:
    far = "nvmlDeviceGetNvLinkRemotePciInfo_v2(3)"
    told = GpuFacts(0, "G", device_id=1, answered=(far,))
    silent = GpuFacts(1, "H", device_id=1, unknown=(far,))
    assert unanswered.beside([told, silent])[1].fault
    for third in (GpuFacts(2, fault="lost"), GpuFacts(2, unknown=("x",))):
        assert not unanswered.beside([told, silent, third])[1].fault


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, "NVML reports no memory"),
        ({"capability": "8.7"}, ""),
        ({"capability": "12.1"}, ""),
        ({"model": "Orin (nvgpu)", "capability": ""}, ""),
        ({"integrated": True}, ""),
        ({"denied": (MEMORY,)}, ""),
        ({"corrupt": (MEMORY,)}, ""),
        ({"fault": "lost"}, "lost"),
    ],
)
def test_no_memory_is_normal_on_integrated_gpus_alone(changes: dict[str, object], why: str) -> None:
    [gpu] = machine("single-gpu").nvml.gpus
    bare = replace(gpu, memory_bytes=0, **changes)  # type: ignore[arg-type]  # by name
    [found] = plausible.checked(of(bare))[0].nvml.gpus
    assert found.fault == why


def test_an_integrated_gpu_is_known_by_a_driver_without_memory_of_its_own(driver: Driver) -> None:
    [gpu] = machine("single-gpu").nvml.gpus
    driver.install(of(replace(gpu, memory_bytes=0, integrated=True)))
    [found] = reader.read(driver.root).gpus
    assert (found.memory_bytes, found.integrated) == (0, True)
    assert capture.loads(capture.dumps(of(found))).nvml.gpus[0].integrated, "a capture says so"
    assert Surveys(driver).unhealthy() == {}
    driver.install(of(replace(gpu, memory_bytes=0)))
    assert Surveys(driver).unhealthy() == {0: "NVML reports no memory"}
