"""Jobs run in the simulation as they would: their gangs start, policies hold, they end."""

import json
from pathlib import Path
from typing import Any

import pytest

from central.cli.main import main
from tests.central.controllers.job.job_api import job
from tests.central.simulator import manifests

Json = dict[str, Any]


def simulate(tmp_path: Path, capsys: pytest.CaptureFixture[str], *objects: Json) -> Json:
    source = tmp_path / "in.json"
    source.write_text("\n".join(map(json.dumps, objects)))
    assert main(["simulate", str(source), "-o", "json"]) == 0
    found: Json = json.loads(capsys.readouterr().out)
    return found


def runs(seconds: int) -> Json:
    container = {"name": "main", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    told = {"annotations": {"lockstep.dev/runs-for": f"{seconds}s"}}
    return {"template": {"metadata": told, "spec": {"containers": [container]}}}


def ended(found: Json) -> dict[str, tuple[str, float]]:
    jobs = (one for one in found["ended"] if one["kind"] == "Job")
    return {one["name"]: (one["phase"], one["at_s"]) for one in jobs}


def test_a_master_that_is_done_ends_its_job(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = {"policies": [{"event": "TaskCompleted", "action": "CompleteJob"}]}
    mpi = job({"m": 1, "w": 3}, of={"m": {**runs(60), **done}}, name="mpi")
    found = simulate(tmp_path, capsys, manifests.node("n1", 0), mpi)
    assert ended(found) == {"mpi": ("Completed", 60.0)}
    assert [one["pod"] for one in found["placements"]] == [
        "mpi-m-0",
        "mpi-w-0",
        "mpi-w-1",
        "mpi-w-2",
    ]


def test_jobs_wait_for_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each of them needs all of the node."""
    jobs = [job({"w": 8}, of={"w": runs(10)}, name=name, cpu="8") for name in ("a", "b", "c")]
    for one in jobs:
        [task] = one["spec"]["tasks"]
        [container] = task["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "8"}}
    found = simulate(tmp_path, capsys, manifests.node("n1", 0), *jobs)
    assert ended(found) == {
        "a": ("Completed", 10.0),
        "b": ("Completed", 20.0),
        "c": ("Completed", 30.0),
    }


def test_a_job_that_loses_a_node_restarts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    raw = job({"w": 2}, "PodEvicted RestartJob", of={"w": runs(60)}, name="j")
    nodes = [manifests.node("n1", 0, leaves_at="10s"), manifests.node("n2", 0, arrives_at="5s")]
    found = simulate(tmp_path, capsys, *nodes, raw)
    assert ended(found) == {"j": ("Completed", 70.0)}
    assert {one["reason"] for one in found["evictions"]} == {"node n1 is gone"}


def test_a_job_that_its_queue_does_not_take_has_no_pods(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = {
        "apiVersion": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "metadata": {"name": "small"},
        "spec": {"capability": {"cpu": "4"}},
    }
    first = job({"w": 4}, of={"w": runs(30)}, name="first", queue="small")
    second = job({"w": 2}, of={"w": runs(5)}, name="second", queue="small")
    never = job({"w": 5}, of={"w": runs(5)}, name="never", queue="small")
    found = simulate(tmp_path, capsys, queue, manifests.node("n1", 0), first, second, never)
    assert ended(found) == {"first": ("Completed", 30.0), "second": ("Completed", 35.0)}
    [waits] = found["waiting"]
    assert waits["name"] == "never"
    assert waits["reason"] == (
        "can never start: queue small has a capability of 4 cpu; 5 are needed; "
        "reduce the request or raise the capability"
    )
    assert not [one for one in found["placements"] if one["pod"].startswith("never")]


def test_what_a_job_gets_wrong_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "in.json"
    source.write_text(json.dumps(job({"w": 1}, minAvailable=5)))
    assert main(["simulate", str(source)]) == 2
    told = capsys.readouterr().err
    assert "Job ns/j: spec.minAvailable: 5 exceeds the 1 pods of all tasks" in told
