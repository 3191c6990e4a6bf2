"""Commands, CronJobs, JobFlows and JobTemplates as raw JSON -> facts. Pure; nothing is raised but
Malformed."""

from dataclasses import replace
from datetime import datetime

from central.controllers.cronjob import ALLOW, FORBID, REPLACE
from central.kube.decode.job_tasks import number
from central.kube.decode.quantities import NotAQuantity, seconds
from central.kube.errors import BROKEN, Malformed, Unreadable, text, what, who
from central.model.cron_schedule import BadSchedule, CronSchedule, parse_schedule
from central.model.facts import CommandSeen, CronSeen
from central.model.json_types import Json

EVERY = "@every "
KEEP_DONE, KEEP_FAILED = 3, 1
_KINDS = {"Job": "batch.volcano.sh/", "Queue": "scheduling.volcano.sh/"}


def command(raw: Json) -> CommandSeen:
    """kind "": of a target that is none of ours."""
    try:
        meta, target = raw["metadata"], raw.get("target") or {}
        kind = text(target, "kind")
        group = _KINDS.get(kind)
        ours = group is not None and text(target, "apiVersion").startswith(group)
        return CommandSeen(
            meta["namespace"],
            meta["name"],
            meta["uid"],
            text(raw, "action"),
            kind if ours else "",
            text(target, "name"),
            text(target, "uid"),
            text(raw, "reason"),
            text(raw, "message"),
            moment(meta.get("creationTimestamp")) or 0.0,
            "deletionTimestamp" in meta,
        )
    except BROKEN as error:
        raise Malformed(f"Command {who(raw)}: {what(error)}") from error


def cron(raw: Json) -> CronSeen:
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
    except BROKEN as error:
        raise Malformed(f"CronJob {who(raw)}: {what(error)}") from error
    try:
        return _cron(raw, seen)
    except BROKEN as error:
        return replace(seen, error=what(error))


def _cron(raw: Json, seen: CronSeen) -> CronSeen:
    spec, status = raw["spec"], raw.get("status") or {}
    policy = text(spec, "concurrencyPolicy") or ALLOW
    if policy not in (ALLOW, FORBID, REPLACE):
        raise Unreadable(
            f'spec.concurrencyPolicy: "{policy}" is not {ALLOW}, {FORBID} or {REPLACE}'
        )
    template = spec.get("jobTemplate")
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict):
        raise Unreadable("spec.jobTemplate.spec is missing")
    late = spec.get("startingDeadlineSeconds")
    return replace(
        seen,
        plan=_plan(text(spec, "schedule").strip(), text(spec, "timeZone"), seen.created),
        deadline_s=None
        if late is None
        else float(number(spec, "startingDeadlineSeconds", "spec", 0)),
        policy=policy,
        suspend=spec.get("suspend") is True,
        template=template,
        keep_done=_limit(spec, "successfulJobsHistoryLimit", KEEP_DONE),
        keep_failed=_limit(spec, "failedJobsHistoryLimit", KEEP_FAILED),
        last=moment(status.get("lastScheduleTime")),
        success=moment(status.get("lastSuccessfulTime")),
    )


def _limit(spec: Json, key: str, default: int) -> int:
    return default if spec.get(key) is None else number(spec, key, "spec", 0)


def _plan(told: str, zone: str, born: float) -> CronSchedule:
    try:
        if not told.startswith(EVERY):
            return parse_schedule(told, zone)
        return CronSchedule("", zone, max(1.0, seconds(told.removeprefix(EVERY).strip())), born)
    except NotAQuantity as error:
        raise Unreadable(f'spec.schedule: "{told}": {error}') from None
    except BadSchedule as error:
        raise Unreadable(str(error)) from None


def moment(stamp: str | None) -> float | None:
    return datetime.fromisoformat(stamp).timestamp() if stamp else None
