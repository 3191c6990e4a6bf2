"""Commands, CronJobs, JobFlows and JobTemplates as raw JSON -> facts. Pure; nothing is raised but
Malformed."""

from dataclasses import replace
from datetime import datetime

from central.controllers.cronjob import ALLOW, FORBID, REPLACE
from central.kube.decode.job_tasks import int_field
from central.kube.decode.quantities import InvalidQuantity, parse_duration
from central.kube.errors import (
    DECODE_ERRORS,
    FieldError,
    MalformedObject,
    error_text,
    object_name,
    text_field,
)
from central.model.cron_schedule import BadSchedule, CronSchedule, parse_schedule
from central.model.facts import CommandSeen, CronSeen
from central.model.json_types import Json

EVERY = "@every "
KEEP_DONE, KEEP_FAILED = 3, 1
_KINDS = {"Job": "batch.volcano.sh/", "Queue": "scheduling.volcano.sh/"}


def decode_command(raw: Json) -> CommandSeen:
    """kind "": of a target that is none of ours."""
    try:
        meta, target = raw["metadata"], raw.get("target") or {}
        kind = text_field(target, "kind")
        group = _KINDS.get(kind)
        ours = group is not None and text_field(target, "apiVersion").startswith(group)
        return CommandSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            text_field(raw, "action"),
            kind if ours else "",
            text_field(target, "name"),
            text_field(target, "uid"),
            text_field(raw, "reason"),
            text_field(raw, "message"),
            moment(meta.get("creationTimestamp")) or 0.0,
            "deletionTimestamp" in meta,
        )
    except DECODE_ERRORS as error:
        raise MalformedObject(f"Command {object_name(raw)}: {error_text(error)}") from error


def decode_cronjob(raw: Json) -> CronSeen:
    try:
        meta = raw["metadata"]
        seen = CronSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            created=moment(meta.get("creationTimestamp")) or 0.0,
            status=raw.get("status") or {},
            deleting="deletionTimestamp" in meta,
        )
    except DECODE_ERRORS as error:
        raise MalformedObject(f"CronJob {object_name(raw)}: {error_text(error)}") from error
    try:
        return _cron(raw, seen)
    except DECODE_ERRORS as error:
        return replace(seen, error=error_text(error))


def _cron(raw: Json, seen: CronSeen) -> CronSeen:
    spec, status = raw["spec"], raw.get("status") or {}
    policy = text_field(spec, "concurrencyPolicy") or ALLOW
    if policy not in (ALLOW, FORBID, REPLACE):
        raise FieldError(
            f'spec.concurrencyPolicy: "{policy}" is not {ALLOW}, {FORBID} or {REPLACE}'
        )
    template = spec.get("jobTemplate")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise FieldError("spec.jobTemplate.spec is missing")
    late = spec.get("startingDeadlineSeconds")
    return replace(
        seen,
        plan=_plan(
            text_field(spec, "schedule").strip(), text_field(spec, "timeZone"), seen.created
        ),
        deadline_s=None
        if late is None
        else float(int_field(spec, "startingDeadlineSeconds", "spec", 0)),
        policy=policy,
        suspend=spec.get("suspend") is True,
        template=template,
        keep_done=_limit(spec, "successfulJobsHistoryLimit", KEEP_DONE),
        keep_failed=_limit(spec, "failedJobsHistoryLimit", KEEP_FAILED),
        last=moment(status.get("lastScheduleTime")),
        success=moment(status.get("lastSuccessfulTime")),
    )


def _limit(spec: Json, key: str, default: int) -> int:
    return default if spec.get(key) is None else int_field(spec, key, "spec", 0)


def _plan(told: str, zone: str, born: float) -> CronSchedule:
    try:
        if not told.startswith(EVERY):
            return parse_schedule(told, zone)
        return CronSchedule(
            "", zone, max(1.0, parse_duration(told.removeprefix(EVERY).strip())), born
        )
    except InvalidQuantity as error:
        raise FieldError(f'spec.schedule: "{told}": {error}') from None
    except BadSchedule as error:
        raise FieldError(str(error)) from None


def moment(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None
