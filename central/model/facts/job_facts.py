"""Facts about Jobs, Commands, CronJobs, JobFlows and JobTemplates."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from central.model.cron_schedule import CronSchedule
from central.model.jobspec import NO_STATUS, JobSpec, JobStatus
from central.model.json_types import ReadOnlyJson


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job object of batch.volcano.sh."""

    spec: JobSpec
    status: JobStatus = NO_STATUS
    created: float = 0.0
    deleting: bool = False
    error: str = ""  # the invalid field and why; the Job stays pending with it
    owner: str = ""  # uid of its controller: a CronJob, a JobFlow


@dataclass(frozen=True, slots=True)
class JobGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CommandSeen:
    """A user's request to act on a Job or a Queue."""

    namespace: str
    name: str
    uid: str
    action: str
    kind: str  # Job, Queue; empty: not a target of ours
    target: str  # the name
    target_uid: str = ""
    reason: str = ""
    message: str = ""
    created: float = 0.0
    leaving: bool = False  # it is being deleted


@dataclass(frozen=True, slots=True)
class CommandGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CronSeen:
    """A CronJob object of batch.volcano.sh."""

    namespace: str
    name: str
    uid: str
    plan: CronSchedule | None = None  # None: invalid
    deadline_s: float | None = None  # startingDeadlineSeconds; None: no deadline
    policy: str = "Allow"  # Forbid, Replace
    suspend: bool = False
    template: ReadOnlyJson = field(default_factory=dict)  # the raw jobTemplate
    keep_done: int = 3
    keep_failed: int = 1
    created: float = 0.0
    last: float | None = None  # lastScheduleTime
    success: float | None = None  # lastSuccessfulTime
    status: ReadOnlyJson = field(default_factory=dict)  # as it is in the API
    error: str = ""  # why the object can't be used, naming the field
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class CronGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """A check that a task's pods answer on a port."""

    task: str  # empty: all tasks
    port: int
    path: str = ""  # HTTP path; empty: the port accepts connections
    header: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"http :{self.port}{self.path}" if self.path else f"tcp :{self.port}"


@dataclass(frozen=True, slots=True)
class FlowStep:
    """A step of a JobFlow: creates a Job from the JobTemplate of the same name."""

    name: str
    after: tuple[str, ...] = ()  # dependencies: steps that must complete first
    probes: tuple[tuple[str, str], ...] = ()  # (task, phase) of a dependency that is enough instead
    checks: tuple[ReadinessCheck, ...] = ()  # the same for checks
    patch: ReadOnlyJson = field(default_factory=dict)  # merged into the template's spec


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """A JobFlow object."""

    namespace: str
    name: str
    uid: str
    steps: tuple[FlowStep, ...] = ()
    retain: bool = True  # keep its Jobs after it has succeeded
    phase: str = ""  # of its status
    status: ReadOnlyJson = field(default_factory=dict)
    error: str = ""
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class FlowGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class TemplateSeen:
    """A JobTemplate object; its spec is a Job's, raw."""

    namespace: str
    name: str
    uid: str
    spec: ReadOnlyJson
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: ReadOnlyJson = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TemplateGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class CoordinatorReported:
    """A changed report of an elastic Job's coordinator. uid: of the Job."""

    namespace: str
    name: str
    uid: str
    generation: int  # of the Job's members that the coordinator follows
    training: tuple[int, ...]  # members that train, or that the others still wait for
    checkpoint: float | None = None  # when the newest one was complete, in seconds since 1970
    checkpoint_name: str = ""  # empty: there is none
    restored: str = ""  # the checkpoint that its processes loaded last, and in which generation
    set_aside: int = 0  # tasks that failed too often in the present epochs
    set_aside_why: str = ""  # the latest of them: queue, task and reason
    step: int = 0  # that the member that is furthest has taken, at times; 0: none was reported
    standstill: str = ""  # which rank is the cause that no step is taken
    pairs: str = ""  # the weak pairs that the latest check before a start found
    slow: str = ""  # members for which the others wait in most steps
    replaced: frozenset[str] = frozenset()  # uids of pods that are to be replaced
    resize_cost_s: float | None = None  # that changes of size were measured to cost; None: none was
    # Measured: members, the number of their nodes, and steps or records a second there.
    speeds: tuple[tuple[int, int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CoordinatorSilent:
    """A coordinator has been silent for a while: decisions no longer wait for it."""

    namespace: str
    name: str
    uid: str
