"""Which GPUs are checked when, and what remains of a check: round by round, with checks whose outcome is set."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from agent.machine import capture
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.preflight import preflight
from agent.preflight.copy_process import CopyOutcome, CopyProcess
from agent.preflight.preflight import AGAIN_S, PENDING, RETRY_S, Preflight, Verdict, _changed
from protos.names import GPU
from protos.topology import Grant
from tests.agent.nvml_fixture import CAPTURES
from tests.agent.preflight.test_idle_checks import links_down
from tests.fakes import machines
from tests.fakes.eventually import eventually

H100 = capture.load(CAPTURES / "hgx-h100-8.json")
FULL = survey(machines.machine(4))
EVERY = [machines.uuid(index) for index in range(4)]
ODD = f"{PENDING.removesuffix('not checked yet')}a copy brought other bytes"


class Copies(CopyProcess):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[list[str]] = []
        self.outcome = CopyOutcome({})
        self.meanwhile: Callable[[], None] = lambda: None
        self.cancelled = False

    def run(self, uuids: Sequence[str], wait_s: float, cancelled: Callable[[], bool]) -> CopyOutcome:  # fmt: skip
        assert wait_s == 7.0
        self.asked.append(list(uuids))
        self.meanwhile()
        self.cancelled = cancelled()
        return self.outcome


class Box:
    def __init__(self, mode: str = "copy") -> None:
        self.node = AgentNode("n")
        self.node.set_topology(FULL)
        self.node.set_grants(())
        self.copies = Copies()
        self.woken = 0
        self.preflight = Preflight(mode, 7.0, self.node, lambda: (), wake=self._wake, copies=self.copies)  # fmt: skip

    def _wake(self) -> None:
        self.woken += 1

    def due(self, later_s: float = 0.0) -> list[str]:
        return self.preflight._due(self.node.state, time.monotonic() + later_s)

    def check(self, *uuids: str) -> None:
        self.preflight._check(list(uuids or EVERY), threading.Event())

    def hold(self, *indices: int) -> None:
        grants = [Grant("ns", f"p{each}", "c", GPU, (EVERY[each],)) for each in indices]
        self.node.set_grants(tuple(grants))

    def whys(self) -> dict[int, str]:
        seen = self.preflight.with_failures(FULL)
        return {gpu.index: gpu.why for gpu in seen.gpus if not gpu.healthy}

    def pending(self) -> list[int]:
        seen = self.preflight.with_pending(self.node.state.topology)
        return [gpu.index for gpu in seen.gpus if gpu.why == PENDING]


def test_idle_gpus_wait_for_their_first_check() -> None:
    box = Box()
    assert box.pending() == [0, 1, 2, 3]
    box.hold(1)
    assert box.pending() == [0, 2, 3], "who has a GPU keeps it"
    assert box.due() == [EVERY[0], EVERY[2], EVERY[3]]
    box.check(EVERY[0], EVERY[2])
    assert box.pending() == [3]
    assert Box("none").pending() == []
    unknown = Box()
    unknown.node = unknown.preflight._node = AgentNode("n")
    unknown.node.set_topology(FULL)
    assert (unknown.pending(), unknown.due()) == ([], []), "who has them is not known yet"


def test_one_that_is_due_takes_all_idle_ones_with_it() -> None:
    box = Box()
    box.check()
    assert (box.due(), box.due(AGAIN_S - 1.0)) == ([], [])
    assert box.due(AGAIN_S + 1.0) == EVERY
    box.copies.outcome = CopyOutcome({EVERY[2]: "a copy brought other bytes"})
    box.check()
    assert (box.due(), box.due(RETRY_S - 1.0)) == ([], [])
    assert box.due(RETRY_S + 1.0) == EVERY
    box.hold(2)
    assert box.due(RETRY_S + 1.0) == [], "the one that is due is in use"
    box.hold()
    assert box.due() == EVERY, "it was used"
    box.hold(0, 1, 2, 3)
    assert box.due() == []
    assert Box("copy").due() == EVERY


def test_a_gpu_that_is_unhealthy_for_another_reason_is_checked_when_it_is_well() -> None:
    box = Box()
    box.check()
    for why, checked in (("XID 79", False), (ODD, True)):
        ill = replace(FULL.gpus[1], healthy=False, why=why)
        box.node.set_topology(replace(FULL, gpus=(FULL.gpus[0], ill, *FULL.gpus[2:])))
        assert box.due() == []
        assert (EVERY[1] in box.due(AGAIN_S + 1.0)) == checked
        box.node.set_topology(FULL)
        assert box.due() == ([] if checked else EVERY)
        box.check()


def test_a_gpu_in_mig_mode_is_never_checked() -> None:
    box = Box()
    box.node.set_topology(replace(FULL, gpus=(replace(FULL.gpus[0], mig=True), *FULL.gpus[1:])))
    assert box.due() == EVERY[1:]
    assert box.pending() == [1, 2, 3]


def test_what_is_gone_is_forgotten() -> None:
    box = Box()
    box.check()
    box.node.set_topology(replace(FULL, gpus=FULL.gpus[:2]))
    assert box.due() == []
    assert box.preflight._verdicts.keys() == set(EVERY[:2])
    box.node.set_topology(FULL)
    assert box.due() == EVERY


def test_a_failure_stays_until_a_check_passes(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    box = Box()
    assert box.whys() == {}
    box.copies.outcome = CopyOutcome({EVERY[2]: "a copy brought other bytes"})
    box.check()
    assert (box.whys(), box.woken) == ({2: ODD}, 1)
    assert caplog.messages == ["preflight of 4 GPUs: 1 failed copies"]
    box.copies.outcome = CopyOutcome({})
    box.check(EVERY[0])
    assert box.whys() == {2: ODD}, "it was not among those that were checked"
    box.check()
    assert (box.whys(), box.woken) == ({}, 3)
    assert box.copies.asked == [EVERY, EVERY[:1], EVERY]
    box.copies.outcome = CopyOutcome({}, unable="no CUDA here")
    box.check()
    assert caplog.messages[-1] == "preflight without copies: no CUDA here"
    assert box.whys() == {}


def test_without_copies(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    box = Box("links")
    box.check()
    assert (box.copies.asked, box.due(), box.pending()) == ([], [], [])
    assert caplog.messages == []


def test_gpus_whose_links_are_down_are_not_copied_between() -> None:
    """Their failure counts although the copies of the others give way."""
    for ill, others in (((2,), [0, 1, 3]), ((0, 1, 2, 3), [])):
        box, machine = Box(), H100
        for index in ill:
            machine = links_down(machine, index, 3)
        box.preflight._facts = lambda machine=machine: machine.nvml.gpus  # type: ignore[misc]
        topology = survey(machine)
        box.node.set_topology(topology)
        uuids = [gpu.uuid for gpu in topology.gpus[:4]]
        box.copies.outcome = CopyOutcome({}, cancelled=True)
        box.check(*uuids)
        failed = {uuid for uuid, each in box.preflight._verdicts.items() if each.why}
        assert failed == {uuids[index] for index in ill}
        assert box.preflight._verdicts.keys() == failed
        assert box.copies.asked == ([[uuids[index] for index in others]] if others else [])


def test_what_wakes_the_rounds() -> None:
    """All that may make a GPU idle or known; not what the scheduler plans, for which nothing is checked."""
    stop = threading.Event()
    for change, wakes in (
        (lambda node: None, False),
        (lambda node: node.set_intents((Grant("ns", "p", "c", GPU, (EVERY[0],)),), 1), False),
        (lambda node: node.set_grants((Grant("ns", "p", "c", GPU, (EVERY[0],)),)), True),
        (lambda node: node.record_allocation(GPU, (EVERY[0],), 0.0), True),
        (lambda node: node.set_topology(replace(FULL, gpus=FULL.gpus[:2])), True),
    ):
        node = AgentNode("n")
        node.set_topology(FULL)
        node.set_grants(())
        changed = _changed(node.state, stop)
        change(node)
        assert changed(node.state) == wakes
    unknown = AgentNode("n")
    changed = _changed(unknown.state, stop)
    unknown.set_grants(())
    assert changed(unknown.state), "who has the GPUs is known now"
    stop.set()
    assert _changed(unknown.state, stop)(unknown.state)


def test_a_check_that_gives_way_says_nothing_of_its_gpus() -> None:
    box = Box()
    box.check()
    before = dict(box.preflight._verdicts)
    box.copies.outcome = CopyOutcome({EVERY[0]: "late"}, cancelled=True)
    box.copies.meanwhile = lambda: box.hold(3)
    box.check()
    assert box.copies.cancelled
    assert (box.preflight._verdicts, box.woken) == (before, 1)


def test_who_got_a_gpu_meanwhile_may_have_caused_its_failure() -> None:
    box = Box()
    box.copies.outcome = CopyOutcome(dict.fromkeys(EVERY[:2], "odd"))
    box.copies.meanwhile = lambda: box.hold(1)
    box.check()
    assert set(box.whys()) == {0}


@pytest.mark.parametrize("change", ["nothing", "stop", "held", "allocated", "other"])
def test_when_a_check_gives_way(change: str) -> None:
    box, stop = Box(), threading.Event()

    def meanwhile() -> None:
        if change == "stop":
            stop.set()
        elif change == "held":
            box.hold(1)
        elif change == "allocated":
            box.node.record_allocation(GPU, (EVERY[1],), time.monotonic())
        elif change == "other":
            box.hold(3)

    box.copies.meanwhile = meanwhile
    box.preflight._check(EVERY[:2], stop)
    assert box.copies.cancelled == (change in ("stop", "held", "allocated"))


def test_a_verdict_of_its_own_time() -> None:
    box = Box()
    began = time.monotonic()
    box.check()
    assert all(began <= each.at <= time.monotonic() for each in box.preflight._verdicts.values())
    assert set(box.preflight._verdicts.values()) <= {Verdict(each.at) for each in box.preflight._verdicts.values()}  # fmt: skip


def test_the_round_begins_when_a_gpu_becomes_idle(monkeypatch: Any) -> None:
    """And ends at once when the agent does."""
    monkeypatch.setattr(preflight, "TICK_S", 600.0)
    box, stop = Box(), threading.Event()
    box.hold(0, 1, 2, 3)
    thread = threading.Thread(target=box.preflight.run, args=(stop,))
    thread.start()
    time.sleep(0.05)
    assert box.copies.asked == []
    box.hold(0, 1)
    eventually(lambda: box.copies.asked, 60)
    assert box.copies.asked == [EVERY[2:]]
    stop.set()
    box.node.wake()
    thread.join(60)
    assert not thread.is_alive()
