"""Jobs of batch.volcano.sh as facts, and a pod's place in its Job. The error of a Job that can't be used is
JobSeen.error, a sentence that begins with the field."""

import re
from dataclasses import replace
from typing import Any

from central.controllers.job import plugins, pod_manifest
from central.kube.decode import elastic_decoder, fields, job_tasks
from central.kube.decode.fields import DECODE_ERRORS, FieldError
from central.kube.decode.job_tasks import network_topology
from central.kube.decode.quantities import lenient_time, parse_time
from central.model import limits, member_files, member_numbers
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
    seen = fields.identified("Job", _identified, raw, scheduler)
    try:
        seen = replace(seen, status=_status(raw.get("status") or {}))
    except DECODE_ERRORS as error:
        why = fields.described(error, _status, raw.get("status") or {}, prefix="status")
        return replace(seen, error=why)
    return fields.or_error(seen, _complete, raw, seen)


def _identified(raw: Json, scheduler: str) -> JobSeen:
    """The Job without its spec and status. Raises DECODE_ERRORS."""
    meta = raw["metadata"]
    spec = JobSpec(
        *fields.identity(meta),
        labels=_pairs(fields.labels(meta, "labels", "metadata", limits.LABELS)),
        annotations=_pairs(meta.get("annotations")),
        scheduler_name=scheduler,
    )
    return JobSeen(
        spec,
        created=parse_time(meta.get("creationTimestamp")),
        deleting="deletionTimestamp" in meta,
        owner=_controller(meta),
    )


def _complete(raw: Json, seen: JobSeen) -> JobSeen:
    """Raises DECODE_ERRORS."""
    fields.check_nesting(raw)
    spec = _spec(raw.get("spec") or {}, seen.spec)
    error = fields.shortened(plugins.check(spec)) or _manifest_error(spec, seen.status)
    return replace(seen, spec=spec, error=error)


def _template_error(error: Exception, spec: JobSpec, status: JobStatus, index: int) -> str:
    task = spec.tasks[index]

    def manifest(template: Json) -> object:
        return pod_manifest.manifest(spec, status, replace(task, template=template), 0)

    field = f"spec.tasks[{index}].template"
    if isinstance(error, FieldError):
        return fields.shortened(f"{field}: {error}")
    return fields.described(error, manifest, task.template, prefix=field)


def _manifest_error(spec: JobSpec, status: JobStatus) -> str:
    """Templates may hold anything, so each is tried once before the controller makes pods of it."""
    for index, task in enumerate(spec.tasks):
        try:
            pod_manifest.manifest(spec, status, task, 0)
        except DECODE_ERRORS as error:
            return _template_error(error, spec, status, index)
    return ""


def _controller(meta: Json) -> str:
    owners = fields.entries(meta, "ownerReferences", "metadata", limits.OWNERS)
    return next((fields.text(one, "uid") for one in owners if one.get("controller")), "")


def _spec(raw: Json, spec: JobSpec) -> JobSpec:
    raw_tasks = _scaled(raw)
    tasks = job_tasks.decode_tasks(raw_tasks)
    given = fields.integer(raw, "minAvailable", "spec", 0)
    least = given or sum(task.minimum for task in tasks)
    replicas = sum(task.replicas for task in tasks)
    if replicas > limits.REPLICAS:
        raise FieldError(f"spec.tasks: {replicas} pods; at most {limits.REPLICAS} are accepted")
    if least > replicas:
        raise FieldError(f"spec.minAvailable: {least} exceeds the {replicas} pods of all tasks")
    ttl = raw.get("ttlSecondsAfterFinished")
    success = raw.get("minSuccess")
    found = replace(
        spec,
        tasks=tasks,
        min_available=least,
        scheduler_name=fields.text(raw, "schedulerName") or spec.scheduler_name,
        queue=fields.text(raw, "queue", limits.NAME) or "default",
        policies=job_tasks.decode_policies(raw, "spec"),
        plugins=_plugins(fields.mapping(raw, "plugins", "spec", limits.PLUGINS)),
        volumes=_volumes(fields.entries(raw, "volumes", "spec", limits.VOLUMES)),
        max_retry=fields.integer(raw, "maxRetry", "spec", 0) or DEFAULT_RETRY,
        ttl_s=None if ttl is None else fields.integer(raw, "ttlSecondsAfterFinished", "spec", 0),
        min_success=None if success is None else _min_success(raw, replicas),
        priority_class=fields.text(raw, "priorityClassName", limits.NAME),
        topology=network_topology(raw.get("networkTopology"), "spec.networkTopology"),
        estimate_s=fields.duration(raw, "runningEstimate", "spec"),
    )
    found = elastic_decoder.with_least(found, raw_tasks, given)
    return replace(found, elastic=elastic_decoder.elastic_task(found))


def _scaled(raw: Json) -> Any:
    """The tasks. spec.replicas, which `kubectl scale` writes, overrides the replicas of the last one."""
    tasks = fields.entries(raw, "tasks", "spec", limits.TASKS)
    if raw.get("replicas") is None or not tasks:
        return tasks
    return [*tasks[:-1], {**tasks[-1], "replicas": _replicas(raw)}]


def _replicas(raw: Json) -> int:
    return fields.integer(raw, "replicas", "spec", 0, limits.REPLICAS)


def _min_success(raw: Json, replicas: int) -> int:
    wanted = fields.integer(raw, "minSuccess", "spec", 0)
    if not 1 <= wanted <= replicas:
        raise FieldError(
            f"spec.minSuccess: {wanted} is not from 1 to {replicas}, the number of pods"
        )
    return wanted


def _plugins(raw: Json) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple(
        (name, fields.strings(raw, name, "spec.plugins", limits.ARGUMENTS)) for name in sorted(raw)
    )


def _volumes(raw: list[Json]) -> tuple[VolumeSpec, ...]:
    found: dict[str, VolumeSpec] = {}
    for index, volume in enumerate(raw):
        field = f"spec.volumes[{index}]"
        path, name = fields.text(volume, "mountPath"), fields.text(volume, "volumeClaimName")
        claim = volume.get("volumeClaim")
        if not path or ":" in path:
            raise FieldError(f'{field}.mountPath: "{path}" is not a mount path')
        if path in found:
            raise FieldError(f"{field}.mountPath: {path} is used twice")
        if bool(name) == bool(claim):
            raise FieldError(f"{field}: needs one of volumeClaimName and volumeClaim")
        if claim is not None and not isinstance(claim, dict):
            raise FieldError(f"{field}.volumeClaim: not an object")
        found[path] = VolumeSpec(path, name, claim)
    return tuple(found.values())


def _status(raw: Json) -> JobStatus:
    """Written by us, or left by another controller."""
    state = raw.get("state") or {}
    written = elastic_decoder.members(raw)
    return JobStatus(
        phase=fields.text(state, "phase"),
        reason=fields.text(state, "reason"),
        message=fields.text(state, "message"),
        since=parse_time(state.get("lastTransitionTime")),
        version=fields.whole(raw.get("version")),
        retries=fields.whole(raw.get("retryCount")),
        retry_at=parse_time(raw.get("retryAt")) or None,
        restarts=_numbers(raw, "podRestarts", limits.REPLICAS),
        evictions=_numbers(raw, "podEvictions", limits.REPLICAS),
        completed=_completed(raw),
        counts=tuple(
            (task, _numbers(counts, "phase", limits.TASKS))
            for task, counts in sorted(
                fields.mapping(raw, "taskStatusCount", "status", limits.TASKS).items()
            )
        ),
        terminating=fields.whole(raw.get("terminating")),
        resources=_pairs(fields.labels(raw, "controlledResources", "status", limits.REPLICAS)),
        conditions=tuple(
            (fields.text(one, "status"), parse_time(one.get("lastTransitionTime")))
            for one in raw.get("conditions") or ()
        ),
        command=fields.text(raw, "lastCommand"),
        members=written.members,
        generation=written.generation,
        resized=written.reason,
        leave_by=written.leave_by,
    )


def _completed(raw: Json) -> frozenset[tuple[str, int]]:
    """Returns the pods that the status lists; none where it cannot be read."""
    found = fields.mapping(raw, "completedIndexes", "status", limits.TASKS)
    try:
        return frozenset(
            (task, index)
            for task, text in found.items()
            for index in member_numbers.from_text(str(text))
        )
    except ValueError:
        return frozenset()


def decode_job_member(meta: Json, status: Json) -> JobMember | None:
    """Returns the pod's place in its Job; None if no Job controls the pod."""
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
    match = _INDEX.search((annotations.get(INDEX) or meta["name"])[-9:])
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    ends = [(one.get("state") or {}).get("terminated") or {} for one in containers]
    conditions = status.get("conditions") or ()
    files = member_files.of_annotations(annotations)
    return JobMember(
        job=_name(owner.get("name")),
        job_uid=_name(owner.get("uid")),
        task=_name(annotations.get(TASK)),
        index=int(match[1]) if match else 0,
        version=_count(annotations.get(VERSION)),
        turn=_count(annotations.get(TURN)),
        restarts=sum(fields.whole(one.get("restartCount")) for one in containers),
        exit_codes=tuple(
            sorted({fields.whole(end["exitCode"]) for end in ends if end.get("exitCode")})
        ),
        ready=any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions),
        ended=max((parse_time(end.get("finishedAt")) for end in ends), default=0.0) or None,
        files=files,
        leave_by=lenient_time(files.leave_by) if files is not None else None,
    )


def _name(value: Any) -> str:
    return value if isinstance(value, str) and len(value) <= limits.NAME else ""


def _count(value: Any) -> int:
    return int(value[:9]) if isinstance(value, str) and value.isascii() and value.isdigit() else 0


def _numbers(part: Json, key: str, most: int) -> tuple[tuple[str, int], ...]:
    counts = fields.mapping(part, key, "status", most)
    return tuple(sorted((name, fields.whole(count)) for name, count in counts.items()))


def _pairs(found: Json | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((found or {}).items()))
