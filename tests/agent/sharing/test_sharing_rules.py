"""What a container with shares gets, what must hold before it starts, and what is kept while it runs: rule by rule,
with a driver and a GPU setup that note what is asked of them."""

import base64
import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent.machine.facts import Unusable
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.device_resource import Refused
from agent.settings import Settings
from agent.sharing.responses import ShareSettings
from agent.sharing.sharing import CAPTURED, Sharing
from protos.gpu_sharing import LEAST, MEMORY, RANKS, SHARE
from protos.names import GPU, GPU_SHARE
from protos.nearest import share_id
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.fakes import machines

GIB = 2**30
ONE, TWO = machines.uuid(0), machines.uuid(1)
TOPOLOGY = survey(machines.machine(2))


class Setup:
    """In the place of GpuSetupClient."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.mps_why = ""
        self.ill: dict[str, str] = {}

    def why_not(self) -> str:
        return self.mps_why

    def troubles(self, capabilities: dict[str, str]) -> dict[str, str]:
        self.said.append(("troubles", capabilities))
        return self.ill

    def request(self, uuid: str, settings: Sequence[ShareSettings], memory: int) -> None:
        self.said.append(("request", uuid, list(settings), memory))

    def release_others(self, shared: Any) -> None:
        self.said.append(("release others than", sorted(shared)))

    def client_access(self, uuid: str, percent: int, settings: ShareSettings) -> Any:
        return {"MPS": f"{uuid} {percent} {settings.cap}"}, (("/pipe", "/tmp", False),)

    def wait(self, uuid: str) -> None:
        self.said.append(("wait", uuid))


class Kernel:
    """In the place of KernelCaps."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.why = ""
        self.used: int | None = 5

    def why_not(self, uuid: str) -> str:
        self.said.append(("why not", uuid))
        return self.why

    def set(self, uuid: str, pod: str, cap: int) -> None:
        self.said.append(("set", uuid, pod, cap))

    def keep(self, uuid: str, pod: str, cap: int) -> int | None:
        self.said.append(("keep", uuid, pod, cap))
        return self.used


class Box:
    """A node of two GPUs, whose memory caps are enforced by `level`."""

    def __init__(self, folder: Path, level: str = "none", **settings: Any) -> None:
        self.folder, self.node = folder, AgentNode("n")
        (folder / "device-plugins").mkdir(exist_ok=True)
        (folder / "self").mkdir(exist_ok=True)
        (folder / "self" / "status").write_text("NSpid:\t7\n")
        gpus = tuple(replace(gpu, shares=100, enforcement=level) for gpu in TOPOLOGY.gpus)
        self.node.set_topology(replace(TOPOLOGY, gpus=gpus))
        self.node.set_grants(())
        given = {"kubelet_dir": folder, "sharing_dir": None, "proc_root": folder} | settings
        self.processes: Any = {ONE: {}, TWO: {}}
        self.asked: list[list[str]] = []
        self.sharing = Sharing(Settings(node="n", **given), self.node, self._processes)
        self.setup, self.kernel = Setup(), Kernel()
        self.sharing._setup, self.sharing._kernel = self.setup, self.kernel  # type: ignore[assignment]

    def _processes(self, uuids: Sequence[str]) -> Any:
        self.asked.append(list(uuids))
        if isinstance(self.processes, Exception):
            raise self.processes
        return self.processes

    def plan(self, pod: str, size: int, cap: int = 0, least: str = "none", uuid: str = ONE) -> None:
        limits = tuple(sorted({SHARE: size, MEMORY: cap, LEAST: RANKS[least]}.items()))
        plan = Grant("team", pod, "c", GPU_SHARE, (uuid,), limits)
        self.node.set_intents((*self.node.state.intents, plan), 1)

    def allocate(self, *numbers: int, uuid: str = ONE, pod: str = "") -> Any:
        ids = shares(*numbers, uuid=uuid)
        self.node.record_allocation(GPU_SHARE, ids, 0.0)
        meant = (("team", pod, "c"),) if pod else ()
        return self.sharing.response(ids, self.node.state, meant)

    def grant(self, *rows: tuple[str, tuple[str, ...]]) -> None:
        """What pod-resources lists: pods and their shares."""
        grants = tuple(Grant("team", pod, "c", GPU_SHARE, ids) for pod, ids in rows)
        self.node.set_grants(grants, began=1e12)

    def checkpoint(self, *rows: tuple[str, str, tuple[str, ...]], **envs: str) -> None:
        """What the kubelet has written: uid, resource, devices, and the variables of the answer."""
        answer = pb.ContainerAllocateResponse(envs=envs).SerializeToString()
        entries = [
            {"PodUID": uid, "ContainerName": "c", "ResourceName": resource, "DeviceIDs": {"0": list(ids)}, "AllocResp": base64.b64encode(answer).decode()}
            for uid, resource, ids in rows
        ]  # fmt: skip
        file = self.folder / "device-plugins" / "kubelet_internal_checkpoint"
        file.write_text(json.dumps({"Data": {"PodDeviceEntries": entries}, "Checksum": 0}))


def shares(*numbers: int, uuid: str = ONE) -> tuple[str, ...]:
    return tuple(sorted(share_id(uuid, number) for number in numbers))


# --- Allocate ----------------------------------------------------------------


@pytest.mark.parametrize("level", ["none", "watch", "mps", "kernel"])
def test_what_a_container_gets(tmp_path: Path, level: str) -> None:
    """Its own cap, and the setup of its GPU for all that share it."""
    box = Box(tmp_path, level)
    box.plan("a", 2, 3 * GIB)
    envs, mounts = box.allocate(0, 1)
    mps = {"MPS": f"{ONE} 2 {3 * GIB}"} if level == "mps" else {}
    assert envs == {"LOCKSTEP_GPU_ENFORCEMENT": level, "LOCKSTEP_GPU_MEMORY": str(3 * GIB), **mps}
    assert mounts == ((("/pipe", "/tmp", False),) if level == "mps" else ())
    first = ShareSettings(level, 3 * GIB)
    assert box.setup.said == [("request", ONE, [first], 80 * GIB)]
    envs, _ = box.allocate(2)
    second = ShareSettings(level)
    assert "LOCKSTEP_GPU_MEMORY" not in envs
    assert box.setup.said[1:] == [("request", ONE, [first, second], 80 * GIB)]
    box.allocate(0, uuid=TWO)
    assert box.setup.said[2:] == [("request", TWO, [second], 80 * GIB)], "each GPU has its own"
    held = {shares(0, 1): first, shares(2): second, shares(0, uuid=TWO): second}
    assert box.sharing.settings() == held
    assert box.sharing.watched(tuple(reversed(shares(0, 1)))) == (level != "none")


def test_the_time_slice_of_the_gpu(tmp_path: Path) -> None:
    box = Box(tmp_path, share_gpus="0:none timeslice=short;1:none", gpu_memory="none")
    topology = box.sharing.with_sharing(box.node.state.topology, ())
    assert [gpu.shares for gpu in topology.gpus] == [100, 100]
    assert box.allocate(0)[0] == {"LOCKSTEP_GPU_ENFORCEMENT": "none", "LOCKSTEP_GPU_TIMESLICE": "short"}  # fmt: skip
    assert box.allocate(0, uuid=TWO)[0] == {"LOCKSTEP_GPU_ENFORCEMENT": "none"}


def test_caps_of_waiting_pods_are_not_mixed_up(tmp_path: Path) -> None:
    box = Box(tmp_path, "kernel")
    box.plan("a", 1, GIB)
    box.plan("b", 1, 2 * GIB)
    assert "LOCKSTEP_GPU_MEMORY" not in box.allocate(0)[0], "set before it starts, when it is known"
    assert box.allocate(1, pod="b")[0]["LOCKSTEP_GPU_MEMORY"] == str(2 * GIB)
    whole = Grant("team", "b", "c", GPU, (TWO,))
    box.node.set_grants((whole, Grant("team", "a", "c", GPU_SHARE, shares(0))), began=1e12)
    assert box.allocate(2)[0]["LOCKSTEP_GPU_MEMORY"] == str(2 * GIB), "a is served, b has a GPU"


def test_a_gpu_that_is_unknown(tmp_path: Path) -> None:
    box = Box(tmp_path, "kernel")
    ids = shares(0, uuid="GPU-gone")
    envs, _ = box.sharing.response(ids, box.node.state, ())
    assert envs == {"LOCKSTEP_GPU_ENFORCEMENT": "none"}
    box.plan("a", 1, GIB, "watch", uuid="GPU-gone")
    with pytest.raises(ValueError, match="enforces memory caps by none, which is weaker"):
        box.sharing.response(ids, box.node.state, ())


# --- PreStartContainer -------------------------------------------------------


def test_a_cap_of_the_kernel_is_set_before_the_first_process(tmp_path: Path) -> None:
    box = Box(tmp_path, "kernel")
    ids = shares(0, 1)
    box.plan("a", 2, 3 * GIB)
    box.allocate(0, 1)
    for written in ((), (("uid-b", GPU_SHARE, shares(2)),), (("uid-b", GPU, ids),)):
        box.checkpoint(*written)
        with pytest.raises(Refused, match="the kubelet's checkpoint does not list these shares"):
            box.sharing.pre_start(ids, None)
    box.checkpoint(("uid-b", GPU, ids), ("uid-a", GPU_SHARE, ids), ("uid-c", GPU_SHARE, shares(3)))
    box.sharing.pre_start(ids, None)
    box.plan("late", 2, 4 * GIB)
    box.sharing.pre_start(ids, ("team", "late", "c"))
    assert box.kernel.said == [("set", ONE, "uid-a", 3 * GIB), ("set", ONE, "uid-a", 4 * GIB)]
    (tmp_path / "device-plugins" / "kubelet_internal_checkpoint").write_text("{")
    with pytest.raises(Refused, match="is not a device checkpoint"):
        box.sharing.pre_start(ids, None)
    box.allocate(5)
    box.sharing.pre_start(shares(5), None)  # it has no cap
    assert len(box.kernel.said) == 2
    assert box.setup.said[-1][0] == "request", "there is no server to wait for"


def test_an_mps_client_waits_for_its_server(tmp_path: Path) -> None:
    box = Box(tmp_path, "mps")
    box.plan("a", 1, GIB)
    box.allocate(0)
    box.setup.said.clear()
    box.sharing.pre_start(shares(0), ("team", "a", "c"))
    assert (box.setup.said, box.kernel.said) == ([("wait", ONE)], [])
    box.plan("b", 1, 2 * GIB)
    other = f"it got a GPU memory cap of {GIB} bytes, but its plan has {2 * GIB}: delete the pod"
    with pytest.raises(Refused, match=other):
        box.sharing.pre_start(shares(0), ("team", "b", "c"))
    box.sharing.pre_start(shares(0), ("team", "unplanned", "c"))
    assert len(box.setup.said) == 2


@pytest.mark.parametrize("level", ["none", "watch", "kernel", "mps"])
@pytest.mark.parametrize("least", ["none", "watch", "kernel", "mps"])
def test_a_weaker_enforcement_than_required_is_refused(tmp_path: Path, level: str, least: str) -> None:  # fmt: skip
    """At both times: the plan may come after the shares were given."""
    box = Box(tmp_path, level)
    box.allocate(0)
    box.checkpoint(("uid", GPU_SHARE, shares(0)))
    box.plan("a", 1, 0, least)
    weaker = RANKS[level] < RANKS[least]
    for attempt in (
        lambda: box.allocate(1),
        lambda: box.sharing.pre_start(shares(0), ("team", "a", "c")),
    ):
        if weaker:
            with pytest.raises((ValueError, Refused), match=f"by {level}, which is weaker than the pod requires"):  # fmt: skip
                attempt()
        else:
            attempt()
    box.sharing._responses.record(shares(0), ShareSettings())
    box.sharing.pre_start(shares(0), ("team", "a", "c"))  # what it got is not known any more


# --- while pods run ----------------------------------------------------------


def test_what_is_kept(tmp_path: Path) -> None:
    box = Box(tmp_path, "kernel")
    box.node = box.sharing._node = AgentNode("n")
    box.node.set_topology(TOPOLOGY)
    box.sharing.keep()
    assert (box.setup.said, box.kernel.said) == ([], []), "which shares are released is unknown"
    rows = [("a", shares(0, 1)), ("b", shares(2)), ("c", shares(0, uuid=TWO)), ("d", shares(3))]
    box.grant(*rows)
    mine = {"LOCKSTEP_GPU_ENFORCEMENT": "kernel", "LOCKSTEP_GPU_MEMORY": str(GIB)}
    box.checkpoint(*((f"uid-{pod}", GPU_SHARE, ids) for pod, ids in rows[:3]), **mine)
    box.plan("b", 1, 2 * GIB)
    box.sharing.keep()
    known, unknown = ShareSettings("kernel", GIB), ShareSettings()
    assert box.setup.said == [
        ("request", ONE, [known, known, unknown], 80 * GIB),
        ("request", TWO, [known], 80 * GIB),
        ("release others than", [ONE, TWO]),
    ]
    assert sorted(box.kernel.said) == [
        ("keep", ONE, "uid-a", GIB),
        ("keep", ONE, "uid-b", 2 * GIB),
        ("keep", TWO, "uid-c", GIB),
    ]
    assert box.sharing.used == {ids: 5 for _, ids in rows[:3]}
    box.kernel.used = None
    box.sharing.keep()
    assert box.sharing.used == {}, "the kernel does not count it"
    box.kernel.used, box.kernel.said = 0, []
    box.checkpoint(("uid-a", GPU_SHARE, shares(0, 1)), **mine)
    box.plan("c", 1, 0, uuid=TWO)
    box.sharing.keep()
    assert box.kernel.said == [("keep", ONE, "uid-a", GIB)], "no pod, or no cap any more"
    assert box.sharing.used == {shares(0, 1): 0}
    box.node.set_topology(replace(TOPOLOGY, gpus=TOPOLOGY.gpus[:1]))
    box.setup.said = []
    box.sharing.keep()
    assert box.setup.said[1][3] == 0, "the size of a GPU that is gone is not known"
    box.grant()
    box.setup.said = []
    box.sharing.keep()
    assert (box.setup.said, box.sharing.used) == ([("release others than", [])], {})


def test_only_caps_of_the_kernel_are_restored(tmp_path: Path) -> None:
    box = Box(tmp_path, "watch")
    box.grant(("a", shares(0)))
    box.checkpoint(("uid-a", GPU_SHARE, shares(0)), LOCKSTEP_GPU_ENFORCEMENT="watch", LOCKSTEP_GPU_MEMORY="7")  # fmt: skip
    box.sharing.keep()
    assert (box.kernel.said, box.sharing.used) == ([], {})


# --- what the node can enforce -----------------------------------------------


def levels(box: Box) -> list[str]:
    return [gpu.enforcement for gpu in box.sharing.with_sharing(TOPOLOGY, ()).gpus]


@pytest.mark.parametrize(
    ("gpu_memory", "kernel", "processes", "level"),
    [
        ("auto", "", {ONE: {}, TWO: {}}, "kernel"),
        ("auto", "no cgroups", {ONE: {}, TWO: {}}, "watch"),
        ("auto", "no cgroups", {ONE: {}, TWO: None}, "none"),
        ("auto", "no cgroups", {}, "none"),
        ("auto", "no cgroups", Unusable("no driver"), "none"),
        ("watch", "", {ONE: {}, TWO: {}}, "watch"),
        ("watch", "", {ONE: None}, "none"),
        ("none", "", {ONE: {}, TWO: {}}, "none"),
    ],
    ids=str,
)
def test_the_strongest_that_is_possible(tmp_path: Path, gpu_memory: str, kernel: str, processes: Any, level: str) -> None:  # fmt: skip
    box = Box(tmp_path, gpu_memory=gpu_memory)
    box.kernel.why, box.processes = kernel, processes
    assert levels(box) == [level, level]
    assert box.kernel.said == ([("why not", ONE)] if gpu_memory == "auto" else [])
    assert box.asked == ([] if gpu_memory == "none" else [[ONE, TWO]])


@pytest.mark.parametrize(
    ("prepare", "by", "why"),
    [
        ({"gpu_memory": "none"}, "kernel", "--gpu-memory=none"),
        ({"gpu_memory": "none"}, "watch", "--gpu-memory=none"),
        ({"gpu_memory": "watch"}, "kernel", "--gpu-memory=watch"),
        ({"processes": Unusable("no driver")}, "watch", "no driver"),
        ({"processes": {}}, "watch", "the driver does not report the memory of processes"),
        ({"processes": {ONE: {}, TWO: None}}, "watch", "the driver does not report the memory of processes"),
        ({"nspid": "7 1"}, "watch", "the agent does not see the host's processes (hostPID is not set)"),
        ({"nspid": ""}, "watch", "the agent does not see the host's processes (hostPID is not set)"),
        ({"kernel": "no cgroups"}, "kernel", "no cgroups"),
        ({"mps": "no daemon"}, "mps", "no daemon"),
        ({"capture": True}, "kernel", CAPTURED),
        ({"capture": True}, "watch", CAPTURED),
        ({"capture": True, "mps": "no daemon"}, "mps", "no daemon"),
        ({"ill": True}, "watch", "no GPU is healthy"),
        ({"ill": True}, "kernel", "no GPU is healthy"),
        ({"ill": True}, "mps", "no GPU is healthy"),
    ],
    ids=str,
)  # fmt: skip
def test_why_a_gpu_is_not_shared(tmp_path: Path, prepare: Any, by: str, why: str, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    """Once, and again when that has ended."""
    capture = tmp_path / "c" if prepare.get("capture") else None
    box = Box(tmp_path, share_gpus=f"all:{by}", gpu_memory=prepare.get("gpu_memory", "auto"), capture=capture)  # fmt: skip
    box.kernel.why, box.setup.mps_why = prepare.get("kernel", ""), prepare.get("mps", "")
    box.processes = prepare.get("processes", box.processes)
    if "nspid" in prepare:
        (tmp_path / "self" / "status").write_text(f"NSpid:\t{prepare['nspid']}\n")
    gpus = tuple(replace(gpu, healthy=not prepare.get("ill")) for gpu in TOPOLOGY.gpus)
    seen = replace(TOPOLOGY, gpus=gpus)
    for _ in range(2):
        found = box.sharing.with_sharing(seen, ())
        assert {(gpu.shares, gpu.share_why) for gpu in found.gpus} == {(0, f"not shared by {by}: {why}")}  # fmt: skip
    said = [f"GPU {index}: not shared by {by}: {why}" for index in (0, 1)]
    assert caplog.messages == said


def test_gpus_that_cannot_be_asked_are_not(tmp_path: Path) -> None:
    box = Box(tmp_path)
    gpus = (replace(TOPOLOGY.gpus[0], healthy=False), replace(TOPOLOGY.gpus[1], mig=True))
    box.sharing.with_sharing(replace(TOPOLOGY, gpus=gpus), ())
    assert (box.asked, box.kernel.said) == ([], [])
    box.sharing.with_sharing(replace(TOPOLOGY, gpus=(gpus[0], TOPOLOGY.gpus[1])), ())
    assert (box.asked, box.kernel.said) == ([[TWO]], [("why not", TWO)])


def test_a_driver_that_reports_processes_is_asked_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:  # fmt: skip
    caplog.set_level(logging.INFO)
    box = Box(tmp_path, share_gpus="all:watch")
    box.processes = {}
    levels(box)
    box.processes = {ONE: {}, TWO: {}}
    for _ in range(3):
        assert levels(box) == ["watch", "watch"]
    assert len(box.asked) == 2
    assert caplog.messages[-2:] == ["GPU 0: shared again", "GPU 1: shared again"]


@pytest.mark.parametrize(
    ("running", "by", "expected"),
    [
        (("mps",), "watch", "shared by mps; will be shared by watch when its pods have ended"),
        (("watch", "mps"), "watch", "shared by mps; will be shared by watch when its pods have ended"),
        (("watch",), "mps", "shared by watch; will be shared by mps when its pods have ended"),
        (("",), "mps", "shared by none; will be shared by mps when its pods have ended"),
        (("mps",), "mps", ""),
        (("watch",), "watch", ""),
        (("",), "watch", ""),
        ((), "mps", ""),
    ],
    ids=str,
)  # fmt: skip
def test_a_gpu_serves_either_mps_clients_or_others(tmp_path: Path, running: tuple[str, ...], by: str, expected: str) -> None:  # fmt: skip
    box = Box(tmp_path, share_gpus=f"all:{by}")
    for number, level in enumerate(running):
        ids = shares(number)
        box.node.record_allocation(GPU_SHARE, ids, 0.0)
        box.sharing._responses.record(ids, ShareSettings(level))
    first, second = box.sharing.with_sharing(TOPOLOGY, ()).gpus
    assert (first.share_why, second.share_why) == (expected, "")


def test_mps_that_does_not_work(tmp_path: Path) -> None:
    box = Box(tmp_path, share_gpus="all:mps")
    facts = tuple(replace(gpu, capability="9.0") for gpu in machines.machine(2).nvml.gpus)
    box.setup.ill = {TWO: "its daemon has ended"}
    first, second = box.sharing.with_sharing(TOPOLOGY, facts).gpus
    assert (first.shares, second.shares, second.share_why) == (100, 0, "its daemon has ended")
    assert ("troubles", {ONE: "9.0", TWO: "9.0"}) in box.setup.said
