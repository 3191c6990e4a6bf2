"""KernelCaps with a driver that is a dictionary, and cgroups that are folders."""

from pathlib import Path

import pytest

from agent.machine.facts import Unusable
from agent.nvml.memorylimits import MemoryLimit
from agent.resources.device_resource import Refused
from agent.sharing.kernel_caps import SYS_ADMIN, KernelCaps
from tests.fakes import proc

UID = "8f1c2d3e-0000-4000-8000-00000000000a"
GPU = "GPU-1"


class Driver:
    """fault: why it does not work; shift: what it adds to a limit that is written."""

    def __init__(self) -> None:
        self.limits: dict[tuple[str, str], int] = {}
        self.fault, self.shift, self.writes = "", 0, 0
        self.asked: list[Path] = []

    def read(self, uuid: str, cgroup: Path) -> MemoryLimit:
        self.asked.append(cgroup)
        if self.fault:
            raise Unusable(self.fault)
        return MemoryLimit(self.limits.get((uuid, cgroup.name), 0), 7)

    def write(self, uuid: str, cgroup: Path, most: int) -> MemoryLimit:
        self.writes += 1
        self.limits[uuid, cgroup.name] = most + self.shift
        return self.read(uuid, cgroup)


class Box:
    def __init__(self, directory: Path) -> None:
        self.root, self.proc, self.driver = directory / "cgroup", directory / "proc", Driver()
        self.root.mkdir()
        (self.root / "cgroup.controllers").write_text("cpu dmem\n")
        (self.root / "cgroup.subtree_control").write_text("cpu\n")
        proc.of_the_host(self.proc)
        self.caps = KernelCaps(self.driver, self.root, self.proc)

    def pod(self) -> Path:
        folder = self.root / f"kubepods/pod{UID}"
        folder.mkdir(parents=True)
        (self.root / "kubepods/cgroup.subtree_control").write_text("cpu\n")
        return folder


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_the_limit_can_be_set_where_everything_is_there(box: Box) -> None:
    assert box.caps.why_not(GPU) == ""
    assert box.driver.asked == [box.root]
    (box.root / "kubepods").mkdir()
    assert box.caps.why_not(GPU) == ""
    assert box.driver.asked[-1] == box.root / "kubepods"
    (box.root / "kubepods.slice").mkdir()
    assert box.caps.why_not(GPU) == ""
    assert box.driver.asked[-1] == box.root / "kubepods.slice"


def test_why_the_limit_cannot_be_set(box: Box) -> None:
    assert "--cgroup-root" in KernelCaps(box.driver, None, box.proc).why_not(GPU)
    box.driver.fault = "the driver is too old"
    assert box.caps.why_not(GPU) == "the driver is too old"
    proc.of_the_host(box.proc, capabilities=proc.ALL & ~SYS_ADMIN)
    assert "SYS_ADMIN" in box.caps.why_not(GPU)
    (box.proc / "self/status").unlink()
    assert "SYS_ADMIN" in box.caps.why_not(GPU)
    (box.root / "cgroup.controllers").unlink()
    assert "cgroup v2 is not mounted" in box.caps.why_not(GPU)


def test_a_limit_is_written_to_the_pods_cgroup(box: Box) -> None:
    folder = box.pod()
    box.caps.set(GPU, UID, 4096)
    assert box.driver.limits == {(GPU, folder.name): 4096}
    assert (box.root / "kubepods/cgroup.subtree_control").read_text() == "+dmem"


@pytest.mark.parametrize(
    ("pods", "fault", "shift", "why"),
    [
        (0, "", 0, f"no cgroup of pod {UID}"),
        (1, "it hangs", 0, "cannot set its GPU memory cap: it hangs"),
        (1, "", 1, "was set to 4096 bytes and is 4097"),
        (1, "", -1, "was set to 4096 bytes and is 4095"),
    ],
)
def test_a_limit_that_cannot_be_set_is_refused(
    box: Box, pods: int, fault: str, shift: int, why: str
) -> None:
    if pods:
        box.pod()
    box.driver.fault, box.driver.shift = fault, shift
    with pytest.raises(Refused, match=why):
        box.caps.set(GPU, UID, 4096)


def test_a_lost_limit_is_restored_and_another_one_is_left_alone(box: Box) -> None:
    folder = box.pod()
    box.driver.limits[GPU, folder.name] = 4096
    assert box.caps.keep(GPU, UID, 4096) == 7
    assert box.driver.writes == 0
    box.driver.limits.clear()
    assert box.caps.keep(GPU, UID, 4096) == 7
    assert box.driver.limits == {(GPU, folder.name): 4096}


def test_what_is_in_use_is_unknown_without_a_cgroup_or_an_answer(box: Box) -> None:
    assert box.caps.keep(GPU, UID, 4096) is None
    assert KernelCaps(box.driver, None, box.proc).keep(GPU, UID, 4096) is None
    assert box.driver.asked == []
    box.pod()
    box.driver.fault = "it hangs"
    assert box.caps.keep(GPU, UID, 4096) is None
    box.driver.fault, box.driver.shift = "", 1
    assert box.caps.keep(GPU, UID, 4096) is None  # the limit is not what was asked for
