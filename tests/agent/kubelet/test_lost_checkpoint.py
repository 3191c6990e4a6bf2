"""A kubelet that lost its checkpoint does not know of the pods that still run. Their GPUs are held
back: real agent process, real sockets, the fake NVML library with its list of processes."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from central.standalone.device_manager import CHECKPOINT
from protos.names import GPU, GPU_SHARE
from tests.fakes.eventually import eventually
from tests.fakes.sharebox import COUNT, ShareBox, pod, share_box, uid, whole

PATIENCE_S = 120.0  # a fence for busy machines; none of it takes seconds


@pytest.fixture
def box() -> Iterator[ShareBox]:
    with share_box() as made:
        made.start()
        eventually(lambda: made.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)
        made.assert_shares(COUNT * 100)
        yield made


def cgroup(box: ShareBox, name: str) -> Path:
    """The pod's cgroup, with a process in it."""
    folder = box.hardware.sysfs / "fs/cgroup/kubepods/burstable" / f"pod{uid(name)}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cgroup.events").write_text("populated 1\nfrozen 0\n")
    return folder


def process(box: ShareBox, name: str, pid: int, gpu: int) -> None:
    """The driver lists a process of the pod on the GPU."""
    folder = box.proc / str(pid)
    folder.mkdir(parents=True)
    (folder / "cgroup").write_text(f"0::/kubepods/burstable/pod{uid(name)}/abc\n")
    (folder / "comm").write_text("python3\n")
    box.control.set("process", gpu, pid, 5000)


def ends(box: ShareBox, name: str, *pids: int) -> None:
    """The containers of the pod end, without the kubelet."""
    (cgroup(box, name) / "cgroup.events").write_text("populated 0\nfrozen 0\n")
    for pid in pids:
        (box.proc / str(pid) / "cgroup").unlink()


def run(box: ShareBox, name: str, count: int) -> list[int]:
    """Admits a pod; the indices of its GPUs."""
    admitted = box.kubelet.add_pod(whole(name, count))
    assert admitted.ok, admitted
    ids = admitted.containers[0].devices[GPU]
    cgroup(box, name)
    eventually(lambda: _reported(box, name), PATIENCE_S)
    return sorted(box.uuids.index(each) for each in ids)


def _reported(box: ShareBox, name: str) -> bool:
    return any(grant.pod == name for each in box.fleet.reports for grant in each.grants)


def lose_checkpoint(box: ShareBox) -> None:
    """The kubelet restarts without its checkpoint, and without knowledge of its pods' devices."""
    box.kubelet.stop()
    (box.kubelet.plugins / CHECKPOINT).unlink()
    box.kubelet.start()


def restart_agent(box: ShareBox) -> None:
    box.agent.kill()
    box.agent.wait()


@pytest.mark.parametrize("restarted", [False, True])
def test_gpus_of_running_pods_are_held_back(box: ShareBox, restarted: bool) -> None:
    mine = run(box, "a", 3)
    for number, gpu in enumerate(mine):
        process(box, "a", 4000 + number, gpu)
    if restarted:
        restart_agent(box)
        lose_checkpoint(box)
        box.start()
    else:
        lose_checkpoint(box)
    eventually(lambda: box.kubelet.capacity.get(GPU) == COUNT, PATIENCE_S)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT - 3, PATIENCE_S)
    others = box.kubelet.add_pod(whole("b", COUNT - 3))
    assert others.ok, others
    given = {box.uuids.index(each) for each in others.containers[0].devices[GPU]}
    assert not given & set(mine)
    eventually(lambda: all(box.gpu(gpu).why.startswith("held back: ") for gpu in mine), PATIENCE_S)
    assert not any(box.gpu(gpu).healthy for gpu in mine)
    named = ",".join(map(str, mine))
    if not restarted:
        assert f"held back: GPU {named}: pod team/a uses it" in box.log.read_text()
    else:
        assert f"process 4000 of pod {uid('a')} uses it" in box.log.read_text()
    ends(box, "a", 4000, 4001, 4002)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)
    eventually(lambda: all(box.gpu(gpu).healthy for gpu in mine), PATIENCE_S)


def test_without_processes_the_agent_remembers_the_pod(box: ShareBox) -> None:
    mine = run(box, "a", 2)
    lose_checkpoint(box)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT - 2, PATIENCE_S)
    eventually(lambda: "pod team/a uses it" in box.gpu(mine[0]).why, PATIENCE_S)
    report = [each for each in box.fleet.reports if not each.heartbeat][-1]
    held = [grant for grant in report.grants if grant.pod == "a"]
    assert [len(grant.device_ids) for grant in held] == [2], "the scheduler still hears of it"
    box.kubelet.remove_pod(uid("a"))
    ends(box, "a")
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)


def test_shares_of_a_running_pod_are_held_back(box: ShareBox) -> None:
    assert box.kubelet.add_pod(pod("a", 30)).ok
    cgroup(box, "a")
    eventually(lambda: _reported(box, "a"), PATIENCE_S)
    lose_checkpoint(box)
    eventually(lambda: box.kubelet.allocatable.get(GPU_SHARE) == COUNT * 100 - 30, PATIENCE_S)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT - 1, PATIENCE_S)


@pytest.mark.parametrize(
    "change",
    [
        lambda box: (box.proc / "4711/comm").write_text("nvidia-cuda-mps-server\n"),
        lambda box: (box.proc / "4711/cgroup").write_text("0::/system.slice/x.service\n"),
    ],
)
def test_servers_and_the_host_hold_no_gpu(
    box: ShareBox, change: Callable[[ShareBox], object]
) -> None:
    process(box, "x", 4711, 5)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT - 1, PATIENCE_S)
    change(box)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)


def test_a_restart_with_the_checkpoint_holds_nothing_back(box: ShareBox) -> None:
    mine = run(box, "a", 2)
    for number, gpu in enumerate(mine):
        process(box, "a", 4000 + number, gpu)
    box.kubelet.restart()
    restart_agent(box)
    box.start()
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)
    assert all(box.gpu(gpu).healthy for gpu in mine)
    assert "held back: GPU" not in box.log.read_text()
