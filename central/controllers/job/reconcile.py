"""The Job controller's part of a scheduling cycle: admits Jobs, reconciles those that changed, and overrides
the status of gangs whose Jobs have no pods."""

from typing import TYPE_CHECKING

from central.controllers.job import control, job_admission
from central.controllers.job.job import Job
from central.controllers.job.state_machine import ACTIVE
from central.model import phases
from central.model.decisions import Decision
from central.model.jobspec import ABORTED, ABORTING, COMPLETING, FINISHED, RESTARTING, TERMINATING
from central.scheduler.state.gangs import Gang

if TYPE_CHECKING:
    from central.scheduler.state.cluster import Cluster

ADMISSION_INTERVAL_S = 0.5  # minimum interval between checks of all unadmitted Jobs


def decide(cluster: "Cluster", now: float) -> list[Decision]:
    """To be called before gang statuses are written: they depend on the Jobs' phases."""
    jobs = cluster.jobs
    if not jobs.by_name:
        return []
    for key in jobs.pop_due(now):
        jobs.changed[key] = None
    for namespace, name, has_object in cluster.changed:
        if has_object and (job := jobs.by_group.get((namespace, name))) is not None:
            jobs.changed[job.key] = None
    looked_at = [jobs.by_name[key] for key in jobs.changed]
    _admit_jobs(cluster, [job for job in looked_at if _needs_admission(cluster, job)], now)
    looked_at = [jobs.by_name[key] for key in jobs.changed]
    jobs.changed.clear()
    decisions: list[Decision] = []
    for job in looked_at:
        gang = _gang_of(cluster, job)
        if job.admitted and gang is not None:
            job.pending_reason = (
                gang.attempt.reason if gang.members and not job.is_making_pods else ""
            )
        found = control.decide(job, gang, jobs.status_limiter, now)
        jobs.record_calls(job, found)
        decisions += found
        if gang is not None:
            _override_gang_status(cluster, job, gang)
    return decisions


def due(cluster: "Cluster") -> float | None:
    times = [cluster.jobs.next_alarm()]
    if cluster.jobs.unadmitted and cluster.jobs.admission_stale:
        times.append(cluster.jobs.admission_checked_at + ADMISSION_INTERVAL_S)
    return min((at for at in times if at is not None), default=None)


def _gang_of(cluster: "Cluster", job: Job) -> Gang | None:
    gang = cluster.gangs.get((job.spec.namespace, job.group, True))
    return gang if gang is not None and gang.object is not None else None


def _needs_admission(cluster: "Cluster", job: Job) -> bool:
    """Whether to ask the Job's queue. A Job that has pods was admitted before."""
    if job.status.phase not in ACTIVE or job.seen.error or job.admitted:
        cluster.jobs.unadmitted.pop(job.key, None)
        return False
    if _gang_of(cluster, job) is None:
        return False
    if job.pods:
        job.admitted = True
        cluster.jobs.unadmitted.pop(job.key, None)
        return False
    return True


def _admit_jobs(cluster: "Cluster", fresh: list[Job], now: float) -> None:
    """Checks the new Jobs and, less often, all unadmitted ones."""
    jobs = cluster.jobs
    for job in fresh:
        jobs.unadmitted[job.key] = job
    if not jobs.unadmitted:
        return
    jobs.admission_stale |= bool(cluster.changed)
    everybody = jobs.admission_stale and now - jobs.admission_checked_at >= ADMISSION_INTERVAL_S
    asking = list(jobs.unadmitted.values()) if everybody else fresh
    if not asking:
        return
    if everybody:
        jobs.admission_checked_at, jobs.admission_stale = now, False
    pairs = [(job, gang) for job in asking if (gang := _gang_of(cluster, job)) is not None]
    for job in job_admission.admit(cluster, pairs):
        if job.admitted:
            jobs.unadmitted.pop(job.key, None)
        jobs.changed[job.key] = None


def _override_gang_status(cluster: "Cluster", job: Job, gang: Gang) -> None:
    """Sets the gang's phase and message while its pods do not determine them."""
    phase, name = job.status.phase, job.spec.name
    word: tuple[str, str] | None = None
    if phase in FINISHED:
        detail = job.status.message
        word = (
            phases.COMPLETED,
            f"job {name} is {phase}" + (f": {detail}" if detail else ""),
        )
    elif phase in (ABORTING, ABORTED):
        word = (phases.PENDING, f"job {name} is {phase}; resume it to continue")
    elif phase in (COMPLETING, TERMINATING):
        word = (phases.RUNNING, f"job {name} is {phase}; its pods are being deleted")
    elif phase in ACTIVE and job.pods and not gang.members:
        word = (phases.RUNNING, f"the pods of job {name} are placed by another scheduler")
    elif phase in ACTIVE and job.admitted and not gang.members:
        word = (phases.INQUEUE, f"admitted by queue {job.spec.queue}; its pods are being created")
    elif phase in ACTIVE and not job.admitted and job.pending_reason:
        word = (phases.PENDING, job.pending_reason)
    if phase == RESTARTING and not gang.counts.placed:
        gang.started = False  # the whole gang must start together again
    gang.published.suppress_event = phase in (*FINISHED, ABORTING, ABORTED, COMPLETING, TERMINATING)
    if gang.published.override != word:
        gang.published.override = word
        cluster.changed[gang.key] = gang
