"""A Job's PodGroup: the pods that must start together, of the tasks whose dependencies are ready."""

from collections.abc import Iterable, Sequence
from typing import Any

from central.controllers.job.pod_tally import PodTally
from central.model.facts import GangSeen
from central.model.jobspec import JobSpec, TaskSpec, group_name, owner
from central.model.json_types import ReadOnlyJson, replacing_patch

NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration",)
WITH_LIMITS = ("cpu", "memory", "ephemeral-storage")


def startable_tasks(job: JobSpec, counts: PodTally, there: Iterable[str]) -> tuple[TaskSpec, ...]:
    """Tasks whose pods may be created: they have pods already, or their dependencies are ready.

    there: names of tasks with pods."""
    found = set(there)
    return tuple(task for task in job.tasks if task.name in found or _may_start(job, task, counts))


def _may_start(job: JobSpec, task: TaskSpec, counts: PodTally) -> bool:
    ready = [
        counts.task(other.name).ready >= other.minimum
        for other in job.tasks
        if other.name in task.after
    ]
    return not ready or (any(ready) if task.after_any else all(ready))


def manifest(job: JobSpec, tasks: Sequence[TaskSpec]) -> ReadOnlyJson:
    meta: dict[str, Any] = {
        "name": group_name(job),
        "namespace": job.namespace,
        "ownerReferences": [owner(job)],
    }
    if job.labels:
        meta["labels"] = dict(job.labels)
    annotations = {key: value for key, value in job.annotations if key not in NOT_COPIED}
    if annotations:
        meta["annotations"] = annotations
    spec: dict[str, Any] = {**size(job, tasks), "queue": job.queue}
    if job.priority_class:
        spec["priorityClassName"] = job.priority_class
    if job.topology:
        spec["networkTopology"] = job.topology
    if parts := _parts(job):
        spec["subGroupPolicy"] = parts
    return {"metadata": meta, "spec": spec}


def size(job: JobSpec, tasks: Sequence[TaskSpec]) -> dict[str, Any]:
    """The fields that change with the Job. Task minimums apply only if minAvailable covers their sum."""
    every = sum(task.minimum for task in job.tasks)
    mine = sum(task.minimum for task in tasks)
    each = job.min_available >= every
    least = job.min_available - (every - mine) if each else job.min_available
    least = max(1, min(least, sum(task.replicas for task in tasks)))
    return {
        "minMember": least,
        "minTaskMember": {task.name: task.minimum for task in tasks} if each else {},
        "minResources": min_resources(tasks, least, each=each),
    }


def size_patch(size: ReadOnlyJson, seen: GangSeen, written: object) -> ReadOnlyJson:
    """The merge patch that gives the PodGroup this size. written: the size as last written, which the watch may not
    show yet."""
    resources = {name for name, _ in seen.min_resources}
    before = {
        "minTaskMember": {task for task, _ in seen.task_min},
        "minResources": resources
        | {f"requests.{name}" for name in resources}
        | {f"limits.{name}" for name in WITH_LIMITS},
    }
    last = written if isinstance(written, dict) else {}
    found = dict(size)
    for field, names in before.items():
        found[field] = replacing_patch(names | set(last.get(field) or ()), size[field])
    return found


def _parts(job: JobSpec) -> list[ReadOnlyJson]:
    return [
        {
            "name": task.name,
            "labelSelector": {"matchLabels": {"volcano.sh/task-spec": task.name}},
            "matchLabelKeys": ["volcano.sh/partition-id"],
            "subGroupSize": task.partition.size,
            "minSubGroups": task.partition.least,
            **({"networkTopology": task.partition.topology} if task.partition.topology else {}),
        }
        for task in job.tasks
        if task.partition is not None
    ]


def initial_pods(
    tasks: Sequence[TaskSpec], least: int, *, each: bool
) -> list[tuple[TaskSpec, int]]:
    """Returns how many pods of each task make up the minimum: first each task's own minimum, then in order."""
    counts = {task.name: (task.minimum if each else 0) for task in tasks}
    left = least - sum(counts.values())
    for task in tasks:
        more = max(0, min(left, task.replicas - counts[task.name]))
        counts[task.name] += more
        left -= more
    return [(task, counts[task.name]) for task in tasks if counts[task.name]]


def min_resources(tasks: Sequence[TaskSpec], least: int, *, each: bool) -> ReadOnlyJson:
    """Requests under their own name, which autoscalers and dashboards read, and in the terms of ResourceQuotas."""
    sums: dict[str, int] = {}
    pods = 0
    for task, count in initial_pods(tasks, least, each=each):
        pods += count
        for resource, amount in task.requests:
            if resource == "pods":
                continue
            for key in (resource, f"requests.{resource}"):
                sums[key] = sums.get(key, 0) + amount * count
        for resource, amount in task.limits:
            if resource in WITH_LIMITS:
                key = f"limits.{resource}"
                sums[key] = sums.get(key, 0) + amount * count
    found = {key: _quantity(key, amount) for key, amount in sorted(sums.items())}
    return {**found, "pods": str(pods), "count/pods": str(pods)}


def _quantity(key: str, amount: int) -> str:
    if key.rpartition(".")[2] == "cpu" and "/" not in key:
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if key.rpartition(".")[2] == "memory" and amount and amount % 2**20 == 0:
        return f"{amount // 2**20}Mi"
    return str(amount)
