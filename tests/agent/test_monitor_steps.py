"""The device monitor survey by survey, on captures that change and on a driver that cannot be opened."""

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.device_monitor import CALM_S, MOST_NEWS, MOST_XIDS, DeviceMonitor
from agent.health.gpu_health import HoldDown, XidEvent
from agent.machine.capture import CaptureError
from agent.machine.facts import Machine
from agent.node import AgentNode
from agent.settings import Settings
from tests.agent.health.test_gpu_health import without
from tests.fakes import machines
from tests.fakes import sysfs as fake
from tests.fakes.eventually import eventually

HOLD = HoldDown(hold_s=5.0, max_hold_s=5.0, xid_s=600.0, settled_s=7200.0)
FULL = machines.machine()
ALL = list(range(8))
UIDS = ("11111111-2222-3333-4444-555555555555", "11111111-2222-3333-4444-666666666666")
EVENT = XidEvent(machines.uuid(0), 31)


class Box:
    def __init__(self, folder: Path, made: Machine = FULL, **settings: Any) -> None:
        self.folder = folder
        (folder / "proc").mkdir()
        given: dict[str, Any] = {"capture": folder / "machine.json", "hold_down": HOLD, "survey_every_s": 30.0, "proc_root": folder / "proc"}  # fmt: skip
        self.node = AgentNode("n")
        self.change(made)
        self.monitor = DeviceMonitor(
            Settings(node="n", kubelet_dir=folder, **(given | settings)), self.node
        )

    def change(self, made: Machine) -> None:
        machines.save(self.folder, made)

    def healthy(self) -> list[int]:
        return [gpu.index for gpu in self.node.state.topology.gpus if gpu.healthy]

    def without_driver(self) -> None:
        """From now on the machine is read itself, where no driver can be opened."""
        root = self.folder / "driver"
        root.mkdir(exist_ok=True)
        settings = self.monitor._settings
        sysfs = self.folder / "sys"
        sysfs.mkdir(exist_ok=True)
        self.monitor._settings = replace(settings, capture=None, driver_root=root, sysfs_root=sysfs)

    def with_driver(self) -> None:
        self.monitor._settings = replace(self.monitor._settings, capture=self.folder / "machine.json")  # fmt: skip


@pytest.fixture
def box(tmp_path: Path) -> Box:
    return Box(tmp_path)


def test_a_survey_becomes_the_nodes_topology(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    assert box.monitor.refreshed_at == 0.0
    began = time.monotonic()
    box.monitor.refresh(first=True)
    assert box.healthy() == ALL
    assert box.monitor.minors == {machines.uuid(index): index for index in ALL}
    assert [gpu.index for gpu in box.monitor.facts] == ALL
    assert box.monitor.refreshed_at >= began
    assert "8 GPUs, 0 RDMA NICs" in caplog.messages
    generation, said = box.node.state.generation, len(caplog.messages)
    box.monitor.refresh()
    assert (box.node.state.generation, len(caplog.messages)) == (generation, said), "nothing is new"


def test_a_gpu_that_is_lost_and_comes_back(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    box.monitor.refresh(first=True)
    assert caplog.messages == []
    box.change(without(2))
    box.monitor.refresh()
    assert box.healthy() == [0, 1, 3, 4, 5, 6, 7]
    [lost] = [each for each in caplog.messages if "GPU 2" in each]
    assert "unhealthy" in lost
    assert box.monitor.minors.keys() == {machines.uuid(index) for index in ALL}, "it is known"
    box.change(FULL)
    box.monitor.refresh()
    assert box.healthy() == [0, 1, 3, 4, 5, 6, 7], "it must be well for a while first"
    assert box.monitor._pause_s() == pytest.approx(HOLD.hold_s, abs=0.3), "no longer than its hold-down"  # fmt: skip


def test_other_hardware_replaces_what_is_known(box: Box) -> None:
    box.monitor.refresh(first=True)
    small = machines.machine(2)
    others = tuple(replace(gpu, uuid=f"GPU-new-{gpu.index}") for gpu in small.nvml.gpus)
    box.change(replace(small, nvml=replace(small.nvml, gpus=others)))
    box.monitor.refresh()
    assert {gpu.uuid for gpu in box.node.state.topology.gpus} == {"GPU-new-0", "GPU-new-1"}
    assert box.monitor.minors == {"GPU-new-0": 0, "GPU-new-1": 1}
    others_view = box.monitor.minors
    box.monitor.refresh()
    assert box.monitor.minors is others_view, "others hold the dictionary itself"


def test_a_capture_that_cannot_be_read(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    (box.folder / "machine.json").write_text("{")
    with pytest.raises(CaptureError):
        box.monitor.refresh(first=True)
    assert box.monitor.refreshed_at == 0.0
    box.monitor.refresh()
    box.monitor.refresh()
    assert len([each for each in caplog.records if each.levelname == "WARNING"]) == 1
    box.change(FULL)
    box.monitor.refresh()
    topology = box.node.state.topology
    (box.folder / "machine.json").write_text("{")
    box.monitor.refresh()
    assert box.node.state.topology == topology, "what is known stays"


def gone_since(box: Box) -> float | None:
    return box.monitor.driver_gone_at


# --- a driver that goes away -------------------------------------------------


def test_a_driver_that_goes_and_comes_back(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    box.without_driver()
    box.monitor.refresh()
    assert not box.node.state.topology.gpus, "no GPU was ever seen"
    assert gone_since(box) is None, "it never worked in this run of the agent"
    assert len([each for each in caplog.messages if "retrying every 30 s" in each]) == 1
    box.monitor.refresh()
    assert len([each for each in caplog.messages if "retrying every 30 s" in each]) == 1
    box.with_driver()
    box.monitor.refresh()
    assert box.healthy() == ALL
    box.without_driver()
    box.monitor.refresh()
    gone_at = gone_since(box)
    assert gone_at is not None
    assert (box.healthy(), len(box.node.state.topology.gpus)) == ([], 8)
    assert all(gpu.why for gpu in box.node.state.topology.gpus)
    assert box.monitor.facts == (), "the driver's counters start again when it is back"
    time.sleep(0.01)
    box.monitor.refresh()
    assert gone_since(box) == gone_at, "it is the time since which it is gone"
    box.with_driver()
    box.monitor.refresh()
    assert gone_since(box) is None


def nics(box: Box) -> list[str]:
    return [each.name for each in box.node.state.topology.hcas]


class HangingFolder(os.PathLike[str]):
    """What a file of the kernel is like whose device does not answer: whoever reads it waits until it is released."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.answers, self.asked = folder, threading.Event(), 0

    def __fspath__(self) -> str:
        self.asked += 1
        assert self.answers.wait(60)
        return str(self.folder)

    def __str__(self) -> str:
        return str(self.folder)


def test_a_file_of_the_kernel_that_hangs_holds_nobody_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a driver, and from the first survey on: nothing is known, and everything else goes on."""
    made = machines.machine(cards=2)
    fake.render(made, tmp_path / "sys")
    sys: Any = HangingFolder(tmp_path / "sys")
    box = Box(tmp_path, driver_wait_s=0.05, sysfs_root=sys, capture=None, driver_root=tmp_path)
    box.monitor.refresh(first=True)
    assert box.monitor.refreshed_at > 0, "what waits for the first survey goes on"
    assert not nics(box)
    says = f"a file below {tmp_path}/sys has not answered for 0.05 s"
    assert [each for each in caplog.messages if each.startswith(says)]
    said = len(caplog.messages)
    box.monitor.refresh()
    assert (len(caplog.messages), sys.asked) == (said, 1), "one call hangs, not one for each survey"
    sys.answers.set()
    box.monitor._settings = replace(box.monitor._settings, driver_wait_s=60.0)
    box.monitor.refresh()
    assert nics(box) == ["mlx5_0", "mlx5_1", "mlx5_2"]
    sys.answers.clear()
    box.monitor._settings = replace(box.monitor._settings, driver_wait_s=0.05)
    box.monitor.refresh()
    assert nics(box) == ["mlx5_0", "mlx5_1", "mlx5_2"], "as they were read before"
    sys.answers.set()


def test_nothing_can_be_metered_without_a_driver(box: Box) -> None:
    assert box.monitor.usage() == ()
    box.without_driver()
    assert box.monitor.usage() == ()
    kept: Any = (("n",),)
    box.monitor._usage = (time.monotonic(), kept)
    assert box.monitor.usage() == kept, "a reading is reused for a while"
    box.monitor._usage = (time.monotonic() - 10.0, kept)
    assert box.monitor.usage() == ()
    box.monitor.users = {"x": {1: "p"}}
    box.monitor.refresh()
    assert box.monitor.users == {"x": {1: "p"}}, "processes that cannot be read are no news"


# --- XIDs --------------------------------------------------------------------


def test_xids_are_counted_and_said_with_their_gpu(box: Box, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    box.monitor.refresh(first=True)
    one, two = machines.uuid(1), machines.uuid(2)
    for uuid, xid, gi in ((one, 31, -1), (one, 31, -1), (two, 79, -1), ("", 31, -1), (one, 94, 0), ("GPU-x", 31, -1)):  # fmt: skip
        box.monitor.on_event(uuid, xid, gi)
    box.monitor.wake()
    events = box.monitor._wait()
    assert len(events) == 6
    box.monitor.refresh(events)
    said = [each for each in caplog.messages if each.startswith("GPU") and each.endswith("]")]
    assert len(said) == 5
    assert [each for each in said if f"GPU 1 ({one})" in each and ", 2 times [" in each]
    assert [each for each in said if f"GPU 1 ({one}, GPU instance 0)" in each]
    assert [each for each in said if f"GPU 2 ({two})" in each and "times" not in each]
    assert [each for each in said if "GPU ? (-)" in each]
    assert [each for each in said if "GPU ? (GPU-x)" in each]
    assert box.monitor.xids == {(one, 31): 2, (two, 79): 1, ("", 31): 1, (one, 94): 1, ("GPU-x", 31): 1}  # fmt: skip
    assert 2 not in box.healthy(), "it has fallen off the bus"
    assert {0, 3} <= set(box.healthy())
    box.monitor.on_event(one, 31)
    box.monitor.refresh(box.monitor._wait())
    assert box.monitor.xids[one, 31] == 3
    box.monitor.refresh([replace(events[0], xid=0)])
    assert sum(box.monitor.xids.values()) == 7, "an event without an XID only asks for a survey"


def test_which_pods_have_processes_on_which_gpus(box: Box, tmp_path: Path) -> None:
    """Of healthy GPUs that are no slices: the driver shows nothing of others."""
    first, second = UIDS
    for pid, cgroup in ((7, f"kubepods/pod{first}/a"), (8, "system.slice"), (9, f"kubepods/pod{second}/b")):  # fmt: skip
        (tmp_path / "proc" / str(pid)).mkdir()
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(f"0::/{cgroup}\n")
    box.monitor.refresh(first=True)
    asked: list[list[str]] = []

    def processes(uuids: Any) -> Any:
        asked.append(list(uuids))
        return {uuids[0]: {7: 1, 8: 1}, uuids[1]: {9: 1}, uuids[2]: {}, uuids[3]: None}

    box.monitor.processes = processes  # type: ignore[method-assign]
    box.monitor._read_users(box.node.state.topology)
    assert (asked, box.monitor.users) == ([], {}), "a capture has no processes"
    box.without_driver()
    seen = box.node.state.topology
    gpus = (replace(seen.gpus[0], healthy=False), replace(seen.gpus[1], mig=True), *seen.gpus[2:])
    box.monitor._read_users(replace(seen, gpus=gpus))
    uuids = [machines.uuid(index) for index in range(2, 8)]
    assert asked == [uuids]
    assert box.monitor.users == {uuids[0]: {7: first}, uuids[1]: {9: second}}


def test_events_are_asked_for_anew_when_other_gpus_are_there(box: Box) -> None:
    renewed: list[int] = []
    box.monitor.events = SimpleNamespace(renew=lambda: renewed.append(1))  # type: ignore[assignment]
    for machine, count in ((FULL, 1), (FULL, 1), (without(2), 2), (without(2), 2), (FULL, 3)):
        box.change(machine)
        box.monitor.refresh()
        assert len(renewed) == count


def test_xids_that_are_counted_are_bounded(box: Box) -> None:
    for number in range(MOST_XIDS + 5):
        box.monitor._log_xids([replace(EVENT, uuid=f"GPU-{number}")], box.node.surveyed)
    assert len(box.monitor.xids) == MOST_XIDS
    box.monitor._log_xids([replace(EVENT, uuid="GPU-0")], box.node.surveyed)
    assert box.monitor.xids["GPU-0", 31] == 2


def test_events_that_wait_are_bounded(box: Box) -> None:
    for _ in range(MOST_NEWS + 100):
        box.monitor.on_event("", 31)
    assert len(box.monitor._wait()) == MOST_NEWS


# --- when it looks -----------------------------------------------------------


def looks(box: Box, during: Callable[[list[float]], None]) -> list[float]:
    """When surveys began, in seconds after the start. `during` is given the same list, while it grows."""
    found: list[float] = []
    refresh, stop = box.monitor.refresh, threading.Event()
    began = time.monotonic()

    def counted(*given: Any, **more: Any) -> None:
        found.append(time.monotonic() - began)
        refresh(*given, **more)

    box.monitor.refresh = counted  # type: ignore[method-assign]
    thread = threading.Thread(target=box.monitor.run, args=(stop,))
    thread.start()
    during(found)
    stop.set()
    box.monitor.wake()
    thread.join(20)
    assert not thread.is_alive()
    return found


def test_an_event_does_not_wait_for_the_next_survey(box: Box) -> None:
    box.monitor.refresh(first=True)

    spent_s = 0.0

    def during(found: list[float]) -> None:
        nonlocal spent_s
        began = time.monotonic()
        for _ in range(50):
            box.monitor.on_event(machines.uuid(1), 31)
            time.sleep(0.005)
        box.monitor.wake()
        eventually(lambda: found)
        spent_s = time.monotonic() - began

    found = looks(box, during)
    assert len(found) <= 2 + spent_s / CALM_S, (
        "a burst causes one survey, and after a pause another"
    )
    assert CALM_S == 1.0
    assert box.monitor.xids


def test_a_bug_does_not_end_the_surveys(box: Box, caplog: pytest.LogCaptureFixture) -> None:
    box.monitor.refresh(first=True)
    box.monitor._log_changes = lambda *_: 1 / 0  # type: ignore[method-assign, assignment]

    def during(found: list[float]) -> None:
        for surveys in (1, 2):
            box.monitor.wake()
            eventually(lambda surveys=surveys: len(found) >= surveys)  # type: ignore[misc]  # bound now

    assert len(looks(box, during)) >= 2
    assert "a bug in the hardware survey" in caplog.text
    assert box.healthy() == ALL


def test_the_pause_between_surveys(box: Box) -> None:
    assert box.monitor._pause_s() == 30.0
    box.monitor.refresh(first=True)
    assert box.monitor._pause_s() == 30.0
    uuid = machines.uuid(0)
    health = box.monitor.gpus[uuid]
    for cleared_s, pause_s in ((0.0, 5.01), (3.0, 2.01), (4.99, 0.05), (60.0, 0.05), (-100.0, 30.0)):  # fmt: skip
        began = time.monotonic()
        held = replace(health, cause="x", clear_since=began - cleared_s, failures=1)  # type: ignore[arg-type]
        pauses = []
        box.monitor.gpus = {uuid: held}
        pauses.append(box.monitor._pause_s())
        box.monitor.gpus, box.monitor.nics = {}, {"mlx5_0": held}
        pauses.append(box.monitor._pause_s())
        box.monitor.nics, box.monitor.slices = {}, {"MIG-1": held}
        pauses.append(box.monitor._pause_s())
        box.monitor.slices = {}
        spent_s = time.monotonic() - began
        assert max(pauses) <= pause_s + 1e-6
        assert min(pauses) >= min(30.0, max(0.05, pause_s - spent_s - 1e-6))


# --- what is warned of -------------------------------------------------------


def test_limitations_are_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    well = machines.machine(2, cards=2)
    refused = replace(well.nvml.gpus[1], denied=("temperature", "power"))
    ill = replace(well, nvml=replace(well.nvml, gpus=(well.nvml.gpus[0], refused)))
    box = Box(tmp_path, ill, rdma_devices=("mlx5_0", "mlx5_9"), rdma_rails=("mlx5_8", "mlx5_0"))
    box.monitor.refresh(first=True)
    box.monitor.refresh()
    of_gpu = "GPU 1: the driver refuses the agent temperature, power"
    others = (
        "--rdma-devices: no RDMA NIC matches mlx5_9",
        "--rdma-rails: mlx5_8 has no NIC that --rdma-devices serves",
    )
    assert [caplog.messages.count(each) for each in (of_gpu, *others)] == [1, 1, 1]
    assert not [each for each in caplog.messages if "mlx5_0" in each]
    box.change(well)
    box.monitor.refresh()
    box.change(ill)
    box.monitor.refresh()
    assert caplog.messages.count(of_gpu) == 2, "it had ended in between"
    assert [caplog.messages.count(each) for each in others] == [1, 1]
