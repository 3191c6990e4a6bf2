"""`lockstep report` against the scheduler's gRPC service with a history beside it."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path

import pytest

from central.cli import report_command
from central.cli.main import main
from central.model.identity import Identity
from central.model.json_types import Json
from central.server.grpc.visibility import Viewer
from protos.stubs import fleet_pb2 as pb
from tests.central.cli.run_cli import AskedScheduler, Lockstep
from tests.central.scheduler_process import SchedulerServer, credentials
from tests.central.server.test_query_service import CannedAnswers


class CannedUsage:
    """Remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], float, float]] = []
        self.visible: list[bool] = []

    def usage(
        self, keys: Sequence[str], since: float, until: float, sees: Callable[[str], bool]
    ) -> pb.UsageReply:
        self.asked.append((tuple(keys), since, until))
        self.visible.append(sees("team-b"))
        names = ["research"] * len(keys), ["=prod"] * len(keys)
        rows = [
            pb.UsageRow(keys=names[0], allocated=12.5, held=3.0, lost=0.25, busy=0.634),
            pb.UsageRow(keys=names[1], allocated=1 / 3),
        ]
        reply = pb.UsageReply(rows=rows, since=since, until=until, hidden=True, left_out=2)
        reply.kept_since = since + 60
        return reply


class Rights:
    def may(self, identity: Identity, verb: str, resource: str, namespace: str = "") -> bool:
        return namespace == "team-a"


Report = Callable[..., tuple[int, str, str]]


@pytest.fixture
def usage() -> CannedUsage:
    return CannedUsage()


@pytest.fixture
def report(
    usage: CannedUsage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Iterator[Report]:
    server = SchedulerServer(CannedAnswers(), access=Rights(), usage=usage)
    (tmp_path / "ca").write_bytes(credentials().ca)
    (tmp_path / "token").write_text("user")

    def typed(*argv: str) -> tuple[int, str, str]:
        where = [
            f"--server={server.address}",
            f"--ca-file={tmp_path}/ca",
            f"--token-file={tmp_path}/token",
        ]
        code = main(["report", *where, "--server-name=localhost", *argv])
        output = capsys.readouterr()
        return code, output.out, output.err

    yield typed
    server.server.stop()


def test_a_table_with_a_total(report: Report, usage: CannedUsage) -> None:
    code, out, err = report("--since", "2026-11-01T00:00+00:00", "--until", "2026-11-02T00:00Z")
    assert (code, usage.asked) == (0, [(("queue",), 1793491200.0, 1793577600.0)])
    assert [line.split() for line in out.splitlines()] == [
        ["QUEUE", "GPU-HOURS", "HELD", "IDLE", "LOST", "BUSY"],
        ["research", "12.50", "3.00", "0.25", "63%"],
        ["=prod", "0.33", "0.00", "0.00", "-"],
        ["total", "12.83", "3.00", "0.25"],
    ]
    assert "the history begins at " in err
    assert "namespaces that you may not see are left out" in err
    assert "2 more rows are left out" in err
    assert usage.visible == [False]


def test_csv_and_json_have_the_same_numbers(report: Report) -> None:
    _, text, _ = report("--by", "queue,user", "-o", "csv")
    rows = list(csv.DictReader(StringIO(text)))
    assert rows[0] == {
        "queue": "research", "user": "research", "allocated_gpu_hours": "12.5",
        "held_gpu_hours": "3.0", "lost_gpu_hours": "0.25", "busy": "0.634",
    }  # fmt: skip
    assert rows[1]["busy"] == ""
    assert rows[1]["queue"] == "'=prod"  # no formula
    _, text, _ = report("--by", "queue,user", "-o", "json")
    found = json.loads(text)
    assert found["unit"] == "GPU-hours"
    assert found["rows"][0] == {
        "queue": "research", "user": "research", "allocated": 12.5, "held": 3.0, "lost": 0.25,
        "busy": 0.634,
    }  # fmt: skip
    assert found["rows"][1]["busy"] is None


def of_job(name: str, queue: str, ended: float | None, **activities: float) -> Json:
    facts = {"name": f"job/{name}", "namespace": "ml", "queue": queue, "user": "jane"}
    return {**facts, "created": 100.0, "ended": ended, "activities": activities}


class ListedJobs(CannedAnswers):
    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        assert path == "/api/jobs"
        rows = [
            of_job("a", "research", None, training=5400.0, saving=1800.0),
            of_job("b", "prod", 9000.0, training=900.0, waiting=900.0, saving=0.0),
            of_job("old", "prod", 199.0, training=1e9),
            of_job("rigid", "prod", None),
        ]
        return {
            "rows": rows[int(query["after"]) :][:2],
            "next": 2 if query["after"] == "0" else None,
        }


GOODPUT = ("report", "--goodput", "--since", "1970-01-01T00:03:20Z", "--until", "1970-01-02T00:00Z")


@pytest.fixture
def listed(asked_scheduler: AskedScheduler) -> None:
    asked_scheduler(ListedJobs())


@pytest.mark.usefixtures("listed")
def test_what_elastic_jobs_used_their_gpus_for(
    lockstep: Lockstep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row has 100 %. Jobs that had ended before, and those that report no steps, are left out."""
    monkeypatch.setenv("COLUMNS", "120")
    shown = lockstep(*GOODPUT).splitlines()
    assert [line.split() for line in shown] == [
        ["QUEUE", "GPU-HOURS", "TRAINING", "SAVING", "WAITING"],
        ["research", "2.00", "75.0%", "25.0%", "0.0%"],
        ["prod", "0.50", "50.0%", "0.0%", "50.0%"],
        ["total", "2.50", "70.0%", "20.0%", "10.0%"],
    ]
    by_job = csv.DictReader(StringIO(lockstep(*GOODPUT, "--by", "namespace,job", "-o", "csv")))
    assert next(iter(by_job)) == {
        "namespace": "ml", "job": "job/a", "training_gpu_seconds": "5400.0",
        "saving_gpu_seconds": "1800.0", "waiting_gpu_seconds": "0",
    }  # fmt: skip
    found = json.loads(lockstep(*GOODPUT, "--by", "user", "-o", "json"))
    spent = {"training": 6300.0, "saving": 1800.0, "waiting": 900.0}
    assert found["rows"] == [{"user": "jane", "gpu_seconds": spent}]
    before = ("--since", "1970-01-01T00:00:00Z", "--until", "1970-01-01T00:01:40Z")
    assert lockstep(*GOODPUT[:2], *before) == "", "none was there yet"


@pytest.mark.usefixtures("listed")
def test_the_model_of_gpus_is_not_among_what_members_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*GOODPUT, "--by", "queue,model"]) != 0
    assert "--goodput is not known by model; leave it out of --by" in capsys.readouterr().err


def test_a_scheduler_without_a_history(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server = SchedulerServer(CannedAnswers())
    (tmp_path / "ca").write_bytes(credentials().ca)
    (tmp_path / "token").write_text("user")
    where = [
        f"--server={server.address}",
        f"--ca-file={tmp_path}/ca",
        f"--token-file={tmp_path}/token",
    ]
    assert main(["report", *where, "--server-name=localhost"]) == 4
    assert "keeps no history: start it with --history FILE" in capsys.readouterr().err
    server.server.stop()


@pytest.mark.parametrize(
    "query",
    [
        pb.UsageQuery(since=1, until=2),
        pb.UsageQuery(since=1, until=2, by=["queue", "queue"]),
        pb.UsageQuery(since=1, until=2, by=["uid"]),
        pb.UsageQuery(since=2, until=2, by=["queue"]),
        pb.UsageQuery(since=-1, until=2, by=["queue"]),
        pb.UsageQuery(since=float("nan"), until=2, by=["queue"]),
        pb.UsageQuery(since=0, until=float("inf"), by=["queue"]),
        pb.UsageQuery(since=0, until=91 * 86400, by=["queue"]),
    ],
)
def test_a_query_that_is_wrong(query: pb.UsageQuery, usage: CannedUsage) -> None:
    import grpc

    from protos.stubs.fleet_pb2_grpc import DeskStub
    from tests.central.scheduler_process import auth

    server = SchedulerServer(CannedAnswers(), usage=usage)
    with server.channel() as channel, pytest.raises(grpc.RpcError) as error:
        DeskStub(channel).Usage(query, metadata=auth("user"))
    assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT
    assert not usage.asked
    server.server.stop()


def test_spans_and_times() -> None:
    import time

    assert abs(time.time() - 90 * 60 - report_command.moment("1h30m")) < 5
    assert report_command.moment("2026-11-01T08:00+01:00") == report_command.moment(
        "2026-11-01T07:00Z"
    )
