"""A node with shared GPUs in a directory: a captured machine behind the fake NVML library, cgroups
v2 as plain directories, a hollow kubelet, a fake scheduler, and the real agent as a process."""

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from agent.machine import capture
from central.standalone.device_manager import DeviceCounts
from central.standalone.hollow_kubelet import Admission, Container, KubeletPod
from protos.gpu_sharing import LEAST, MEMORY, RANKS, SHARE
from protos.names import GPU, GPU_SHARE
from protos.stubs import fleet_pb2 as pb
from protos.topology import Grant
from tests.agent.nvml_fixture import CAPTURES, ROOT, Hardware, library
from tests.fakes import proc
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.mps.install import install
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control

GIB = 2**30
COUNT = 8


class ShareBox:
    def __init__(self, folder: Path, hide: tuple[str, ...] = ()) -> None:
        self.folder = folder
        machine = capture.load(CAPTURES / "hgx-h100-8.json")
        self.hardware = Hardware(library(folder / "lib", hide), folder)
        self.hardware.install(machine)
        self.uuids = [gpu.uuid for gpu in machine.nvml.gpus]
        self.control = Control(folder / build.CONTROL)
        self.kept = folder / f"{build.CONTROL}.kept"  # settings of the GPUs
        self.proc, self.cgroups = folder / "proc", folder / "cgroup"
        self.config, self.sharing = folder / "config", folder / "s"
        self.config.mkdir()
        install(folder / "driver/usr/bin")
        proc.of_the_host(self.proc)
        self.cgroup("kubepods")
        self.fleet = FakeScheduler(folder)
        self.fleet.start()
        self.offered: list[DeviceCounts] = []  # what the kubelet could allocate, after each change
        self.kubelet = HollowKubelet(folder, on_change=lambda _, free: self.offered.append(free))
        self.plans: dict[str, Grant] = {}
        self.log = folder / "log"
        self._flags: tuple[object, ...] = ()
        self._running: list[subprocess.Popen[bytes]] = []

    def cgroup(self, path: str) -> Path:
        """A cgroup v2 directory and its parents."""
        folder = self.cgroups / path
        for each in (*reversed(folder.parents), folder):
            if each.is_relative_to(self.cgroups):
                each.mkdir(exist_ok=True)
                (each / "cgroup.controllers").write_text("cpu memory dmem\n")
                (each / "cgroup.subtree_control").touch()
        return folder

    def pod_folder(self, name: str) -> Path:
        return self.cgroup(f"kubepods/burstable/pod{uid(name)}")

    def start(self, *flags: object) -> None:
        """Starts the agent."""
        self._flags = flags or self._flags
        with self.log.open("a") as log:
            self.agent = self.launch("run", *self._common(), *self._flags, log=log)

    def _common(self) -> Sequence[object]:
        return (
            *("--kubelet-dir", self.folder, "--sysfs-root", self.hardware.sysfs, "--node", "n"),
            *("--proc-root", self.proc, "--server", self.fleet.address),
            *("--ca-file", self.fleet.ca_file, "--token-file", self.fleet.token_file),
            *("--report-every", "0.2", "--survey-every", "0.3", "--share-config", self.config),
        )

    def launch(self, *arguments: object, log: object) -> "subprocess.Popen[bytes]":
        environment = {
            **os.environ,
            "LOCKSTEP_FAKE_NVML": str(self.folder / build.PROFILE),
            "LD_LIBRARY_PATH": str(self.hardware.library),
        }
        command = [sys.executable, "-m", "agent", *map(str, arguments)]
        made = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=log)  # type: ignore[call-overload]  # a file
        self._running.append(made)
        return made  # type: ignore[no-any-return]  # see above

    def keep(self) -> "subprocess.Popen[bytes]":
        """Starts gpu-setup beside the agent."""
        flags = (
            "gpu-setup",
            "--sharing-dir",
            self.sharing,
            "--driver-root",
            self.folder / "driver",
        )
        with self.log.open("a") as log:
            return self.launch(*flags, log=log)

    def restart(self) -> None:
        """Kills the agent and starts it again."""
        self.agent.kill()
        self.agent.wait()
        self.start()

    def share(
        self, name: str, gpu: int, cap: int = 0, least: str = "none", part: int = 30
    ) -> Admission:
        """Plans a pod for the GPU, admits and starts it."""
        limits = {SHARE: part, MEMORY: cap, LEAST: RANKS[least]}
        told = tuple(sorted((key, amount) for key, amount in limits.items() if amount))
        self.plan(name, Grant("team", name, "c0", GPU_SHARE, (self.uuids[gpu],), told))
        return self.kubelet.add_pod(pod(name, part))

    def plan(self, name: str, plan: Grant | None) -> None:
        self.plans = {key: each for key, each in self.plans.items() if key != name}
        if plan:
            self.plans[name] = plan
        version = self.fleet.plan(*self.plans.values())
        eventually(lambda: self.fleet.arrived == version)

    def end(self, name: str) -> None:
        self.kubelet.remove_pod(uid(name))
        self.plan(name, None)

    def gpu(self, index: int) -> pb.Gpu:
        """The GPU as last reported."""
        eventually(lambda: any(each.HasField("topology") for each in self.fleet.reports), 120)
        told = [each.topology for each in self.fleet.reports if each.HasField("topology")]
        return told[-1].gpus[index]

    def assert_shares(self, hundredths: int) -> None:
        eventually(lambda: self.kubelet.allocatable.get(GPU_SHARE) == hundredths, 120)

    def close(self) -> None:
        for process in reversed(self._running):
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.fleet.stop()
        # Daemons outlive gpu-setup; their servers are their children.
        for file in self.sharing.glob("*/pipe/nvidia-cuda-mps-control.pid"):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(int(file.read_text()), signal.SIGKILL)


@contextmanager
def share_box(hide: tuple[str, ...] = ()) -> Iterator[ShareBox]:
    # Not pytest's tmp_path: a unix socket's path must be short.
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        box = ShareBox(Path(name), hide)
        try:
            with box.kubelet:
                yield box
        finally:
            box.close()
        assert "Traceback" not in box.log.read_text(), box.log.read_text()


def uid(name: str) -> str:
    return f"11111111-2222-3333-4444-{int.from_bytes(name.encode()[:4], 'big'):012d}"


def pod(name: str, part: int) -> KubeletPod:
    return KubeletPod(uid(name), "team", name, (Container("c0", ((GPU_SHARE, part),)),))


def whole(name: str, count: int = 1) -> KubeletPod:
    return KubeletPod(uid(name), "team", name, (Container("c0", ((GPU, count),)),))
