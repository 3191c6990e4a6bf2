"""Caps enforced by the kernel: the real agent, the fake NVML library, cgroups as plain
directories."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from protos.gpu_sharing import MEMORY
from protos.names import GPU_SHARE
from tests.fakes import proc
from tests.fakes.eventually import eventually
from tests.fakes.sharebox import GIB, ShareBox, pod, share_box, whole

pytestmark = pytest.mark.slow

LIMITS = ("nvmlDeviceSetMemoryLimits_v1", "nvmlDeviceGetMemoryLimits_v1")


@pytest.fixture
def box() -> Iterator[ShareBox]:
    with share_box() as made:
        yield made


def limit(box: ShareBox, gpu: int, folder: Path) -> list[int]:
    """Soft and hard limit in the driver; empty if none is set."""
    if not box.kept.exists():
        return []
    rows = [line.split() for line in box.kept.read_text().splitlines()]
    mine = [row for row in rows if row[:3] == ["limit", str(gpu), str(folder.stat().st_ino)]]
    return [int(number) for number in mine[-1][3:5]] if mine else []


def test_the_cap_is_there_before_the_first_process_and_stays(box: ShareBox) -> None:
    (box.config / "default").write_text("0-3: kernel; 4-6: none; 7: whole")
    box.start("--cgroup-root", box.cgroups)
    box.assert_shares(700)
    folder = box.pod_folder("a")
    given = box.share("a", 2, 4 * GIB, "kernel")
    assert given.ok, given
    envs = given.containers[0].envs
    assert envs["LOCKSTEP_GPU_ENFORCEMENT"] == "kernel"
    assert envs["LOCKSTEP_GPU_MEMORY"] == str(4 * GIB)
    assert limit(box, 2, folder) == [4 * GIB, 4 * GIB]
    assert "dmem" in (box.cgroups / "kubepods" / "cgroup.subtree_control").read_text()
    # A pod without a cap, and one on a GPU without enforcement.
    beside = box.pod_folder("b")
    assert box.share("b", 2).ok
    assert limit(box, 2, beside) == []
    assert box.share("c", 5, 4 * GIB).containers[0].envs["LOCKSTEP_GPU_ENFORCEMENT"] == "none"
    assert (box.gpu(2).enforcement, box.gpu(5).enforcement, box.gpu(7).shares) == (
        "kernel",
        "none",
        0,
    )
    assert box.kubelet.add_pod(whole("w")).containers[0].envs["LOCKSTEP_GPU_ENFORCEMENT"] == "whole"
    # A GPU reset loses the limits; a restart of the agent does not.
    box.kept.unlink()
    box.restart()
    eventually(lambda: limit(box, 2, folder) == [4 * GIB, 4 * GIB])
    # The cap is changed while the pod runs.
    limits = {**dict(box.plans["a"].limits), MEMORY: 6 * GIB}
    box.plan("a", replace(box.plans["a"], limits=tuple(sorted(limits.items()))))
    eventually(lambda: limit(box, 2, folder) == [6 * GIB, 6 * GIB])


def test_a_cap_that_cant_be_set_stops_the_container_with_a_sentence(box: ShareBox) -> None:
    (box.config / "default").write_text("all: kernel")
    box.start("--cgroup-root", box.cgroups)
    box.assert_shares(800)
    refused = box.share("a", 0, GIB)
    assert not refused.ok
    assert "no cgroup of pod" in refused.message
    box.pod_folder("a")
    box.control.fail("nvmlDeviceSetMemoryLimits_v1", 4)
    assert "lacks the capability SYS_ADMIN" in box.kubelet.start_pod(pod("a", 30).uid).message
    box.control.fail("nvmlDeviceSetMemoryLimits_v1", 0)
    assert box.kubelet.start_pod(pod("a", 30).uid).ok


@pytest.mark.parametrize(
    ("why", "hide"),
    [
        ("615 and newer do", LIMITS),
        ("--cgroup-root", ()),
        ("cgroup v2 is not mounted", ()),
        ("SYS_ADMIN", ()),
    ],
)
def test_where_it_cant_be_had_it_is_not_promised(why: str, hide: tuple[str, ...]) -> None:
    """A GPU configured for kernel is not shared and says why; the others get the best that the node
    supports."""
    with share_box(hide) as box:
        flags: tuple[object, ...] = ("--cgroup-root", box.cgroups)
        if why == "--cgroup-root":
            flags = ("--log-level", "info")
        elif why == "cgroup v2 is not mounted":
            flags = ("--cgroup-root", box.folder / "lib")
        elif why == "SYS_ADMIN":
            proc.of_the_host(box.proc, capabilities=0)
        (box.config / "default").write_text("0: kernel; 1: auto")
        box.start(*flags)
        box.assert_shares(100)
        eventually(lambda: bool(box.fleet.reports))
        assert why in box.gpu(0).share_why
        assert (box.gpu(1).enforcement, box.gpu(1).share_why) == ("watch", "")


def test_processes_are_watched_only_by_who_sees_them(box: ShareBox) -> None:
    """The driver reports no processes to an agent in its own PID namespace, so watch is not
    available."""
    proc.of_a_container(box.proc)
    (box.config / "default").write_text("0: watch; 1: auto")
    box.start()
    box.assert_shares(100)
    eventually(lambda: bool(box.fleet.reports))
    assert "hostPID" in box.gpu(0).share_why
    assert box.gpu(1).enforcement == "none"
    assert box.kubelet.allocatable[GPU_SHARE] == 100
