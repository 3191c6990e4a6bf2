"""What makes Jobs, and what is done to them, on virtual time."""

import json
from pathlib import Path
from typing import Any

import pytest

from central.cli.main import main

Json = dict[str, Any]
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "n"},
    "status": {"allocatable": {"cpu": "8"}},
}
FLOW = "flow.volcano.sh/v1alpha1"
BATCH = "batch.volcano.sh/v1alpha1"


def spec(runs: str = "", replicas: int = 1) -> Json:
    notes = {"lockstep.dev/runs-for": runs} if runs else {}
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "2"}}}
    template = {"metadata": {"annotations": notes}, "spec": {"containers": [container]}}
    return {"tasks": [{"name": "w", "replicas": replicas, "template": template}]}


def thing(version: str, kind: str, name: str, notes: Json | None = None, **fields: Any) -> Json:
    meta = {"name": name, "annotations": notes or {}}
    return {"apiVersion": version, "kind": kind, "metadata": meta, **fields}


def simulated(
    folder: Path, capsys: pytest.CaptureFixture[str], *objects: Json, argv: tuple[str, ...] = ()
) -> Json:
    file = folder / "day.json"
    file.write_text("\n---\n".join(json.dumps(one) for one in (NODE, *objects)))
    code = main(("simulate", str(file), "-o", "json", *argv))
    said = capsys.readouterr()
    assert code == 0, said.err
    found: Json = json.loads(said.out)
    return found


def ended(found: Json, kind: str) -> dict[str, tuple[float, str]]:
    return {e["name"]: (e["at_s"], e["phase"]) for e in found["ended"] if e["kind"] == kind}


def test_a_flow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(
        tmp_path,
        capsys,
        thing(FLOW, "JobTemplate", "a", spec=spec("30s", 2)),
        thing(FLOW, "JobTemplate", "b", spec=spec("10s")),
        thing(
            FLOW,
            "JobFlow",
            "f",
            spec={"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]},
        ),
    )
    assert ended(found, "Job") == {"f-a": (30.0, "Completed"), "f-b": (40.0, "Completed")}
    assert ended(found, "JobFlow") == {"f": (40.0, "Succeed")}


def test_a_job_by_the_clock(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cron = {"schedule": "* * * * *", "jobTemplate": {"spec": spec("90s")}}
    whole = thing(BATCH, "CronJob", "c", spec={**cron, "concurrencyPolicy": "Forbid"})
    found = simulated(tmp_path, capsys, whole, argv=("--until", "5m"))
    # The second waits for the first, and so on: each begins as the one before it ends.
    assert [one["at_s"] for one in found["placements"]] == [60.0, 150.0, 240.0]


def test_a_cronjob_needs_an_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cron = thing(
        BATCH, "CronJob", "c", spec={"schedule": "@daily", "jobTemplate": {"spec": spec()}}
    )
    file = tmp_path / "day.json"
    file.write_text(json.dumps(cron))
    assert main(("simulate", str(file))) == 2
    said = capsys.readouterr().err
    assert said == "lockstep: CronJob default/c never ends; set --until\n"


def test_a_command_at_its_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = simulated(
        tmp_path,
        capsys,
        thing(BATCH, "Job", "long", spec=spec()),
        thing(
            "bus.volcano.sh/v1alpha1",
            "Command",
            "k",
            {"lockstep.dev/arrives-at": "20s"},
            action="AbortJob",
            target={"apiVersion": BATCH, "kind": "Job", "name": "long"},
        ),
    )
    assert ended(found, "Job") == {"long": (20.0, "Aborted")}


def test_what_an_api_server_would_store_and_the_centre_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cron = thing(BATCH, "CronJob", "c", spec={"schedule": "x", "jobTemplate": {"spec": spec()}})
    file = tmp_path / "day.json"
    file.write_text(json.dumps(cron))
    assert main(("simulate", str(file), "--until", "1m")) == 2
    assert 'spec.schedule: "x" does not have the five fields of cron' in capsys.readouterr().err
