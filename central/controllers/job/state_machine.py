"""A Job's state machine: on_action (from policies and Commands) and on_counts (from the pods) return the next
status. A status that does not change is returned as the same object."""

from collections import Counter
from dataclasses import dataclass, replace
from zlib import crc32

from central.controllers.job.pod_tally import PodTally
from central.model.jobspec import (
    ABORT,
    ABORTED,
    ABORTING,
    COMPLETE,
    COMPLETED,
    COMPLETING,
    FAILED,
    JOB_UPDATED,
    PENDING,
    RESTART_JOB,
    RESTART_PARTITION,
    RESTART_POD,
    RESTART_TASK,
    RESTARTING,
    RESUME,
    RUNNING,
    TERMINATE,
    TERMINATED,
    TERMINATING,
    JobSpec,
    JobStatus,
    pod_name,
)
from central.model.timestamps import stamp

ACTIVE = (PENDING, RUNNING)  # pods are reconciled and policies apply
TARGETED = (RESTART_TASK, RESTART_POD, RESTART_PARTITION)

# The phase after an action. An action that is not in a phase's row has no effect. A targeted restart
# recreates some pods and leaves the Job in its phase.
_STOPS = {ABORT: ABORTING, TERMINATE: TERMINATING, COMPLETE: COMPLETING}
TRANSITIONS: dict[str, dict[str, str]] = {
    PENDING: {**_STOPS, RESTART_JOB: RESTARTING, **dict.fromkeys(TARGETED, PENDING)},
    RUNNING: {**_STOPS, RESTART_JOB: RESTARTING, **dict.fromkeys(TARGETED, RUNNING)},
    RESTARTING: _STOPS,
    ABORTING: {RESUME: RESTARTING, TERMINATE: TERMINATING},
    ABORTED: {RESUME: RESTARTING, TERMINATE: TERMINATING},
    COMPLETING: {},
    COMPLETED: {},
    TERMINATING: {},
    TERMINATED: {},
    FAILED: {},
}
# The next phase once no pod is left that could still run.
PHASE_ONCE_EMPTY = {ABORTING: ABORTED, COMPLETING: COMPLETED, TERMINATING: TERMINATED}
EMPTYING = (*PHASE_ONCE_EMPTY, RESTARTING)  # until no pod is left, or none of the former try
BY_REQUEST = ("Command", JOB_UPDATED)  # reasons of restarts that are not delayed
RETRY_S = (10.0, 300.0)  # delay of a Job's second restart, and the longest
SETTLED_S = 600.0  # the restart after a try that ran for so long is not delayed


@dataclass(frozen=True, slots=True)
class Cause:
    """The cause of an action."""

    reason: str  # an event's name, or Command
    message: str
    pods: tuple[str, ...] = ()  # names of the pods that a targeted restart recreates
    excused: bool = False  # not a failure: does not count against maxRetry


def on_action(spec: JobSpec, status: JobStatus, action: str, cause: Cause, now: float) -> JobStatus:
    """The status after the action."""
    to = TRANSITIONS[status.phase].get(action)
    if to is None:
        return status
    if action in TARGETED:
        return restart_pods(spec, status, cause, now)
    if to != RESTARTING:
        return enter_phase(status, to, now, cause.reason, cause.message)
    if action == RESUME or cause.excused:  # a user's request is not a failure
        retries, last = status.retries, False
    else:
        retries = status.retries + 1
        last = retries >= spec.max_retry
    # With no restart left, the ended pods stay for their logs, and on_counts lets the Job fail.
    version = status.version + (not last)
    message, retry_at = cause.message, None
    if retries > status.retries:
        message += f"; restart {retries} of at most {spec.max_retry}"
        if not last and cause.reason not in BY_REQUEST:
            retry_at = _retry_at(spec, status, now)
    if retry_at is not None:
        message += f", not before {stamp(retry_at)}"
    return replace(
        enter_phase(status, RESTARTING, now, cause.reason, message),
        retries=retries,
        retry_at=retry_at,
        version=version,
        restarts=(),
        evictions=(),
        completed=status.completed if last else frozenset(),
    )


def _retry_at(spec: JobSpec, status: JobStatus, now: float) -> float | None:
    """Returns when the pods of the next restart are created; None: at once. The delay doubles with each restart, and
    is up to half as long again, by the Job, so that Jobs which fail together do not load their data together."""
    since = dict(status.conditions).get(RUNNING, now)
    settled = status.phase == RUNNING and now - since >= SETTLED_S
    if settled or not status.retries:
        return None
    first_s, longest_s = RETRY_S
    delay_s = min(longest_s, first_s * 2 ** min(status.retries - 1, 10))
    share = crc32(f"{spec.uid} {status.retries}".encode()) / 2**32
    return float(int(now + delay_s * (1 + share / 2)))


def restart_pods(spec: JobSpec, status: JobStatus, cause: Cause, now: float) -> JobStatus:
    """Recreates some pods, each at most maxRetry times; the other pods are not affected."""
    if not cause.pods:  # those that were lost are there again
        return status
    restarts, evictions = Counter(dict(status.restarts)), Counter(dict(status.evictions))
    restarts.update(cause.pods)
    if cause.excused:
        evictions.update(cause.pods)
    retries = {name: restarts[name] - evictions[name] for name in cause.pods}
    most = max(retries.values(), default=0)
    if most >= spec.max_retry and not cause.excused:
        name = next(name for name in cause.pods if retries[name] == most)
        why = f"{cause.message}; {name} was recreated {most - 1} times (spec.maxRetry {spec.max_retry})"
        return enter_phase(status, FAILED, now, cause.reason, why)
    return replace(
        status,
        restarts=tuple(sorted(restarts.items())),
        evictions=tuple(sorted(evictions.items())),
        completed=frozenset(
            (name, index)
            for name, index in status.completed
            if (task := spec.task(name)) and pod_name(spec, task, index) not in cause.pods
        ),
        reason=cause.reason,
        message=cause.message,
    )


def on_counts(spec: JobSpec, status: JobStatus, counts: PodTally, now: float) -> JobStatus:
    """The status that follows from the state of the pods."""
    phase = status.phase
    to, reason, why = phase, status.reason, status.message
    if phase in PHASE_ONCE_EMPTY:
        to = phase if counts.alive else PHASE_ONCE_EMPTY[phase]
    elif phase == RESTARTING:
        to = _restarted(spec, status, counts, now)
    elif phase in ACTIVE and (stuck := _stuck(spec, counts)):
        to, reason, why = FAILED, "DependencyFailed", stuck
    elif phase == PENDING:
        started = counts.running + counts.succeeded + counts.failed
        if started >= spec.min_available and spec.replicas:
            to, reason, why = RUNNING, "Started", f"{started} of {spec.replicas} pods have started"
    elif phase == RUNNING:
        to, reason, why = _running(spec, counts)
    if to == phase:
        return status
    return enter_phase(status, to, now, reason, why)


def _restarted(spec: JobSpec, status: JobStatus, counts: PodTally, now: float) -> str:
    if status.retries >= spec.max_retry and not counts.outdated:
        return RESTARTING if counts.alive else FAILED
    return RESTARTING if counts.outdated or now < (status.retry_at or now) else PENDING


def _stuck(spec: JobSpec, counts: PodTally) -> str:
    """Returns why tasks can never start, since their dependencies ended unready; "" if they can."""
    ended = counts.succeeded + counts.failed
    if not counts.blocked or counts.unfinished or ended < spec.replicas - counts.blocked:
        return ""
    return (
        f"{counts.blocked} pods wait for tasks that have ended without becoming ready (dependsOn): "
        f"{counts.succeeded} of their pods succeeded, {counts.failed} failed"
    )


def _running(spec: JobSpec, counts: PodTally) -> tuple[str, str, str]:
    """The rules of a running Job, in order."""
    total = spec.replicas
    succeeded, failed = counts.succeeded, counts.failed
    result = f"{succeeded} of {total} pods succeeded, {failed} failed"
    if not total:
        return RUNNING, "", ""
    if spec.min_success is not None and succeeded >= spec.min_success:
        return COMPLETED, "Succeeded", f"{result}; spec.minSuccess is {spec.min_success}"
    if succeeded + failed >= total and not counts.unfinished:
        if spec.min_available >= sum(task.minimum for task in spec.tasks):
            for task in spec.tasks:
                if counts.task(task.name).succeeded < task.minimum:
                    why = f"task {task.name} needs {task.minimum} to succeed"
                    return FAILED, "TaskFailed", f"{result}; {why}"
        if spec.min_success is not None:
            return FAILED, "TooFewSucceeded", f"{result}; spec.minSuccess is {spec.min_success}"
        if succeeded >= spec.min_available:
            return COMPLETED, "Succeeded", result
        return FAILED, "TooFewSucceeded", f"{result}; spec.minAvailable is {spec.min_available}"
    if counts.pending > total - spec.min_available:
        return PENDING, "PodsPending", f"{counts.pending} of {total} pods are pending again"
    return RUNNING, "", ""


def enter_phase(status: JobStatus, phase: str, now: float, reason: str, message: str) -> JobStatus:
    kept = tuple(one for one in status.conditions if one[0] != phase)
    return replace(
        status,
        phase=phase,
        since=now,
        reason=reason,
        message=message,
        retry_at=None,
        conditions=(*kept, (phase, now)),
    )
