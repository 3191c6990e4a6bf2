"""Jobs of batch.volcano.sh as facts, and a pod's place in its Job. The error of a Job that can't be used is
JobSeen.error, a sentence that begins with the field."""

import re
from dataclasses import replace
from typing import Any

from central.controllers.job import plugins
from central.kube.decode import job_tasks
from central.kube.decode.fields import (
    DECODE_ERRORS,
    FieldError,
    duration_field,
    error_text,
    identifying,
    int_field,
    text_field,
)
from central.kube.decode.job_tasks import network_topology
from central.kube.decode.quantities import parse_time
from central.model.facts import JobSeen
from central.model.jobspec import JobMember, JobSpec, JobStatus, VolumeSpec
from central.model.json_types import Json
from protos.names import SCHEDULER

GROUP = "batch.volcano.sh"
VERSION = "volcano.sh/job-version"  # annotations of a Job's pods
INDEX = "volcano.sh/task-index"
TASK = "volcano.sh/task-spec"
TURN = "lockstep.dev/pod-restarts"  # how often the pod was recreated on its own
DEFAULT_RETRY = 3

_INDEX = re.compile(r"(\d{1,9})$", re.ASCII)


def decode_job(raw: Json, scheduler: str = SCHEDULER) -> JobSeen:
    """scheduler: the schedulerName of a Job without one."""
    with identifying("Job", raw):
        meta = raw["metadata"]
        spec = JobSpec(
            meta["namespace"],
            meta["name"],
            meta.get("uid") or "",
            labels=_pairs(meta.get("labels")),
            annotations=_pairs(meta.get("annotations")),
            scheduler_name=scheduler,
        )
        seen = JobSeen(
            spec,
            _status(raw.get("status") or {}),
            created=parse_time(meta.get("creationTimestamp")),
            deleting="deletionTimestamp" in meta,
            owner=_controller(meta),
        )
    try:
        spec = _spec(raw.get("spec") or {}, spec)
        return replace(seen, spec=spec, error=plugins.check(spec))
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))


def _controller(meta: Json) -> str:
    owners = meta.get("ownerReferences") or ()
    return next((text_field(one, "uid") for one in owners if one.get("controller")), "")


def _spec(raw: Json, spec: JobSpec) -> JobSpec:
    tasks = job_tasks.decode_tasks(_scaled(raw))
    least = int_field(raw, "minAvailable", "spec", 0) or sum(task.minimum for task in tasks)
    replicas = sum(task.replicas for task in tasks)
    if least > replicas:
        raise FieldError(f"spec.minAvailable: {least} exceeds the {replicas} pods of all tasks")
    ttl = raw.get("ttlSecondsAfterFinished")
    success = raw.get("minSuccess")
    return replace(
        spec,
        tasks=tasks,
        min_available=least,
        scheduler_name=text_field(raw, "schedulerName") or spec.scheduler_name,
        queue=text_field(raw, "queue") or "default",
        policies=job_tasks.decode_policies(raw.get("policies"), "spec.policies"),
        plugins=_plugins(raw.get("plugins") or {}),
        volumes=_volumes(raw.get("volumes") or []),
        max_retry=int_field(raw, "maxRetry", "spec", 0) or DEFAULT_RETRY,
        ttl_s=None if ttl is None else int_field(raw, "ttlSecondsAfterFinished", "spec", 0),
        min_success=None if success is None else _min_success(raw, replicas),
        priority_class=text_field(raw, "priorityClassName"),
        topology=network_topology(raw.get("networkTopology"), "spec.networkTopology"),
        estimate_s=duration_field(raw, "runningEstimate", "spec"),
    )


def _scaled(raw: Json) -> Any:
    """The tasks. spec.replicas, which `kubectl scale` writes, overrides the replicas of the last one."""
    tasks = raw.get("tasks")
    if raw.get("replicas") is None or not isinstance(tasks, list) or not tasks:
        return tasks
    return [*tasks[:-1], {**tasks[-1], "replicas": int_field(raw, "replicas", "spec", 0)}]


def _min_success(raw: Json, replicas: int) -> int:
    wanted = int_field(raw, "minSuccess", "spec", 0)
    if not 1 <= wanted <= replicas:
        raise FieldError(
            f"spec.minSuccess: {wanted} is not from 1 to {replicas}, the number of pods"
        )
    return wanted


def _plugins(raw: Json) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for name, arguments in sorted(raw.items()):
        values = arguments or ()
        if not isinstance(values, list | tuple) or not all(isinstance(one, str) for one in values):
            raise FieldError(f"spec.plugins.{name}: {values!r} is not a list of strings")
        found.append((name, tuple(values)))
    return tuple(found)


def _volumes(raw: list[Json]) -> tuple[VolumeSpec, ...]:
    found: list[VolumeSpec] = []
    for index, volume in enumerate(raw):
        field = f"spec.volumes[{index}]"
        path, name = text_field(volume, "mountPath"), text_field(volume, "volumeClaimName")
        claim = volume.get("volumeClaim")
        if not path or ":" in path:
            raise FieldError(f'{field}.mountPath: "{path}" is not a mount path')
        if path in {other.mount_path for other in found}:
            raise FieldError(f"{field}.mountPath: {path} is used twice")
        if bool(name) == bool(claim):
            raise FieldError(f"{field}: needs one of volumeClaimName and volumeClaim")
        if claim is not None and not isinstance(claim, dict):
            raise FieldError(f"{field}.volumeClaim: not an object")
        found.append(VolumeSpec(path, name, claim))
    return tuple(found)


def _status(raw: Json) -> JobStatus:
    """Written by us, or left by another controller."""
    state = raw.get("state") or {}
    return JobStatus(
        phase=text_field(state, "phase"),
        reason=text_field(state, "reason"),
        message=text_field(state, "message"),
        since=parse_time(state.get("lastTransitionTime")),
        version=int(raw.get("version") or 0),
        retries=int(raw.get("retryCount") or 0),
        restarts=tuple(sorted((raw.get("podRestarts") or {}).items())),
        counts=tuple(
            (task, tuple(sorted((counts.get("phase") or {}).items())))
            for task, counts in sorted((raw.get("taskStatusCount") or {}).items())
        ),
        terminating=int(raw.get("terminating") or 0),
        resources=_pairs(raw.get("controlledResources")),
        conditions=tuple(
            (text_field(one, "status"), parse_time(one.get("lastTransitionTime")))
            for one in raw.get("conditions") or ()
        ),
        command=text_field(raw, "lastCommand"),
    )


def decode_job_member(meta: Json, status: Json) -> JobMember | None:
    """None if no Job controls the pod."""
    for owner in meta.get("ownerReferences") or ():
        if (
            owner.get("controller")
            and owner.get("kind") == "Job"
            and str(owner.get("apiVersion")).startswith(GROUP + "/")
        ):
            return _part(owner, meta, status)
    return None


def _part(owner: Json, meta: Json, status: Json) -> JobMember:
    annotations = meta.get("annotations") or {}
    match = _INDEX.search(annotations.get(INDEX) or meta["name"])
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    ends = [(one.get("state") or {}).get("terminated") or {} for one in containers]
    conditions = status.get("conditions") or ()
    return JobMember(
        job=owner["name"],
        job_uid=owner["uid"],
        task=annotations.get(TASK) or "",
        index=int(match[1]) if match else 0,
        version=_count(annotations.get(VERSION)),
        turn=_count(annotations.get(TURN)),
        restarts=sum(one.get("restartCount") or 0 for one in containers),
        exit_codes=tuple(sorted({end["exitCode"] for end in ends if end.get("exitCode")})),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        ended=max((parse_time(end.get("finishedAt")) for end in ends), default=0.0) or None,
    )


def _count(value: Any) -> int:
    return int(value[:9]) if isinstance(value, str) and value.isascii() and value.isdigit() else 0


def _pairs(found: Json | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((found or {}).items()))
