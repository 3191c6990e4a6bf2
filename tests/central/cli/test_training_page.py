"""What the coordinator of an elastic Job reports, in `lockstep job view`, and what is unknown."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from central.cli.jobs import training_page
from central.controllers.job.training_plan import PodPlace, TrainingPlan
from central.server.grpc.query_service import Explanation
from protos.stubs import fleet_pb2 as pb
from protos.stubs.fleet_pb2_grpc import TrainingStub
from tests.central.cli.run_cli import JOBS, AskedScheduler, Lockstep, mpi
from tests.central.scheduler_process import SchedulerServer, auth
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
Put = Callable[[str, Json], Json]
JOB = "lm-mpi-job"
PLACES = tuple(
    PodPlace(
        number,
        f"{JOB}-mpiworker-{number}",
        f"u{number}",
        ("zone-1", "rack-17", f"gpu-node-{number}"),
    )
    for number in range(4)
)
PLAN = TrainingPlan("default", JOB, "uid", 7, (0, 1, 2, 3), PLACES, 2, queue="q", gpus=8.0)


def text(view: pb.TrainingView) -> list[str]:
    return [f"{head}: {line}" for head, line in training_page.lines(view)]


def progress(**said: Any) -> pb.TrainingView:
    return pb.TrainingView(progress=pb.TrainingProgress(**said), step=4180)


def test_an_epoch_of_records_ends_at_this_speed() -> None:
    view = progress(samples_per_s=512.4, epoch_left=3600)
    assert text(view) == [
        "Training: step 4180; 512 records/s; 3600 records left in the epoch, ends in about 7s at "
        "this speed"
    ]
    assert training_page.as_json(view)["epochEndsInSeconds"] == pytest.approx(3600 / 512.4)


def test_the_end_is_unknown_without_speed_or_records() -> None:
    assert text(progress(epoch_left=10)) == [
        "Training: step 4180; records/s unknown; 10 records left in the epoch, end unknown"
    ]
    assert text(progress(samples_per_s=5.0)) == [
        "Training: step 4180; 5 records/s; end of the epoch unknown"
    ]
    view = pb.TrainingView(progress=pb.TrainingProgress())
    assert text(view) == ["Training: no step reported; records/s unknown"]
    found = training_page.as_json(view)
    assert (found["step"], found["recordsPerSecond"], found["epochEndsInSeconds"]) == (None,) * 3


@pytest.mark.parametrize(("age_s", "is_old"), [(10.0, False), (10.5, True)])
def test_an_old_report_says_its_age(age_s: float, *, is_old: bool) -> None:
    view = progress()
    view.progress_age_s = age_s
    assert text(view)[0].endswith("; as of 10s ago") == is_old


def test_what_the_gpus_were_used_for() -> None:
    view = progress(gpu_seconds={"saving": 0.0, "starting": 75.0, "training": 925.0})
    assert "GPU time" not in dict(training_page.lines(progress()))
    assert dict(training_page.lines(view))["GPU time"] == "92.5% training, 7.5% starting"
    assert training_page.as_json(view)["gpuSeconds"] == {
        "saving": 0.0,
        "starting": 75.0,
        "training": 925.0,
    }


def test_without_a_report() -> None:
    view = pb.TrainingView()
    assert text(view) == ["Training: unknown: its coordinator has not reported its progress"]
    assert training_page.members(view) == []
    assert training_page.as_json(view) == {"reported": False, "changes": []}


def queue(**said: Any) -> tuple[str, Json]:
    one = pb.QueueProgress(name="q", epoch=2, **said)
    view = progress(queues=[one])
    return text(view)[1], training_page.as_json(view)["queues"][0]


def test_a_queue_of_records() -> None:
    line, found = queue(
        todo=60, leased=4, done=120, set_aside=1, tasks_per_s=0.5, records_per_s=40.0
    )
    assert line == (
        "Tasks: queue q, epoch 2: 120 done, 4 leased, 60 to do, 1 set aside; 40 records/s; "
        "ends in about 2m8s at this speed"
    )
    assert found["epochEndsInSeconds"] == 128.0, "those that are leased are not done"
    assert (found["todo"], found["leased"], found["done"], found["setAside"]) == (60, 4, 120, 1)


def test_a_queue_of_named_tasks_without_a_speed() -> None:
    line, found = queue(todo=60, done=1)
    assert (
        line == "Tasks: queue q, epoch 2: 1 done, 0 leased, 60 to do; tasks/s unknown; end unknown"
    )
    assert (found["epochEndsInSeconds"], found["tasksPerSecond"]) == (None, None)
    assert "0.25 tasks/s; ends" in queue(todo=60, done=1, tasks_per_s=0.25)[0]


def test_a_queue_whose_epoch_is_over() -> None:
    assert queue(done=9, set_aside=1, tasks_per_s=1.0)[0].endswith("; over")
    assert queue(set_aside=1)[0].endswith("; over")
    assert not queue()[0].endswith("; over"), "none has begun"
    assert queue(done=9)[1]["epochEndsInSeconds"] == 0.0
    assert not queue(done=9, leased=1)[0].endswith("; over")


def change(**said: Any) -> str:
    one = pb.SizeChange(at=time.time() - 300, before=14, after=12, reason="room for web", **said)
    return training_page.changes(pb.TrainingView(changes=[one]))[0][1]


def test_changes() -> None:
    head = "14 to 12 members: room for web; "
    assert change() == head + "under way"
    assert change(told_s=0.2, acknowledged_s=2.0) == (head + "acknowledged after 2s, no step yet")
    assert change(superseded=True, told_s=0.2) == head + "superseded before its first step"
    assert change(stepped_s=12.34) == head + "first step after 12.3s; loss unknown"
    assert change(stepped_s=12.34, lost_s=4.1, lost_gpu_s=393.6) == (
        head + "first step after 12.3s; lost 4.1s (394 GPU-seconds)"
    )
    assert (
        change(stepped_s=1.0, lost_s=0.0, lost_gpu_s=0.0) == head + "first step after 1s; lost 0s"
    )
    again = pb.SizeChange(
        before=4, after=4, cause="process", reason="processes began again", lost_s=3
    )
    (said,) = training_page.changes(pb.TrainingView(changes=[again]))
    assert said[1] == "same size: processes began again; lost 3s"


class OneElasticJob(CannedAnswers):
    def explain(self, namespace: str, name: str) -> Explanation | None:
        return Explanation(
            namespace, name, "Running", "", (), 2, "default", size="4 of 2 to 8", job=JOB
        )


@pytest.fixture
def scheduler(
    put: Put, asked_scheduler: AskedScheduler, monkeypatch: pytest.MonkeyPatch
) -> SchedulerServer:
    task = {"size": 4, "least": 2, "most": 8, "members": "0-3", "reason": "room for web"}
    put(JOBS, mpi(phase="Running", elastic={"mpiworker": task}))
    server = asked_scheduler(OneElasticJob(), term=5)
    monkeypatch.setenv("COLUMNS", "80")
    server.training_plans.publish({("default", JOB): {"pod1": PLAN}}, time.time())
    return server


def report(scheduler: SchedulerServer) -> None:
    rows = [
        pb.MemberProgress(
            member=3 - n, rank=n, step=4180 - n, step_s=0.04125, samples_per_s=1234.56
        )
        for n in range(3)
    ]
    rows[2].straggler = True
    rows.append(pb.MemberProgress(member=0, rank=3))
    said = pb.TrainingProgress(generation=9, members=rows, left_out=7, samples_per_s=3703.7)
    said.queues.add(name="train", epoch=1, todo=6, leased=1, done=2, tasks_per_s=0.1)
    message = pb.TrainingReport(plan=5 << 32 | 7, members="0-3", step=4180, progress=said)
    with scheduler.channel() as channel:
        TrainingStub(channel).Report(message, metadata=auth("coordinator-pod1"))


def test_the_whole_page_in_80_columns(scheduler: SchedulerServer, lockstep: Lockstep) -> None:
    report(scheduler)
    smaller = replace(PLAN, generation=8, members=(0, 1), reason="room for web " * 9, cause="need")
    scheduler.training_plans.publish({("default", JOB): {"pod1": smaller}}, time.time())
    shown = lockstep("job", "view", JOB)
    assert max(map(len, shown.splitlines())) <= 80
    lines = shown.splitlines()
    assert "Training:     step 4180; 3704 records/s" in lines
    start = next(n for n, line in enumerate(lines) if "RANK" in line)
    assert [line.split() for line in lines[start : start + 5]] == [
        ["MEMBER", "RANK", "STEP", "STEP", "TIME", "RECORDS/S", "SPEED", "PLACE"],
        ["3", "0", "4180", "0.0413s", "1235", "zone-1/rack-17/gpu-node-3"],
        ["2", "1", "4179", "0.0413s", "1235", "zone-1/rack-17/gpu-node-2"],
        ["1", "2", "4178", "0.0413s", "1235", "slow", "zone-1/rack-17/gpu-node-1"],
        ["0", "3", "-", "-", "-", "zone-1/rack-17/gpu-node-0"],
    ]
    assert "7 more members not shown" in shown
    assert "Changes of size" in shown
    assert "4 to 2 members: room for web" in shown


def test_the_same_as_json(scheduler: SchedulerServer, lockstep: Lockstep) -> None:
    report(scheduler)
    found = json.loads(lockstep("job", "view", JOB, "-o", "json"))
    assert found["metadata"]["name"] == JOB
    training = found["status"]["training"]
    assert (training["reported"], training["generation"], training["step"]) == (True, 9, 4180)
    assert training["membersNotShown"] == 7
    slow, unknown = training["members"][2:]
    assert (slow["member"], slow["rank"], slow["straggler"]) == (1, 2, True)
    assert (slow["pod"], slow["place"]) == (f"{JOB}-mpiworker-1", "zone-1/rack-17/gpu-node-1")
    assert (unknown["step"], unknown["stepSeconds"], unknown["recordsPerSecond"]) == (None,) * 3
    assert training["queues"][0]["epochEndsInSeconds"] == pytest.approx(70)


def test_json_without_the_scheduler(
    scheduler: SchedulerServer, lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCKSTEP_SERVER", "127.0.0.1:9")
    assert "training" not in json.loads(lockstep("job", "view", JOB, "-o", "json"))["status"]
