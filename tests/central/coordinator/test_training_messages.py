"""What the coordinator reports of its members, queues and the latest change."""

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from central.controllers.training import measured_speeds
from central.controllers.training.generation import MembershipRules, SizePlan
from central.controllers.training.pauses import PauseMeter
from central.controllers.training.slow_members import ROUNDS
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.coordinator.coordinator_app import CoordinatorApp
from central.coordinator.coordinator_status import status
from central.coordinator.request_rates import RequestRates
from central.coordinator.saving import Saving
from central.coordinator.state_store import NoStore
from central.coordinator.training_messages import training_progress, training_report
from central.model import limits
from protos.stubs import fleet_pb2 as pb
from tests.central.controllers.training.test_membership import ack_all, process
from tests.central.coordinator.test_bad_requests import ME, Served, serve


def running(members: int = 3) -> StoredState:
    state = StoredState("a/b/c", MembershipRules(least=members, most=members))
    for number in range(members):
        state.membership.join(0.0, process(number))
    ack_all(state.membership, 0.0)
    return state


def told(
    state: StoredState, rates: RequestRates | None = None, now: float = 50.0
) -> pb.TrainingProgress:
    return training_progress(state, rates or RequestRates(), PauseMeter(), now)


@pytest.mark.parametrize(("spares", "members"), [(0, "0-3"), (1, "0-4")])
def test_a_spare_is_among_the_members_and_a_newcomer_is_not_yet(spares: int, members: str) -> None:
    rules = MembershipRules(least=2, most=6, spares=spares)
    state = StoredState("a/b/c", rules)
    state.membership.set_plan(0.0, SizePlan(1, tuple(range(4 + spares))))
    for number in range(4):
        state.membership.join(0.0, process(number))
    ack_all(state.membership, 0.0)
    state.membership.set_plan(1.0, SizePlan(2, tuple(range(5))))
    state.membership.join(1.0, process(4))
    assert training_report(state, 0).members == members


def test_nothing_is_known_before_the_first_report() -> None:
    found = told(running())
    assert found.generation == 1
    assert [(one.member, one.rank) for one in found.members] == [(0, 0), (1, 1), (2, 2)]
    for one in found.members:
        assert not one.HasField("step")
        assert (one.step_s, one.samples_per_s, one.straggler) == (0, 0, False)
    assert not found.HasField("epoch_left")
    assert not found.HasField("pause")
    assert found.left_out == 0


def test_no_generation_is_live() -> None:
    found = told(StoredState("a/b/c", MembershipRules(least=2, most=2)))
    assert (found.generation, len(found.members), found.left_out) == (0, 0, 0)


@pytest.mark.parametrize(("slow_s", "is_slow"), [(2.6, False), (2.62, True), (1.0, False)])
def test_a_straggler_takes_more_than_1_3_times_the_median(slow_s: float, *, is_slow: bool) -> None:
    """By its own time: the others wait for it, so by the clock all are equally slow."""
    state, rates = running(), RequestRates()
    for member, seconds in enumerate((2.0, slow_s, 2.0)):
        for step in (4, 5):
            rates.report(member, 10.0 * step, step, 80.0, seconds, epoch_left=100 - step)
    found = told(state, rates)
    assert [one.step for one in found.members] == [5, 5, 5]
    assert [one.straggler for one in found.members] == [False, is_slow, False]
    assert [one.step_s for one in found.members] == pytest.approx([2.0, slow_s, 2.0])
    assert found.samples_per_s == 3 * 8.0
    assert found.epoch_left == 95


def test_the_first_report_of_a_generation_says_no_time() -> None:
    """It says 0 seconds, which is unknown and not fast: whoever has seen fewer changes of size would be slow."""
    state, rates = running(), RequestRates()
    for member, changes in enumerate((3, 3, 0)):
        for step in range(1, 12):
            seconds = 0.0 if 5 <= step < 5 + changes else 2.0
            rates.report(member, 2.0 * step, step, 80.0, seconds)
    found = told(state, rates)
    assert [one.step_s for one in found.members] == pytest.approx([2.0, 2.0, 2.0])
    assert not any(one.straggler for one in found.members)


def test_the_median_of_an_even_number() -> None:
    state, rates = running(4), RequestRates()
    for member, seconds in enumerate((1.0, 1.0, 1.5, 1.63)):
        for step in (1, 2):
            rates.report(member, 10.0 * step, step, 1.0, seconds)
    assert [one.straggler for one in told(state, rates).members] == [False, False, False, True]


def test_what_the_member_says_that_is_furthest() -> None:
    rates = RequestRates()
    rates.report(0, 1.0, 7, 1.0, 1.0, epoch_left=30)
    rates.report(1, 1.0, 8, 1.0, 1.0, epoch_left=20)
    rates.report(2, 1.0, 6, 1.0, 1.0)
    assert told(running(), rates).epoch_left == 20
    assert rates.furthest([0, 1, 2]) == 8, "steps that were taken, not the next one"
    assert rates.furthest([]) == 0
    rates.report(2, 2.0, 9, 1.0, 1.0)
    rates.report(1, 2.0, 0, 1.0, 1.0)
    assert told(running(), rates).members[1].HasField("step"), "none is a number of steps as well"
    assert not told(running(), rates).HasField("epoch_left"), "the furthest does not say it"


def test_of_a_large_job_a_part_with_all_its_stragglers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "REPORTED_MEMBERS", 3)
    state, rates = running(6), RequestRates()
    for member in range(6):
        for step in (1, 2):
            rates.report(member, 10.0 * step, step, 1.0, 9.0 if member == 4 else 1.0)
    found = told(state, rates)
    assert [one.rank for one in found.members] == [0, 1, 4]
    assert found.left_out == 3


def test_the_largest_report_is_small() -> None:
    state, rates = running(limits.REPORTED_MEMBERS), RequestRates()
    for member in range(limits.REPORTED_MEMBERS):
        for step in (1 << 40, (1 << 40) + 1):
            rates.report(member, float(step), step, 12345.678, 9.87)
    found = told(state, rates, 1e15)
    assert len(found.members) == limits.REPORTED_MEMBERS
    assert found.ByteSize() < 60_000


def test_the_counts_and_the_speed_of_queues() -> None:
    state = running()
    ranges = state.tasks.create("r", QueueSettings(failures=0), TaskSource.of_range(100, 10))
    names = state.tasks.create("n", QueueSettings(), TaskSource.of_names(2), names=["a", "b"])
    for number in range(4):
        (task,) = ranges.lease(number * 5.0, (0, 1), 0, 1)["tasks"]
        key = LeaseKey((0, 1), 0, task["task"], task["attempt"])
        if number == 3:
            ranges.fail(key, "torn")
        else:
            ranges.finish(number * 5.0, key)
    ranges.lease(20.0, (0, 1), 0, 2)
    for now in (0.0, 10.0):
        (task,) = names.lease(now, (0, 1), 0, 1)["tasks"]
        names.finish(now, LeaseKey((0, 1), 0, task["task"], task["attempt"]))
    found = {one.name: one for one in told(state, now=20.0).queues}
    one = found["r"]
    assert (one.todo, one.leased, one.done, one.set_aside, one.epoch) == (4, 2, 3, 1, 0)
    assert (one.tasks_per_s, one.records_per_s) == (2 / 20, 1.0)
    assert (found["n"].tasks_per_s, found["n"].records_per_s) == (1 / 20, 0), "of unknown size"


def test_the_pause_of_the_live_generation_alone() -> None:
    state, pauses = running(), PauseMeter()
    pauses.report(1.0, 0, 5)
    pauses.report(2.0, 0, 6)  # its number is not known here; nothing is told of it
    assert not training_progress(state, RequestRates(), pauses, 3.0).HasField("pause")
    pauses = PauseMeter()
    pauses.report(1.0, 1, 5)
    for number in (4, 3):  # the live one is 1: an older coordinator's
        pauses.report(9.0, number, 4)
    assert not training_progress(state, RequestRates(), pauses, 10.0).HasField("pause")
    state.membership.live.number = 4  # type: ignore[union-attr]
    found = training_progress(state, RequestRates(), pauses, 10.0)
    assert (found.pause.generation, found.pause.seconds, found.pause.repeated_steps) == (4, 8.0, 2)


def test_reports_of_steps_become_a_measured_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the coordinator's successor knows, too."""
    monkeypatch.setattr(measured_speeds, "SPAN_S", 0.0)

    async def story(served: Served) -> None:
        for step in range(1, measured_speeds.STEPS + 2):
            await served.ok("/v1/report", {**ME, "generation": 1, "step": step})
        found = told(served.app.state).speeds
        assert [(one.members, one.nodes) for one in found] == [(2, 2)]
        assert found[0].per_s > 0
        successor = StoredState(served.app.state.job, served.app.state.membership.rules)
        sections: dict[str, Any] = {**served.app.state.changes(0.0, whole=True)}
        successor.read(sections, 0.0)
        assert told(successor).speeds == found

    serve(story)


def test_a_member_for_which_the_others_wait_is_in_the_report_and_its_pod_too() -> None:
    """Reports of one step each, of which each member says what it took before it waited."""

    async def story() -> None:
        state = StoredState("a/b/c", MembershipRules(least=3, most=3))
        state.slow.replace_after_s = 1e-9
        app = CoordinatorApp(state, Saving(state, NoStore()))
        for number in range(3):
            state.membership.join(
                time.monotonic(), replace(process(number, node="n1"), uid=f"u{number}")
            )
        ack_all(state.membership, time.monotonic())
        for step in range(1, ROUNDS + 2):
            assert not training_report(state, 0).slow
            for member in range(3):
                app.rates.allows(member, float(step))  # as if a second had passed
                times = {"seconds": 8.0, "own": 7.0 if member == 1 else 2.0}
                app.report(
                    {"member": member, "incarnation": 1, "generation": 1, "step": step, **times}
                )
        app.saving.close()
        why = "the others wait 5 s of each step of 8 s for rank 1 (member 1) on node n1"
        assert (training_report(state, 0).slow, [*training_report(state, 0).replaced]) == (
            why,
            ["u1"],
        )
        found = status(state, app.saving, app.rates, time.monotonic())
        assert (found["slow"], found["replaced"]) == ({"why": why, "members": [1]}, ["u1"])

    asyncio.run(story())
