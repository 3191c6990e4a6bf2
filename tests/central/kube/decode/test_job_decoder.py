"""Jobs as users write them; an invalid Job names the field."""

from typing import Any

import pytest
import yaml

from central.kube.decode import elastic_decoder, job_decoder
from central.model import limits
from central.model.jobspec import NO_LIMIT, JobStatus, LifecyclePolicy, Partition, VolumeSpec
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
            {"volumes": [{"mountPath": "", "volumeClaimName": "c"}]},
            'spec.volumes[0].mountPath: "" is not a mount path',
        ),
        ({"maxRetry": -1}, "spec.maxRetry: -1 is not a whole number from 0"),
        ({"minAvailable": -1}, "spec.minAvailable: -1 is not a whole number from 0"),
        ({"tasks": [], "replicas": 3}, "spec.tasks: a Job needs at least one task"),
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


@pytest.mark.parametrize(
    ("leave_by", "found"), [("1970-01-01T00:01:00Z", 60.0), ("soon", None), (5, None), (None, None)]
)
def test_when_members_leave_is_read_from_the_status(leave_by: Any, found: float | None) -> None:
    elastic = {"members": "0-2", "generation": 4, "reason": "r", "leaveBy": leave_by}
    status = elastic_decoder.members({"elastic": {"worker": elastic}})
    assert status == ((0, 1, 2), 4, "r", found)


# --- the whole Job -------------------------------------------------------------


def test_each_field_of_a_job_is_kept() -> None:
    raw = mpi()
    owners = [{"uid": "o1"}, {"uid": "o2", "controller": True}, {"uid": "o3", "controller": True}]
    raw["metadata"] |= {
        "annotations": {"b": "2", "a": "1"},
        "creationTimestamp": "1970-01-01T00:00:07Z",
        "deletionTimestamp": "1970-01-01T00:00:08Z",
        "ownerReferences": owners,
    }
    raw["spec"] |= {
        "queue": "q",
        "maxRetry": 5,
        "ttlSecondsAfterFinished": 0,
        "minSuccess": 4,
        "priorityClassName": "high",
        "networkTopology": {"mode": "hard", "highestTierAllowed": 1},
        "runningEstimate": "1h",
        "volumes": [
            {"mountPath": "/a", "volumeClaimName": "c"},
            {"mountPath": "/b", "volumeClaim": {"storageClassName": "s"}},
        ],
    }
    seen = job_decoder.decode_job(raw)
    spec = seen.spec
    assert not seen.error
    assert (seen.created, seen.deleting, seen.owner) == (7.0, True, "o2")
    assert spec.labels == (("volcano.sh/job-type", "MPI"),)
    assert spec.annotations == (("a", "1"), ("b", "2"))
    assert (spec.queue, spec.max_retry, spec.ttl_s, spec.min_success) == ("q", 5, 0, 4)
    assert (spec.priority_class, spec.scheduler_name) == ("high", "volcano")
    assert (spec.topology, spec.estimate_s) == ({"mode": "hard", "highestTierAllowed": 1}, 3600.0)
    by_class = VolumeSpec("/b", "", {"storageClassName": "s"})
    assert spec.volumes == (VolumeSpec("/a", "c", None), by_class)
    assert job_decoder.decode_job(mpi()).owner == ""
    assert not job_decoder.decode_job(mpi()).deleting
    del raw["spec"]["schedulerName"]
    assert job_decoder.decode_job(raw, "mine").spec.scheduler_name == "mine"


@pytest.mark.parametrize("part", [None, {}])
def test_a_job_without_a_spec_needs_a_task(part: Any) -> None:
    raw = {**mpi(), "spec": part, "status": part}
    seen = job_decoder.decode_job(raw)
    assert seen.error == "spec.tasks: a Job needs at least one task"
    assert seen.status == JobStatus()


def test_a_job_has_as_many_pods_as_a_task_may_have() -> None:
    half = limits.REPLICAS // 2
    raw = mpi()
    tasks = [{**TASK, "name": "a", "replicas": half}, {**TASK, "name": "b", "replicas": half}]
    raw["spec"] = {"tasks": tasks}
    seen = job_decoder.decode_job(raw)
    assert (seen.error, seen.spec.min_available) == ("", 2 * half)
    tasks[1]["replicas"] = half + 1
    error = job_decoder.decode_job(raw).error
    assert error == "spec.tasks: 100001 pods; at most 100000 are accepted"


@pytest.mark.parametrize("wanted", [-1, 0, 1, 4, 5])
def test_successes_are_pods_of_the_job(wanted: int) -> None:
    raw = mpi()
    raw["spec"]["minSuccess"] = wanted
    seen = job_decoder.decode_job(raw)
    assert (seen.error == "") == (1 <= wanted <= 4)
    assert seen.spec.min_success == (None if seen.error else wanted)


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({"storageClassName": "s"}, ""),
        ({}, "needs one of volumeClaimName and volumeClaim"),
        ("s", "volumeClaim: not an object"),
        (["s"], "volumeClaim: not an object"),
        (True, "volumeClaim: not an object"),
        (None, "needs one of volumeClaimName and volumeClaim"),
    ],
)
def test_a_volume_has_a_claim_or_the_name_of_one(claim: Any, why: str) -> None:
    raw = mpi()
    raw["spec"]["volumes"] = [{"mountPath": "/a", "volumeClaim": claim}]
    error = job_decoder.decode_job(raw).error
    assert error in (f"spec.volumes[0].{why}", f"spec.volumes[0]: {why}") if why else not error
    both = {"mountPath": "/b", "volumeClaim": claim, "volumeClaimName": "c"}
    raw["spec"]["volumes"] = [{"mountPath": "/a", "volumeClaimName": "c"}, both]
    error = job_decoder.decode_job(raw).error
    assert bool(error) == (claim is not None and claim != {})
    raw["spec"]["volumes"] = [{"mountPath": "/a", "volumeClaimName": "c"}] * 2
    error = job_decoder.decode_job(raw).error
    assert error == "spec.volumes[1].mountPath: /a is used twice"


@pytest.mark.parametrize(
    "metadata", [{"labels": ["x"]}, {"labels": 7}, {"annotations": "x"}, ["x"], 7]
)
def test_what_is_wrong_with_a_template_is_said_with_its_task(metadata: Any) -> None:
    raw = mpi()
    raw["spec"]["tasks"][1]["template"]["metadata"] = metadata
    error = job_decoder.decode_job(raw).error
    field = "metadata"
    if isinstance(metadata, dict):
        field += f".{next(iter(metadata))}"
    assert error == f"spec.tasks[1].template.{field}: its value has the wrong type"


# --- the status -----------------------------------------------------------------


def test_each_field_of_a_status_is_kept() -> None:
    raw = mpi()
    raw["status"] = {
        "state": {"phase": "Aborted"},
        "terminating": 2,
        "controlledResources": {"b": "2", "a": "1"},
        "lastCommand": "c",
        "retryAt": "1970-01-01T00:02:00Z",
        "podRestarts": {"p-2": 1, "p-1": 2},
        "taskStatusCount": {"b": {"phase": {"Running": 1}}, "a": {"phase": {"S": 3, "F": 2}}},
        "elastic": {
            "w": {
                "members": "0-2,5",
                "generation": 4,
                "reason": "grew",
                "leaveBy": "1970-01-01T00:01:00Z",
            }
        },
    }
    seen = job_decoder.decode_job(raw)
    assert not seen.error
    assert seen.status == JobStatus(
        phase="Aborted",
        terminating=2,
        resources=(("a", "1"), ("b", "2")),
        command="c",
        retry_at=120.0,
        restarts=(("p-1", 2), ("p-2", 1)),
        counts=(("a", (("F", 2), ("S", 3))), ("b", (("Running", 1),))),
        members=(0, 1, 2, 5),
        generation=4,
        resized="grew",
        leave_by=60.0,
    )


@pytest.mark.parametrize(
    ("status", "field"),
    [
        ({"version": "2"}, "status.version"),
        ({"state": {"phase": 7}}, "phase"),
        ({"conditions": [{"lastTransitionTime": 7}]}, "status.conditions[0].lastTransitionTime"),
        ({"retryAt": 7}, "status.retryAt"),
        ({"podRestarts": {"p": []}}, ""),
        ({"podRestarts": {"p": [1]}}, "status.podRestarts"),
        ({"taskStatusCount": []}, ""),
        ({"taskStatusCount": [1]}, "status.taskStatusCount"),
    ],
)
def test_a_wrong_status_is_named_and_the_job_is_kept(status: Any, field: str) -> None:
    raw = {**mpi(), "status": status}
    seen = job_decoder.decode_job(raw)
    assert seen.error.startswith(field)
    assert bool(seen.error) == bool(field)
    assert (seen.spec.name, seen.spec.uid) == ("lm-mpi-job", "u1")
