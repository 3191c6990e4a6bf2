"""Pods of Jobs, as their owner, annotations and status say."""

import re
from itertools import product
from typing import Any

import pytest

from central.kube.decode import job_decoder
from central.kube.decode.pod_starts import start_fields
from central.model.jobspec import JobMember
from central.model.json_types import Json

OWNER = {
    "apiVersion": "batch.volcano.sh/v1alpha1",
    "kind": "Job",
    "name": "j",
    "uid": "u",
    "controller": True,
}


def member(status: Json | None = None, name: str = "j-w-1", **annotations: Any) -> JobMember:
    notes = {f"volcano.sh/{key.replace('_', '-')}": value for key, value in annotations.items()}
    meta = {"name": name, "annotations": notes, "ownerReferences": [{"kind": "Pod"}, OWNER]}
    found = job_decoder.decode_job_member(meta, status or {})
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("owner", "ours"),
    [
        ({}, True),
        ({"apiVersion": "batch.volcano.sh/v2"}, True),
        ({"apiVersion": "batch.volcano.sh"}, False),
        ({"apiVersion": "batch/v1"}, False),
        ({"apiVersion": None}, False),
        ({"kind": "CronJob"}, False),
        ({"controller": False}, False),
    ],
)
def test_a_member_is_controlled_by_a_job_of_volcanos_api(owner: Json, ours: bool) -> None:
    meta = {"name": "j-w-1", "ownerReferences": [{**OWNER, **owner}]}
    assert (job_decoder.decode_job_member(meta, {}) is not None) == ours
    assert job_decoder.decode_job_member({"name": "x", "ownerReferences": None}, {}) is None


@pytest.mark.parametrize("index", [None, "", "3", "0", "007", "w-12", "x", "9" * 9, "9" * 10, "٣"])
@pytest.mark.parametrize("name", ["j-w-1", "j-w-20", "plain", "j-" + "8" * 12])
def test_the_index_is_the_number_at_the_end_of_nine_characters(
    index: str | None, name: str
) -> None:
    digits = re.search("[0-9]*$", (index or name)[-9:])
    assert digits is not None
    assert member(name=name, task_index=index).index == int(digits[0] or "0")


COUNTS = {"2": 2, "02": 2, "9" * 9: 999_999_999, "1" + "0" * 12: 100_000_000}
NO_COUNTS = ("", "-1", "x", "²", 2, None)


@pytest.mark.parametrize(("text", "count"), [*COUNTS.items(), *((no, 0) for no in NO_COUNTS)])
def test_versions_and_turns_are_counts(text: Any, count: int) -> None:
    assert member(job_version=text).version == count
    meta = {"name": "p", "ownerReferences": [OWNER]}
    found = job_decoder.decode_job_member(
        {**meta, "annotations": {"lockstep.dev/pod-restarts": text}}, {}
    )
    assert found is not None
    assert (found.turn, found.version) == (count, 0)


@pytest.mark.parametrize(
    ("task", "found"), [("w", "w"), (7, ""), (None, ""), ("x" * 253, "x" * 253), ("x" * 254, "")]
)
def test_names_of_a_member_are_no_longer_than_names(task: Any, found: str) -> None:
    assert member(task_spec=task).task == found


def ended(code: int, at_s: int = 0) -> Json:
    stamp = f"1970-01-01T00:00:{at_s:02}Z" if at_s else None
    return {"state": {"terminated": {"exitCode": code, "finishedAt": stamp}}}


def test_all_containers_of_a_member_count() -> None:
    first, second = {**ended(2, 30), "restartCount": 1}, {**ended(1, 20), "restartCount": 2}
    status = {
        "initContainerStatuses": [first, ended(0, 40)],
        "containerStatuses": [second, ended(2, 10), {"state": None, "restartCount": 4}],
    }
    found = member(status)
    assert (found.restarts, found.exit_codes, found.ended) == (7, (1, 2), 40.0)
    assert member({"containerStatuses": [ended(0)]}).ended is None
    assert member().exit_codes == ()


@pytest.mark.parametrize(
    ("kind", "status"), [*product(("Ready", "PodScheduled"), ("True", "False", True, None))]
)
def test_a_member_is_ready_by_its_condition(kind: str, status: Any) -> None:
    conditions = [{"type": "Initialized", "status": "True"}, {"type": kind, "status": status}]
    assert member({"conditions": conditions}).ready == ((kind, status) == ("Ready", "True"))


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [
        ("ErrImagePull", "ImagePullBackOff"),
        ("ImagePullBackOff", "ImagePullBackOff"),
        ("CreateContainerConfigError", "CreateContainerConfigError"),
        ("ContainerCreating", ""),
        ("PodInitializing", ""),
        ("CrashLoopBackOff", ""),
        ("", ""),
        (None, ""),
        (7, ""),
        (["ErrImagePull"], ""),
        ({"ErrImagePull": 1}, ""),
    ],
)
def test_a_pod_is_stuck_if_the_kubelet_cannot_start_a_container(reason: Any, stuck: str) -> None:
    waits = {"state": {"waiting": {"reason": reason}}}
    running: Json = {"state": {"running": {}}}
    for kind in ("initContainerStatuses", "containerStatuses"):
        assert start_fields({}, {kind: [running, waits]})["stuck"] == stuck
    assert start_fields({}, {"containerStatuses": [running]})["stuck"] == ""


def test_a_pods_place_in_its_job() -> None:
    meta = {
        "name": "lm-mpi-job-mpiworker-11",
        "annotations": {"volcano.sh/task-spec": "mpiworker", "volcano.sh/job-version": "2"},
        "ownerReferences": [{**OWNER, "name": "lm-mpi-job", "uid": "u1"}],
    }
    ended = {"exitCode": 137, "finishedAt": "1970-01-01T00:01:00Z"}
    status = {
        "containerStatuses": [
            {"restartCount": 2, "state": {"terminated": ended}},
            {"restartCount": 1, "state": {"running": {}}},
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    assert job_decoder.decode_job_member(meta, status) == JobMember(
        "lm-mpi-job", "u1", "mpiworker", 11, 2, 0, 3, (137,), True, 60.0
    )
    assert job_decoder.decode_job_member({**meta, "ownerReferences": []}, status) is None


@pytest.mark.parametrize(
    ("leave_by", "found"),
    [
        ("1970-01-01T00:01:00Z", 60.0),
        ("", None),
        ("soon", None),
        (7, None),
        (["x"], None),
        ("x" * 100, None),
    ],
)
def test_what_a_members_files_say(leave_by: Any, found: float | None) -> None:
    annotations = {
        "lockstep.dev/generation": "3",
        "lockstep.dev/members": "0-2",
        "lockstep.dev/leave-by": leave_by,
    }
    meta = {"name": "j-w-1", "annotations": annotations, "ownerReferences": [OWNER]}
    pod = job_decoder.decode_job_member(meta, {})
    assert pod is not None
    assert pod.leave_by == found
    assert pod.files is not None
    assert pod.files[:4] == ("3", "", "0-2", "")
    assert pod.files.leave_by == (leave_by if isinstance(leave_by, str) else "?")
    meta["annotations"] = {"lockstep.dev/members": "0," * 10_000}
    pod = job_decoder.decode_job_member(meta, {})
    assert pod is not None
    assert pod.files == ("", "", "?", "", "")
    meta["annotations"] = {"lockstep.dev/other": "1"}
    pod = job_decoder.decode_job_member(meta, {})
    assert pod is not None
    assert pod.files is None
