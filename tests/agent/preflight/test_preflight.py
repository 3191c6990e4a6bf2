"""When GPUs are checked, and what a failure does: the agent and a hollow kubelet."""

import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from agent.machine import capture
from agent.preflight.copy_process import CopyOutcome, CopyProcess
from agent.service import Agent
from tests.agent.nvml_fixture import CAPTURES
from tests.agent.preflight.test_idle_checks import links_down
from tests.fakes.eventually import eventually
from tests.fakes.nodebox import NodeBox, node_box, pod

H100 = capture.load(CAPTURES / "hgx-h100-8.json")


class Scripted(CopyProcess):
    """Copies whose outcome the test decides."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, ...]] = []
        self.bad: set[str] = set()
        self.slow = False
        self.cancelled = 0

    def run(
        self, uuids: Sequence[str], wait_s: float, cancelled: Callable[[], bool]
    ) -> CopyOutcome:
        self.asked.append(tuple(uuids))
        while self.slow and not cancelled():
            time.sleep(0.02)
        if cancelled():
            self.cancelled += 1
            return CopyOutcome({}, cancelled=True)
        return CopyOutcome(dict.fromkeys(self.bad & set(uuids), "a copy brought other bytes"))


@pytest.fixture
def box() -> Iterator[NodeBox]:
    with node_box(H100) as made:
        yield made


def prepared(box: NodeBox, mode: str = "copy") -> Scripted:
    box.configure(preflight=mode, preflight_wait_s=5.0)
    copies = Scripted()
    box.agent._monitor.preflight._copies = copies
    return copies


def whys(agent: Agent) -> dict[int, str]:
    return {gpu.index: gpu.why for gpu in agent.node.state.topology.gpus if not gpu.healthy}


def uuid(index: int) -> str:
    return H100.nvml.gpus[index].uuid


def test_no_gpu_is_offered_before_it_is_checked(box: NodeBox) -> None:
    copies = prepared(box)
    copies.slow = True
    box.agent.start()
    eventually(lambda: bool(copies.asked))
    assert set(whys(box.agent)) == set(range(8))
    assert set(whys(box.agent).values()) == {"preflight: not checked yet"}
    assert box.kubelet.allocatable.get("nvidia.com/gpu", 0) == 0
    copies.slow = False
    box.wait_for(8)


def test_a_gpu_that_fails_is_left_out_with_its_reason(box: NodeBox) -> None:
    copies = prepared(box)
    copies.bad = {uuid(3)}
    box.agent.start()
    box.wait_for(7)
    assert whys(box.agent) == {3: "preflight: a copy brought other bytes"}
    cause = box.agent._monitor.gpus[uuid(3)].cause
    assert cause is not None
    assert cause.kind == "preflight"


def test_gpus_are_checked_again_after_each_use(box: NodeBox) -> None:
    copies = prepared(box)
    box.start()
    before = len(copies.asked)
    assert box.kubelet.add_pod(pod("p", 2)).ok
    eventually(lambda: len(box.agent.node.state.allocated().whole) == 2)
    held = box.agent.node.state.allocated().whole
    time.sleep(0.5)
    assert len(copies.asked) == before  # nothing is due while a pod has them
    copies.bad = {min(held)}
    box.kubelet.remove_pod("uid-p")
    eventually(lambda: len(copies.asked) > before)
    box.wait_for(7)
    assert set(copies.asked[-1]) >= held


def test_a_running_pods_gpu_is_never_checked_nor_held(box: NodeBox) -> None:
    box.start()
    assert box.kubelet.add_pod(pod("p", 2)).ok
    eventually(lambda: len(box.agent.node.state.allocated().whole) == 2)
    held = box.agent.node.state.allocated().whole
    box.agent.stop()
    copies = prepared(box)
    copies.slow = True
    box.agent.start()
    eventually(lambda: bool(copies.asked))
    assert not held & set(copies.asked[0])
    assert {gpu.uuid for gpu in box.agent.node.state.topology.gpus if gpu.healthy} == held
    copies.slow = False
    box.wait_for(8)


def test_a_check_gives_way_to_a_pod(box: NodeBox) -> None:
    """A check after the first holds no GPU back, and ends when one is allocated."""
    copies = prepared(box)
    box.start()
    assert box.kubelet.add_pod(pod("a", 1)).ok
    eventually(lambda: len(box.agent.node.state.allocated().whole) == 1)
    copies.slow, copies.bad = True, {gpu.uuid for gpu in H100.nvml.gpus}
    before = len(copies.asked)
    box.kubelet.remove_pod("uid-a")
    eventually(lambda: len(copies.asked) > before)
    began = time.monotonic()
    assert box.kubelet.add_pod(pod("b", 8)).ok
    assert time.monotonic() - began < 60, "a check ends when it is cancelled, and never else"
    eventually(lambda: copies.cancelled > 0)
    assert whys(box.agent) == {}


def test_links_alone(box: NodeBox) -> None:
    copies = prepared(box, "links")
    box.change(links_down(H100, 2, 3))
    box.agent.start()
    box.wait_for(7)
    assert whys(box.agent) == {2: "preflight: 15 of 18 NVLinks to the switches are up"}
    assert copies.asked == []


def test_off_by_default(box: NodeBox) -> None:
    box.change(links_down(H100, 2, 3))
    box.start()
    assert whys(box.agent) == {}
