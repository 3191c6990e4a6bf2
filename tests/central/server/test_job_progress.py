"""What a coordinator reports of its members, as a user of the Job is told it, over real sockets."""

import time
from collections.abc import Iterator
from dataclasses import replace
from math import inf, nan
from typing import Any

import grpc
import pytest

from central.controllers.job.training_plan import PodPlace, TrainingPlan
from central.model import limits
from central.server.grpc import job_progress
from central.server.grpc.job_progress import JobProgress
from central.server.grpc.query_service import Explanation
from central.server.grpc.training_plans import TrainingPlans
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import DeskStub, TrainingStub
from tests.central.scheduler_process import SchedulerServer, auth, refusal
from tests.central.server.test_query_service import CannedAnswers

PLACES = (PodPlace(0, "t-0", "u0", ("r1", "n1")), PodPlace(1, "t-1", "u1", ("r1", "n2")))
PLAN = TrainingPlan("team", "train", "uid", 7, (0, 1), PLACES, 2)
KEY = ("team", "train")
MINE = auth("coordinator-pod1")


class OneJob(CannedAnswers):
    def explain(self, namespace: str, name: str) -> Explanation | None:
        known = frozenset({"team", "secret"})
        job = "train" if name == "train" else ""
        return Explanation(namespace, name, "Running", "", namespaces=known, job=job)


class OneNamespace:
    def may(self, identity: Any, verb: str, resource: str, namespace: str = "") -> bool:
        return namespace == "team"


@pytest.fixture
def scheduler() -> Iterator[SchedulerServer]:
    scheduler = SchedulerServer(OneJob(), term=5, access=OneNamespace())
    scheduler.training_plans.publish({KEY: {"pod1": PLAN}}, time.time())
    yield scheduler
    scheduler.server.stop()


def said(scheduler: SchedulerServer, name: str = "train") -> pb.ExplainReply:
    with scheduler.channel() as channel:
        query = pb.ExplainQuery(namespace="team", name=name)
        found: pb.ExplainReply = DeskStub(channel).Explain(query, metadata=auth("user"))
        return found


def report(scheduler: SchedulerServer, message: pb.TrainingReport) -> None:
    with scheduler.channel() as channel:
        TrainingStub(channel).Report(message, metadata=MINE)


def full(members: int = 2) -> pb.TrainingReport:
    rows = [pb.MemberProgress(member=n, rank=n, step=40 - n, step_s=0.5) for n in range(members)]
    progress = pb.TrainingProgress(generation=3, members=rows, samples_per_s=12.5, epoch_left=900)
    return pb.TrainingReport(plan=5 << 32 | 7, members="0-1", step=40, progress=progress)


def test_it_is_told_with_places_and_its_age(scheduler: SchedulerServer) -> None:
    report(scheduler, full())
    found = said(scheduler)
    assert found.HasField("training")
    view = found.training
    assert view.progress == full().progress
    assert (view.step, len(view.changes)) == (40, 0)
    assert 0 <= view.progress_age_s < 60
    assert [(one.member, one.pod, one.domains) for one in view.places] == [
        (0, "t-0", "r1/n1"),
        (1, "t-1", "r1/n2"),
    ]


def test_places_are_of_the_members_that_are_shown(scheduler: SchedulerServer) -> None:
    report(scheduler, full(1))
    assert [one.member for one in said(scheduler).training.places] == [0]


def test_a_change_is_told_without_names_that_the_user_may_not_see(
    scheduler: SchedulerServer,
) -> None:
    report(scheduler, full())
    for generation, why in ((8, "room for secret/web"), (9, "room for team/web")):
        plan = replace(PLAN, generation=generation, members=(0,), reason=why, cause="need")
        scheduler.training_plans.publish({KEY: {"pod1": plan}}, time.time())
    first, second = said(scheduler).training.changes
    assert (first.reason, first.superseded) == ("room for another namespace", True)
    assert (second.reason, second.before, second.after) == ("room for team/web", 1, 1)


def test_without_a_report_it_is_unknown(scheduler: SchedulerServer) -> None:
    found = said(scheduler)
    assert found.HasField("training")
    assert not found.training.HasField("progress")
    report(scheduler, pb.TrainingReport(plan=5 << 32 | 7, members="0-1", step=4))
    assert not said(scheduler).training.HasField("progress"), "of an older version"


def test_other_gangs_have_none(scheduler: SchedulerServer) -> None:
    report(scheduler, full())
    assert not said(scheduler, "other").HasField("training")
    scheduler.training_plans.publish({KEY: {}}, time.time())
    assert not said(scheduler).HasField("training"), "it has no coordinator any more"


def test_a_silent_coordinators_progress_is_forgotten(scheduler: SchedulerServer) -> None:
    report(scheduler, full())
    scheduler.training.silent(time.monotonic() + 0.5)
    assert said(scheduler).training.HasField("progress")
    scheduler.training.silent(time.monotonic() + 60.0)
    assert not said(scheduler).training.HasField("progress")


def test_of_two_pods_the_one_that_was_heard_last() -> None:
    plans = TrainingPlans()
    plans.publish({KEY: {"old": PLAN, "new": PLAN}}, time.time())
    views = JobProgress(plans)
    for pod, step, now in (("new", 3, 10.0), ("old", 9, 5.0), ("other", 99, 20.0)):
        views.heard(pod, pb.TrainingReport(step=step, progress=pb.TrainingProgress()), now)
    found = views.of_job(*KEY, 12.0)
    assert found is not None
    assert (found.step, found.progress_age_s) == (3, 2.0)
    assert views.of_job("team", "else", 12.0) is None


WRONG = {
    "too many members": pb.TrainingProgress(
        members=[pb.MemberProgress(rank=n) for n in range(limits.REPORTED_MEMBERS + 1)]
    ),
    "a rank twice": pb.TrainingProgress(members=[pb.MemberProgress(), pb.MemberProgress(member=1)]),
    "too many queues": pb.TrainingProgress(queues=[pb.QueueProgress()] * 17),
    "a long name": pb.TrainingProgress(queues=[pb.QueueProgress(name="x" * 254)]),
    "a name with escapes": pb.TrainingProgress(queues=[pb.QueueProgress(name="\x1b[2J")]),
    "a negative time": pb.TrainingProgress(members=[pb.MemberProgress(step_s=-1.0)]),
    "no number": pb.TrainingProgress(members=[pb.MemberProgress(samples_per_s=nan)]),
    "an infinite speed": pb.TrainingProgress(samples_per_s=inf),
    "an infinite rate": pb.TrainingProgress(queues=[pb.QueueProgress(tasks_per_s=inf)]),
    "a negative rate": pb.TrainingProgress(queues=[pb.QueueProgress(records_per_s=-0.1)]),
    "a negative pause": pb.TrainingProgress(pause=pb.Pause(seconds=-0.1)),
    "a speed of no members": pb.TrainingProgress(speeds=[pb.MeasuredSpeed(nodes=0, per_s=1.0)]),
    "more nodes than members": pb.TrainingProgress(
        speeds=[pb.MeasuredSpeed(members=1, nodes=2, per_s=1.0)]
    ),
    "too many members measured": pb.TrainingProgress(
        speeds=[pb.MeasuredSpeed(members=limits.REPLICAS + 1, nodes=1, per_s=1.0)]
    ),
    "no speed": pb.TrainingProgress(speeds=[pb.MeasuredSpeed(members=1, nodes=1)]),
    "a speed of NaN": pb.TrainingProgress(speeds=[pb.MeasuredSpeed(members=1, nodes=1, per_s=nan)]),
    "an infinite measured speed": pb.TrainingProgress(
        speeds=[pb.MeasuredSpeed(members=1, nodes=1, per_s=inf)]
    ),
    "too many speeds": pb.TrainingProgress(
        speeds=[pb.MeasuredSpeed(members=1, nodes=1, per_s=1.0)] * (limits.MEASURED_SPEEDS + 1)
    ),
    "a repetition of NaN": pb.TrainingProgress(pause=pb.Pause(repeated_s=nan)),
}


@pytest.mark.parametrize("progress", WRONG.values(), ids=WRONG.keys())
def test_what_makes_no_sense_is_refused(
    scheduler: SchedulerServer, progress: pb.TrainingProgress
) -> None:
    message = full()
    message.progress.CopyFrom(progress)
    code, why = refusal(lambda: report(scheduler, message))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert why.startswith("progress")
    assert not said(scheduler).training.HasField("progress")
    assert not scheduler.facts


def test_the_largest_that_is_accepted() -> None:
    rows = [pb.MemberProgress(member=n, rank=n) for n in range(limits.REPORTED_MEMBERS)]
    queues = [pb.QueueProgress(name="x" * 253)] * 16
    speeds = [pb.MeasuredSpeed(members=1, nodes=1, per_s=1e-9)] * limits.MEASURED_SPEEDS
    progress = pb.TrainingProgress(members=rows, queues=queues, speeds=speeds)
    assert job_progress.mistake(pb.TrainingReport(progress=progress)) == ""
