"""A Job as values: what it asks for, and what its status said. Made at the edge (central.kube.jobs),
never changed. Pod templates stay the JSON that they are; nobody may write into them."""

from dataclasses import dataclass
from typing import Any

from central.model.json_types import ReadOnlyJson
from central.model.pod_rules import Labels

Amounts = tuple[tuple[str, int], ...]

# What a policy may wait for.
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

# What it may do, and what a Command may ask for.
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
FINISHED = (COMPLETED, TERMINATED, FAILED)  # for good

NO_LIMIT = -1  # of max_retry: there is no bound


@dataclass(frozen=True, slots=True)
class LifecyclePolicy:
    action: str
    events: tuple[str, ...] = ()
    exit_code: int | None = None  # instead of events
    timeout_s: float = 0.0  # so long after the event


@dataclass(frozen=True, slots=True)
class Partition:
    """The pods of a task in parts of one size, by index."""

    parts: int
    size: int
    least: int = 0  # parts that must start
    topology: ReadOnlyJson | None = None  # networkTopology of each part


@dataclass(frozen=True, slots=True)
class TaskSpec:
    name: str
    replicas: int
    minimum: int
    template: ReadOnlyJson
    policies: tuple[LifecyclePolicy, ...] = ()
    max_retry: int = 3  # restarts of its pods' containers before TaskFailed; NEVER
    after: tuple[str, ...] = ()  # tasks that must be ready before
    after_any: bool = False  # one of them is enough
    partition: Partition | None = None
    topology_policy: str = ""
    requests: Amounts = ()  # of one pod
    limits: Amounts = ()


@dataclass(frozen=True, slots=True)
class VolumeSpec:
    mount_path: str
    claim_name: str = ""  # of a claim that exists, or the name for the one that is made
    claim: ReadOnlyJson | None = None  # the PersistentVolumeClaim's spec, to be made


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
    plugins: tuple[tuple[str, tuple[str, ...]], ...] = ()  # with their arguments, by name
    volumes: tuple[VolumeSpec, ...] = ()
    max_retry: int = 3
    ttl_s: float | None = None  # after it is over; None: it stays
    min_success: int | None = None
    priority_class: str = ""
    topology: ReadOnlyJson | None = None  # networkTopology
    estimate_s: float | None = None  # how long it says that it runs
    labels: Labels = ()
    annotations: Labels = ()

    @property
    def replicas(self) -> int:
        return sum(task.replicas for task in self.tasks)

    def task(self, name: str) -> TaskSpec | None:
        return next((task for task in self.tasks if task.name == name), None)


def pod_name(job: JobSpec, task: TaskSpec, index: int) -> str:
    return f"{job.name}-{task.name}-{index}"


def group_name(job: JobSpec) -> str:
    return f"{job.name}-{job.uid}"


def owner(job: JobSpec) -> dict[str, Any]:
    return controller("batch.volcano.sh/v1alpha1", "Job", job.name, job.uid)


def controller(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The ownerReference that makes an object this one's own: it goes when its owner goes."""
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
    """What must outlive the controller; the rest of a status is counted from the pods."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    since: float = 0.0  # of the phase
    version: int = 0  # grows when all pods are made anew; pods carry theirs
    retries: int = 0  # restarts of the whole job
    # how often a pod was made anew by itself: a pod that carries less is to be replaced
    restarts: tuple[tuple[str, int], ...] = ()
    counts: tuple[tuple[str, tuple[tuple[str, int], ...]], ...] = ()  # by task, by pod phase
    terminating: int = 0  # pods
    resources: tuple[tuple[str, str], ...] = ()  # controlledResources
    conditions: tuple[tuple[str, float], ...] = ()  # when each phase began last
    command: str = ""  # the uid of the last Command that it obeyed


NO_STATUS = JobStatus()


@dataclass(frozen=True, slots=True)
class JobMember:
    """What a pod of a Job is to it."""

    job: str
    job_uid: str
    task: str
    index: int
    version: int = 0
    turn: int = 0  # how often it was made anew by itself
    restarts: int = 0  # of its containers, by the kubelet
    exit_codes: tuple[int, ...] = ()  # of containers that failed
    ready: bool = False
    ended: float | None = None  # seconds since the epoch
