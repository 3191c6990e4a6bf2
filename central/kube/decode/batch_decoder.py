"""Commands, CronJobs, JobFlows and JobTemplates as facts."""

from dataclasses import replace

from central.controllers.cronjob import ALLOW, FORBID, REPLACE
from central.kube.decode import fields
from central.kube.decode.fields import FieldError
from central.kube.decode.quantities import InvalidQuantity, parse_duration, parse_time
from central.model import facts, limits
from central.model.cron_schedule import BadSchedule, CronSchedule, parse_schedule
from central.model.json_types import Json

EVERY = "@every "
KEEP_DONE, KEEP_FAILED = 3, 1
_KINDS = {"Job": "batch.volcano.sh/", "Queue": "scheduling.volcano.sh/"}
_PHASES = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


def decode_command(raw: Json) -> facts.CommandSeen:
    """kind is "" if the target is neither a Job nor a Queue of Volcano's API."""
    return fields.identified("Command", _command, raw)


def _command(raw: Json) -> facts.CommandSeen:
    """Raises DECODE_ERRORS."""
    meta, target = raw["metadata"], raw.get("target") or {}
    kind = fields.text(target, "kind")
    group = _KINDS.get(kind)
    ours = group is not None and fields.text(target, "apiVersion").startswith(group)
    return facts.CommandSeen(
        *fields.identity(meta),
        fields.text(raw, "action"),
        kind if ours else "",
        fields.text(target, "name", limits.NAME),
        fields.text(target, "uid", limits.NAME),
        fields.text(raw, "reason"),
        fields.text(raw, "message"),
        parse_time(meta.get("creationTimestamp")),
        "deletionTimestamp" in meta,
    )


def decode_cronjob(raw: Json) -> facts.CronSeen:
    seen = fields.identified("CronJob", _cron_seen, raw)
    return fields.or_error(seen, _cron, raw, seen)


def _cron_seen(raw: Json) -> facts.CronSeen:
    """Raises DECODE_ERRORS."""
    meta = raw["metadata"]
    status = fields.mapping(raw, "status", "", limits.LABELS)
    fields.check_nesting(status)
    return facts.CronSeen(
        *fields.identity(meta),
        created=parse_time(meta.get("creationTimestamp")),
        status=status,
        deleting="deletionTimestamp" in meta,
    )


def _cron(raw: Json, seen: facts.CronSeen) -> facts.CronSeen:
    spec, status = raw["spec"], raw.get("status") or {}
    fields.check_nesting(spec)
    policy = fields.text(spec, "concurrencyPolicy") or ALLOW
    fields.choice("spec.concurrencyPolicy", policy, ALLOW, FORBID, REPLACE)
    template = spec.get("jobTemplate")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise FieldError("spec.jobTemplate.spec: missing")
    return replace(
        seen,
        plan=_schedule(spec, seen.created),
        deadline_s=_deadline_s(spec),
        policy=policy,
        suspend=spec.get("suspend") is True,
        template=template,
        keep_done=_limit(spec, "successfulJobsHistoryLimit", KEEP_DONE),
        keep_failed=_limit(spec, "failedJobsHistoryLimit", KEEP_FAILED),
        last=parse_time(status.get("lastScheduleTime")) or None,
        success=parse_time(status.get("lastSuccessfulTime")) or None,
    )


def _deadline_s(spec: Json) -> float | None:
    key = "startingDeadlineSeconds"
    return None if spec.get(key) is None else float(fields.integer(spec, key, "spec", 0))


def _limit(spec: Json, key: str, default: int) -> int:
    return default if spec.get(key) is None else fields.integer(spec, key, "spec", 0)


def _schedule(spec: Json, created: float) -> CronSchedule:
    schedule = fields.text(spec, "schedule", limits.SCHEDULE).strip()
    zone = fields.text(spec, "timeZone", limits.SCHEDULE)
    try:
        if not schedule.startswith(EVERY):
            return parse_schedule(schedule, zone)
        every_s = parse_duration(schedule.removeprefix(EVERY).strip())
        return CronSchedule("", zone, max(1.0, every_s), created)
    except InvalidQuantity as error:
        raise FieldError(f'spec.schedule: "{schedule}": {error}') from None
    except BadSchedule as error:
        raise FieldError(str(error)) from None


def decode_job_template(raw: Json) -> facts.TemplateSeen:
    return fields.identified("JobTemplate", _job_template, raw)


def _job_template(raw: Json) -> facts.TemplateSeen:
    """Raises DECODE_ERRORS."""
    meta = raw["metadata"]
    fields.check_nesting(raw)
    return facts.TemplateSeen(
        *fields.identity(meta),
        fields.mapping(raw, "spec", "", limits.LABELS),
        fields.labels(meta, "labels", "metadata", limits.LABELS),
        meta.get("annotations") or {},
        fields.mapping(raw, "status", "", limits.LABELS),
    )


def decode_jobflow(raw: Json) -> facts.FlowSeen:
    seen = fields.identified("JobFlow", _flow_seen, raw)
    return fields.or_error(seen, _flow, raw, seen)


def _flow_seen(raw: Json) -> facts.FlowSeen:
    """Raises DECODE_ERRORS."""
    meta, status = raw["metadata"], raw.get("status") or {}
    fields.check_nesting(status)
    return facts.FlowSeen(
        *fields.identity(meta),
        phase=fields.text(status.get("state") or {}, "phase"),
        status=status,
        deleting="deletionTimestamp" in meta,
    )


def _flow(raw: Json, seen: facts.FlowSeen) -> facts.FlowSeen:
    spec = raw["spec"]
    fields.check_nesting(spec)
    policy = fields.text(spec, "jobRetainPolicy") or "retain"
    fields.choice("spec.jobRetainPolicy", policy, "retain", "delete")
    flows = enumerate(fields.entries(spec, "flows", "spec", limits.STEPS))
    steps = tuple(_step(index, one) for index, one in flows)
    _check_order(steps)
    return replace(seen, steps=steps, retain=policy == "retain")


def _step(index: int, raw: Json) -> facts.FlowStep:
    field = f"spec.flows[{index}]"
    depends = raw.get("dependsOn") or {}
    probe = depends.get("probe") or {}
    where = f"{field}.dependsOn.probe"
    checks = []
    for kind in ("httpGetList", "tcpSocketList"):
        for number, one in enumerate(fields.entries(probe, kind, where, limits.STEPS)):
            checks.append(_check(f"{where}.{kind}[{number}]", one, kind))
    probes = []
    for one in fields.entries(probe, "taskStatusList", where, limits.STEPS):
        task, phase = fields.text(one, "taskName"), fields.text(one, "phase")
        if phase not in _PHASES:
            raise FieldError(f'{where}.taskStatusList: "{phase}" is not a phase')
        probes.append((task, phase))
    name = fields.text(raw, "name", limits.NAME)
    if not name:
        raise FieldError(f"{field}.name: it must name a JobTemplate")
    patch = fields.mapping(raw.get("patch") or {}, "jobSpec", f"{field}.patch", limits.LABELS)
    targets = fields.strings(depends, "targets", f"{field}.dependsOn", limits.STEPS)
    return facts.FlowStep(name, targets, tuple(probes), tuple(checks), patch=patch)


def _check(field: str, raw: Json, kind: str) -> facts.ReadinessCheck:
    port, task = raw.get("port"), fields.text(raw, "taskName")
    if type(port) is not int or not 1 <= port <= 65535:
        raise FieldError(f"{field}.port: {port!r} is not a port from 1 to 65535")
    if kind == "tcpSocketList":
        return facts.ReadinessCheck(task, port)
    path, header = fields.text(raw, "path"), raw.get("httpHeader") or {}
    if not path.startswith("/"):
        raise FieldError(f'{field}.path: "{path}" does not begin with /')
    name, value = fields.text(header, "name"), fields.text(header, "value")
    if value and not name:
        raise FieldError(f"{field}.httpHeader.name: missing")
    return facts.ReadinessCheck(task, port, path, (name, value) if name else None)


def _check_order(steps: tuple[facts.FlowStep, ...]) -> None:
    """Every dependency exists and is part of no cycle. Of steps with one name the last counts, as in Volcano."""
    after = {step.name: step.after for step in steps}
    for index, step in enumerate(steps):
        for target in step.after:
            if target not in after:
                field = f"spec.flows[{index}].dependsOn.targets"
                raise FieldError(f"{field}: there is no step {target}")
    fields.check_acyclic("spec.flows", after)
