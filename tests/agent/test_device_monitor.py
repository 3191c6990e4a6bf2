"""The device monitor on the fake NVML library: driver events, and drivers that lack calls, hang or
fail. A process loads the library once, so each test starts its own process."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nvml_box import NvmlBox, nvml_box
from tests.agent.nvml_fixture import library
from tests.fakes.nodebox import gpus, pod
from tests.fakes.nvml import build

pytestmark = pytest.mark.slow

OLD = (
    "nvmlEventSetWait_v2",
    "nvmlEventSetCreate",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlDeviceGetRemappedRows",
    "nvmlDeviceGetRetiredPagesPendingStatus",
    "nvmlDeviceGetTotalEccErrors",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetNvLinkErrorCounter",
    "nvmlDeviceGetUtilizationRates",
    "nvmlDeviceGetTemperature",
    "nvmlDeviceGetPowerUsage",
)


@pytest.fixture
def box(nvml_folder: Path) -> Iterator[NvmlBox]:
    with nvml_box(nvml_folder) as made:
        yield made


def test_an_xid_makes_a_gpu_unfit_until_it_has_been_quiet(box: NvmlBox) -> None:
    with box.running("--survey-every=60"):  # an event does not wait for the next survey
        box.assert_logged("listening for the events of 8 GPUs")
        box.control.xid(3, 31)
        box.assert_logged("XID 31: GPU memory page fault")
        box.control.xid(3, 79)
        box.assert_healthy(7)
        assert "GPU 3 (" in box.said()
        box.assert_logged("is unhealthy: XID 79: the GPU has fallen off the bus")
    assert box.said().count("is unhealthy") == 1


def test_it_is_fit_again_when_the_driver_says_so(box: NvmlBox) -> None:
    box.control.set("recovery", 2, 0)
    with box.running("--hold-xid=3600"):
        box.assert_logged("listening for the events of 8 GPUs")
        box.control.set("recovery", 2, 1)
        box.control.xid(2, 95)
        box.assert_healthy(7)
        box.assert_logged("the driver requests a reset of this GPU")
        box.control.set("recovery", 2, 0)
        box.assert_healthy(8)


def test_readings_that_speak_against_a_gpu(box: NvmlBox) -> None:
    with box.running():
        for key, words in (
            ("rows_pending", "is to be remapped"),
            ("rows_failed", "could not be remapped"),
            ("pages", "pages are to be retired"),
        ):
            box.control.set(key, 5, 1)
            box.assert_healthy(7)
            box.assert_logged(words)
            box.control.set(key, 5, 0)
            box.assert_healthy(8, 20)
        box.control.set("link", 1, 4, 0)
        box.assert_healthy(7)
        box.assert_logged("NVLink 4 is down (17 of 18 are active)")
        box.control.set("link", 1, 4, 1)
        box.assert_healthy(8, 30)


def test_a_gpu_that_vanishes_while_it_is_held_and_comes_back(box: NvmlBox) -> None:
    with box.running():
        mine = gpus(box.kubelet.add_pod(pod("a", 4)))
        box.control.set("lost", mine[0], build.GPU_IS_LOST)
        box.assert_healthy(7)
        box.assert_logged("GPU is lost")
        others = gpus(box.kubelet.add_pod(pod("b", 4)))
        assert not set(mine) & set(others), "nothing is given twice"
        box.control.set("lost", mine[0], 0)
        box.assert_healthy(8)
        box.assert_logged(f"GPU {mine[0]} (")
        box.control.xid(mine[0], 79)  # its events arrive again
        box.assert_healthy(7)


def test_a_driver_that_hangs_holds_nobody_up(box: NvmlBox) -> None:
    with box.running():
        box.control.hang("nvmlDeviceGetName", 2.0)  # for each GPU: far beyond the timeout
        box.assert_logged("the NVIDIA driver has not answered for 0.5 s")
        box.assert_healthy(0)
        refused = box.kubelet.add_pod(pod("b", 1))
        assert not refused.ok
        box.control.hang("nvmlDeviceGetName", 0)
        box.assert_healthy(8, 30)
        assert gpus(box.kubelet.add_pod(pod("c", 2)))


def test_a_hang_does_not_keep_the_agent_from_ending(box: NvmlBox) -> None:
    with box.running():
        box.control.hang("nvmlDeviceGetUUID", 3600.0)
        box.assert_logged("has not answered")


def test_calls_that_fail_leave_one_line(box: NvmlBox) -> None:
    with box.running():
        for error in (999, 3, 17):
            box.control.fail("nvmlDeviceGetTotalEccErrors", error)
            box.control.fail("nvmlEventSetWait_v2", error)
        box.assert_healthy(0)  # 17: the operating system refuses
        box.control.fail("nvmlDeviceGetTotalEccErrors", 0)
        box.assert_healthy(8)


def test_an_old_driver_knows_none_of_it(box: NvmlBox, tmp_path: Path) -> None:
    box.built = library(tmp_path / "old", hide=OLD)
    with box.running():
        box.assert_logged("no driver events")
        box.control.set("lost", 7, build.GPU_IS_LOST)
        box.assert_healthy(7)


def test_gpus_that_tell_no_events(box: NvmlBox) -> None:
    for gpu in range(8):
        box.control.set("events", gpu, 0)
    with box.running():
        box.assert_logged("listening for the events of 0 GPUs")


def test_a_disk_that_is_full_stops_nothing(box: NvmlBox) -> None:
    """A stream to which every write fails."""
    with box.running(stderr="/dev/full"):
        box.control.set("lost", 0, build.GPU_IS_LOST)
        box.assert_healthy(7)
        assert gpus(box.kubelet.add_pod(pod("a", 2)))


def test_what_was_read_is_part_of_a_capture(box: NvmlBox) -> None:
    box.control.set("ecc", 0, 3)
    box.control.set("ecc_aggregate", 0, 9)
    box.control.set("rows_pending", 0, 1)
    wear = json.loads(box.hardware.seen("capture"))["gpus"][0]["wear"]
    assert wear == {"ecc_volatile": 3, "ecc_aggregate": 9, "rows_pending": True}
