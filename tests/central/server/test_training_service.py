"""Coordinators over real TLS sockets: each gets the plan of its own Job, and what it says becomes facts of that Job."""

import threading
import time
from collections.abc import Iterator
from dataclasses import replace

import grpc
import pytest

from central.controllers.job.training_plan import PodPlace, TrainingPlan
from central.model import limits
from central.model.facts import CoordinatorReported, CoordinatorSilent
from central.server.grpc.job_progress import ACTIVITIES_MOST
from central.server.grpc.training_service import PLACES_MOST
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import DeskStub, FleetStub, TrainingStub
from tests.central.scheduler_process import SchedulerServer, auth, refusal
from tests.fakes.eventually import eventually

PLAN = TrainingPlan(
    "team", "train", "uid", 7, (0, 1, 3), (PodPlace(0, "train-worker-0", "u0", ("r1", "n1")),), 2
)
KEY = ("team", "train")
MINE = auth("coordinator-pod1")


@pytest.fixture
def scheduler() -> Iterator[SchedulerServer]:
    scheduler = SchedulerServer(term=5)
    yield scheduler
    scheduler.server.stop()


@pytest.fixture
def training(scheduler: SchedulerServer) -> Iterator[TrainingStub]:
    scheduler.training_plans.publish({KEY: {"pod1": PLAN}}, time.time())
    with scheduler.channel() as channel:
        yield TrainingStub(channel)


def test_a_coordinator_gets_its_plan(training: TrainingStub) -> None:
    found = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    assert (found.plan, found.members, found.least) == (5 << 32 | 7, "0-1,3", 2)
    (place,) = found.places
    assert (place.member, place.pod, place.uid, place.domains) == (
        0,
        "train-worker-0",
        "u0",
        "r1/n1",
    )
    assert (place.ended, found.over) == (False, False)
    assert (found.leaves, found.leave_in_s) == (False, 0.0)


def test_what_else_a_plan_says(scheduler: SchedulerServer, training: TrainingStub) -> None:
    place = replace(PLAN.places[0], ended=True)
    plan = replace(PLAN, places=(place,), reason="room for serving", over=True, leave_by=1.0)
    scheduler.training_plans.publish({KEY: {"pod1": plan}}, time.time())
    found = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    assert (found.reason, found.over, found.places[0].ended) == ("room for serving", True, True)
    assert (found.leaves, found.leave_in_s) == (True, 0.0), "their time is over"


def test_a_plan_of_a_great_job_has_the_places_of_its_first_members(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """One answer has at most 4 MiB. Members without a place are ranked last."""
    places = tuple(PodPlace(number, "", "") for number in range(PLACES_MOST + 1))
    scheduler.training_plans.publish({KEY: {"pod1": replace(PLAN, places=places)}}, time.time())
    found = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    assert [one.member for one in found.places] == list(range(PLACES_MOST))


@pytest.mark.parametrize("wait_s", [float("nan"), float("inf"), -1.0])
def test_a_wait_that_makes_no_sense(training: TrainingStub, wait_s: float) -> None:
    code, why = refusal(lambda: training.Plan(pb.PlanRequest(wait_s=wait_s), metadata=MINE))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "wait_s" in why


def test_a_change_ends_the_poll(scheduler: SchedulerServer, training: TrainingStub) -> None:
    first = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    smaller = replace(PLAN, generation=8, members=(0, 1), leave_by=time.time() + 30)
    later = threading.Timer(
        0.2, scheduler.training_plans.publish, ({KEY: {"pod1": smaller}}, time.time())
    )
    later.start()
    found = training.Plan(pb.PlanRequest(version=first.version, wait_s=60), metadata=MINE)
    assert (found.members, found.leaves) == ("0-1", True)
    assert 20 < found.leave_in_s <= 30
    assert found.plan > first.plan


def test_an_equal_plan_is_no_change(scheduler: SchedulerServer, training: TrainingStub) -> None:
    first = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    scheduler.training_plans.publish({KEY: {"pod1": replace(PLAN)}}, time.time())
    again = training.Plan(pb.PlanRequest(version=first.version, wait_s=0.1), metadata=MINE)
    assert again.version == first.version


def test_only_the_coordinators_pod_may_ask(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """A pod of the same account, an agent and a user are refused, and none of them learns of a Job."""
    for token in ("coordinator-pod2", "agent-n1", "user", "expired", ""):
        code, _ = refusal(
            lambda token=token: training.Plan(pb.PlanRequest(), metadata=auth(token))  # type: ignore[misc]
        )
        assert code in (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED), token
    assert scheduler.server.proxy.counts()["coordinator"] == 0
    training.Plan(pb.PlanRequest(), metadata=MINE)
    assert scheduler.server.proxy.counts()["coordinator"] == 1


def test_a_coordinator_is_neither_agent_nor_user(scheduler: SchedulerServer) -> None:
    with scheduler.channel() as channel:
        desk, fleet = DeskStub(channel), FleetStub(channel)
        calls = (
            lambda: desk.Topology(pb.TopologyQuery(), metadata=MINE),
            lambda: fleet.Report(pb.NodeReport(node="n1"), metadata=MINE),
        )
        for call in calls:
            code, _ = refusal(call)
            assert code in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.UNIMPLEMENTED)


def test_a_report_is_a_fact_when_it_changes(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    told = pb.TrainingReport(plan=5 << 32 | 7, members="0-1", step=10)
    training.Report(told, metadata=MINE)
    told.step = 20
    training.Report(told, metadata=MINE)
    told.checkpoint, told.checkpoint_age_s = "ckpt-20-1", 4.0
    training.Report(told, metadata=MINE)
    told.checkpoint_age_s = 9.0
    training.Report(told, metadata=MINE)
    first, second = scheduler.facts
    assert first == CoordinatorReported("team", "train", "uid", 7, (0, 1))
    assert isinstance(second, CoordinatorReported)
    assert second.checkpoint == pytest.approx(time.time() - 4.0, abs=5.0)


def test_steps_are_facts_where_the_job_counts_them_and_not_all_of_them(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    plan = replace(PLAN, counts_steps=True)
    scheduler.training_plans.publish({KEY: {"pod1": plan}}, time.time())
    told = pb.TrainingReport(plan=5 << 32 | 7, members="0-1", step=10)
    training.Report(told, metadata=MINE)
    for step in (20, 30):
        told.step = step
        training.Report(told, metadata=MINE)
    [fact] = scheduler.facts
    assert isinstance(fact, CoordinatorReported)
    assert fact.step == 10


def paused(generation: int, seconds: float, repeated_s: float = 0.0) -> pb.TrainingReport:
    report = pb.TrainingReport(plan=5 << 32 | 7, members="0-1,3", step=4)
    report.progress.generation = generation
    report.progress.pause.generation = generation
    report.progress.pause.seconds, report.progress.pause.repeated_s = seconds, repeated_s
    return report


def costs(scheduler: SchedulerServer) -> list[float | None]:
    return [one.resize_cost_s for one in scheduler.facts if isinstance(one, CoordinatorReported)]


def test_what_changes_of_size_cost_is_their_mean(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """Each change counts once. A cost beyond ten minutes counts as ten."""
    first = pb.TrainingReport(plan=5 << 32 | 7, members="0-1,3", step=4)
    first.progress.generation = 2
    for report in (
        first,
        paused(3, 8.0, 2.0),
        paused(3, 8.0, 2.0),
        paused(4, 20.0),
        paused(4, 20.0),
        paused(5, 1e9),
    ):
        training.Report(report, metadata=MINE)
    assert costs(scheduler) == [None, 10.0, 15.0, 307.5]


def test_reports_between_two_changes_of_size_do_not_end_their_mean(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """A generation has no pause until its first step."""
    starts = pb.TrainingReport(plan=5 << 32 | 7, members="0-1,3", step=4)
    starts.progress.generation = 4
    for report in (paused(3, 10.0), starts, paused(4, 20.0)):
        training.Report(report, metadata=MINE)
    assert costs(scheduler) == [10.0, 15.0]


def test_what_gpus_were_used_for_goes_to_the_record_of_the_jobs_gang(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """Other gangs of the name have records of their own, and a gang without a record gets none."""
    known = scheduler.training_plans.activities
    report = pb.TrainingReport(progress=pb.TrainingProgress(gpu_seconds={"training": 8.0}))
    training.Report(report, metadata=MINE)
    assert known == {}
    known |= {("team", "train-uid"): {"saving": 1.0}, ("team", "train-other"): {}}
    training.Report(report, metadata=MINE)
    assert known == {
        ("team", "train-uid"): {"saving": 1.0, "training": 8.0},
        ("team", "train-other"): {},
    }


def test_ever_new_activities_do_not_add_up_in_the_record(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    known = scheduler.training_plans.activities
    known["team", "train-uid"] = {"training": 1.0}
    for seconds, start in ((7.0, "a"), (8.0, "b"), (9.0, "c")):
        spent = {f"{start}{end}": 2.0 for end in "abcdefghijklmno"} | {"training": seconds}
        report = pb.TrainingReport(progress=pb.TrainingProgress(gpu_seconds=spent))
        training.Report(report, metadata=MINE)
    assert len(known["team", "train-uid"]) == ACTIVITIES_MOST
    assert known["team", "train-uid"]["training"] == 9.0


def test_measured_speeds_are_facts_in_one_order(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    for places in ([(8, 2), (4, 1)], [(4, 1), (8, 2)]):
        report = pb.TrainingReport(plan=5 << 32 | 7, members="0-1,3", step=4)
        for members, nodes in places:
            report.progress.speeds.add(members=members, nodes=nodes, per_s=members / 2)
        training.Report(report, metadata=MINE)
    [fact] = scheduler.facts
    assert isinstance(fact, CoordinatorReported)
    assert fact.speeds == ((4, 1, 2.0), (8, 2, 4.0))


@pytest.mark.parametrize(
    ("says", "cost_s"),
    [((1, 0, ""), None), ((2, 0, ""), 30.0), ((2, 1, ""), None), ((2, 0, "tasks"), None)],
    ids=["no change yet", "no steps are reported", "not measured", "tasks"],
)
def test_a_cost_that_nobody_measures(
    scheduler: SchedulerServer,
    training: TrainingStub,
    says: tuple[int, int, str],
    cost_s: float | None,
) -> None:
    generation, step, queue = says
    report = pb.TrainingReport(plan=5 << 32 | 7, members="0-1,3", step=step)
    report.progress.generation = generation
    if queue:
        report.progress.queues.add(name=queue)
    training.Report(report, metadata=MINE)
    assert costs(scheduler) == [cost_s]


def test_what_events_are_about(scheduler: SchedulerServer, training: TrainingStub) -> None:
    told = pb.TrainingReport(checkpoint="ckpt-5-2", restored="ckpt-4-1", restored_in=2)
    told.set_aside, told.set_aside_why = 3, "queue q: task 7 (a): torn"
    told.pairs = "members 1 and 2 do not reach each other"
    told.replaced.extend(["u" * 65, *(f"u{number}" for number in range(99))])
    training.Report(told, metadata=MINE)
    (fact,) = scheduler.facts
    assert isinstance(fact, CoordinatorReported)
    assert (fact.checkpoint_name, fact.restored) == ("ckpt-5-2", "ckpt-4-1 in generation 2")
    assert (fact.set_aside, fact.set_aside_why) == (3, "queue q: task 7 (a): torn")
    assert (fact.pairs, len(fact.replaced)) == (told.pairs, 63)


def test_a_change_of_size_is_timed(scheduler: SchedulerServer, training: TrainingStub) -> None:
    smaller = replace(PLAN, generation=8, members=(0, 1))
    scheduler.training_plans.publish({KEY: {"pod1": smaller}}, time.time())
    told = pb.TrainingReport(plan=5 << 32 | 8, members="0-1,3", stepped=True)
    training.Report(told, metadata=MINE)
    told.members = "0-1"
    training.Report(told, metadata=MINE)
    (family,) = scheduler.training_plans.times.histogram.collect()
    counts = {
        one.labels["stage"]: one.value for one in family.samples if one.name.endswith("_count")
    }
    assert counts == {"told": 1, "acknowledged": 1, "first-step": 1}


def test_a_plan_of_another_leader_says_nothing(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """Its generations may be numbered otherwise."""
    training.Report(pb.TrainingReport(plan=4 << 32 | 99, members="0-1"), metadata=MINE)
    (fact,) = scheduler.facts
    assert isinstance(fact, CoordinatorReported)
    assert fact.generation == 0


@pytest.mark.parametrize(
    "bad",
    [
        {"members": "0-1,x"},
        {"members": "5-2"},
        {"members": "0-999999999"},
        {"members": "1," * 100_000},
        {"checkpoint": "c" * 300},
        {"restored": "c" * 300},
        {"restored": "a\nb"},
        {"set_aside_why": "c" * 1001},
        {"set_aside_why": "a\x00"},
        {"checkpoint": "c", "checkpoint_age_s": float("nan")},
        {"checkpoint": "c", "checkpoint_age_s": -1.0},
        {"checkpoint": "c", "checkpoint_age_s": 1e300},
    ],
)
def test_a_report_that_makes_no_sense(
    scheduler: SchedulerServer, training: TrainingStub, bad: dict[str, object]
) -> None:
    told = pb.TrainingReport()
    for field, value in bad.items():
        setattr(told, field, value)
    code, why = refusal(lambda: training.Report(told, metadata=MINE))
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert next(reversed(bad)) in why
    assert not scheduler.facts


@pytest.mark.parametrize(
    "most",
    [
        {"checkpoint": "c" * 253},
        {"restored": "c" * 253},
        {"set_aside_why": "c" * 1000},
        {"checkpoint": "c", "checkpoint_age_s": 0.0},
        {"checkpoint": "c", "checkpoint_age_s": limits.DURATION_S},
    ],
)
def test_the_most_that_a_report_may_say(
    scheduler: SchedulerServer, training: TrainingStub, most: dict[str, object]
) -> None:
    told = pb.TrainingReport()
    for field, value in most.items():
        setattr(told, field, value)
    training.Report(told, metadata=MINE)
    assert len(scheduler.facts) == 1


def test_a_count_of_tasks_is_bounded(scheduler: SchedulerServer, training: TrainingStub) -> None:
    training.Report(pb.TrainingReport(set_aside=(1 << 64) - 1), metadata=MINE)
    (fact,) = scheduler.facts
    assert isinstance(fact, CoordinatorReported)
    assert fact.set_aside == 1 << 31


def test_each_checkpoint_has_its_own_time(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    """By the scheduler's clock, when it first heard of it: so the time of one checkpoint never moves."""
    for name, age_s in (("ckpt-1-1", 500.0), ("ckpt-1-1", 90.0), ("ckpt-2-1", 100.0)):
        training.Report(pb.TrainingReport(checkpoint=name, checkpoint_age_s=age_s), metadata=MINE)
    training.Report(pb.TrainingReport(), metadata=MINE)
    first, second, none = scheduler.facts
    assert isinstance(first, CoordinatorReported)
    assert isinstance(second, CoordinatorReported)
    assert isinstance(none, CoordinatorReported)
    assert first.checkpoint == pytest.approx(time.time() - 500.0, abs=20.0)
    assert second.checkpoint == pytest.approx(time.time() - 100.0, abs=20.0)
    assert (none.checkpoint, none.checkpoint_name, none.restored) == (None, "", "")


def test_reports_are_bounded(training: TrainingStub) -> None:
    codes = set()
    for _ in range(60):
        try:
            training.Report(pb.TrainingReport(), metadata=MINE)
        except grpc.RpcError as error:
            codes.add(error.code())
    assert codes == {grpc.StatusCode.RESOURCE_EXHAUSTED}


def test_a_silent_coordinator(scheduler: SchedulerServer, training: TrainingStub) -> None:
    training.Report(pb.TrainingReport(), metadata=MINE)
    assert scheduler.training.silent(time.monotonic()) == []
    eventually(
        lambda: (
            scheduler.training.silent(time.monotonic())
            == [CoordinatorSilent("team", "train", "uid")]
        )
    )
    training.Report(pb.TrainingReport(), metadata=MINE)
    assert len(scheduler.facts) == 2  # it is heard again


def test_the_successor_of_a_silent_coordinator(
    scheduler: SchedulerServer, training: TrainingStub
) -> None:
    training.Report(pb.TrainingReport(), metadata=MINE)
    scheduler.training_plans.publish({KEY: {"pod3": PLAN}}, time.time())
    training.Report(pb.TrainingReport(), metadata=auth("coordinator-pod3"))
    assert scheduler.training.silent(time.monotonic()) == []  # the first pod is gone


def test_a_job_that_is_gone(scheduler: SchedulerServer, training: TrainingStub) -> None:
    first = training.Plan(pb.PlanRequest(wait_s=5), metadata=MINE)
    threading.Timer(0.2, scheduler.training_plans.publish, ({KEY: {}}, time.time())).start()
    asked = pb.PlanRequest(version=first.version, wait_s=60)
    code, _ = refusal(lambda: training.Plan(asked, metadata=MINE))
    assert code == grpc.StatusCode.PERMISSION_DENIED
