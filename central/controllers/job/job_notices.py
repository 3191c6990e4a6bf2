"""The Events of a Job's phases, for `kubectl describe`. They are written with the phase, so each is written once."""

from collections.abc import Iterator

from central.controllers.job import plugins
from central.controllers.job.job import Job
from central.controllers.job.state_machine import ACTIVE
from central.model.decisions import Decision
from central.model.event_objects import about, build_event
from central.model.event_reasons import CREATED, EXECUTE_ACTION, IGNORED_ARGUMENT, INVALID_SPEC
from central.model.jobspec import API, EVENTS, RUNNING, JobStatus

_GOOD = ("Running", "Completing", "Completed")
_PASSED = (
    "Aborted",
    "Completed",
    "Terminated",
)  # they follow from the phase before, without an action


def of_transition(job: Job, status: JobStatus, now: float) -> list[Decision]:
    """status: that is written now; job.status is the one before."""
    return [
        build_event(
            about(API, "Job", *job.key, job.spec.uid),
            reason,
            message,
            now + place / 1000,  # Events of one time would share a name
            warning=warning,
            of_now=True,
        )
        for place, (reason, message, warning) in enumerate(_notices(job, status))
    ]


def _notices(job: Job, status: JobStatus) -> Iterator[tuple[str, str, bool]]:
    """Reason, message, and whether it is a warning."""
    before = job.status
    if not before.phase and job.seen.error:
        yield INVALID_SPEC, job.seen.error, True
    elif not before.phase:
        yield CREATED, _created(job), False
        for why in plugins.warnings(job.spec):
            yield IGNORED_ARGUMENT, why, True
    restarted = status.restarts != before.restarts and status.phase in ACTIVE
    entered = status.phase != before.phase and status.phase not in _PASSED
    if status.reason in EVENTS and (restarted or (entered and status.phase not in ACTIVE)):
        yield EXECUTE_ACTION, f"policy for {status.reason}: {status.message}", False
    if status.phase not in ACTIVE or (status.phase == RUNNING and before.phase != RUNNING):
        yield status.phase, status.message, status.phase not in _GOOD
    elif restarted:
        yield status.reason, status.message, True


def _created(job: Job) -> str:
    spec = job.spec
    tasks = ", ".join(f"{task.replicas} {task.name}" for task in spec.tasks[:8])
    more = f" and {len(spec.tasks) - 8} more tasks" if len(spec.tasks) > 8 else ""
    return (
        f"queue {spec.queue}; pods: {tasks or 'none'}{more}; at least {spec.min_available} together"
    )
