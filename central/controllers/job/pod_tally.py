"""Counts a Job's pods by phase and by task, in one pass."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from central.model.facts import PodSeen
from central.model.jobspec import JobSpec, JobStatus

ENDED = ("Succeeded", "Failed")


@dataclass(slots=True)
class TaskTally:
    phases: dict[str, int] = field(default_factory=dict)
    ready: int = 0  # running with all containers ready, or succeeded
    succeeded: int = 0
    restarts: int = 0  # container restarts of pods that have not ended


NONE = TaskTally()


@dataclass(slots=True)
class PodTally:
    """Pods by phase; those that are being deleted, or outdated and not ended, count as terminating."""

    pending: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    unknown: int = 0
    terminating: int = 0
    alive: int = 0  # not ended, terminating ones included
    outdated: int = 0  # of an earlier version of the Job
    unfinished: int = 0  # of this version, not ended
    blocked: int = 0  # not created yet, because their task waits for another
    tasks: dict[str, TaskTally] = field(default_factory=dict)

    def task(self, name: str) -> TaskTally:
        return self.tasks.get(name, NONE)

    @classmethod
    def of(cls, spec: JobSpec, status: JobStatus, pods: Iterable[PodSeen]) -> "PodTally":
        counts = cls(tasks={task.name: TaskTally() for task in spec.tasks})
        gone = set(status.completed)
        for pod in pods:
            counts._add(pod, status.version)
            if gone and pod.part is not None:
                gone.discard((pod.part.task, pod.part.index))
        for name, index in gone:
            task = spec.task(name)
            if task is not None and index in task.indices:
                counts._succeed(counts.task(name))
        return counts

    def _succeed(self, task: TaskTally) -> None:
        """Counts a pod that succeeded and was collected."""
        self.succeeded += 1
        task.phases["Succeeded"] = task.phases.get("Succeeded", 0) + 1
        task.succeeded += 1
        task.ready += 1

    def _add(self, pod: PodSeen, version: int) -> None:
        part = pod.part
        assert part is not None
        ended = pod.phase in ENDED
        self.alive += not ended
        outdated = part.version < version
        self.outdated += outdated
        self.unfinished += not ended and not outdated
        if pod.deleting or (outdated and not ended):
            self.terminating += 1
            return
        match pod.phase:
            case "Pending":
                self.pending += 1
            case "Running":
                self.running += 1
            case "Succeeded":
                self.succeeded += 1
            case "Failed":
                self.failed += 1
            case _:
                self.unknown += 1
        task = self.tasks.setdefault(part.task, TaskTally())
        task.phases[pod.phase] = task.phases.get(pod.phase, 0) + 1
        task.succeeded += pod.phase == "Succeeded"
        task.ready += pod.phase == "Succeeded" or (pod.phase == "Running" and part.ready)
        task.restarts += 0 if ended else part.restarts
