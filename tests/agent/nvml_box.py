"""A node whose agent is a process on the fake NVML library, beside a hollow kubelet."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agent.machine import capture
from protos.names import GPU
from tests.agent.nvml_fixture import CAPTURES, Hardware
from tests.fakes.eventually import eventually
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control


class NvmlBox:
    """The agent as a process beside a hollow kubelet, on the fake library."""

    def __init__(self, folder: Path, built: Path, kubelet: HollowKubelet) -> None:
        self.folder, self.built, self.kubelet = folder, built, kubelet
        self.whole = 8  # GPUs that are allocated whole
        self.control = Control(folder / build.CONTROL)
        self.hardware = Hardware(built, folder)
        self.hardware.install(capture.load(CAPTURES / "hgx-h100-8.json"))
        self.log = folder / "log"

    @contextmanager
    def running(self, *arguments: str, stderr: str = "") -> Iterator[subprocess.Popen[bytes]]:
        fast = (
            "--rdma-devices=none",
            "--survey-every=0.2",
            "--hold=0.3",
            "--hold-xid=1.5",
            "--driver-wait=0.5",
        )
        command = [sys.executable, "-m", "agent", "run", "--node=n", *fast, *arguments]
        command += ["--kubelet-dir", str(self.folder), "--sysfs-root", str(self.hardware.sysfs)]
        environment = {
            **os.environ,
            "LOCKSTEP_FAKE_NVML": str(self.folder / build.PROFILE),
            "LD_LIBRARY_PATH": str(self.built),
        }
        with Path(stderr or self.log).open("w") as file:
            process = subprocess.Popen(command, stderr=file, env=environment)
        try:
            self.assert_healthy(self.whole, seconds=60)
            yield process
            process.send_signal(signal.SIGTERM)
            assert process.wait(timeout=40) == 0
        finally:
            process.kill()
            process.wait()
        if not stderr:
            assert "Traceback" not in self.said()

    def assert_healthy(self, count: int, seconds: float = 40) -> None:
        eventually(lambda: self.kubelet.allocatable.get(GPU, 0) == count, seconds)

    def said(self) -> str:
        return self.log.read_text()

    def assert_logged(self, words: str) -> None:
        eventually(lambda: words in self.said(), 40)


@contextmanager
def nvml_box(built: Path) -> Iterator[NvmlBox]:
    """built: the folder of the library."""
    with (
        tempfile.TemporaryDirectory(prefix="ls-") as name,  # a unix socket's path must be short
        HollowKubelet(Path(name)) as kubelet,
    ):
        yield NvmlBox(Path(name), built, kubelet)
