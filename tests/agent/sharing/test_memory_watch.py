"""Watched memory caps: the memory of pods' processes, and for how long it exceeds the cap."""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from agent.machine import capture
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.nvml.processes import MemoryByPid
from agent.sharing.memory_watch import MemoryWatch, capped
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.gpu_sharing import MEMORY, SHARE
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.topology import Grant, MemoryOver
from tests.agent.nvml_fixture import CAPTURES, Hardware, library
from tests.agent.test_run import running
from tests.fakes import machines, proc
from tests.fakes.eventually import eventually
from tests.fakes.fake_scheduler import FakeScheduler
from tests.fakes.hollow_kubelet import HollowKubelet
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control

UID = "11111111-2222-3333-4444-555555555555"
GIB = 2**30


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ls-") as name:
        yield Path(name)


class Box:
    """A node with a pod that has 30 % of GPU 2 and a cap of 4 GiB."""

    def __init__(self, folder: Path) -> None:
        self.used: dict[str, MemoryByPid | None] = {}
        self.folder = folder
        self.node = AgentNode("n")
        self.node.set_topology(survey(machines.machine()))
        uuid = machines.uuid(2)
        ids = tuple(sorted(share_id(uuid, number) for number in range(30)))
        self.node.set_grants((Grant("ns", "p", "c", GPU_SHARE, ids),))
        limits = ((MEMORY, 4 * GIB), (SHARE, 30))
        self.node.set_intents((Grant("ns", "p", "c", GPU_SHARE, (uuid,), limits),), 1)
        entry = {"PodUID": UID, "ContainerName": "c", "ResourceName": GPU_SHARE, "DeviceIDs": ids}
        data = {"Data": {"PodDeviceEntries": [entry]}, "Checksum": 0}
        (folder / "kubelet_internal_checkpoint").write_text(json.dumps(data))
        self.memory = MemoryWatch(self.node, self.read, folder, folder, grace_s=10)

    def read(self, gpus: Sequence[str]) -> Mapping[str, MemoryByPid | None]:
        return {gpu: self.used.get(gpu, {}) for gpu in gpus}

    def process(self, pid: int, gpu: int, gib: float, cgroup: str) -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        (self.folder / str(pid) / "cgroup").write_text(cgroup)
        table = self.used.setdefault(machines.uuid(gpu), {})
        assert table is not None
        table[pid] = int(gib * GIB)


@pytest.mark.parametrize(
    "cgroup",
    [
        f"0::/kubepods/burstable/pod{UID}/abc\n",
        f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID.replace('-', '_')}.slice/x\n",
        f"11:memory:/kubepods/pod{UID}/abc\n1:name=systemd:/kubepods/pod{UID}/abc\n",
    ],
)
def test_processes_are_summed_by_pod_and_get_their_grace(tmp_path: Path, cgroup: str) -> None:
    box = Box(tmp_path)
    box.process(10, 2, 3, cgroup)
    box.process(11, 2, 0.5, cgroup)
    assert box.memory.measure(0.0) == ()
    box.process(11, 2, 2, cgroup)
    assert box.memory.measure(5.0) == (MemoryOver("ns", "p", UID, 2, 5 * GIB, 4 * GIB),)
    assert [over.final for over in box.memory.measure(14.0)] == [False]
    assert [over.final for over in box.memory.measure(15.0)] == [True]
    box.process(11, 2, 0.5, cgroup)
    assert box.memory.measure(16.0) == ()
    box.process(11, 2, 2, cgroup)
    assert [over.final for over in box.memory.measure(17.0)] == [
        False
    ]  # its grace period starts again


def test_others_are_left_alone(tmp_path: Path) -> None:
    box = Box(tmp_path)
    box.process(10, 2, 30, "0::/kubepods/podffffffff-2222-3333-4444-555555555555/x\n")
    box.process(11, 2, 30, "0::/user.slice\n")
    box.process(12, 3, 30, f"0::/kubepods/pod{UID}/x\n")  # not its GPU
    table = box.used[machines.uuid(2)]
    assert table is not None
    table[99] = 30 * GIB  # ended before its cgroup was read
    assert box.memory.measure(0.0) == ()


def test_without_a_cap_the_driver_is_not_asked(tmp_path: Path) -> None:
    box = Box(tmp_path)

    def never(gpus: Sequence[str]) -> Mapping[str, MemoryByPid | None]:
        raise AssertionError(gpus)

    box.node.set_intents((), 2)
    assert not capped(box.node.state)
    assert MemoryWatch(box.node, never, tmp_path, tmp_path, 10).measure(0.0) == ()


def test_a_driver_that_fails_accuses_nobody(tmp_path: Path) -> None:
    box = Box(tmp_path)

    def fails(gpus: Sequence[str]) -> Mapping[str, MemoryByPid | None]:
        raise OSError("the driver is gone")

    assert MemoryWatch(box.node, fails, tmp_path, tmp_path, 10).measure(0.0) == ()


@pytest.mark.slow
def test_from_the_driver_to_the_scheduler(short: Path) -> None:
    """The real agent on the fake library: the container learns its enforcement, and the scheduler
    which pod exceeds its cap."""
    machine = Hardware(library(short / "lib"), short)
    machine.install(capture.load(CAPTURES / "hgx-h100-8.json"))
    uuids = [gpu.uuid for gpu in capture.load(CAPTURES / "hgx-h100-8.json").nvml.gpus]
    control = Control(short / build.CONTROL)
    process = short / "proc" / "4711"
    process.mkdir(parents=True)
    (process / "cgroup").write_text(f"0::/kubepods/pod{UID}/x\n")
    proc.of_the_host(short / "proc")
    fleet = FakeScheduler(short)
    fleet.start()
    try:
        with (
            HollowKubelet(short) as kubelet,
            running(
                *("--kubelet-dir", short, "--sysfs-root", machine.sysfs, "--node", "n"),
                *("--proc-root", short / "proc", "--gpu-memory-grace", "0.5"),
                *("--server", fleet.address, "--ca-file", fleet.ca_file),
                *("--token-file", fleet.token_file, "--report-every", "0.2"),
                log=short / "log",
                LOCKSTEP_FAKE_NVML=str(short / build.PROFILE),
                LD_LIBRARY_PATH=str(machine.library),
            ),
        ):
            eventually(lambda: kubelet.allocatable.get(GPU_SHARE) == 800)
            limits = ((MEMORY, 4 * GIB), (SHARE, 30))
            version = fleet.plan(Grant("team", "p", "c0", GPU_SHARE, (uuids[5],), limits))
            eventually(lambda: fleet.arrived == version)
            given = kubelet.add_pod(
                KubeletPod(UID, "team", "p", (Container("c0", ((GPU_SHARE, 30),)),))
            )
            assert given.ok, given
            envs = given.containers[0].envs
            assert envs["NVIDIA_VISIBLE_DEVICES"] == uuids[5]
            assert envs["LOCKSTEP_GPU_ENFORCEMENT"] == "watch"
            assert all(not report.memory_over for report in fleet.reports)
            control.set("process", 5, 4711, 5000)

            def told() -> bool:
                over = [each for report in fleet.reports[-3:] for each in report.memory_over]
                return any(each.final and each.used == 5000 << 20 for each in over)

            eventually(told)
            over = fleet.reports[-1].memory_over[0]
            assert (over.namespace, over.pod, over.uid, over.gpu) == ("team", "p", UID, 5)
            control.set("busy", 5, 4711, 40)
            control.set("utilization", 3, 70)
            other = KubeletPod("u2", "team", "whole", (Container("c0", ((GPU, 1),)),))
            version = fleet.plan(Grant("team", "whole", "c0", GPU, (uuids[3],)))
            eventually(lambda: fleet.arrived == version)
            assert kubelet.add_pod(other).ok

            def used() -> dict[str, tuple[float, int]]:
                use = fleet.reports[-1].gpu_use
                return {each.pod: (round(each.utilization, 3), each.memory) for each in use}

            eventually(lambda: used().get("p") == (0.4, 5000 << 20))
            eventually(lambda: used().get("whole", (0.0, 0))[0] == 0.7)
    finally:
        fleet.stop()
    assert "Traceback" not in (short / "log").read_text()
