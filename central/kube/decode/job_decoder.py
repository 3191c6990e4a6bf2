"""A Job of batch.volcano.sh as raw JSON -> JobSeen, and what a pod of a Job is to it. Pure; nothing
is raised but Malformed. A Job that can't be used is a fact all the same: JobSeen.error is a sentence
that begins with the field."""

import re
from dataclasses import replace
from datetime import datetime
from typing import Any

from central.controllers.job import plugins
from central.kube.decode import job_tasks
from central.kube.decode.job_tasks import duration_field, int_field, network_topology
from central.kube.errors import (
    DECODE_ERRORS,
    FieldError,
    MalformedObject,
    error_text,
    object_name,
    text_field,
)
from central.model.facts import JobSeen
from central.model.jobspec import JobMember, JobSpec, JobStatus, VolumeSpec
from central.model.json_types import Json
from protos.names import SCHEDULER

GROUP = "batch.volcano.sh"
VERSION = "volcano.sh/job-version"  # annotations of a Job's pods
INDEX = "volcano.sh/task-index"
TASK = "volcano.sh/task-spec"
TURN = "lockstep.dev/pod-restarts"  # how often the pod was made anew by itself
DEFAULT_RETRY = 3

_INDEX = re.compile(r"(\d{1,9})$", re.ASCII)


def decode_job(raw: Json, scheduler: str = SCHEDULER) -> JobSeen:
    """scheduler: of a Job that names none."""
    try:
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
            created=_moment(meta.get("creationTimestamp")),
            deleting="deletionTimestamp" in meta,
            owner=_controller(meta),
        )
    except DECODE_ERRORS as error:
        raise MalformedObject(f"Job {object_name(raw)}: {error_text(error)}") from error
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
        raise FieldError(
            f"spec.minAvailable: {least} is more than the {replicas} pods of all tasks"
        )
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
        min_success=None if success is None else _at_least_one(raw, replicas),
        priority_class=text_field(raw, "priorityClassName"),
        topology=network_topology(raw.get("networkTopology"), "spec.networkTopology"),
        estimate_s=duration_field(raw, "runningEstimate", "spec"),
    )


def _scaled(raw: Json) -> Any:
    """The tasks; spec.replicas, which `kubectl scale` writes, is the number of the last one's pods."""
    tasks = raw.get("tasks")
    if raw.get("replicas") is None or not isinstance(tasks, list) or not tasks:
        return tasks
    return [*tasks[:-1], {**tasks[-1], "replicas": int_field(raw, "replicas", "spec", 0)}]


def _at_least_one(raw: Json, replicas: int) -> int:
    wanted = int_field(raw, "minSuccess", "spec", 0)
    if not 1 <= wanted <= replicas:
        raise FieldError(
            f"spec.minSuccess: {wanted} is not from 1 to the {replicas} pods there are"
        )
    return wanted


def _plugins(raw: Json) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found = []
    for name, arguments in sorted(raw.items()):
        told = arguments or ()
        if not isinstance(told, list | tuple) or not all(isinstance(one, str) for one in told):
            raise FieldError(f"spec.plugins.{name}: {told!r} is not a list of texts")
        found.append((name, tuple(told)))
    return tuple(found)


def _volumes(raw: list[Json]) -> tuple[VolumeSpec, ...]:
    found: list[VolumeSpec] = []
    for place, volume in enumerate(raw):
        field = f"spec.volumes[{place}]"
        path, name = text_field(volume, "mountPath"), text_field(volume, "volumeClaimName")
        claim = volume.get("volumeClaim")
        if not path or ":" in path:
            raise FieldError(f'{field}.mountPath: "{path}" is not a path to mount at')
        if path in {other.mount_path for other in found}:
            raise FieldError(f"{field}.mountPath: {path} is mounted twice")
        if bool(name) == bool(claim):
            raise FieldError(f"{field}: needs one of volumeClaimName and volumeClaim")
        if claim is not None and not isinstance(claim, dict):
            raise FieldError(f"{field}.volumeClaim: it is not an object")
        found.append(VolumeSpec(path, name, claim))
    return tuple(found)


def _status(raw: Json) -> JobStatus:
    """Ours, or what another controller left there."""
    state = raw.get("state") or {}
    return JobStatus(
        phase=text_field(state, "phase"),
        reason=text_field(state, "reason"),
        message=text_field(state, "message"),
        since=_moment(state.get("lastTransitionTime")),
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
            (text_field(one, "status"), _moment(one.get("lastTransitionTime")))
            for one in raw.get("conditions") or ()
        ),
        command=text_field(raw, "lastCommand"),
    )


def decode_job_member(meta: Json, status: Json) -> JobMember | None:
    """None: it is no Job's pod."""
    for owner in meta.get("ownerReferences") or ():
        if (
            owner.get("controller")
            and owner.get("kind") == "Job"
            and str(owner.get("apiVersion")).startswith(GROUP + "/")
        ):
            return _part(owner, meta, status)
    return None


def _part(owner: Json, meta: Json, status: Json) -> JobMember:
    told = meta.get("annotations") or {}
    match = _INDEX.search(told.get(INDEX) or meta["name"])
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    ends = [(one.get("state") or {}).get("terminated") or {} for one in containers]
    conditions = status.get("conditions") or ()
    return JobMember(
        job=owner["name"],
        job_uid=owner["uid"],
        task=told.get(TASK) or "",
        index=int(match[1]) if match else 0,
        version=_count(told.get(VERSION)),
        turn=_count(told.get(TURN)),
        restarts=sum(one.get("restartCount") or 0 for one in containers),
        exit_codes=tuple(sorted({end["exitCode"] for end in ends if end.get("exitCode")})),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        ended=max((_moment(end.get("finishedAt")) for end in ends), default=0.0) or None,
    )


def _count(told: Any) -> int:
    return int(told[:9]) if isinstance(told, str) and told.isascii() and told.isdigit() else 0


def _pairs(found: Json | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((found or {}).items()))


def _moment(stamp: Any) -> float:
    return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) and stamp else 0.0
