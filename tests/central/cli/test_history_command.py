"""`lockstep job history`, and `lockstep job list --state ended`."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from central.cli.jobs import history_command
from central.cli.main import main
from central.server.grpc.visibility import Viewer
from protos.common.http_server import RequestRefused
from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.server.history.test_gang_records import T0, Life, end, listed, run
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]


class Records(CannedAnswers):
    def __init__(self) -> None:
        life = Life()
        run(life, "sweep", T0 + 10, user="jane")
        end(life, "sweep", T0 + 3612, "Succeeded")
        self.record, self.rows = life.record("sweep"), listed(life)
        self.record["activities"] = {"saving": 1.0, "training": 3.0}

    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        if path == "/api/job" and query["name"] in ("sweep", "job/sweep"):
            return {**self.record, "namespace": query["namespace"]}
        if path == "/api/happened":
            assert query["find"] in ("", "ml/")
            job = {"namespace": "ml", "name": "job/sweep", "at": T0, "what": "running"}
            node = {"namespace": "", "name": "node/n1", "at": T0, "what": "problem"}
            said = {"cause": "", "text": ""}
            rows = [{**job, **said}, {**node, **said, "text": "GPU 0: xid 79"}]
            return {"rows": rows[: 1 if query["find"] else 2], "size": 7, "next": 2}
        if path == "/api/jobs":
            assert query["state"] == "ended"
            rows = [row for row in self.rows if query["queue"] in ("", row["queue"])]
            return {"rows": rows, "next": None}
        raise RequestRefused(404, f"no record of a job or gang named {query.get('name')}")


@pytest.fixture
def scheduler(asked_scheduler: AskedScheduler) -> None:
    asked_scheduler(Records())


@pytest.mark.usefixtures("scheduler")
def test_what_happened_to_a_job(lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    shown = lockstep("job", "history", "sweep")
    assert "Job:          default/job/sweep" in shown
    assert "User:         jane" in shown
    assert "State:        completed" in shown
    assert "GPU-hours:    8.00" in shown
    assert "GPU time:     75.0% training, 25.0% saving" in shown
    words = [line.split() for line in shown.splitlines()]
    happened = [line[2] for line in words if line and line[0] == "1970-01-01"]
    assert happened == ["created", "placed", "bound", "running", "completed"]


@pytest.mark.usefixtures("scheduler", "client")
def test_earlier_events_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["job", "history"]) == 0
    assert "5 earlier events are not shown" in capsys.readouterr().err


def test_waits_of_less_than_a_second_are_left_out_of_the_page() -> None:
    record = {**Records().record, "counted": T0 + 99}
    spans = {"first": (0, 0.5), "second": (1, 2), "third": (98.5, None)}
    record["waits"] = [
        {"since": T0 + a, "until": b and T0 + b, "cause": name, "reason": "why"}
        for name, (a, b) in spans.items()
    ]
    shown = history_command.page(record, None)
    assert [name for name in spans if name in shown] == ["second", "third"]


@pytest.mark.usefixtures("scheduler")
def test_what_happened_to_all(lockstep: Lockstep) -> None:
    job, node = lockstep("job", "history").splitlines()[1:]
    assert job.split()[2:] == ["ml/job/sweep", "running", "-", "-"]
    assert node.split(maxsplit=5)[2:] == ["node/n1", "problem", "-", "GPU 0: xid 79"]
    (row,) = json.loads(lockstep("job", "history", "-n", "ml", "-o", "json"))
    assert row["namespace"] == "ml"


@pytest.mark.usefixtures("scheduler")
def test_the_record_as_json(lockstep: Lockstep) -> None:
    record = json.loads(lockstep("job", "history", "sweep", "-o", "json"))
    assert record["gpu_seconds"]["allocated"] == 8 * 3602
    assert record["ended"] == T0 + 3612


@pytest.mark.usefixtures("scheduler")
def test_jobs_that_have_ended(lockstep: Lockstep) -> None:
    title, row = lockstep("job", "list", "-A", "--state", "ended").splitlines()
    assert title.split() == [
        "NAME",
        "QUEUE",
        "STATE",
        "GPUS",
        "GPU-HOURS",
        "WAITED",
        "RAN",
        "ENDED",
        "USER",
    ]
    cells = row.split()
    assert cells[:7] == ["ns/sweep", "default", "Completed", "8", "8.00", "3s", "60m"]
    assert cells[-1] == "jane"
    assert lockstep("job", "list", "-A", "--state", "ended", "-q", "other") == ""
    [found] = json.loads(lockstep("job", "list", "-A", "--state", "ended", "-o", "json"))
    assert found["pods"] == 2


@pytest.mark.usefixtures("scheduler")
def test_a_job_without_a_record(lockstep: Lockstep) -> None:
    said = lockstep("job", "history", "nothing", code=3)
    assert "no record of a job or gang named nothing" in said


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (
            {"utilization": 0.43, "memory": 3 << 29, "idle_s": None},
            "GPUs 43% busy, 1.5 GiB of GPU memory in use",
        ),
        ({"utilization": 0.0, "memory": None, "idle_s": 2400.0}, "GPUs 0% busy, idle for 40m"),
        ({"utilization": None, "memory": 1 << 30, "idle_s": None}, "1.0 GiB of GPU memory in use"),
    ],
)
def test_how_busy_the_gpus_of_a_job_are(use: Json, said: str) -> None:
    record = Records().record
    assert f"Use:          {said}" in history_command.page({**record, "gpu_use": use}, None)
    assert "Use:" not in history_command.page(record, None)
