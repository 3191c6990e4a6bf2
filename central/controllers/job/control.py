"""Reconciles one Job. A new phase is written to the API first; the calls that it requires follow when the write
has succeeded. So a scheduler that restarts continues from the written phase.

Design: docs/design/jobs.md
"""

from dataclasses import replace

from central.controllers.job import (
    desired,
    job_notices,
    job_status,
    members,
    policies,
    state_machine,
)
from central.controllers.job.job import WATCH_TIMEOUT_S, Job
from central.controllers.job.job_events import JobView
from central.controllers.job.pod_tally import PodTally
from central.controllers.job.rate_limit import StatusRateLimiter
from central.controllers.job.state_machine import ACTIVE, EMPTYING, Cause
from central.model.decisions import Decision, SetStatus
from central.model.jobspec import PENDING, TERMINATE, JobStatus
from central.scheduler.elastic.elastic_gang import LEAVE_S
from central.scheduler.preemption import past_runs
from central.scheduler.state.gangs import Gang

MAX_TRANSITIONS = 4  # phases that may be passed through in one cycle


def decide(
    job: Job, gang: Gang | None, status_limiter: StatusRateLimiter, now: float
) -> list[Decision]:
    """The calls that the Job needs now. gang: of its PodGroup, if that exists."""
    job.requeue_at = None
    if job.seen.deleting or job.writing is not None:
        return []
    if job.is_new:
        job.detect_missed_losses()
    _expire_calls(job, now)
    counts = _tally(job)
    if counts.succeeded:
        job.record_completed()
    status = _next_status(job, gang, counts, now)
    if _is_transition(job.status, status):
        return _write_transition(job, status, counts, now)
    decisions = list(desired.reconcile_objects(job, gang, counts, now))
    return decisions + _update_counts(job, counts, status_limiter, now)


def report_set_aside(job: Job, now: float) -> list[Decision]:
    """Writes into the status why the Job is set aside, if it can be written."""
    place = ("Job", job.spec.name)
    if job.seen.deleting or job.writing is not None or not job.may_call("SetStatus", place, now):
        return []
    status = job.status
    if not status.phase:
        status = state_machine.enter_phase(status, PENDING, now, "Created", "")
    return [_set_status(job, status, PodTally.of(job.spec, status, job.pods.values()), now)]


def _tally(job: Job) -> PodTally:
    counts = PodTally.of(job.spec, job.status, job.pods.values())
    free = {task.name for task in desired.startable_tasks(job, counts)}
    counts.blocked = sum(task.replicas for task in job.spec.tasks if task.name not in free)
    if job.status.phase in EMPTYING and job.is_making_pods:  # one may still come
        counts.alive += 1
        counts.outdated += 1
    return counts


def _expire_calls(job: Job, now: float) -> None:
    job.lost = {name: at for name, at in job.lost.items() if name in job.desired_pods}
    job.lost_from = {name: node for name, node in job.lost_from.items() if name in job.lost}
    for uid, at in list(job.deletions.items()):
        pod = job.pods.get(uid)
        if pod is None or (now - at >= WATCH_TIMEOUT_S and not pod.deleting):
            del job.deletions[uid]  # the deletion had no effect; retry
    for place, at in list(job.unobserved.items()):
        if now - at >= WATCH_TIMEOUT_S and place[0] == "Pod":
            del job.unobserved[place]
        elif place[0] == "Pod" and job.status.phase in EMPTYING:
            job.requeue(at + WATCH_TIMEOUT_S)


def _is_transition(before: JobStatus, after: JobStatus) -> bool:
    return (before.phase, before.version, before.restarts, before.members) != (
        after.phase,
        after.version,
        after.restarts,
        after.members,
    )


# --- the next state ------------------------------------------------------------


def _next_status(job: Job, gang: Gang | None, counts: PodTally, now: float) -> JobStatus:
    status = job.status
    if not status.phase:
        fresh = state_machine.enter_phase(status, PENDING, now, "Created", "")
        return members.next_members(job, fresh, now)
    while job.commands:
        wish = job.commands[0]
        if wish.uid != status.command:
            after = state_machine.on_action(
                job.spec, status, wish.action, Cause("Command", wish.why), now
            )
            if after is not status:  # the request is kept until the phase is written
                return replace(after, command=wish.uid)
        job.commands.pop(0)  # executed, or without effect in this phase
    if (resized := members.next_members(job, status, now)) is not status:
        return resized
    left_s = past_runs.time_left(gang, now) if gang is not None and status.phase in ACTIVE else None
    if gang is not None and left_s is not None:
        if left_s <= 0.0:
            cause = Cause("TimeLimit", f"the Job {past_runs.limit_reached(gang)}")
            return state_machine.on_action(job.spec, status, TERMINATE, cause, now)
        job.requeue(now + left_s)
    if status.phase in ACTIVE and not job.seen.error:
        verdict = policies.evaluate(_view(job, gang, counts), job.event_since, now)
        job.event_since = verdict.event_since
        job.spec_changed = job.spec_changed and (
            verdict.due is not None or verdict.next_at is not None
        )
        job.requeue(verdict.next_at)
        if verdict.due is not None:
            after = state_machine.on_action(
                job.spec, status, verdict.due.action, verdict.due.cause, now
            )
            if after is not status:
                return after
    for _ in range(MAX_TRANSITIONS):
        after = state_machine.on_counts(job.spec, status, counts, now)
        if after is status or job.seen.error:
            break
        status = after
    return status


def _view(job: Job, gang: Gang | None, counts: PodTally) -> JobView:
    unknown = ""
    if gang is not None and gang.started and gang.missing() and gang.counts.running:
        unknown = f"{gang.missing()} pods of the gang are missing: {job.gang_reason}" * bool(
            job.gang_reason
        )
    return JobView(
        job.spec,
        job.current(),
        job.lost,
        job.lost_by_task,
        counts,
        unknown,
        job.spec_changed,
        frozenset(job.by_scheduler),
    )


def _write_transition(job: Job, status: JobStatus, counts: PodTally, now: float) -> list[Decision]:
    """Writes a new phase, and an Event for it."""
    if not job.may_call("SetStatus", ("Job", job.spec.name), now):
        return []
    job.spec_changed = False
    if status.members != job.status.members:
        job.leave_s = job.resize.leave_s if job.resize is not None else LEAVE_S
    job.resize = None
    if status.version != job.status.version:
        counts = PodTally(terminating=len(job.pods))  # the former pods no longer count
    decisions = [_set_status(job, status, counts, now)]
    if job.status.members is not None and status.members != job.status.members:
        decisions.append(members.event(job, status, now))
    else:
        decisions += job_notices.of_transition(job, status, now)
    return decisions


def _set_status(job: Job, status: JobStatus, counts: PodTally, now: float) -> Decision:
    found = job_status.build_status(job, status, counts)
    job.writing, job.written, job.wrote_at, job.status_due_at = status, found, now, None
    spec = job.spec
    return SetStatus("Job", spec.namespace, spec.name, spec.uid, found)


def _update_counts(
    job: Job, counts: PodTally, status_limiter: StatusRateLimiter, now: float
) -> list[Decision]:
    """Writes changed counts and messages, rate-limited."""
    found = job_status.build_status(job, job.status, counts)
    write, later = job_status.should_write(job, found, counts, status_limiter, now)
    if write and job.may_call("SetStatus", ("Job", job.spec.name), now):
        return [_set_status(job, job.status, counts, now)]
    if not write:
        job.requeue(later)
    return []
