"""A kubelet that lost its checkpoint does not know of the pods that still run. Their GPUs are held
back, and the log, the metric and `explain` say so: real agent process, real sockets, the fake NVML
library with its list of processes, and the scheduler's core with the agent's own reports."""

import re
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import NodeReported
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.status import gang_status
from central.standalone.device_manager import CHECKPOINT
from central.standalone.local_cluster import free_port
from protos import wire
from protos.names import GPU, GPU_SHARE
from protos.topology import NodeTopology
from tests.central import factories
from tests.fakes.eventually import eventually
from tests.fakes.sharebox import COUNT, ShareBox, pod, share_box, uid, whole

PATIENCE_S = 120.0  # a fence for busy machines; none of it takes seconds


@pytest.fixture
def box() -> Iterator[ShareBox]:
    with share_box() as made:
        made.start("--metrics-listen", f"127.0.0.1:{free_port()}")
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
    box.offered.clear()
    box.kubelet.start()


def restart_agent(box: ShareBox) -> None:
    box.agent.kill()
    box.agent.wait()


def metric(box: ShareBox) -> set[int]:
    """The GPUs of which the running agent says that they are held back."""
    at = re.findall(r"serving metrics and probes on port (\d+)", box.log.read_text())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{at}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {
        int(each)
        for each in re.findall(r'^lockstep_gpu_held_back{.*gpu="(\d+)"', text, re.MULTILINE)
    }


class Explained:
    """A scheduler that hears what the agent reports, and has the running pod a."""

    def __init__(self, box: ShareBox, size: int) -> None:
        self._box, self._heard, self._now = box, 0, 0.0
        self._core: Scheduler = new_scheduler(factories.LEVELS)
        self._topology = NodeTopology()
        self._hear()
        running = factories.pod("a", size, node="n", phase="Running")
        running = replace(
            running, namespace="team", spec=replace(running.spec, gpu_containers=(("c0", size),))
        )
        schedule_once(self._core, [factories.node("n"), running], self._now)

    def _hear(self) -> None:
        for each in self._box.fleet.reports[self._heard :]:
            self._heard += 1
            if each.heartbeat:
                continue
            if each.HasField("topology"):
                self._topology = wire.from_topology(each.topology)
            grants = wire.from_grants(each.grants)
            fact = NodeReported("n", each.boot_id, each.generation, self._topology, grants)
            self._now += 1.0
            schedule_once(self._core, [fact], self._now)

    def reason(self, pod: str) -> str:
        self._hear()
        gang = self._core.state.gangs["team", pod, False]
        return gang_status.describe(self._core.state, gang)


@pytest.mark.parametrize("restarted", [False, True])
def test_gpus_of_running_pods_are_held_back(box: ShareBox, restarted: bool) -> None:
    mine = run(box, "a", 3)
    explained = Explained(box, 3)
    assert "unhealthy" not in explained.reason("a")
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
        why = "pod team/a uses it"
        assert f"held back: GPU {named}: {why}" in box.log.read_text()
    else:
        why = f"process 4000 of pod {uid('a')} uses it"
        assert why in box.log.read_text()
    assert metric(box) == set(mine)
    assert (
        f"GPU {mine[0]} of node n, held by a, is unhealthy: held back: {why}, but the kubelet "
        "does not list that any more"
    ) in explained.reason("a")
    ends(box, "a", 4000, 4001, 4002)
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)
    eventually(lambda: all(box.gpu(gpu).healthy for gpu in mine), PATIENCE_S)
    assert not metric(box)
    assert "unhealthy" not in explained.reason("a")


@pytest.mark.parametrize("restarted", [False, True])
def test_the_kubelet_is_never_offered_the_gpus(box: ShareBox, restarted: bool) -> None:
    """Not in the first list of devices either: a kubelet may allocate from it without asking which are
    preferred. The agent lists pods seldom here, so that it does not find out by chance."""
    restart_agent(box)
    box.start("--report-every", "60")
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT, PATIENCE_S)
    mine = run(box, "a", 3)
    for number, gpu in enumerate(mine):
        process(box, "a", 4000 + number, gpu)
    if restarted:
        restart_agent(box)
    lose_checkpoint(box)
    if restarted:
        box.start()
    eventually(lambda: box.kubelet.allocatable.get(GPU) == COUNT - 3, PATIENCE_S)
    assert {each.get(GPU, 0) for each in box.offered} <= {0, COUNT - 3}


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
