"""A Job of batch.volcano.sh as immutable values: its spec and its status. Built by
central.kube.decode.job_decoder. Pod templates stay raw JSON, shared and read-only."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from central.model.amounts import Amounts
from central.model.json_types import ReadOnlyJson
from central.model.member_files import MemberFiles
from central.model.pod_rules import Labels
from central.model.speed_table import SpeedTable
from central.model.work_left import WorkLeft
from protos.names import USER

API = "batch.volcano.sh/v1alpha1"

# Events that a lifecycle policy may match.
POD_FAILED, POD_EVICTED, POD_PENDING = "PodFailed", "PodEvicted", "PodPending"
TASK_COMPLETED, TASK_FAILED = "TaskCompleted", "TaskFailed"
GANG_UNKNOWN, JOB_UPDATED, ANY = "Unknown", "JobUpdated", "*"
EVENTS = (
    POD_FAILED,
    POD_EVICTED,
    POD_PENDING,
    TASK_COMPLETED,
    TASK_FAILED,
    GANG_UNKNOWN,
    JOB_UPDATED,
    ANY,
)

# Actions of lifecycle policies and Commands.
ABORT, RESUME, TERMINATE, COMPLETE = "AbortJob", "ResumeJob", "TerminateJob", "CompleteJob"
RESTART_JOB, RESTART_TASK, RESTART_POD = "RestartJob", "RestartTask", "RestartPod"
RESTART_PARTITION = "RestartPartition"
ACTIONS = (
    ABORT,
    RESTART_JOB,
    RESTART_TASK,
    RESTART_POD,
    RESTART_PARTITION,
    TERMINATE,
    COMPLETE,
    RESUME,
)

PENDING, RUNNING, RESTARTING = "Pending", "Running", "Restarting"
ABORTING, ABORTED = "Aborting", "Aborted"
COMPLETING, COMPLETED = "Completing", "Completed"
TERMINATING, TERMINATED, FAILED = "Terminating", "Terminated", "Failed"
PHASES = (
    PENDING,
    RUNNING,
    RESTARTING,
    ABORTING,
    ABORTED,
    COMPLETING,
    COMPLETED,
    TERMINATING,
    TERMINATED,
    FAILED,
)
FINISHED = (COMPLETED, TERMINATED, FAILED)  # final phases

NO_LIMIT = -1  # a max_retry


@dataclass(frozen=True, slots=True)
class LifecyclePolicy:
    action: str
    events: tuple[str, ...] = ()
    exit_code: int | None = None  # instead of events
    timeout_s: float = 0.0  # delay between event and action


@dataclass(frozen=True, slots=True)
class Partition:
    """Splits a task's pods, by index, into partitions of equal size."""

    parts: int
    size: int
    least: int = 0  # partitions that must start
    topology: ReadOnlyJson | None = None  # networkTopology of each partition


@dataclass(frozen=True, slots=True)
class TaskSpec:
    name: str
    replicas: int
    minimum: int
    template: ReadOnlyJson
    policies: tuple[LifecyclePolicy, ...] = ()
    max_retry: int = 3  # container restarts before TaskFailed; or NO_LIMIT
    after: tuple[str, ...] = ()  # dependsOn: tasks that must be ready first
    after_any: bool = False  # one ready dependency is enough
    partition: Partition | None = None
    topology_policy: str = ""
    requests: Amounts = ()  # of one pod
    limits: Amounts = ()
    # Indices of the pods of an elastic task, which may have holes; None: 0 to replicas - 1.
    members: tuple[int, ...] | None = None

    @property
    def indices(self) -> Sequence[int]:
        return range(self.replicas) if self.members is None else self.members


EVEN, FILL, GOODPUT = "even", "fill", "goodput"
OBJECTIVES = (EVEN, FILL, GOODPUT)


@dataclass(frozen=True, slots=True)
class ElasticTask:
    """The task whose size the scheduler decides: least, least + step, ... up to most. Seconds."""

    task: str
    least: int
    most: int
    step: int = 1
    objective: str = EVEN
    hold_s: float | None = None  # minimum time between two voluntary changes of size
    cost_s: float | None = None  # what a change of size costs the Job; None: not said
    yields: bool = True  # what others need may be taken from its surplus
    coordinator: str = ""  # the task whose pod coordinates the members; empty: none
    speeds: SpeedTable | None = None  # None: not known
    useful: tuple[int, ...] = ()  # with speeds: sizes that are faster than all below, ascending
    asks: bool = False  # members without a seat exist as pending pods, for node autoscalers
    work_left: WorkLeft | None = None  # None: not said
    files: bool = False  # its pods have the files of central.model.member_files
    replica: int = 0  # members with successive numbers that hold a model together; 0: not known

    def on(self, models: frozenset[str]) -> "ElasticTask":
        """Returns the task with the speeds for GPUs of these models."""
        return self if self.speeds is None or not self.speeds.by_model else _on(self, models)


@lru_cache(maxsize=1024)
def _on(task: ElasticTask, models: frozenset[str]) -> ElasticTask:
    speeds = task.speeds.on(models) if task.speeds else None
    if speeds is None or speeds is task.speeds:
        return task
    sizes = range(task.least, task.most + 1, task.step)
    return replace(task, speeds=speeds, useful=speeds.useful(sizes))


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    mount_path: str
    claim_name: str = ""  # of an existing claim, or for the new one
    claim: ReadOnlyJson | None = None  # spec of a PersistentVolumeClaim to create


@dataclass(frozen=True, slots=True)
class JobSpec:
    namespace: str
    name: str
    uid: str
    tasks: tuple[TaskSpec, ...] = ()
    min_available: int = 0
    scheduler_name: str = ""
    queue: str = "default"
    policies: tuple[LifecyclePolicy, ...] = ()
    plugins: tuple[tuple[str, tuple[str, ...]], ...] = ()  # (name, arguments)
    volumes: tuple[VolumeSpec, ...] = ()
    max_retry: int = 3
    ttl_s: float | None = None  # ttlSecondsAfterFinished; None: never deleted
    min_success: int | None = None
    priority_class: str = ""
    topology: ReadOnlyJson | None = None  # networkTopology
    estimate_s: float | None = None  # expected run time
    labels: Labels = ()
    annotations: Labels = ()
    elastic: ElasticTask | None = None

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    def task(self, name: str) -> TaskSpec | None:
        return next((task for task in self.tasks if task.name == name), None)


def with_members(job: JobSpec, members: Sequence[int]) -> JobSpec:
    """The Job with these members of its elastic task."""
    assert job.elastic is not None
    tasks = [
        replace(task, replicas=len(members), members=tuple(members))
        if task.name == job.elastic.task
        else task
        for task in job.tasks
    ]
    return replace(job, tasks=tuple(tasks))


def pod_name(job: JobSpec, task: TaskSpec, index: int) -> str:
    return f"{job.name}-{task.name}-{index}"


def group_name(job: JobSpec) -> str:
    return f"{job.name}-{job.uid}"


def without_user(annotations: ReadOnlyJson) -> dict[str, Any]:
    """Annotations of a template, for what is made from it: an author of a template may write any user into it."""
    return {key: value for key, value in annotations.items() if key != USER}


def owner(job: JobSpec) -> dict[str, Any]:
    return controller(API, "Job", job.name, job.uid)


def controller(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """A controlling ownerReference: the object is deleted with its owner."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


@dataclass(frozen=True, slots=True)
class JobStatus:
    """The part of a status that cannot be recomputed from the pods."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    since: float = 0.0  # of the phase
    version: int = 0  # grows when all pods are recreated; pods carry theirs
    retries: int = 0  # restarts of the whole job
    retry_at: float | None = None  # the pods of a restart are created then; None: at once
    # how often a pod was recreated alone, by pod name; a pod that carries a lower number is outdated
    restarts: tuple[tuple[str, int], ...] = ()
    # of those: after evictions by the scheduler, which are no failures
    evictions: tuple[tuple[str, int], ...] = ()
    completed: frozenset[tuple[str, int]] = frozenset()  # task and index of pods that succeeded
    counts: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()  # pods by task and phase
    terminating: int = 0  # pods
    resources: tuple[tuple[str, str], ...] = ()  # controlledResources
    conditions: tuple[tuple[str, float], ...] = ()  # the latest start of each phase
    command: str = ""  # uid of the last executed Command
    members: tuple[int, ...] | None = None  # indices of the elastic task's pods; None: not decided
    generation: int = 0  # grows with every change of members
    resized: str = ""  # why members changed last
    cause: str = field(default="", compare=False)  # the same as a label of metrics; not stored
    # When members that left with this generation are deleted at the latest, in whole seconds since 1970; None: none
    # left, or the Job's members have no files.
    leave_by: float | None = None


NO_STATUS = JobStatus()


@dataclass(frozen=True, slots=True)
class JobMember:
    """A pod's place in its Job."""

    job: str
    job_uid: str
    task: str
    index: int
    version: int = 0
    turn: int = 0  # how often this pod was recreated alone
    restarts: int = 0  # of its containers
    exit_codes: tuple[int, ...] = ()  # of failed containers
    ready: bool = False
    ended: float | None = None  # seconds since the epoch
    files: MemberFiles | None = None  # None: it has none
    leave_by: float | None = None  # that they say, in seconds since the epoch
