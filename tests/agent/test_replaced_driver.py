"""A driver that is replaced under the agent, as a process: what the liveness probe says."""

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.nvml_box import NvmlBox, nvml_box
from tests.fakes.eventually import eventually
from tests.fakes.nvml import build

pytestmark = pytest.mark.slow


@pytest.fixture
def box(nvml_folder: Path) -> Iterator[NvmlBox]:
    with nvml_box(nvml_folder) as made:
        yield made


def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def health(at: int) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{at}/healthz", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_nvml_that_cannot_be_opened_any_more_asks_for_a_new_container(box: NvmlBox) -> None:
    at = port()
    profile = box.folder / build.PROFILE
    working = profile.read_text()
    with box.running(f"--metrics-listen=127.0.0.1:{at}", "--driver-lost=1"):
        assert health(at) == (200, "ok\n")
        box.hardware.install_profile("init_error 18\n")
        box.assert_healthy(0)
        box.assert_logged("have different versions")
        eventually(lambda: health(at)[0] == 503)
        assert "NVML worked in this run and cannot be opened for 1 s" in health(at)[1]
        profile.write_text(working)
        box.assert_healthy(8, 20)
        assert health(at)[0] == 200


def test_nvml_that_never_worked_or_hangs_asks_for_nothing(box: NvmlBox) -> None:
    at = port()
    box.hardware.install_profile(build.no_driver())
    box.whole = 0
    with box.running(f"--metrics-listen=127.0.0.1:{at}", "--driver-lost=0.1"):
        eventually(lambda: "the NVIDIA driver is not loaded" in box.said())
        eventually(lambda: health(at) == (200, "ok\n"))
        time.sleep(0.5)
        assert "cannot be opened" not in health(at)[1]


def test_a_driver_that_hangs_is_not_mended_by_a_new_container(box: NvmlBox) -> None:
    at = port()
    with box.running(f"--metrics-listen=127.0.0.1:{at}", "--driver-lost=0.1"):
        box.control.hang("nvmlDeviceGetName", 2.0)
        box.assert_healthy(0)
        box.assert_logged("has not answered")
        assert health(at)[0] == 200
        box.control.hang("nvmlDeviceGetName", 0)
