"""The CronJob controller: creates a Job at each time of a schedule.

All durable state is in the API. A Job's name contains its scheduled time, so a scheduler that restarts creates
no Job twice."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.owner import JobOwners
from central.controllers.pending_calls import RETRY_AFTER_S, Call
from central.model.decisions import Create, Decision, Delete, SetStatus
from central.model.event_objects import about, build_event
from central.model.event_reasons import FORBID_CONCURRENT
from central.model.facts import CronSeen
from central.model.jobspec import API, COMPLETED, FINISHED, controller, without_user
from central.model.json_types import ReadOnlyJson
from central.model.object_names import NamespacedName
from central.model.timestamps import stamp

ALLOW, FORBID, REPLACE = "Allow", "Forbid", "Replace"
MOMENT = "volcano.sh/cronjob-scheduled-timestamp"


@dataclass(eq=False)
class CronJobController(JobOwners[CronSeen]):
    KIND: ClassVar = "CronJob"

    by_name: dict[NamespacedName, CronSeen] = field(default_factory=dict)
    # The latest scheduled time that has a Job, and the Job's name; ahead of the API's status.
    _started: dict[NamespacedName, tuple[float, str]] = field(default_factory=dict)
    _refused: dict[NamespacedName, str] = field(default_factory=dict)  # why the Job was refused
    # The status that was sent, until the watch shows it.
    _written: dict[NamespacedName, ReadOnlyJson] = field(default_factory=dict)
    # Scheduled times with a ForbidConcurrent Event.
    _skipped: dict[NamespacedName, float] = field(default_factory=dict)

    def seen(self, fact: CronSeen) -> None:
        super().seen(fact)
        self._written.pop((fact.namespace, fact.name), None)

    def _forget_calls(self, key: NamespacedName) -> None:
        self._started.pop(key, None)
        self._refused.pop(key, None)
        self._written.pop(key, None)
        self._skipped.pop(key, None)

    def _note_answer(self, call: Call, key: NamespacedName, why: str) -> None:
        if isinstance(call, Create):
            self._refused.pop(key, None)
        if why:
            self._written.pop(key, None)
            if isinstance(call, Create):
                self._started.pop(key, None)
                self._refused[key] = f"could not create Job {call.name}: {why}"

    def _status_of_set_aside(self, maker: CronSeen, why: str) -> ReadOnlyJson:
        self._skipped.pop((maker.namespace, maker.name), None)  # its Event was dropped
        return {**maker.status, "message": why}

    # --- one CronJob -----------------------------------------------------------------

    def _decide(
        self, jobs: JobStore, key: NamespacedName, cron: CronSeen, now: float
    ) -> list[Decision]:
        children = [job for job in jobs.owned_by(cron.namespace, cron.uid) if not job.seen.deleting]
        decisions: list[Decision] = []
        if not cron.error:
            decisions += self._start(key, cron, children, now)
            decisions += self._prune_history(key, cron, children, now)
        return decisions + self._report(key, cron, children, now)

    def _start(
        self, key: NamespacedName, cron: CronSeen, children: list[Job], now: float
    ) -> list[Decision]:
        if cron.suspend or cron.plan is None:
            return []
        since = max(cron.last or cron.created, self._started.get(key, (0.0, ""))[0])
        if cron.deadline_s is not None:
            since = max(since, now - cron.deadline_s)
        at = cron.plan.last(since, now)
        later = cron.plan.after(now)
        if later is not None:
            self._alarms[key] = later
        if at is None:
            return []
        name = job_name(cron, at)
        if any(job.spec.name == name for job in children):
            self._started[key] = (at, name)
            return []
        active = [job for job in children if job.status.phase not in FINISHED]
        if active and cron.policy == FORBID:
            return self._forbidden(key, cron, active[0], at, now)
        decisions: list[Decision] = []
        if active and cron.policy == REPLACE:
            for job in active:
                decisions += self._delete(
                    key, job, f"replaced by the next run of CronJob {cron.name}", now
                )
        if not self._calls.may_call(("Job", cron.namespace, name), now):
            self._alarms[key] = now + RETRY_AFTER_S
            return decisions
        decisions.append(self._calls.track(_job(cron, name, at), key))
        self._started[key] = (at, name)
        return decisions

    def _forbidden(
        self, key: NamespacedName, cron: CronSeen, running: Job, at: float, now: float
    ) -> list[Decision]:
        """Emits an Event. The run starts when the running Job ends, within startingDeadlineSeconds."""
        if self._skipped.get(key) == at:
            return []
        self._skipped[key] = at
        why = f"Job {running.spec.name} is still running and concurrencyPolicy is {FORBID}"
        it = about(API, "CronJob", *key, cron.uid)
        return [build_event(it, FORBID_CONCURRENT, why, now, warning=False)]

    def _prune_history(
        self, key: NamespacedName, cron: CronSeen, children: list[Job], now: float
    ) -> list[Decision]:
        decisions: list[Decision] = []
        over = sorted((job for job in children if job.status.phase in FINISHED), key=_age)
        done = [job for job in over if job.status.phase == COMPLETED]
        failed = [job for job in over if job.status.phase != COMPLETED]
        for jobs, kept in ((done, cron.keep_done), (failed, cron.keep_failed)):
            for job in jobs[: max(0, len(jobs) - kept)]:
                decisions += self._delete(
                    key, job, f"over the history limit of CronJob {cron.name} ({kept})", now
                )
        return decisions

    def _delete(self, key: NamespacedName, job: Job, why: str, now: float) -> list[Decision]:
        spec = job.spec
        if not self._calls.may_call(("Job", spec.namespace, spec.name), now):
            return []
        return [self._calls.track(Delete("Job", spec.namespace, spec.name, spec.uid, why), key)]

    def _report(
        self, key: NamespacedName, cron: CronSeen, children: list[Job], now: float
    ) -> list[Decision]:
        place = ("CronJob", cron.namespace, cron.name)
        status: dict[str, Any] = {}
        active = sorted(job.spec.name for job in children if job.status.phase not in FINISHED)
        if active:
            uids = {job.spec.name: job.spec.uid for job in children}
            status["active"] = [about(API, "Job", key[0], name, uids[name]) for name in active]
        began, name = self._started.get(key, (0.0, ""))
        made = ("Job", cron.namespace, name) not in self._calls.in_flight
        if served := max(cron.last or 0.0, began if made else 0.0):
            status["lastScheduleTime"] = stamp(served)
        ends = [job.status.since for job in children if job.status.phase == COMPLETED]
        if success := max([cron.success or 0.0, *ends]):
            status["lastSuccessfulTime"] = stamp(success)
        if message := cron.error or self._refused.get(key, ""):
            status["message"] = message
        if status in (cron.status, self._written.get(key)) or not self._calls.may_call(place, now):
            return []
        self._written[key] = status
        call = SetStatus("CronJob", cron.namespace, cron.name, cron.uid, status)
        return [self._calls.track(call, key)]


def job_name(cron: CronSeen, at: float) -> str:
    """A name derived from the scheduled time, in minutes, or in seconds where the schedule needs them."""
    assert cron.plan is not None
    fine = cron.plan.every_s % 60 or cron.plan.born % 60
    return f"{cron.name}-{int(at) if fine else int(at) // 60}"


def _job(cron: CronSeen, name: str, at: float) -> Create:
    meta = cron.template.get("metadata") or {}
    body = {
        "metadata": {
            "name": name,
            "namespace": cron.namespace,
            "labels": dict(meta.get("labels") or {}),
            "annotations": {**without_user(meta.get("annotations") or {}), MOMENT: stamp(at)},
            "ownerReferences": [controller(API, "CronJob", cron.name, cron.uid)],
        },
        "spec": cron.template.get("spec") or {},
    }
    return Create("Job", cron.namespace, name, body)


def _age(job: Job) -> tuple[float, str]:
    return job.seen.created, job.spec.name
