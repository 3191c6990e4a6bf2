"""Computes a JobFlow's status from its Jobs."""

from collections.abc import Mapping
from typing import Any

from central.controllers.job.job import Job
from central.model import jobspec
from central.model.facts import FlowSeen
from central.model.json_types import ReadOnlyJson
from central.model.timestamps import duration, stamp

PENDING, RUNNING, SUCCEED, FAILED = "Pending", "Running", "Succeed", "Failed"
FINISHED = (SUCCEED, FAILED)
# As the API spells them.
_LISTS = (
    "pendingJobs",
    "runningJobs",
    "failedJobs",
    "completedJobs",
    "terminatedJobs",
    "unKnowJobs",
)
_LIST_OF = {
    "": "pendingJobs",
    jobspec.PENDING: "pendingJobs",
    jobspec.RUNNING: "runningJobs",
    jobspec.RESTARTING: "runningJobs",
    jobspec.COMPLETING: "runningJobs",
    jobspec.COMPLETED: "completedJobs",
    jobspec.FAILED: "failedJobs",
    jobspec.TERMINATING: "runningJobs",
    jobspec.TERMINATED: "terminatedJobs",
    jobspec.ABORTING: "pendingJobs",  # it may be resumed, so the flow keeps waiting
    jobspec.ABORTED: "pendingJobs",
}


def flow_status(flow: FlowSeen, jobs: Mapping[str, Job], waits: Mapping[str, str]) -> ReadOnlyJson:
    """waits: why a step's Job does not exist yet, by the step's name."""
    lists: dict[str, list[str]] = {name: [] for name in _LISTS}
    shown: list[ReadOnlyJson] = []
    conditions: dict[str, ReadOnlyJson] = {}
    before = {one["name"]: one for one in flow.status.get("jobStatusList") or ()}
    done = set(flow.status.get("completedJobs") or ())
    for name in dict.fromkeys(f"{flow.name}-{step.name}" for step in flow.steps):
        job = jobs.get(name)
        if job is not None:
            lists[_LIST_OF.get(job.status.phase, "unKnowJobs")].append(name)
            shown.append(_job(job))
            conditions[name] = _condition(job)
        elif name in done:  # completed, then deleted
            lists["completedJobs"].append(name)
            shown += [before[name]] if name in before else []
        else:
            lists["pendingJobs"].append(name)
    phase = _phase(flow, lists)
    state = {"phase": phase}
    if message := _message(flow, phase, lists, waits):
        state["message"] = message
    found: dict[str, Any] = {key: names for key, names in lists.items() if names}
    return {"state": state, **found, "jobStatusList": shown, "conditions": conditions}


def _phase(flow: FlowSeen, lists: Mapping[str, list[str]]) -> str:
    if lists["failedJobs"] or lists["terminatedJobs"]:
        return FAILED
    if not flow.error and not any(lists[name] for name in _LISTS if name != "completedJobs"):
        return SUCCEED
    return RUNNING if lists["runningJobs"] or lists["completedJobs"] else PENDING


def _message(
    flow: FlowSeen, phase: str, lists: Mapping[str, list[str]], waits: Mapping[str, str]
) -> str:
    if flow.error:
        return flow.error
    if phase == FAILED:
        return f"{', '.join((*lists['failedJobs'], *lists['terminatedJobs']))} did not complete"
    return "; ".join(f"{step}: {why}" for step, why in sorted(waits.items()) if why)


def _job(job: Job) -> ReadOnlyJson:
    status = job.status
    began = sorted(status.conditions, key=lambda one: one[1])
    ends = [*(stamp(at) for _, at in began[1:]), ""]
    return {
        "name": job.spec.name,
        "state": status.phase or jobspec.PENDING,
        "startTimestamp": stamp(job.seen.created),
        **({"endTimestamp": stamp(status.since)} if status.phase in jobspec.FINISHED else {}),
        "restartCount": status.retries,
        "runningHistories": [
            {"state": phase, "startTimestamp": stamp(at), **({"endTimestamp": end} if end else {})}
            # ends has one more when no phase began
            for (phase, at), end in zip(began, ends, strict=False)
        ],
    }


def _condition(job: Job) -> ReadOnlyJson:
    status = job.status
    found: dict[str, Any] = {
        "phase": status.phase or jobspec.PENDING,
        "createTime": stamp(job.seen.created),
    }
    if status.phase in jobspec.FINISHED:
        found["runningDuration"] = duration(status.since - job.seen.created)
    if counts := job.seen.status.counts:
        found["taskStatusCount"] = {task: {"phase": dict(phases)} for task, phases in counts}
    return found
