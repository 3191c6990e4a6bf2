"""Evaluates the lifecycle policies of a Job and its tasks: the action that is due now, or when the next one is."""

from dataclasses import dataclass, replace

from central.controllers.job import job_events
from central.controllers.job.job_events import JobEvent, JobView
from central.controllers.job.state_machine import Cause
from central.model.jobspec import RESTART_PARTITION, RESTART_POD, RESTART_TASK, JobSpec, pod_name


@dataclass(frozen=True, slots=True)
class DueAction:
    action: str
    cause: Cause
    event: JobEvent


@dataclass(frozen=True, slots=True)
class PolicyVerdict:
    due: DueAction | None
    next_at: float | None  # when the next policy with a timeout is due
    event_since: dict[str, float]  # since when each event has lasted


def evaluate(view: JobView, event_since: dict[str, float], now: float) -> PolicyVerdict:
    """event_since: of the previous verdict."""
    due: DueAction | None = None
    next_at: float | None = None
    seen: dict[str, float] = {}
    for event in job_events.detect_events(view):
        policy = job_events.policy_for(view.spec, event)
        if policy is None:
            continue
        key = f"{event.name}/{event.key}"
        since = seen[key] = event_since.get(key, now) if event.since is None else event.since
        at = since + policy.timeout_s
        if at > now:
            next_at = at if next_at is None else min(next_at, at)
        elif due is None:
            due = DueAction(policy.action, cause(view.spec, policy.action, event), event)
    return PolicyVerdict(due, next_at, seen)


def cause(spec: JobSpec, action: str, event: JobEvent) -> Cause:
    found = Cause(event.name, f"{event.what}: {action}", excused=event.by_scheduler)
    return replace(found, pods=pods_to_restart(spec, action, event))


def pods_to_restart(spec: JobSpec, action: str, event: JobEvent) -> tuple[str, ...]:
    """Names of the pods that a targeted restart recreates. An event of the whole Job restarts all pods."""
    task = event.task
    if task is None:
        return tuple(pod_name(spec, t, i) for t in spec.tasks for i in t.indices)
    every = tuple(pod_name(spec, task, index) for index in task.indices)
    match action:
        case _ if action == RESTART_TASK:
            return every
        case _ if action == RESTART_POD:
            return event.pods
        case _ if action == RESTART_PARTITION:
            size = task.partition.size if task.partition is not None else task.replicas
            parts = {every.index(name) // size for name in event.pods if name in every}
            return tuple(name for at, name in enumerate(every) if at // size in parts)
        case _:
            return ()
