"""`lockstep job view` with what the scheduler knows, near matches for names, and `job run --follow`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from central.server.grpc.query_service import Explanation
from protos.stubs import fleet_pb2 as pb
from tests.central.cli.run_cli import JOBS, PODS, AskedScheduler, Lockstep, member, mpi
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
Put = Callable[[str, Json], Json]


class OneJob(CannedAnswers):
    def explain(self, namespace: str, name: str) -> Explanation | None:
        if (namespace, name) != ("default", "job/lm-mpi-job"):
            return None
        pods = (
            pb.PodView(name="lm-mpi-job-mpimaster-0", node="n1", gpus=[0, 1], confirmed=True),
            pb.PodView(name="lm-mpi-job-mpiworker-0", node="n1", gpus=[2, 3]),
        )
        return Explanation(
            namespace, name, "Pending", "why", pods, 3, "default", place=3, pending=12, start=1.8e9
        )


def test_gpus_of_each_pod_place_and_start(
    lockstep: Lockstep, put: Put, asked_scheduler: AskedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(JOBS, mpi())
    put(PODS, member("lm-mpi-job", "mpimaster", 0))
    put(PODS, member("lm-mpi-job", "mpiworker", 0))
    alone = lockstep("job", "view", "lm-mpi-job")
    assert "GPUS" not in alone
    asked_scheduler(OneJob())
    monkeypatch.setenv("COLUMNS", "80")
    text = lockstep("job", "view", "lm-mpi-job")
    assert "default, place 3 of 12" in text
    assert "expected 2027-01-15 " in text
    rows = {line.split()[0]: line for line in text.splitlines() if line.startswith("lm-mpi-job-")}
    assert rows["lm-mpi-job-mpimaster-0"].endswith("0,1")
    assert "2,3" in rows["lm-mpi-job-mpiworker-0"]
    assert max(map(len, text.splitlines())) <= 80
    monkeypatch.setenv("LOCKSTEP_SERVER", "127.0.0.1:9")
    assert "not shown: no scheduler answers at 127.0.0.1:9" in lockstep("job", "view", "lm-mpi-job")


SIZE = (
    "5 of 2 to 8 members; last change: room for default/big; 0 seats free for more; its share is 3 of the 3 seats "
    "above the least sizes; checkpoint ckpt-9-1 is 40s old; 1 task is set aside, the latest: queue q: task 7 (a): torn"
)


class OneElasticJob(CannedAnswers):
    def explain(self, namespace: str, name: str) -> Explanation | None:
        return Explanation(namespace, name, "Running", "", (), 2, "default", size=SIZE)


def test_an_elastic_job(
    lockstep: Lockstep, put: Put, asked_scheduler: AskedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Job's own status says the size and the members, the scheduler why, and what the coordinator reports."""
    task = {"size": 5, "least": 2, "most": 8, "members": "0-3,6", "reason": "room for default/big"}
    put(JOBS, mpi(phase="Running", elastic={"mpiworker": task}))
    asked_scheduler(OneElasticJob())
    monkeypatch.setenv("COLUMNS", "80")
    text = lockstep("job", "view", "lm-mpi-job")
    assert max(map(len, text.splitlines())) <= 80
    words = " ".join(text.split())
    assert f"Size: 5/2-8 of task mpiworker, members 0-3,6 Elastic: {SIZE}" in words, "once each"


def test_a_name_that_is_nearly_right(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, mpi("sweep"))
    said = lockstep("job", "view", "swep", code=3)
    assert said == "lockstep: job default/swep not found; did you mean sweep?\n"
    assert "did you mean" not in lockstep("job", "view", "other", code=3)


def test_follow_takes_one_job(lockstep: Lockstep, put: Put, tmp_path: Path) -> None:
    file = tmp_path / "jobs.yaml"
    spec = "spec: {tasks: [{name: w, replicas: 1, template: {spec: {containers: [{name: m, image: i}]}}}]}"
    head = "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\n"
    file.write_text("---\n".join(f"{head}metadata: {{name: {name}}}\n{spec}\n" for name in "ab"))
    said = lockstep("job", "run", "-f", str(file), "--follow", code=2)
    assert "--follow takes one job; nothing was created" in said
    assert lockstep("job", "list") == ""
