"""`lockstep job` against an API server in memory."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml

from central.cli.exit_codes import CannotDo
from central.cli.jobs import api as apis
from central.cli.jobs import describe, follow
from central.cli.jobs.api import Api, open_api
from central.cli.main import main
from central.kube.resource_paths import ResourcePath
from central.kube.transport.http_client import Client
from central.server.grpc.visibility import Viewer
from tests.central.cli.run_cli import (
    COMMANDS,
    EVENTS,
    GROUPS,
    JOBS,
    PODS,
    AskedScheduler,
    Lockstep,
    group,
    member,
    mpi,
)
from tests.central.server.test_query_service import CannedAnswers

Json = dict[str, Any]
Put = Callable[[str, Json], Json]
WHY = "needs 3 pods x 8 GPUs in one rack; best candidate r1 fits 2 of 3"


def test_a_job_from_flags(lockstep: Lockstep, client: Client) -> None:
    output = lockstep(
        *("job", "run", "sweep", "-i", "train:1", "-r", "4", "-m", "2", "-g", "8"),
        *("-R", "cpu=2,memory=1Gi", "-L", "memory=2Gi", "-e", "SEED=1", "-q", "research"),
        *("--within", "node", "--plugin", "svc", "--runs-for", "1h30m"),
        *(
            "--time-limit",
            "2h",
            "--gpu-model",
            "H100",
            "--shm",
            "16Gi",
            "--volume",
            "data:/data:ro",
        ),
        *("--annotation", "volcano.sh/preemptable=false", "--", "train", "--steps", "7"),
    )
    assert output == "job default/sweep created\n"
    made = client.get(f"{JOBS}/sweep")
    assert made["metadata"]["annotations"] == {
        "lockstep.dev/topology-required": "node",
        "lockstep.dev/runs-for": "1h30m",
        "lockstep.dev/time-limit": "2h",
        "volcano.sh/preemptable": "false",
    }
    spec = made["spec"]
    assert (spec["minAvailable"], spec["queue"], spec["plugins"]) == (2, "research", {"svc": []})
    (task,) = spec["tasks"]
    assert (task["name"], task["replicas"]) == ("worker", 4)
    assert task["template"]["metadata"]["annotations"] == {"lockstep.dev/gpu-model": "H100"}
    pod = task["template"]["spec"]
    assert pod["volumes"] == [
        {"name": "v0", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "16Gi"}},
    ]
    (container,) = pod["containers"]
    assert container == {
        "volumeMounts": [
            {"name": "v0", "mountPath": "/data", "readOnly": True},
            {"name": "shm", "mountPath": "/dev/shm"},
        ],
        "name": "main",
        "image": "train:1",
        "command": ["train", "--steps", "7"],
        "env": [{"name": "SEED", "value": "1"}],
        "resources": {
            "requests": {"cpu": "2", "memory": "1Gi"},
            "limits": {"memory": "2Gi", "nvidia.com/gpu": "8"},
        },
    }


def test_every_object_of_a_file_is_created(
    lockstep: Lockstep, client: Client, tmp_path: Path
) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    job = {**mpi(), "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([settings, job]))
    assert lockstep("job", "run", "-f", str(file)) == (
        "configmap default/settings created\njob default/lm-mpi-job created\n"
    )
    assert client.get(f"{JOBS}/lm-mpi-job")["spec"]["minAvailable"] == 3


def test_nothing_of_a_file_is_created_if_one_kind_is_unknown(
    lockstep: Lockstep, client: Client, tmp_path: Path
) -> None:
    settings = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}
    strange = {"apiVersion": "x.example/v1", "kind": "Strange", "metadata": {"name": "s"}}
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump_all([settings, strange]))
    output = lockstep("job", "run", "-f", str(file), code=3)
    assert output == "lockstep: the cluster does not serve Strange (x.example/v1)\n"
    assert client.get("/api/v1/namespaces/default/configmaps")["items"] == []


def listed(output: str) -> list[dict[str, str]]:
    head, *rows = (re.split(r"\s{2,}", line.strip()) for line in output.splitlines())
    return [dict(zip(head, row, strict=True)) for row in rows]


def ago(seconds: int) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%SZ")


def test_the_list_says_where_a_job_is_since_when_and_why(lockstep: Lockstep, put: Put) -> None:
    began = [{"status": "Running", "lastTransitionTime": ago(4 * 3600)}]
    put(JOBS, mpi("runs", "Running", running=3, conditions=began))
    for index, node in enumerate(("gpu-2", "gpu-1", "gpu-3", "gpu-1")):
        pod = member("runs", "mpiworker", index, phase="Running")
        put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": node}})
    pod = member("runs", "mpimaster", 0, phase="Succeeded")
    put(PODS, {**pod, "spec": {**pod["spec"], "nodeName": "gone"}})
    ended = {"phase": "Failed", "reason": "x", "message": "exit 3", "lastTransitionTime": ago(3600)}
    put(JOBS, mpi("ended", conditions=began, state=ended))
    waits = put(JOBS, mpi("waits"))
    put(GROUPS, group(f"waits-{waits['metadata']['uid']}", f"{WHY}; reserved: rack r1"))
    first, second, third = listed(lockstep("job", "list"))
    assert first == {
        "NAME": "ended", "QUEUE": "default", "STATE": "Failed", "GPUS": "0", "PODS": "0/3", "WHERE": "-",
        "TIME": "ran 3h", "WHY": "exit 3",
    }  # fmt: skip
    assert (second["WHERE"], second["TIME"]) == ("gpu-1, gpu-2 +1", "runs 4h")
    assert (second["PODS"], second["WHY"]) == ("3/3", "-")
    assert third["TIME"].startswith("waits ")
    assert third["WHY"] == f"{WHY}; reserved: rack r1"


def test_a_list_without_jobs_says_where_other_gangs_are(
    lockstep: Lockstep, put: Put, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["job", "list"]) == 0
    assert capsys.readouterr().err == "No jobs found in namespace default\n"
    put(GROUPS, group("giant", "waits"))
    assert main(["job", "list", "--state", "running", "-A"]) == 0
    assert capsys.readouterr().err == "No jobs found, but PodGroups: lockstep group list -A\n"
    found = lockstep("job", "view", "giant", code=3)
    assert found == (
        "lockstep: job default/giant not found; it is a PodGroup: lockstep group view giant\n"
    )
    found = lockstep("job", "list", "--state", "runing", code=2)
    assert "'runing' is not one of Pending, Running, " in found
    done = {"phase": "Completed", "lastTransitionTime": ago(60)}
    put(JOBS, mpi("done", state=done, succeeded=3))
    [row] = listed(lockstep("job", "list", "--state", "completed"))
    assert row["NAME"] == "done"


def test_a_narrow_list_keeps_what_matters_of_a_reason(
    lockstep: Lockstep, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "130")
    for name, more in (
        ("waits", "reserved: rack r1"),
        ("never", "can never start: even if empty, no rack fits more than 2"),
    ):
        job = put(JOBS, mpi(name))
        put(GROUPS, group(f"{name}-{job['metadata']['uid']}", f"{WHY}; {more}"))
    never, waits = (
        " ".join(lockstep("job", "list").split()).partition("never")[2].partition("waits default")
    )[::2]
    assert (
        "needs 3 pods x 8 GPUs in one rack; can never start: even if empty, no rack fits more than 2"
        in never
    )
    assert waits.endswith("best candidate r1 fits 2 of 3")


@pytest.mark.parametrize("named", ["waits-{uid}", "waits"])
def test_a_list_of_one_job_says_why(named: str, lockstep: Lockstep, put: Put) -> None:
    job = put(JOBS, mpi("waits"))
    put(GROUPS, group("other", "is not asked for"))
    put(GROUPS, group(named.format(uid=job["metadata"]["uid"]), WHY))
    for argv in (("job", "list"), ("job", "list", "-A")):
        assert [row["WHY"] for row in listed(lockstep(*argv))] == [WHY]


def test_the_wide_list_has_what_tools_for_this_api_show(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, mpi(phase="Completed", succeeded=1, retryCount=2))
    (row,) = listed(lockstep("job", "list", "-o", "wide"))
    assert (row["TYPE"], row["MIN"], row["SUCCEEDED"], row["RETRIES"]) == ("MPI", "3", "1", "2")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[+-]\d{4}", row["CREATED"])


class UseKnown(CannedAnswers):
    """A scheduler that knows how busy two gangs are."""

    def page(self, path: str, query: Mapping[str, str], viewer: Viewer) -> Json:
        if path != "/api/jobs":
            return super().page(path, query, viewer)
        assert query["state"] == "running"
        uses = {
            "busy": {"utilization": 0.824, "memory": 1, "idle_s": None},
            "idles": {"utilization": 0.012, "memory": 1, "idle_s": 7300.0},
            "unknown": {"utilization": None, "memory": 1, "idle_s": None},
            "none": None,
        }
        rows = [{"namespace": "default", "gang": key, "gpu_use": use} for key, use in uses.items()]
        return {"rows": rows, "next": None}


def test_the_wide_list_says_how_busy_gpus_are(
    lockstep: Lockstep, put: Put, asked_scheduler: AskedScheduler
) -> None:
    asked_scheduler(UseKnown())
    for name in ("busy", "idles", "none", "unknown"):
        put(JOBS, mpi(name, "Running"))
    shown = listed(lockstep("job", "list", "-o", "wide"))
    assert {row["NAME"]: row["BUSY"] for row in shown} == {
        "busy": "82%",
        "idles": "1%, idle 121m",
        "none": "-",
        "unknown": "-",
    }


def test_without_a_scheduler_the_wide_list_is_there(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, mpi("busy", "Running"))
    (row,) = listed(lockstep("job", "list", "-o", "wide"))
    assert row["BUSY"] == "-"


def test_jobs_by_state_and_user(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, mpi("a", "Running"))
    theirs = mpi("b", "Pending")
    theirs["metadata"]["annotations"] = {"lockstep.dev/user": "ann"}
    put(JOBS, theirs)
    assert [row["NAME"] for row in listed(lockstep("job", "list", "--state", "running"))] == ["a"]
    assert [row["NAME"] for row in listed(lockstep("job", "list", "--user", "ann"))] == ["b"]
    assert "b" in lockstep("job", "list", "--user", "ann", "-o", "name")


@pytest.mark.parametrize(
    ("limits", "gpus"),
    [
        ({"nvidia.com/gpu": 8}, "24"),
        ({"lockstep.dev/gpu-share": 50}, "1.5"),
        ({"nvidia.com/gpu": "x"}, "0"),
    ],
)
def test_the_gpus_of_a_job_are_those_of_its_size(
    limits: Json, gpus: str, lockstep: Lockstep, put: Put
) -> None:
    job = mpi(elastic={"mpiworker": {"size": 3, "least": 2, "most": 8}})
    job["spec"]["tasks"][1]["template"] = {
        "spec": {"containers": [{"name": "main", "image": "i", "resources": {"limits": limits}}]}
    }
    put(JOBS, job)
    (row,) = listed(lockstep("job", "list"))
    assert (row["GPUS"], row["PODS"]) == (gpus, "0/4")


def test_the_size_of_an_elastic_job(lockstep: Lockstep, put: Put) -> None:
    task = {"size": 5, "least": 2, "most": 8, "members": "0-3,6", "reason": "room for default/big"}
    put(JOBS, mpi(phase="Running", elastic={"mpiworker": task}))
    put(JOBS, mpi("rigid"))
    assert [row["SIZE"] for row in listed(lockstep("job", "list", "-o", "wide"))] == ["5/2-8", "-"]
    shown = lockstep("job", "view", "lm-mpi-job")
    assert "5/2-8 of task mpiworker, members 0-3,6; last change: room for default/big" in " ".join(
        shown.split()
    )
    assert "Size" not in lockstep("job", "view", "rigid")


def test_a_list_fits_eighty_columns(
    lockstep: Lockstep, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    put(JOBS, mpi("a-job-with-quite-a-long-name", "Terminating"))
    put(JOBS, mpi("j" * 63, "Running", running=3))
    for argv in (("job", "list"), ("job", "list", "-A"), ("job", "view", "j" * 63)):
        output = lockstep(*argv)
        assert max(map(len, output.splitlines())) <= 80, output
    assert "j" * 63 in re.sub(r"\s|\S*Completed\S*", "", lockstep("job", "view", "j" * 63))


def test_output_formats(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, mpi())
    listed = json.loads(lockstep("job", "list", "-o", "json"))
    assert [item["kind"] for item in listed["items"]] == ["Job"]
    assert yaml.safe_load(lockstep("job", "view", "lm-mpi-job", "-o", "yaml"))["spec"]
    assert lockstep("job", "list", "-o", "name") == "job.batch.volcano.sh/lm-mpi-job\n"
    assert lockstep("job", "list", "-q", "other", code=0) == ""


def test_a_view_says_why_and_shows_pods_and_events(lockstep: Lockstep, put: Put) -> None:
    job = put(JOBS, mpi())
    put(GROUPS, group(f"lm-mpi-job-{job['metadata']['uid']}", WHY))
    put(PODS, member("lm-mpi-job", "mpiworker", 10))
    waiting = {"state": {"waiting": {"reason": "ImagePullBackOff"}}, "restartCount": 3}
    put(PODS, member("lm-mpi-job", "mpiworker", 9, containerStatuses=[waiting]))
    put(PODS, member("lm-mpi-job", "mpimaster", 0))
    put(PODS, member("another", "mpimaster", 0))
    about = {"kind": "Job", "name": "lm-mpi-job", "uid": job["metadata"]["uid"]}
    event = {"reason": "CommandIssued", "message": "AbortJob", "involvedObject": about}
    put(EVENTS, {"metadata": {"name": "e"}, **event})
    output = lockstep("job", "view", "lm-mpi-job")
    assert f"Why:          {WHY}" in output
    assert "Policies:     PodEvicted -> RestartJob" in output
    assert "TaskCompleted -> CompleteJob" in output
    pods = re.findall(r"^(lm-mpi-job-\S+|another-\S+) +(\S+) +(\S+) +(\d+)", output, re.MULTILINE)
    assert pods == [
        ("lm-mpi-job-mpimaster-0", "mpimaster", "Pending", "0"),
        ("lm-mpi-job-mpiworker-9", "mpiworker", "ImagePullBackOff", "3"),
        ("lm-mpi-job-mpiworker-10", "mpiworker", "Pending", "0"),
    ]
    assert "job/lm-mpi-job: CommandIssued: AbortJob" in output


@pytest.mark.parametrize("before", ["", " (before: Restarting after a failure)"])
def test_a_view_says_one_reason_where_the_job_tells_an_older_one(
    before: str, lockstep: Lockstep, put: Put
) -> None:
    """The scheduler writes the gang's status first, and the Job's next."""
    status = {"phase": "Pending", "reason": "Waiting"}
    older = "needs 6 pods x 4 GPUs; the cluster fits 2 of 6"
    made = mpi() | {"status": {"state": status | {"message": older + before}}}
    job = put(JOBS, made)
    newer = "needs 6 pods x 4 GPUs; the cluster fits 3 of 6"
    put(GROUPS, group(f"lm-mpi-job-{job['metadata']['uid']}", newer))
    assert f"Why:          {newer}{before}\n" in lockstep("job", "view", "lm-mpi-job")


def test_a_view_says_why_placed_pods_do_not_run(lockstep: Lockstep, put: Put) -> None:
    put(JOBS, {**mpi(), "status": {"state": {"phase": "Pending", "reason": "Created"}}})
    for index, reason in enumerate(("ImagePullBackOff", "ContainerCreating", "ImagePullBackOff")):
        waiting = [{"name": "main", "state": {"waiting": {"reason": reason}}}]
        made = member("lm-mpi-job", "mpiworker", index, containerStatuses=waiting)
        made["spec"]["nodeName"] = "n"
        put(PODS, made)
    output = lockstep("job", "view", "lm-mpi-job")
    why = "1 of 3 pods: ContainerCreating, 2 of 3 pods: ImagePullBackOff"
    assert f"Why:          {why}\n" in output


class Blind(Api):
    """For a user who may see jobs, but neither pods nor events."""

    def all(self, kind: ResourcePath, *, everywhere: bool = False, **query: str) -> list[Json]:
        if kind in (apis.PODS, apis.EVENTS):
            raise CannotDo(f"you may not list this {kind.singular}")
        return super().all(kind, everywhere=everywhere, **query)


def test_a_view_shows_what_the_user_may_see(put: Put) -> None:
    put(JOBS, mpi())
    with open_api(None, None, None) as user:
        output = describe.job(Blind(user._client, "default"), "lm-mpi-job", 80)
    assert "Phase:        Pending" in output
    assert "Pods:         not shown: you may not list this pod" in output
    assert "Events:       not shown: you may not list this event" in output


def test_a_list_with_watch_prints_changes(client: Client, put: Put) -> None:
    put(JOBS, mpi("first"))
    # In a background shell SIGINT is ignored, and child processes inherit that.
    hears = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    typed = f"{hears}; import sys; from central.__main__ import main; sys.exit(main())"
    watch = subprocess.Popen(
        [sys.executable, "-u", "-c", typed, "job", "list", "-w"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert watch.stdout is not None
    try:
        assert watch.stdout.readline().startswith("NAME ")
        assert watch.stdout.readline().startswith("first ")
        put(JOBS, {**mpi("second"), "status": {"state": {"phase": "Running"}}})
        rows = [watch.stdout.readline().split() for _ in range(2)]
        assert [row[0] for row in rows] == ["second", "second"]
        assert "Pending" in rows[0], rows
        assert "Running" in rows[1], rows
    finally:
        watch.send_signal(signal.SIGINT)
        output, errors = watch.communicate(timeout=10)
    assert (watch.returncode, output, errors) == (130, "", "")


def test_commands_for_jobs(lockstep: Lockstep, client: Client, put: Put) -> None:
    job = put(JOBS, mpi(phase="Running"))
    assert lockstep("job", "suspend", "lm-mpi-job").startswith(
        "job default/lm-mpi-job: suspend requested"
    )
    assert lockstep("job", "resume", "-N", "lm-mpi-job").startswith(
        "job default/lm-mpi-job: resume requested"
    )
    commands = client.get(COMMANDS)["items"]
    assert {one["action"] for one in commands} == {"AbortJob", "ResumeJob"}
    for one in commands:
        assert (one["target"]["kind"], one["target"]["uid"]) == ("Job", job["metadata"]["uid"])
    assert lockstep("job", "delete", "lm-mpi-job") == "job default/lm-mpi-job deleted\n"
    assert client.get(JOBS)["items"] == []


@pytest.mark.parametrize("status", [{}, {"state": {"phase": "OfALaterVersion"}}])
def test_a_job_without_a_known_phase_can_be_suspended(
    status: Json, lockstep: Lockstep, client: Client, put: Put
) -> None:
    """The controller has not looked at it yet, or is of another version."""
    put(JOBS, {**mpi(), "status": status})
    shown = status.get("state", {}).get("phase", "Pending")
    assert lockstep("job", "suspend", "lm-mpi-job") == (
        f"job default/lm-mpi-job: suspend requested (phase {shown})\n"
    )
    [command] = client.get(COMMANDS)["items"]
    assert command["metadata"]["name"].startswith("lm-mpi-job-suspend-")
    assert command["metadata"]["ownerReferences"] == [command["target"]]
    assert command["target"]["controller"]


def test_a_finished_job_is_neither_suspended_nor_resumed(
    lockstep: Lockstep, client: Client, put: Put
) -> None:
    put(JOBS, mpi(phase="Completed"))
    for word in ("suspend", "resume"):
        output = lockstep("job", word, "lm-mpi-job", code=2)
        assert output == f"lockstep: job lm-mpi-job is Completed: it can't {word}\n"
    assert client.get(COMMANDS)["items"] == []


def test_log_lines_carry_their_task_and_index(lockstep: Lockstep, put: Put, capsys: Any) -> None:
    put(JOBS, mpi(phase="Completed"))
    ran = {"name": "main", "state": {"terminated": {"exitCode": 0}}, "restartCount": 0}
    for task, index in (("mpimaster", 0), ("mpiworker", 0)):
        put(PODS, member("lm-mpi-job", task, index, containerStatuses=[ran]))
    put(PODS, member("lm-mpi-job", "mpiworker", 1))
    output = lockstep("job", "logs", "lm-mpi-job")
    assert [line.split("]")[0] for line in output.splitlines()] == ["[mpimaster-0", "[mpiworker-0"]
    assert lockstep("job", "logs", "-f", "lm-mpi-job", "-t", "mpimaster").startswith(
        "[mpimaster-0] "
    )


def test_watch_prints_a_job_until_it_ends(put: Put, client: Client) -> None:
    job = put(JOBS, mpi())
    states = iter([{"phase": "Running"}, {"phase": "Failed", "message": "PodFailed: exit 3"}])
    lines: list[str] = []

    def say(line: str) -> None:
        lines.append(line.split(maxsplit=1)[1])
        if state := next(states, None):
            changed = {**job, "metadata": {"name": "lm-mpi-job"}, "status": {"state": state}}
            reply = client.request("PUT", f"{JOBS}/lm-mpi-job/status", orjson.dumps(changed))
            assert reply.ok

    with open_api(None, None, None) as user:
        assert follow.watch_job(user, "lm-mpi-job", say) == 1
    assert lines == ["Pending", "Running", "Failed: PodFailed: exit 3"]
