"""Decisions: what the scheduler asks of the outside world, with the reason. The journal stores them by class and
field names."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from central.model.device_claims import ClaimAllocation
from central.model.event_reasons import GPU_UNHEALTHY
from central.model.past_turns import PastTurns


class Bind(NamedTuple):  # a tuple, because a cycle creates thousands
    """Bind the pod to the node, with these GPUs planned. The node's agent receives the plan by container
    (ClusterState.intents)."""

    pod: str  # uid
    namespace: str
    name: str
    node: str
    gpus: int = 0  # mask; 0 also if no agent has reported the GPUs
    # (claim, volume) that must be bound first; an empty volume is provisioned for the node
    claims: tuple[tuple[str, str], ...] = ()
    domains: tuple[tuple[str, str], ...] = ()  # annotations with the node's network domains
    device_claims: tuple[ClaimAllocation, ...] = ()  # that must be written first


# Causes of evictions
PREEMPTION, RECLAIM, DEFRAGMENTATION = "preemption", "reclaim", "defragmentation"
SUSPENSION, INCOMPLETE, GPU_MEMORY = "suspension", "incomplete", "gpu-memory"
NO_START, TIME_LIMIT, IDLE = "no-start", "time-limit", "idle"
EVICTION_CAUSES = (
    PREEMPTION,
    RECLAIM,
    DEFRAGMENTATION,
    SUSPENSION,
    INCOMPLETE,
    GPU_MEMORY,
    NO_START,
    TIME_LIMIT,
    IDLE,
)


@dataclass(frozen=True, slots=True)
class Evict:
    pod: str
    namespace: str
    name: str
    node: str
    why: str
    trial: bool = False  # a dry run
    cause: str = field(default="", compare=False)  # journals of older versions lack it
    public: str = ""  # why, for readers of the pod's namespace; empty: the same
    beyond_budgets: bool = False  # disruption budgets do not protect it: it is deleted
    grace_s: int = 0  # that the pod may take to end; 0: as it says itself


PODS_SHOWN = 8  # pods of a gang whose condition and Event have the reason; that of others names the first of them


class UpdateGangStatus(NamedTuple):  # a tuple, as Bind is
    """Write the gang's state to the PodGroup's status, the pods' condition and an Event."""

    namespace: str
    gang: str  # name of the PodGroup, or of the single pod
    phase: str  # Pending, Inqueue, Running, Unknown, Completed
    reason: str  # the message for users
    has_object: bool  # a PodGroup object exists
    pods: tuple[
        str, ...
    ] = ()  # names of pending pods that get a condition; the Event goes to the first
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    quiet: bool = False  # no Event, because its Job has one
    of_job: bool = False  # whose status has the counts as well
    native_version: str = ""  # as in GangSeen
    podgroups: tuple[tuple[str, bool], ...] = ()  # of a CompositePodGroup; whether each is placed
    past_turns: PastTurns | None = None
    cause: str = ""  # of the waiting of its pods: of pending_causes.CAUSES; empty: none waits
    nominated: tuple[
        tuple[str, str], ...
    ] = ()  # pod and node: the place that others are leaving for it


@dataclass(frozen=True, slots=True)
class EmitWarning:
    """Emit a warning Event on the pod, and on its PodGroup if there is one."""

    namespace: str
    gang: str  # of the PodGroup; empty: none
    gang_uid: str
    pod: str  # uid
    name: str
    why: str
    reason: str = GPU_UNHEALTHY  # of the Event
    kind: str = "Pod"  # of the object called name, if it is not a pod
    native_version: str = ""  # of the PodGroup, as in GangSeen


# Keys of the Secret of an elastic Job's coordinator: HOST:PORT, and a certificate in PEM.
SCHEDULER_ADDRESS, SCHEDULER_CA = "scheduler-address", "scheduler-ca.crt"


@dataclass(frozen=True, slots=True)
class Create:
    """Create the object. An existing object with the same controller counts as success, because a request
    before a restart may have succeeded. Answered."""

    kind: str  # a name of central.kube.write.objects_writer
    namespace: str
    name: str
    body: Mapping[str, Any]
    renew: bool = False  # replace the body of an existing object
    keys: bool = False  # add a new SSH key pair if the object does not exist
    # Add a token, a certificate for these names, and where to find the scheduler, as keys does.
    certificate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the object with this uid. Answered."""

    kind: str
    namespace: str
    name: str
    uid: str
    why: str
    foreground: bool = False  # dependents are deleted first
    grace_s: int = 0  # that a pod may take to end; 0: as it says itself


@dataclass(frozen=True, slots=True)
class SetStatus:
    """Replace the status of the object with this uid. Answered. The controller waits for the answer before it
    decides another one for the object."""

    kind: str
    namespace: str
    name: str
    uid: str
    status: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """Merge the body into the object with this uid. Answered."""

    kind: str
    namespace: str
    name: str
    uid: str
    body: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SetSize:
    """Set the size of the object of a controller of pods. Answered."""

    kind: str  # one of SIZED_KINDS; Job is that of the group batch
    namespace: str
    name: str
    uid: str
    size: int  # in units, of which each has as many pods
    completions: bool = False  # spec.completions becomes the same number
    # (name, uid) of the pods that its controller is to delete first; empty: it chooses
    leaving: tuple[tuple[str, str], ...] = ()
    rank: int = 0  # of these pods: they leave before those with a lower one
    why: str = ""
    role: str = ""  # of a JobSet or RayCluster: whose size it is
    place: int = 0  # of the role in the object's list
    ceiling: bool = False  # the most that an autoscaler of the object's own may use


Decision = (
    Bind | Evict | UpdateGangStatus | EmitWarning | Create | Delete | SetStatus | Patch | SetSize
)
