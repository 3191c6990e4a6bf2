"""What gpu-setup makes of requests, and what it restores: the fakes of NVIDIA's library and programs, and a clock of
the test's own."""

import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.gpu_setup.manager import GpuSetupManager
from agent.machine.facts import GpuFacts
from agent.nvml import computemode
from agent.sharing.setup_requests import DesiredSetup, SetupCapabilities, SetupRequests
from tests.agent.nvml_driver import Driver, loaded
from tests.fakes.eventually import eventually
from tests.fakes.mps.install import install
from tests.fakes.nvml import build

A, B = "GPU-a", "GPU-b"
MPS = DesiredSetup(mps=True, limit_mib=4096)
NO_PERMISSION = 4
PYTHON = f"{sys.executable} -IS"  # starts in half the time


class Box:
    def __init__(self, driver: Driver, folder: Path) -> None:
        self.driver, self.root, self.now = driver, driver.root, 0.0
        programs = driver.root / "usr/bin"
        install(programs, PYTHON)
        (programs / build.PROFILE).symlink_to(driver.folder / build.PROFILE)
        self._slices = programs / "fake-nvml.timeslices"
        self.requests = SetupRequests(folder)
        self.requests.make()
        self.manager = self.restarted()

    def restarted(self) -> GpuSetupManager:
        self.manager = GpuSetupManager(self.requests, self.root)
        return self.manager

    def reconcile(self, after_s: float = 0.0) -> None:
        self.now += after_s
        self.manager.reconcile(self.now)

    def slices(self) -> list[str]:
        """GPU and number of each change of a time slice."""
        return self._slices.read_text().splitlines() if self._slices.exists() else []

    def mode(self, uuid: str = A) -> int:
        return computemode.read(self.root, uuid)

    def before(self, uuid: str = A) -> dict[str, int] | None:
        file = self.requests.folder / uuid / "before.json"
        return json.loads(file.read_text()) if file.exists() else None

    def why(self, uuid: str = A) -> str | None:
        state = self.requests.state(uuid)
        return None if state is None else state.why

    def daemon(self, uuid: str = A) -> int:
        return int((self.requests.pipe(uuid) / "nvidia-cuda-mps-control.pid").read_text())


@pytest.fixture
def box(nvml_folder: Path, tmp_path: Path) -> Iterator[Box]:
    gpus = (GpuFacts(0, uuid=A, pci="0000:01:00.0"), GpuFacts(1, uuid=B, pci="0000:02:00.0"))
    with loaded(nvml_folder, tmp_path / "driver", *gpus) as driver:
        made = Box(driver, tmp_path / "s")
        yield made
        for uuid in (A, B):
            made.requests.forget(uuid)
        made.reconcile(1000.0)


def test_a_time_slice_is_set_once_and_restored_when_its_request_is_gone(box: Box) -> None:
    box.requests.request(A, DesiredSetup(slice="long"))
    box.reconcile()
    box.reconcile(10.0)
    assert box.slices() == [f"{A} 3"]
    assert (box.why(A), box.why(B), box.before(A)) == ("", None, {"slice": 0})
    box.requests.request(A, DesiredSetup(slice="short"))
    box.requests.request(B, DesiredSetup(slice="medium"))
    box.reconcile()
    assert box.slices()[1:] == [f"{A} 1", f"{B} 2"]
    box.requests.forget(A)
    box.reconcile()
    box.reconcile()
    assert box.slices()[3:] == [f"{A} 0"]
    assert (box.before(A), box.why(A), box.why(B)) == (None, None, "")
    assert box.mode() == computemode.DEFAULT


def test_a_setup_that_fails_is_tried_again_after_growing_pauses(box: Box) -> None:
    box.requests.request(A, DesiredSetup(slice="endless"))
    box.requests.request(B, DesiredSetup(slice="long"))
    box.reconcile()
    assert 'the requested time slice "endless" is none of' in (box.why() or "")
    assert box.slices() == [f"{B} 3"], "others are set up"
    assert 0.05 <= box.manager._pause_s(box.now) <= 0.5
    box.requests.request(A, DesiredSetup(slice="short"))
    box.reconcile(0.2)
    assert box.slices() == [f"{B} 3"], "not before its pause"
    box.reconcile(0.31)
    assert (box.slices()[1:], box.why()) == ([f"{A} 1"], "")
    assert box.manager._pause_s(box.now) == 10.0
    for uuid in (A, B):
        box.requests.forget(uuid)
    box.reconcile()
    assert box.manager._pause_s(box.now) == 3600.0


def test_mps_makes_a_gpu_exclusive_and_restores_its_former_mode(box: Box) -> None:
    former = 2
    computemode.write(box.root, A, former)
    box.requests.request(A, MPS)
    box.reconcile()
    assert (box.why(), box.mode(A), box.mode(B)) == ("", computemode.EXCLUSIVE, computemode.DEFAULT)
    assert box.before() == {"mode": former}
    server = box.manager._setups[A].server
    assert server is not None
    assert server._command("get_default_device_pinned_mem_limit 0") == "4096M\n"
    first = box.daemon()
    box.reconcile(10.0)
    box.restarted()
    box.reconcile(10.0)
    assert box.daemon() == first, "a daemon outlives gpu-setup"
    computemode.write(box.root, A, computemode.DEFAULT)  # by somebody else
    box.reconcile(10.0)
    assert box.mode() == computemode.EXCLUSIVE
    assert box.before() == {"mode": former}, "the first one saved counts"
    box.requests.forget(A)
    box.reconcile()
    assert (box.mode(), box.before(), box.why()) == (former, None, None)
    eventually(lambda: not server.serves())


def test_a_daemon_that_ended_is_started_again(box: Box) -> None:
    box.requests.request(A, MPS)
    box.reconcile()
    os.kill(box.daemon(), signal.SIGKILL)
    server = box.manager._setups[A].server
    assert server is not None
    eventually(lambda: not server.serves())
    refuse = box.requests.pipe(A).parent / "refuse"
    refuse.write_text("no more")
    box.reconcile(10.0)
    assert "exited at once" in (box.why() or "")
    assert "no more" in (box.why() or "")
    assert box.mode() == computemode.EXCLUSIVE, "no process bypasses the server"
    refuse.unlink()
    box.reconcile(1.0)
    assert (box.why(), server.serves()) == ("", True)


def test_a_restart_restores_what_an_earlier_process_changed(box: Box) -> None:
    box.requests.request(A, MPS)
    box.requests.request(B, DesiredSetup(slice="long"))
    box.reconcile()
    server = box.manager._setups[A].server
    assert server is not None
    for uuid in (A, B):
        box.requests.forget(uuid)
    box.restarted()
    box.reconcile()
    assert (box.mode(), box.before(A), box.before(B)) == (computemode.DEFAULT, None, None)
    assert box.slices() == [f"{B} 3", f"{B} 0"]
    eventually(lambda: not server.serves())


NONE = (2, None)  # of the modes and slices that are restored
BEFORE = {
    '{"mode": 1, "slice": 3}': (1, 3),
    '{"mode": 0}': (0, None),
    '{"mode": 3}': (3, None),
    '{"mode": 4, "slice": 4}': NONE,
    '{"mode": -1, "slice": -1}': NONE,
    '{"mode": true}': NONE,
    "[1]": NONE,
    "x": NONE,
    '{"mode": "1", "slice": 0}': (2, 0),
}


@pytest.mark.parametrize("text", BEFORE)
def test_only_modes_and_slices_that_there_are_are_restored(box: Box, text: str) -> None:
    mode, slice_ = BEFORE[text]
    computemode.write(box.root, A, 2)
    file = box.requests.folder / A / "before.json"
    file.parent.mkdir()
    file.write_text(text)
    box.reconcile()
    assert box.mode() == mode
    assert box.slices() == ([] if slice_ is None else [f"{A} {slice_}"])
    assert not file.exists()


def test_a_gpu_that_cannot_be_restored_keeps_its_former_setup_on_disk(box: Box) -> None:
    box.requests.request(A, MPS)
    box.reconcile()
    box.driver.control.fail("nvmlDeviceSetComputeMode", NO_PERMISSION)
    box.requests.forget(A)
    box.reconcile()
    assert (box.before(), box.mode()) == ({"mode": 0}, computemode.EXCLUSIVE)
    assert box.manager._pause_s(box.now) == 10.0, "it is tried again soon"
    box.driver.control.fail("nvmlDeviceSetComputeMode", 0)
    box.reconcile()
    assert (box.before(), box.mode()) == (None, computemode.DEFAULT)


def test_a_right_that_is_missing_is_told(box: Box) -> None:
    box.driver.control.fail("nvmlDeviceSetComputeMode", NO_PERMISSION)
    box.requests.request(A, MPS)
    box.reconcile()
    found = f"could not set the compute mode of GPU {A}: capability SYS_ADMIN is missing"
    assert box.why() == found
    box.driver.control.fail("nvmlDeviceSetComputeMode", 0)
    box.reconcile(1.0)
    assert (box.why(), box.mode()) == ("", computemode.EXCLUSIVE)


@pytest.mark.parametrize("missing", ["", "nvidia-smi", "nvidia-cuda-mps-control"])
def test_it_publishes_what_it_can_do_and_one_process_serves_a_folder(
    box: Box, missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    if missing:
        (box.root / "usr/bin" / missing).unlink()
    stop = threading.Event()
    stop.set()
    assert box.requests.unavailable()
    with box.requests.exclusive() as exclusive:
        assert exclusive
        assert box.requests.capabilities().mps == "gpu-setup is starting"
        box.manager.run(stop)
        assert "another gpu-setup process uses" in caplog.text
        assert not (box.requests.folder / "keeper.json").exists()
    box.manager.run(stop)
    with box.requests.exclusive():
        found = box.requests.capabilities()
    if not missing:
        assert found == SetupCapabilities("", "")
        return
    mps = missing == "nvidia-cuda-mps-control"
    assert (bool(found.mps), bool(found.slices)) == (mps, not mps)
    assert f"{missing} is not on the path or below" in found.mps + found.slices
    install(box.root / "usr/bin", PYTHON)


def test_what_was_never_changed_is_not_restored(box: Box) -> None:
    box.driver.control.fail("nvmlDeviceGetComputeMode", NO_PERMISSION)
    box.requests.request(A, MPS)
    box.reconcile()
    assert box.why()
    assert box.before() is None
    box.requests.forget(A)
    box.reconcile()
    assert box.why() is None
    assert A not in box.manager._setups


def test_a_state_that_cannot_be_written_is_logged_once(
    box: Box, caplog: pytest.LogCaptureFixture
) -> None:
    box.requests.request(A, DesiredSetup(slice="long"))
    box.requests.state_folder.rmdir()
    box.requests.state_folder.write_text("a file")
    caplog.clear()
    box.reconcile()
    box.reconcile(10.0)
    told = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert told[0].endswith(": Not a directory")
    box.requests.state_folder.unlink()
    box.requests.state_folder.mkdir()
    box.reconcile(10.0)
    assert box.why() == ""
