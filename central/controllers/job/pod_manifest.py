"""The manifests of a Job's pods and PersistentVolumeClaims."""

from collections.abc import Sequence
from typing import Any

from central.controllers.job import plugins
from central.controllers.job.plugins import pod_edits
from central.model import member_files
from central.model.jobspec import (
    JobSpec,
    JobStatus,
    TaskSpec,
    VolumeSpec,
    group_name,
    owner,
    pod_name,
    without_user,
)
from central.model.json_types import ReadOnlyJson
from protos.names import GRACE, GROUP_NAMES, RUNS_FOR, START_TAKES, SUSPENDABLE, TASK, USER

JOB = "volcano.sh/job-name"
INDEX = "volcano.sh/task-index"
VERSION = "volcano.sh/job-version"
QUEUE = "volcano.sh/queue-name"
SPACE = "volcano.sh/job-namespace"
TEMPLATE = "volcano.sh/template-uid"
RETRIES = "volcano.sh/job-retry-count"
PARTITION = "volcano.sh/partition-id"
NUMA = "volcano.sh/numa-topology-policy"
TURN = "lockstep.dev/pod-restarts"
# A Job's annotations (the first two: labels as well) that its pods inherit.
INHERITED = (
    "volcano.sh/preemptable",
    "volcano.sh/cooldown-time",
    "volcano.sh/revocable-zone",
    "volcano.sh/jdb-min-available",
    "volcano.sh/jdb-max-unavailable",
    "lockstep.dev/topology-required",
    "lockstep.dev/topology-preferred",
    RUNS_FOR,
    SUSPENDABLE,
    GRACE,
    START_TAKES,
)


def manifest(
    job: JobSpec, status: JobStatus, task: TaskSpec, index: int, avoided: str = ""
) -> ReadOnlyJson:
    """avoided: a node that the pod must not get."""
    template = task.template
    meta = template.get("metadata") or {}
    name = pod_name(job, task, index)
    pod: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": job.namespace,
            "labels": {**(meta.get("labels") or {}), **_labels(job, task, index)},
            "annotations": {
                **_inherited(job),
                **_of_template(meta),
                **_annotations(job, status, task, index),
            },
            "ownerReferences": [owner(job)],
        },
        "spec": _spec(job, template["spec"]),
    }
    made = plugins.decorate(job, task, index, pod)
    return pod_edits.avoid_node(made, avoided) if avoided else made


def _of_template(meta: ReadOnlyJson) -> dict[str, Any]:
    """Returns the template's annotations, without those that the controller alone writes."""
    given = without_user(meta.get("annotations") or {})
    ours = member_files.ANNOTATIONS.values()
    return {key: value for key, value in given.items() if key not in ours}


def _labels(job: JobSpec, task: TaskSpec, index: int) -> dict[str, str]:
    labels = {
        JOB: job.name,
        SPACE: job.namespace,
        TASK: task.name,
        INDEX: str(index),
        QUEUE: job.queue,
    }
    if task.partition is not None:
        labels[PARTITION] = str(index // task.partition.size)
    given = dict(job.labels)
    return {**{key: given[key] for key in INHERITED[:2] if key in given}, **labels}


def _inherited(job: JobSpec) -> dict[str, str]:
    given = dict(job.annotations)
    found = {key: given[key] for key in INHERITED if key in given}
    if job.estimate_s is not None:
        found.setdefault(RUNS_FOR, f"{job.estimate_s:g}s")
    return found


def _annotations(job: JobSpec, status: JobStatus, task: TaskSpec, index: int) -> dict[str, str]:
    found = {
        TASK: task.name,
        INDEX: str(index),
        GROUP_NAMES[0]: group_name(job),
        JOB: job.name,
        QUEUE: job.queue,
        VERSION: str(status.version),
        TEMPLATE: f"{job.name}-{task.name}",
        RETRIES: str(status.retries),
    }
    turn = dict(status.restarts).get(pod_name(job, task, index), 0)
    if turn:
        found[TURN] = str(turn)
    if user := dict(job.annotations).get(USER):
        found[USER] = user
    if task.topology_policy:
        found[NUMA] = task.topology_policy
    if (elastic := job.elastic) is not None and elastic.files and elastic.task == task.name:
        members = task.members or ()
        found |= member_files.to_annotations(member_files.of_members(status.generation, members))
    return found


def _spec(job: JobSpec, template: ReadOnlyJson) -> dict[str, Any]:
    spec = dict(template)
    if not spec.get("schedulerName"):
        spec["schedulerName"] = job.scheduler_name
    if job.priority_class and not spec.get("priorityClassName"):
        spec["priorityClassName"] = job.priority_class
    if spec.get("hostNetwork") and not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirstWithHostNet"
    if job.volumes:
        claims = {claim_name(job, place): one for place, one in enumerate(job.volumes)}
        mounts = [
            {"name": _volume_name(place), "mountPath": one.mount_path}
            for place, one in enumerate(claims.values())
        ]
        spec["volumes"] = [
            *(spec.get("volumes") or ()),
            *(
                {"name": _volume_name(place), "persistentVolumeClaim": {"claimName": name}}
                for place, name in enumerate(claims)
            ),
        ]
        spec["containers"] = [_mounted(one, mounts) for one in spec["containers"]]
        if spec.get("initContainers"):
            spec["initContainers"] = [_mounted(one, mounts) for one in spec["initContainers"]]
    return spec


def _mounted(container: ReadOnlyJson, mounts: Sequence[ReadOnlyJson]) -> ReadOnlyJson:
    """Adds the mounts, except at paths where the container mounts something itself."""
    own = container.get("volumeMounts") or []
    paths = {mount.get("mountPath") for mount in own}
    fresh = [mount for mount in mounts if mount["mountPath"] not in paths]
    return {**container, "volumeMounts": [*own, *fresh]}


def _volume_name(place: int) -> str:
    return f"job-volume-{place}"


def claim_name(job: JobSpec, place: int) -> str:
    """The claim's given name, or one derived from the Job's uid, the same after every restart."""
    volume: VolumeSpec = job.volumes[place]
    return volume.claim_name or f"{job.name}-pvc-{job.uid.replace('-', '')[:8]}-{place}"


def claims(job: JobSpec) -> list[str]:
    """Names of the claims to create."""
    return [claim_name(job, at) for at, one in enumerate(job.volumes) if one.claim is not None]


def claim(job: JobSpec, name: str) -> ReadOnlyJson:
    place = [claim_name(job, at) for at in range(len(job.volumes))].index(name)
    meta = {"name": name, "namespace": job.namespace, "ownerReferences": [owner(job)]}
    return {"metadata": meta, "spec": job.volumes[place].claim}
