"""The agent is killed at every step of an allocation; the next one restores a consistent state."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from agent.resources.cdi import Devices, Specs, spec
from central.standalone.hollow_kubelet import Container, KubeletPod
from protos.names import GPU, RDMA
from protos.nearest import device_of
from protos.topology import Grant
from tests.fakes import machines
from tests.fakes.claim_kubelet import ClaimKubelet, claim_box, plan_claims, planned
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, gpus, intent, node_box

pytestmark = pytest.mark.slow

KIND = "lockstep.dev/gpu"
GRACE_S = 30.0

CARDS = machines.machine(cards=8)
WISH = (("hca_handle", 32), ("hca_object", 2000))


class Killer:
    """Stops the plugin's thread for ever at the n-th step: before each call that its answers to the
    kubelet consist of, and before each thing done to the world (a file written, renamed, removed).
    From outside that is a process that was killed there. What is given to the interpreter as an
    audit hook can't be taken back, so there is one for all tests."""

    def __init__(self) -> None:
        self.armed = False
        self.count = self.at = 0
        self.dead = threading.Event()
        self.buried = threading.Event()
        self.what = ""
        sys.addaudithook(self._act)

    def arm(self, at: int) -> None:
        self.count, self.at, self.what = 0, at, ""
        self.dead, self.buried = threading.Event(), threading.Event()
        self.armed = True

    def _act(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.armed or event not in ACTS:
            return
        reads = event == "open" and not arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if not reads and threading.current_thread().name.startswith(("plugin", "claims")):
            self._step(f"{event} {arguments[0]}")

    def call(self, frame: FrameType, event: str, _: Any) -> None:
        """For threading.setprofile()."""
        caller = frame.f_back
        if not self.armed or event != "call" or not caller:
            return
        answer, part = caller.f_code.co_name, frame.f_code.co_name
        if (
            answer in ANSWERS
            and part in PARTS
            and caller.f_globals["__name__"] == "agent.kubelet.plugin"
        ):
            self._step(f"{answer}: {part}")

    def _step(self, what: str) -> None:
        self.count += 1
        if self.count == self.at:
            buried = self.buried
            self.what = what
            self.dead.set()
            buried.wait(GRACE_S)
            raise SystemExit  # of this thread


ACTS = {"open", "os.rename", "os.remove", "os.mkdir", "os.chmod"}
ANSWERS = {"GetPreferredAllocation", "Allocate", "_response", "PreStartContainer"}
PARTS = {
    *("list_now", "taken", "preferred", "_response", "record_allocation", "response", "helper"),
    *("__exit__", "stale", "add", "holder", "starting"),
}
KILLER = Killer()


@pytest.fixture
def followed() -> Iterator[None]:
    threading.setprofile(KILLER.call)
    yield
    threading.setprofile(None)


@contextmanager
def box_with_everything() -> Iterator[NodeBox]:
    """A node with GPUs, RDMA NICs and pods' RDMA limits."""
    with node_box(CARDS) as box:
        for name in "abc":
            folder = box.directory / f"cgroup/rdma/kubepods/burstable/poduid-{name}"
            folder.mkdir(parents=True)
            for file in ("rdma.max", "rdma.current"):
                (folder / file).touch()
        box.configure(cgroup_root=box.directory / "cgroup")
        box.start()
        eventually(lambda: complete(box), GRACE_S)
        yield box


def complete(box: NodeBox) -> bool:
    return (box.kubelet.allocatable.get(GPU), box.kubelet.allocatable.get(RDMA)) == (8, 8 * 16)


def both(name: str) -> KubeletPod:
    return KubeletPod(f"uid-{name}", "team", name, (Container("c0", ((GPU, 2), (RDMA, 1))),))


def plans(name: str, *numbers: int) -> tuple[Grant, Grant]:
    card = Grant("team", name, "c0", RDMA, (f"mlx5_{numbers[0]}",), WISH)
    return intent(name, numbers), card


def whole(box: NodeBox) -> None:
    """Nothing is half done: limits are as requested, and no device is allocated twice."""
    for name in box.truth():
        text = (
            box.directory / f"cgroup/rdma/kubepods/burstable/poduid-{name}/rdma.max"
        ).read_text()
        assert text.endswith("hca_handle=32 hca_object=2000"), text
    given = [
        device for row in box.kubelet.held().values() for ids in row.values() for device in ids
    ]
    assert len(given) == len(set(given))


def restart(box: NodeBox) -> None:
    box.restart_agent()
    eventually(lambda: complete(box), GRACE_S)


def killed_at(box: NodeBox, step: int) -> str:
    """Kills the agent at this step of b's allocation and starts a new one. Returns the step, empty
    if there is none."""
    box.plan(*plans("b", 4, 5))
    KILLER.arm(step)
    answer: list[Any] = []
    admitting = threading.Thread(target=lambda: answer.append(box.kubelet.add_pod(both("b"))))
    admitting.start()
    eventually(lambda: KILLER.dead.is_set() or not admitting.is_alive(), GRACE_S)
    KILLER.armed = False
    died = KILLER.what
    if died:
        box.agent.stop()
        admitting.join(GRACE_S)
        KILLER.buried.set()
        assert not answer[0].ok
        assert answer[0].message, "it says what happened"
        restart(box)
        box.plan(*plans("b", 4, 5))
        if answer[0].reason != "RunContainerError":
            box.kubelet.remove_pod("uid-b")  # its controller creates another
            box.kubelet.add_pod(both("b"), start=False)
    started = box.kubelet.start_pod("uid-b")
    assert started.ok, started
    return died


@pytest.mark.usefixtures("followed")
@pytest.mark.filterwarnings("ignore:Exception ignored in thread started by")  # it ends in any frame
def test_the_agents_death_at_every_step_of_an_allocation() -> None:
    with box_with_everything() as box:
        box.plan(*plans("a", 0, 1))
        running = box.kubelet.add_pod(both("a"))
        died = []
        for step in range(1, 200):
            what = killed_at(box, step)
            eventually(lambda: box.truth() == {"a": [0, 1], "b": [4, 5]}, GRACE_S)
            whole(box)
            assert gpus(running) == [0, 1]
            assert {device_of(i) for row in box.kubelet.held().values() for i in row[RDMA]} == {
                "mlx5_0",
                "mlx5_4",
            }
            box.kubelet.remove_pod("uid-b")
            box.kubelet.list_pods()  # releases its devices
            if not what:
                break
            died.append(what)
            limits = box.directory / "cgroup/rdma/kubepods/burstable/poduid-b/rdma.max"
            limits.write_text("")
        first = {what.split()[0] for what in died}
        assert {"GetPreferredAllocation:", "Allocate:", "_response:", "PreStartContainer:"} <= first
        assert any(what.startswith("open") and what.endswith("rdma.max") for what in died)
        assert len(died) > 15


def allocatable_is(box: NodeBox, gpus: int) -> bool:
    return box.kubelet.allocatable.get(GPU) == gpus


def killed_in(box: NodeBox, kubelet: ClaimKubelet, call: str, step: int) -> str:
    """Kills the agent at this step of a call for claim a, and starts a new one. Returns the step, empty if there is
    none."""
    KILLER.arm(step)

    def ask() -> None:
        with contextlib.suppress(Exception):
            getattr(kubelet, call)("a")

    asking = threading.Thread(target=ask)
    asking.start()
    eventually(lambda: KILLER.dead.is_set() or not asking.is_alive(), GRACE_S)
    KILLER.armed = False
    if KILLER.what:
        box.agent.stop()
        asking.join(GRACE_S)
        KILLER.buried.set()
        box.restart_agent()
    return KILLER.what.split()[0] if KILLER.what else ""


def test_the_agents_death_at_every_step_of_a_claim() -> None:
    died = set[str]()
    with claim_box() as (box, kubelet):
        box.start()
        for call in ("prepare", "unprepare"):
            for step in range(1, 50):
                plan_claims(box, planned("a", machines.uuid(3)))
                if call == "unprepare":
                    assert not kubelet.prepare("a").error
                what = killed_in(box, kubelet, call, step)
                died.add(f"{call} {what}")
                plan_claims(box)  # what the records say is what counts
                count = len([*(box.directory / "cdi").glob("lockstep.dev-claim-*.json")])
                eventually(partial(allocatable_is, box, 8 - count), GRACE_S)
                plan_claims(box, planned("a", machines.uuid(3)))
                assert not kubelet.prepare("a").error
                assert kubelet.unprepare("a") == ""
                assert not box.agent.node.state.prepared
                plan_claims(box)
                if not what:
                    break
    assert {"prepare open", "prepare os.rename", "unprepare os.remove", "prepare "} <= died


def put(directory: Path, devices: Devices) -> None:
    with contextlib.suppress(SystemExit):
        Specs(directory).put(KIND, devices, "X")


def test_a_spec_is_whole_or_not_there_wherever_the_agent_dies(tmp_path: Path) -> None:
    old, new = {"a": ("/dev/nvidia0",)}, {"a": ("/dev/nvidia0",), "b": ("/dev/nvidia1",)}
    died = []
    for step in range(1, 50):
        directory = tmp_path / str(step)
        put(directory, old)
        KILLER.arm(step)
        thread = threading.Thread(target=put, args=(directory, new), name="plugin")
        thread.start()
        while thread.is_alive() and not KILLER.dead.is_set():
            thread.join(0.01)
        KILLER.armed = False
        file = Specs(directory).file(KIND)
        assert json.loads(file.read_text()) in (spec(KIND, old, "X"), spec(KIND, new, "X"))
        put(directory, new)  # the next agent
        assert json.loads(file.read_text()) == spec(KIND, new, "X")
        KILLER.buried.set()
        thread.join()
        if not KILLER.what:
            break
        died.append(KILLER.what.split()[0])
    assert {"open", "os.rename"} <= set(died)
