"""Jobs as users write them; an invalid Job names the field."""

from typing import Any

import pytest
import yaml

from central.kube.decode import elastic_decoder, job_decoder
from central.model.jobspec import NO_LIMIT, JobMember, LifecyclePolicy, Partition
from central.model.json_types import Json

MPI = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata:
  name: lm-mpi-job
  namespace: default
  uid: u1
  labels: {volcano.sh/job-type: MPI}
spec:
  minAvailable: 4
  schedulerName: volcano
  plugins: {ssh: [], svc: [--disable-network-policy]}
  policies:
    - {event: PodEvicted, action: RestartJob}
    - {exitCode: 137, action: RestartPod, timeout: 1m30s}
  tasks:
    - replicas: 1
      name: mpimaster
      policies:
        - {event: TaskCompleted, action: CompleteJob}
      template:
        spec:
          containers:
            - {name: m, image: i, resources: {requests: {cpu: 500m}, limits: {cpu: 500m}}}
    - replicas: 3
      name: mpiworker
      maxRetry: -1
      dependsOn: {name: [mpimaster], iteration: any}
      template: {spec: {containers: [{name: w, image: i, resources: {requests: {cpu: 1}}}]}}
"""


def mpi() -> Json:
    raw: Json = yaml.safe_load(MPI)
    return raw


def test_a_job_as_users_write_it() -> None:
    seen = job_decoder.decode_job(mpi())
    assert not seen.error
    spec = seen.spec
    master, worker = spec.tasks
    assert (spec.namespace, spec.name, spec.uid, spec.queue) == (
        "default",
        "lm-mpi-job",
        "u1",
        "default",
    )
    assert (spec.min_available, spec.replicas, spec.max_retry) == (4, 4, 3)
    assert spec.plugins == (("ssh", ()), ("svc", ("--disable-network-policy",)))
    assert spec.policies == (
        LifecyclePolicy("RestartJob", ("PodEvicted",)),
        LifecyclePolicy("RestartPod", exit_code=137, timeout_s=90.0),
    )
    assert master.policies == (LifecyclePolicy("CompleteJob", ("TaskCompleted",)),)
    assert (master.replicas, master.minimum, worker.minimum) == (1, 1, 3)
    assert (worker.after, worker.after_any, worker.max_retry) == (("mpimaster",), True, NO_LIMIT)
    assert dict(master.requests)["cpu"] == dict(master.limits)["cpu"] == 500
    assert spec.ttl_s is None


def test_missing_fields_have_defaults() -> None:
    raw = mpi()
    raw["spec"] |= {"maxRetry": 0, "minAvailable": 0}
    raw["spec"]["tasks"][1] |= {"minAvailable": 2}
    raw["spec"]["tasks"][0].pop("name")
    raw["spec"]["tasks"][1].pop("dependsOn")
    spec = job_decoder.decode_job(raw).spec
    assert (spec.max_retry, spec.min_available) == (3, 3)
    assert spec.tasks[0].name == "default0"


def test_scale_sets_the_replicas_of_the_last_task() -> None:
    raw = mpi()
    raw["spec"].pop("minAvailable", None)
    raw["spec"]["replicas"] = 7
    spec = job_decoder.decode_job(raw).spec
    assert [task.replicas for task in spec.tasks][-1] == 7
    assert spec.min_available == sum(task.minimum for task in spec.tasks)
    raw["spec"]["tasks"][-1]["minAvailable"] = 8
    assert "minAvailable: 8 exceeds the 7 replicas" in job_decoder.decode_job(raw).error


def test_partitions() -> None:
    raw = mpi()
    raw["spec"]["minAvailable"] = 3
    wish = {"totalPartitions": 3, "partitionSize": 1, "minPartitions": 2}
    raw["spec"]["tasks"][1]["partitionPolicy"] = wish
    task = job_decoder.decode_job(raw).spec.tasks[1]
    assert (task.partition, task.minimum) == (Partition(3, 1, 2), 2)


TASK = {"name": "t", "replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}
CIRCLE = [
    {**TASK, "name": "a", "dependsOn": {"name": ["b"]}},
    {**TASK, "name": "b", "dependsOn": {"name": ["a"]}},
]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tasks": []}, "spec.tasks: a Job needs at least one task"),
        ({"tasks": [TASK, TASK]}, "spec.tasks[1].name: t is used twice"),
        ({"tasks": [{**TASK, "name": "T"}]}, 'spec.tasks[0].name: "T" must be lower case'),
        ({"tasks": [{**TASK, "replicas": -1}]}, "spec.tasks[0].replicas: -1 is not a whole number"),
        ({"tasks": [{**TASK, "minAvailable": 2}]}, "spec.tasks[0].minAvailable: 2 exceeds"),
        ({"tasks": [{"name": "t"}]}, "spec.tasks[0].template.spec.containers: missing"),
        ({"tasks": CIRCLE}, "spec.tasks: dependsOn has a cycle: a, b"),
        (
            {"tasks": [{**TASK, "dependsOn": {"name": ["x"]}}]},
            "spec.tasks[0].dependsOn.name: there is no task x",
        ),
        (
            {"tasks": [{**TASK, "partitionPolicy": {"totalPartitions": 2, "partitionSize": 2}}]},
            "spec.tasks[0].partitionPolicy: 2 partitions of 2 are not 1 replicas",
        ),
        ({"minAvailable": 9}, "spec.minAvailable: 9 exceeds the 4 pods of all tasks"),
        ({"minSuccess": 9}, "spec.minSuccess: 9 is not from 1 to 4, the number of pods"),
        ({"maxRetry": "3"}, "spec.maxRetry: '3' is not a whole number"),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished: -1 is not"),
        ({"plugins": {"svc": "x"}}, "spec.plugins.svc: 'x' is not a list"),
        ({"policies": [{"action": "Explode"}]}, 'spec.policies[0].action: "Explode" is not one of'),
        ({"policies": [{"action": "AbortJob"}]}, "spec.policies[0]: needs one of event"),
        (
            {"policies": [{"action": "AbortJob", "event": "PodRuns"}]},
            'spec.policies[0].event: "PodRuns" is not one of',
        ),
        (
            {"policies": [{"action": "AbortJob", "exitCode": 0}]},
            "spec.policies[0].exitCode: 0 is not a failure",
        ),
        (
            {"policies": [{"action": "AbortJob", "event": "PodFailed"}] * 2},
            "spec.policies[1]: PodFailed already has a policy",
        ),
        (
            {"policies": [{"action": "AbortJob", "events": ["*", "PodFailed"]}]},
            'spec.policies: "*" stands for every event',
        ),
        ({"volumes": [{"mountPath": "/a"}]}, "spec.volumes[0]: needs one of volumeClaimName"),
        (
            {"volumes": [{"mountPath": "a:b", "volumeClaimName": "c"}]},
            'spec.volumes[0].mountPath: "a:b" is not a mount path',
        ),
        (
            {"networkTopology": {"highestTierAllowed": 1, "highestTierName": "rack"}},
            "spec.networkTopology: highestTierAllowed and highestTierName exclude each other",
        ),
    ],
)
def test_an_invalid_job_names_the_field(change: dict[str, Any], said: str) -> None:
    raw = mpi()
    raw["spec"] |= change
    seen = job_decoder.decode_job(raw)
    assert seen.error.startswith(said), seen.error


def test_status_is_decoded() -> None:
    raw = mpi()
    raw["status"] = {
        "state": {
            "phase": "Running",
            "reason": "r",
            "message": "m",
            "lastTransitionTime": "1970-01-01T00:01:00Z",
        },
        "version": 2,
        "retryCount": 1,
        "podRestarts": {"p-1": 2},
        "taskStatusCount": {"mpiworker": {"phase": {"Running": 3}}},
        "controlledResources": {"plugin-svc": "svc"},
        "conditions": [{"status": "Pending", "lastTransitionTime": "1970-01-01T00:00:10Z"}],
    }
    status = job_decoder.decode_job(raw).status
    assert (status.phase, status.reason, status.message, status.since) == (
        "Running",
        "r",
        "m",
        60.0,
    )
    assert (status.version, status.retries, status.restarts) == (2, 1, (("p-1", 2),))
    assert status.counts == (("mpiworker", (("Running", 3),)),)
    assert status.conditions == (("Pending", 10.0),)


def test_a_pods_place_in_its_job() -> None:
    meta = {
        "name": "lm-mpi-job-mpiworker-11",
        "annotations": {"volcano.sh/task-spec": "mpiworker", "volcano.sh/job-version": "2"},
        "ownerReferences": [
            {
                "apiVersion": "batch.volcano.sh/v1alpha1",
                "kind": "Job",
                "name": "lm-mpi-job",
                "uid": "u1",
                "controller": True,
            }
        ],
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
    owner = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "name": "j",
        "uid": "u",
        "controller": True,
    }
    annotations = {
        "lockstep.dev/generation": "3",
        "lockstep.dev/members": "0-2",
        "lockstep.dev/leave-by": leave_by,
    }
    meta = {"name": "j-w-1", "annotations": annotations, "ownerReferences": [owner]}
    member = job_decoder.decode_job_member(meta, {})
    assert member is not None
    assert member.leave_by == found
    assert member.files is not None
    assert member.files[:4] == ("3", "", "0-2", "")
    assert member.files.leave_by == (leave_by if isinstance(leave_by, str) else "?")
    meta["annotations"] = {"lockstep.dev/members": "0," * 10_000}
    member = job_decoder.decode_job_member(meta, {})
    assert member is not None
    assert member.files == ("", "", "?", "", "")
    meta["annotations"] = {"lockstep.dev/other": "1"}
    member = job_decoder.decode_job_member(meta, {})
    assert member is not None
    assert member.files is None


@pytest.mark.parametrize(
    ("leave_by", "found"), [("1970-01-01T00:01:00Z", 60.0), ("soon", None), (5, None), (None, None)]
)
def test_when_members_leave_is_read_from_the_status(leave_by: Any, found: float | None) -> None:
    elastic = {"members": "0-2", "generation": 4, "reason": "r", "leaveBy": leave_by}
    status = elastic_decoder.members({"elastic": {"worker": elastic}})
    assert status == ((0, 1, 2), 4, "r", found)
