"""What the coordinator says to the scheduler, and what it makes of a plan."""

import asyncio
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from central.controllers.job.training_plan import TrainingPlan
from central.controllers.training.generation import MembershipRules
from central.controllers.training.membership import Membership
from central.controllers.training.stored_state import StoredState
from central.controllers.training.task_queue import LeaseKey
from central.controllers.training.task_source import QueueSettings, TaskSource
from central.coordinator.coordinator_app import CoordinatorApp
from central.coordinator.saving import Saving
from central.coordinator.scheduler_endpoint import SchedulerEndpoint
from central.coordinator.scheduler_link import SchedulerLink, size_plan
from central.coordinator.state_store import NoStore
from central.coordinator.training_messages import training_report
from central.model import limits
from central.model.facts import CoordinatorReported
from protos.stubs import fleet_pb2 as pb
from tests.central.controllers.training.test_membership import ack_all, plan, process, trio
from tests.central.scheduler_process import SchedulerServer, credentials

KEY = ("team", "train")


def state_with(members: Membership) -> StoredState:
    made = StoredState("team/train/uid", MembershipRules(least=2))
    made.membership = members
    return made


def checkpointed(state: StoredState, step: int, at: float) -> str:
    one = state.checkpoints.begin(at, 1, step, {})
    state.checkpoints.part(one.name, 0, 1, "", 0)
    state.checkpoints.finish(at, one.name, None)
    return one.name


# -- what it says


def test_the_members_are_those_that_train() -> None:
    """Before the first generation, those that have joined; while a change is proposed, still the old ones."""
    members = Membership(MembershipRules(least=2))
    members.set_plan(0.0, plan(1, range(3)))
    members.join(0.0, process(2))
    assert training_report(state_with(members), 4).members == "2"
    assert training_report(state_with(members), 4).plan == 4

    members = trio()
    members.set_plan(1.0, plan(2, range(4)))
    members.join(1.0, process(3))
    assert members.proposal is not None
    assert training_report(state_with(members), 0).members == "0-2"
    ack_all(members, 1.0)
    assert training_report(state_with(members), 0).members == "0-3"


def test_nobody_trains_when_it_is_over() -> None:
    members = trio()
    members.fail("too many tasks are set aside")
    assert training_report(state_with(members), 0).members == ""


def test_a_change_is_complete_with_a_step_of_its_own_generation() -> None:
    members = trio()
    state = state_with(members)
    assert not training_report(state, 0).stepped, "nobody has reported a step"
    members.report(1.0, 1, 1, 1, 0)
    assert not training_report(state, 0).stepped, "it has taken none"
    members.report(1.0, 1, 1, 1, 1)
    assert training_report(state, 0).stepped
    members.set_plan(2.0, plan(2, range(4)))
    members.join(2.0, process(3))
    assert not training_report(state, 0).stepped, "a change is proposed"
    ack_all(members, 2.0, 5)
    assert not training_report(state, 0).stepped, "that step was the old generation's"
    members.report(3.0, 0, 1, 2, 6)
    assert training_report(state, 0).stepped


def test_the_newest_complete_checkpoint() -> None:
    state = state_with(trio())
    assert training_report(state, 0).checkpoint == ""
    first = checkpointed(state, 5, 1.0)
    state.checkpoints.begin(2.0, 1, 9, {})
    assert training_report(state, 0).checkpoint == first, "the other one is torn"
    second = checkpointed(state, 10, 3.0)
    found = training_report(state, 0)
    assert (found.checkpoint, found.restored, found.restored_in) == (second, "", 0)


def test_tasks_set_aside_are_counted_over_all_queues() -> None:
    state = state_with(trio())
    for name, failing in (("valid", 1), ("train", 2)):
        queue = state.tasks.create(name, QueueSettings(failures=0), TaskSource.of_range(5, 1))
        for _ in range(failing):
            (task,) = queue.lease(0.0, (0, 1), 0, 1)["tasks"]
            queue.fail(LeaseKey((0, 1), 0, task["task"], task["attempt"]), f"torn in {name}")
    state.tasks.create("more", QueueSettings(failures=0), TaskSource.of_range(5, 1))
    found = training_report(state, 0)
    assert found.set_aside == 3
    assert "torn in" in found.set_aside_why


# -- what it makes of a plan


def reply(**fields: object) -> pb.PlanReply:
    return pb.PlanReply(plan=7, members="0-1,3", reason="room", least=2, **fields)  # type: ignore[arg-type]  # fields by name


def test_a_plan() -> None:
    place = pb.MemberPlace(member=3, pod="train-worker-3", uid="u3", domains="r1/n2", ended=True)
    found = size_plan(reply(places=[place], over=True), 100.0)
    assert (found.version, found.members, found.reason) == (7, (0, 1, 3), "room")
    assert (found.least, found.over, found.leave_by) == (2, True, None)
    there = found.places[3]
    assert (there.path, there.pod, there.uid, there.ended) == (
        ("r1", "n2"),
        "train-worker-3",
        "u3",
        True,
    )


@pytest.mark.parametrize("in_s", [0.0, 12.5, limits.DURATION_S])
def test_leave_by_is_a_time_of_the_coordinators_clock(in_s: float) -> None:
    """The scheduler says how long from now: its clock is another."""
    assert size_plan(reply(leaves=True, leave_in_s=in_s), 100.0).leave_by == 100.0 + in_s


@pytest.mark.parametrize("in_s", [math.nan, math.inf, -0.5, limits.DURATION_S + 1.0])
def test_a_time_that_makes_no_sense(in_s: float) -> None:
    with pytest.raises(ValueError, match="leave_in_s"):
        size_plan(reply(leaves=True, leave_in_s=in_s), 100.0)


# -- the connection


def linked(
    scheduler: SchedulerServer, folder: Path, act: Callable[[CoordinatorApp, float], bool]
) -> StoredState:
    """A coordinator whose link runs until act(app, seconds since its start) is true."""
    token = folder / "token"
    token.write_text("coordinator-pod1")
    endpoint = SchedulerEndpoint(scheduler.address, credentials().ca, token)
    state = StoredState("team/train/uid", MembershipRules(least=2))

    async def run() -> None:
        saving = Saving(state, NoStore())
        app = CoordinatorApp(state, saving)
        task = asyncio.create_task(SchedulerLink(app, endpoint).run())
        began = time.monotonic()
        while not act(app, time.monotonic() - began):
            assert time.monotonic() - began < 30
            assert not task.done()
            await asyncio.sleep(0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        saving.close()

    asyncio.run(run())
    return state


@pytest.fixture
def scheduler() -> Iterator[SchedulerServer]:
    made = SchedulerServer(term=5)
    yield made
    made.server.stop()


PLAN = TrainingPlan("team", "train", "uid", 7, (0, 1, 3), (), 2)


def follows(app: CoordinatorApp) -> bool:
    found = app.state.membership.plan
    return found is not None and found.members == PLAN.members


def test_it_follows_the_plan_and_reports(scheduler: SchedulerServer, tmp_path: Path) -> None:
    scheduler.training_plans.publish({KEY: {"pod1": PLAN}}, time.time())

    def act(app: CoordinatorApp, _: float) -> bool:
        if not scheduler.facts and follows(app):
            checkpointed(app.state, 3, time.monotonic() - 100.0)
        return any(
            isinstance(fact, CoordinatorReported) and fact.generation == 7 and fact.checkpoint
            for fact in scheduler.facts
        )

    linked(scheduler, tmp_path, act)
    fact = scheduler.facts[-1]
    assert isinstance(fact, CoordinatorReported)
    assert fact.checkpoint == pytest.approx(time.time() - 100.0, abs=20.0), "its age, not its time"


def test_a_plan_of_a_leader_that_was_replaced_is_ignored(
    scheduler: SchedulerServer, tmp_path: Path
) -> None:
    scheduler.training_plans.publish({KEY: {"pod1": PLAN}}, time.time())
    published: list[float] = []

    def act(app: CoordinatorApp, now: float) -> bool:
        if not published and follows(app):
            older = replace(PLAN, generation=6, members=(0,))
            scheduler.training_plans.publish({KEY: {"pod1": older}}, time.time())
            published.append(now)
        return bool(published) and now > published[0] + 2.0

    state = linked(scheduler, tmp_path, act)
    assert state.membership.plan is not None
    assert state.membership.plan.members == PLAN.members


def test_it_reports_again_after_a_refusal(scheduler: SchedulerServer, tmp_path: Path) -> None:
    """The scheduler learns what did not change as well: it may be another one."""
    told: list[float] = []

    def act(app: CoordinatorApp, now: float) -> bool:
        if not told and now > 1.0:
            assert not scheduler.facts, "the pod is nobody's coordinator yet"
            told.append(now)
            scheduler.training_plans.publish({KEY: {"pod1": PLAN}}, time.time())
        return bool(scheduler.facts)

    linked(scheduler, tmp_path, act)


def test_it_reports_the_steps_that_were_taken(scheduler: SchedulerServer, tmp_path: Path) -> None:
    """As the processes say it, in a message that is sent at most five seconds later."""
    scheduler.training_plans.publish({KEY: {"pod1": replace(PLAN, members=(0, 1))}}, time.time())
    seen: list[pb.TrainingView] = []

    def act(app: CoordinatorApp, now: float) -> bool:
        members = app.state.membership
        if members.live is None and members.plan is not None:
            for number in range(2):
                members.join(time.monotonic(), process(number))
            ack_all(members, time.monotonic())
            who = {"incarnation": 1, "generation": members.number, "samples": 8, "seconds": 1.5}
            for number in range(2):
                app.report({**who, "member": number, "step": 41 - number, "epoch_left": 99})
        view = scheduler.training.views.of_job(*KEY, time.monotonic())
        if view is not None and view.progress.members:
            seen.append(view)
        return bool(seen)

    linked(scheduler, tmp_path, act)
    (view,) = seen
    assert view.step == 41, "that were taken: not the number of the next one"
    assert [one.step for one in view.progress.members] == [41, 40]
    assert view.progress.epoch_left == 99
