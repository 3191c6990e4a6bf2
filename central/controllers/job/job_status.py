"""A Job's status in the API's form, and when to write it."""

from collections.abc import Sequence
from typing import Any

from central.controllers.job.job import Job
from central.controllers.job.pod_tally import PodTally
from central.controllers.job.rate_limit import StatusRateLimiter
from central.model import member_numbers
from central.model.event_reasons import SET_ASIDE
from central.model.jobspec import FINISHED, PENDING, ElasticTask, JobSpec, JobStatus
from central.model.json_types import ReadOnlyJson
from central.model.timestamps import duration, stamp

COUNTS_S = 1.0  # minimum interval between writes of changed counts
WORDS_S = 5.0  # the same for a message that changes only in wording
UNSHOWN_S = 60.0  # after which a status that the watch does not show is written again
_WORDS = ("reason", "message")
_COUNTS = ("pending", "running", "succeeded", "failed", "terminating", "unknown")


def build_status(job: Job, status: JobStatus, counts: PodTally) -> dict[str, Any]:
    spec = job.spec
    reason, message = _reason_and_message(job, status)
    found: dict[str, Any] = {
        "state": {
            "phase": status.phase,
            "reason": reason,
            "message": message[:1000],
            "lastTransitionTime": stamp(status.since),
        },
        "minAvailable": spec.min_available,
        **{count: getattr(counts, count) for count in _COUNTS},
        "version": status.version,
        "retryCount": status.retries,
        "conditions": [
            {"status": phase, "lastTransitionTime": stamp(at)} for phase, at in status.conditions
        ],
    }
    if spec.tasks:  # for the scale subresource, which scales the last task
        last = spec.tasks[-1].name
        found["replicas"] = sum(counts.task(last).phases.values())
        found["selector"] = f"volcano.sh/job-name={spec.name},volcano.sh/task-spec={last}"
    tasks = {name: task.phases for name, task in counts.tasks.items() if task.phases}
    if tasks:
        found["taskStatusCount"] = {name: {"phase": phases} for name, phases in tasks.items()}
    if spec.elastic is not None and status.members is not None:
        found["elastic"] = {spec.elastic.task: _size(spec.elastic, status, status.members)}
    if status.retry_at is not None:
        found["retryAt"] = stamp(status.retry_at)
    if status.restarts:
        found["podRestarts"] = dict(status.restarts)
    if status.evictions:
        found["podEvictions"] = dict(status.evictions)
    completed: dict[str, list[int]] = {}
    for name, index in status.completed:
        completed.setdefault(name, []).append(index)
    if completed:
        found["completedIndexes"] = {
            name: member_numbers.to_text(indices) for name, indices in sorted(completed.items())
        }
    if status.command:
        found["lastCommand"] = status.command
    if resources := controlled_resources(spec):
        found["controlledResources"] = resources
    if status.phase in FINISHED:
        found["runningDuration"] = duration(status.since - job.seen.created)
    return found


def _size(elastic: ElasticTask, status: JobStatus, members: Sequence[int]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "size": len(members),
        "least": elastic.least,
        "most": elastic.most,
        "generation": status.generation,
        "members": member_numbers.to_text(members),
        "reason": status.resized,
    }
    if status.leave_by is not None:
        found["leaveBy"] = stamp(status.leave_by)
    return found


def controlled_resources(spec: JobSpec) -> dict[str, str]:
    """status.controlledResources: plugins and claims, under the keys that other tools expect."""
    found = {f"plugin-{name}": name for name, _ in spec.plugins}
    for volume in spec.volumes:
        if volume.claim_name:
            found[f"volume-pvc-{volume.claim_name}"] = volume.claim_name
    return found


def _reason_and_message(job: Job, status: JobStatus) -> tuple[str, str]:
    """Returns the reason of the Job's phase. A present obstacle precedes the cause of the phase."""
    if job.seen.error:
        return "InvalidSpec", job.seen.error
    if status.phase in FINISHED:
        return status.reason, status.message
    if job.set_aside:
        return SET_ASIDE, job.set_aside
    if trouble := job.refused_call():
        return "ApiRefuses", trouble
    if status.phase == PENDING and job.pending_reason:
        before = f" (before: {status.message})" if status.retries and status.message else ""
        return "Waiting", job.pending_reason + before
    return status.reason, status.message


def should_write(
    job: Job, found: ReadOnlyJson, counts: PodTally, status_limiter: StatusRateLimiter, now: float
) -> tuple[bool, float | None]:
    """Returns whether to write the status now, and otherwise when, if at all."""
    if found == job.written:
        if _is_shown(job):
            return False, None
        # a restored etcd may never show what was written before
        again_at = job.wrote_at + UNSHOWN_S
        return now >= again_at, again_at
    if not isinstance(job.written, dict):
        return not (job.status.phase in FINISHED and _is_told(job.seen.status, counts)), None
    if job.status_due_at is None:
        job.status_due_at = status_limiter.reserve(now)
    at = max(job.status_due_at, job.wrote_at + _apart(job.written, found))
    return now >= at, at


def _apart(before: ReadOnlyJson, after: ReadOnlyJson) -> float:
    """A message where there was none is written as soon as new counts are."""
    only_words = before["state"]["message"] and _only_words(before, after)
    return WORDS_S if only_words else COUNTS_S


def _is_shown(job: Job) -> bool:
    """Returns whether the API shows the state that was written."""
    seen, own = job.seen.status, job.status
    return (seen.phase, seen.version) == (own.phase, own.version)


def _is_told(status: JobStatus, counts: PodTally) -> bool:
    """A Job that was over before we came is not written again."""
    value = {task: dict(phases) for task, phases in status.counts}
    found = {name: task.phases for name, task in counts.tasks.items() if task.phases}
    return (value, status.terminating) == (found, counts.terminating)


def _only_words(before: ReadOnlyJson, after: ReadOnlyJson) -> bool:
    def bare(status: ReadOnlyJson) -> ReadOnlyJson:
        state = {key: value for key, value in status["state"].items() if key not in _WORDS}
        return {**status, "state": state}

    return bare(before) == bare(after)
