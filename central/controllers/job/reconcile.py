"""The Job controller's part of a scheduling cycle: admits Jobs, reconciles those that changed, and overrides
the status of gangs whose Jobs have no pods."""

from dataclasses import dataclass
from functools import partial

from central.controllers.job import (
    control,
    drained_nodes,
    file_updates,
    job_admission,
    job_watch,
    saved_work,
    training_notices,
)
from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.job.state_machine import ACTIVE
from central.controllers.object_fence import ObjectFence
from central.model import phases
from central.model.decisions import Decision
from central.model.jobspec import ABORTED, ABORTING, COMPLETING, FINISHED, RESTARTING, TERMINATING
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.state.cluster_state import ClusterState
from central.scheduler.state.gangs import Gang

ADMISSION_INTERVAL_S = 0.5  # minimum interval between checks of all unadmitted Jobs


@dataclass(frozen=True, slots=True)
class JobContext:
    """The input of the Job controller."""

    jobs: JobStore
    state: ClusterState
    queues: Queues
    min_resources: MinResources
    fence: ObjectFence


def decide(context: JobContext, now: float) -> list[Decision]:
    """Reconciles the changed Jobs. Called before gang statuses are written, which depend on the Jobs' phases."""
    jobs = context.jobs
    if not jobs.by_name:
        return []
    for key in (*jobs.pop_due(now), *context.fence.retried(jobs.by_name)):
        jobs.changed[key] = None
    for namespace, name, has_object in context.state.pending.changed_gangs:
        if has_object and (job := jobs.by_group.get((namespace, name))) is not None:
            jobs.changed[job.key] = None
    looked_at = [jobs.by_name[key] for key in jobs.changed]
    _admit_jobs(context, [job for job in looked_at if _asks_queue(context, job)], now)
    looked_at = [jobs.by_name[key] for key in jobs.changed]
    jobs.changed.clear()
    decisions: list[Decision] = []
    for job in looked_at:
        decisions += _contained(context, job, now)
        if (elastic := job.seen.spec.elastic) is not None and elastic.coordinator:
            jobs.replanned.add(job.key)
            saved_work.record(job, context.state)
            decisions += training_notices.events_for(job, now)
    return decisions


def _contained(context: JobContext, job: Job, now: float) -> list[Decision]:
    """A Job whose reconciliation raises is set aside as it was before."""
    fence, content = context.fence, job_watch.content_of(job)
    if fence.blocks(job.key, content):
        return _report_set_aside(context, job, now)
    if job.set_aside and job.writing is not None:
        fence.postpone(job.key, 1.0)  # its answer marks it as changed
        return []
    saved = job.saved()
    try:
        job.set_aside = ""
        decisions = _reconcile(context, job, now)
    except Exception as error:  # noqa: BLE001  any bug
        job.restore(saved)
        fence.failed(job.key, content, error)
        return _report_set_aside(context, job, now)
    fence.passed(job.key)
    return decisions


def _reconcile(context: JobContext, job: Job, now: float) -> list[Decision]:
    gang = _gang_of(context, job)
    job.gang_reason = (
        context.state.public(gang.attempt.reason, job.spec.namespace) if gang is not None else ""
    )
    if job.admitted and gang is not None:
        job.pending_reason = job.gang_reason if gang.members and not job.is_making_pods else ""
    if job.seen.spec.elastic is not None:
        drained_nodes.record(job, context.state)
    decisions = control.decide(job, gang, context.jobs.status_limiter, now)
    decisions += file_updates.updates(job, context.jobs.files_limiter, now)
    if gang is not None:
        _override_gang_status(context, job, gang)
    context.jobs.record_calls(job, decisions)
    return decisions


def _report_set_aside(context: JobContext, job: Job, now: float) -> list[Decision]:
    """Once for each failure; the Event tells it too. The gang's status follows the Job's, which the answer to an
    earlier call may still change."""
    why = context.fence.why(job.key)
    saved = job.saved()
    decisions: list[Decision] = []
    try:
        if job.set_aside != why:
            job.set_aside = why
            decisions = control.report_set_aside(job, now)
        if (gang := _gang_of(context, job)) is not None:
            _override_gang_status(context, job, gang)
    except Exception:  # noqa: BLE001  not even that can be computed
        job.restore(saved)
        job.set_aside = why
        return []
    if decisions:
        context.jobs.record_calls(job, decisions)
    return decisions


def due(jobs: JobStore) -> float | None:
    times = [jobs.next_alarm()]
    if jobs.unadmitted and jobs.admission_stale:
        times.append(jobs.admission_checked_at + ADMISSION_INTERVAL_S)
    return min((at for at in times if at is not None), default=None)


def _gang_of(context: JobContext, job: Job) -> Gang | None:
    gang = context.state.gangs.get((job.spec.namespace, job.group, True))
    return gang if gang is not None and gang.object is not None else None


def _asks_queue(context: JobContext, job: Job) -> bool:
    """Calls _needs_admission(). A Job for which it raises is set aside."""
    try:
        return _needs_admission(context, job)
    except Exception as error:  # noqa: BLE001  any bug
        _set_aside(context, job, error)
        return False


def _set_aside(context: JobContext, job: Job, error: Exception) -> None:
    context.fence.failed(job.key, job_watch.content_of(job), error)
    context.jobs.unadmitted.pop(job.key, None)
    context.jobs.changed[job.key] = None


def _needs_admission(context: JobContext, job: Job) -> bool:
    """Returns whether to ask the Job's queue. A Job that has pods was admitted before."""
    if job.status.phase not in ACTIVE or job.seen.error or job.admitted:
        context.jobs.unadmitted.pop(job.key, None)
        return False
    if _gang_of(context, job) is None:
        return False
    if job.pods:
        job.admitted = True
        context.jobs.unadmitted.pop(job.key, None)
        return False
    return True


def _admit_jobs(context: JobContext, fresh: list[Job], now: float) -> None:
    """Checks the new Jobs and, less often, all unadmitted ones."""
    jobs = context.jobs
    for job in fresh:
        jobs.unadmitted[job.key] = None
    if not jobs.unadmitted:
        return
    jobs.admission_stale |= bool(context.state.pending.changed_gangs)
    everybody = jobs.admission_stale and now - jobs.admission_checked_at >= ADMISSION_INTERVAL_S
    asking = [jobs.by_name[key] for key in jobs.unadmitted] if everybody else fresh
    if not asking:
        return
    if everybody:
        jobs.admission_checked_at, jobs.admission_stale = now, False
    pairs = [(job, gang) for job in asking if (gang := _gang_of(context, job)) is not None]

    free = [(job, gang) for job, gang in pairs if not _is_blocked(context, job)]
    failed = partial(_set_aside, context)
    public = context.state.public
    for job in job_admission.admit(context.queues, context.min_resources, free, failed, public):
        if job.admitted:
            jobs.unadmitted.pop(job.key, None)
        jobs.changed[job.key] = None


def _is_blocked(context: JobContext, job: Job) -> bool:
    return context.fence.blocks(job.key, job_watch.content_of(job))


def _override_gang_status(context: JobContext, job: Job, gang: Gang) -> None:
    """Sets the gang's phase and message while its pods do not determine them."""
    phase, name = job.status.phase, job.spec.name
    word: tuple[str, str] | None = None
    if phase in FINISHED:
        detail = job.status.message
        word = (phases.COMPLETED, f"job {name} is {phase}" + (f": {detail}" if detail else ""))
    elif phase in (ABORTING, ABORTED):
        word = (phases.PENDING, f"job {name} is {phase}; resume it to continue")
    elif phase in (COMPLETING, TERMINATING):
        word = (phases.RUNNING, f"job {name} is {phase}; its pods are being deleted")
    elif phase in ACTIVE and job.set_aside and not gang.members:
        word = (phases.PENDING, job.set_aside)
    elif phase in ACTIVE and job.pods and not gang.members:
        word = (phases.RUNNING, f"the pods of job {name} are placed by another scheduler")
    elif (
        phase in ACTIVE
        and job.admitted
        and not gang.started
        and gang.missing()
        and (trouble := job.refused_call())
    ):
        word = (
            phases.PENDING if gang.members else phases.INQUEUE,
            trouble,
        )  # as in the Job's own status
    elif phase in ACTIVE and job.admitted and not gang.members:
        word = (phases.INQUEUE, f"admitted by queue {job.spec.queue}; its pods are being created")
    elif phase in ACTIVE and not job.admitted and job.pending_reason:
        word = (phases.PENDING, job.pending_reason)
    if phase == RESTARTING and not gang.counts.placed:
        gang.started, gang.published.completed = (
            False,
            0,
        )  # the whole gang must start together again
    is_whole = not gang.missing() and not gang.counts.unplaced  # the Job's Event says that it runs
    over = phase in (*FINISHED, ABORTING, ABORTED, COMPLETING, TERMINATING)
    gang.published.suppress_event, gang.published.of_job = over or is_whole, True
    gang.published.suspended = phase in (ABORTING, ABORTED)
    if gang.published.override != word:
        gang.published.override = word
        context.state.pending.changed(gang)
