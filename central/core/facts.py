"""Everything that can happen: what the outside world tells the cluster. Facts may come twice, late
or in any order; applying one again changes nothing.

Amounts of resources are whole numbers by name: cpu in thousandths of a processor, memory and
storage in bytes, everything else in pieces.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from central.core.batch.schedule import Plan
from central.core.filters.rules import Expression, Labels, NodeTerms, Rules
from central.core.filters.volumes import StorageFact, Volumes
from central.core.jobs.spec import NO_STATUS, JobSpec, JobStatus, Json, Part
from protos.topology import Grant, MemoryOver, NodeTopology

Resources = Mapping[str, int]
Amounts = tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str  # NoSchedule, PreferNoSchedule, NoExecute


@dataclass(frozen=True, slots=True)
class Toleration:
    key: str  # empty with Exists: every key
    operator: str  # Exists or Equal
    value: str
    effect: str  # empty: every effect


@dataclass(frozen=True, slots=True)
class PodSpec:
    """What placement must know of a pod; equal for pods that are alike, so decided once for all."""

    requests: tuple[
        tuple[str, int], ...
    ]  # sorted by name; with overhead and init containers; always has pods=1
    node_selector: tuple[tuple[str, str], ...] = ()
    # terms are alternatives, the requirements of a term hold together; None: no required affinity
    node_terms: NodeTerms | None = None
    tolerations: tuple[Toleration, ...] = ()
    gpu_containers: tuple[
        tuple[str, int], ...
    ] = ()  # containers in order with their nvidia.com/gpu
    rdma_containers: tuple[tuple[str, int], ...] = ()  # the same with their lockstep.dev/rdma
    share_containers: tuple[tuple[str, int], ...] = ()  # the same with their lockstep.dev/gpu-share
    rdma_limits: tuple[tuple[str, int], ...] = ()  # hca_handle, hca_object; -1: max
    memory_cap: int = 0  # bytes of its GPU that it may have; 0: no cap
    memory_level: str = "none"  # how surely at least, of sharing.ENFORCEMENTS
    unsupported: str = ""  # the field that this version can't honour; such a pod is refused
    rules: Rules | None = None  # what it asks of the pods beside it
    volumes: Volumes | None = None  # filled in by kinds.Kinds, as claims are bound
    matched: tuple[int, ...] = ()  # rules that speak of such pods: filled in by kinds.Kinds
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A key of many dicts on the hot path: hashed once, not each time it is looked up.
        told = tuple(getattr(self, part.name) for part in fields(self) if part.compare)
        object.__setattr__(self, "_hash", hash(told))

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[type["PodSpec"], tuple[object, ...]]:
        # Another process hashes texts differently: there it is made anew.
        return PodSpec, tuple(getattr(self, part.name) for part in fields(self) if part.init)

    def request(self, resource: str) -> int:
        return dict(self.requests).get(resource, 0)


@dataclass(frozen=True, slots=True)
class NodeSeen:
    name: str
    labels: Mapping[str, str]
    allocatable: Resources
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    # What a pod's RDMA limits may be at most, as its agent says; None: nobody sets any there.
    rdma_most: tuple[tuple[str, int], ...] | None = None
    memory_level: str = "none"  # how caps of GPU memory hold there, as its agent says
    told: tuple[tuple[str, str], ...] = ()  # levels that its agent tells; its own labels go before

    def levels(self) -> Mapping[str, str]:
        """By level: where in the network it is."""
        return {**dict(self.told), **self.labels} if self.told else self.labels


@dataclass(frozen=True, slots=True)
class NodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    uid: str
    namespace: str
    name: str
    spec: PodSpec
    node: str = ""  # where it is bound
    phase: str = "Pending"  # Pending Running Succeeded Failed Unknown
    ours: bool = True  # its schedulerName is one of ours
    gang: str = ""  # name of its PodGroup or label gang, in its namespace; empty: single
    gang_min: int | None = None  # from the annotation of a gang without an object
    gated: bool = False  # has scheduling gates
    deleting: bool = False
    priority: int = 0
    created: float = 0.0  # seconds since the epoch
    order: tuple[int, str] = (0, "")  # rank in the gang: (index, name)
    task: str = ""  # its role in the job
    topology_required: str = ""  # annotation: a label key, "node" or "island"
    topology_preferred: str = ""
    placement: str = ""  # annotation: pack or spread
    runs_for_s: float | None = None  # how long it says that it runs; None: nobody knows
    started: float | None = None  # seconds since the epoch, as its kubelet says
    checkpoint: float | None = None  # seconds since the epoch: work until then is safe
    preempts: bool = True  # others may be evicted for it (not preemptionPolicy Never)
    labels: Labels = ()
    queue: str = ""  # annotation; what its PodGroup names goes before it
    claims: tuple[str, ...] = ()  # names of its PersistentVolumeClaims
    part: Part | None = None  # of a Job
    required_tier: int | None = None  # what topology_required says, by number
    owner: str = ""  # uid of its controller, where that may say more (see owners)
    owner_name: str = ""  # replicaset/web-7d9
    movable: bool = False  # it may be evicted so that others fit, if it fits elsewhere


@dataclass(frozen=True, slots=True)
class OwnerSeen:
    """A pods' controller, and what it says for all of them."""

    uid: str
    name: str  # replicaset/web-7d9
    above: str = ""  # whose part it is: deployment/web
    gang_min: int | None = None
    queue: str = ""
    topology_required: str = ""
    required_tier: int | None = None
    error: str = ""  # what can't be read, naming it; its pods wait with it


@dataclass(frozen=True, slots=True)
class OwnerGone:
    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


@dataclass(frozen=True, slots=True)
class SubGroups:
    """Members of a gang that stand in groups, each of which wants a closeness of its own."""

    name: str
    size: int = 1  # so many make a group whole
    least: int = 0  # so many groups must be whole before the gang starts
    labels: tuple[Expression, ...] = ()  # whose pods they are; empty: all
    keys: tuple[str, ...] = ()  # pods with the same values of these labels are one group
    required: str = ""  # as in GangSeen
    tier: int | None = None


Pairs = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Roles:
    """Tasks of a gang whose pods want to share nodes, pair by pair, and those that don't; a task with
    itself: its pods among each other."""

    near: Pairs = ()
    apart: Pairs = ()


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A PodGroup object."""

    namespace: str
    name: str
    min_member: int
    uid: str = ""
    task_min: tuple[tuple[str, int], ...] = ()  # of each role that has a minimum of its own
    queue: str = "default"
    priority: int = 0
    topology_required: str = ""  # a label key, "node" or "island"
    topology_preferred: str = ""
    required_tier: int | None = None  # the same by number: 0 a node, 1 the narrowest level
    preferred_tier: int | None = None
    created: float = 0.0
    error: str = ""  # why the object can't be used, naming the field; the gang waits with it
    phase: str = ""  # of its status, as it is in the API
    reason: str = ""
    priority_class: str = ""  # whose value goes before the pods' priorities
    subgroups: tuple[SubGroups, ...] = ()
    roles: Roles | None = None
    placement: str = ""
    min_resources: Amounts = ()  # of all its pods together, those that are still to come as well


@dataclass(frozen=True, slots=True)
class GangGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Member:
    """Of a HyperNode: nodes or other HyperNodes, by one of three selectors."""

    kind: str  # Node or HyperNode
    exact: str = ""
    pattern: str = ""  # matches whole names
    labels: tuple[tuple[str, str], ...] = ()  # of nodes only


@dataclass(frozen=True, slots=True)
class HyperNodeSeen:
    """A domain of the network; the lower the tier, the closer its nodes."""

    name: str
    tier: int
    members: tuple[Member, ...] = ()
    error: str = ""  # why the object can't be used, naming the field
    uid: str = ""


@dataclass(frozen=True, slots=True)
class HyperNodeGone:
    name: str


@dataclass(frozen=True, slots=True)
class NamespaceSeen:
    name: str
    labels: Labels = ()
    queue: str = ""  # annotation: of the gangs that name none


@dataclass(frozen=True, slots=True)
class NamespaceGone:
    name: str


@dataclass(frozen=True, slots=True)
class QueueSeen:
    """A Queue object. Amounts are sorted by resource; one that is not named has no limit."""

    name: str
    weight: int = 1
    priority: int = 0
    parent: str = ""  # empty: the root
    capability: Amounts = ()  # what it may use at most
    guarantee: Amounts = ()  # kept free for it
    deserved: Amounts = ()  # its own, lent while it does not ask
    reclaimable: bool = True  # what it has above its share may be taken back
    closed: bool = False
    error: str = ""  # why the object can't be used, naming the field; its gangs wait with it
    uid: str = ""
    fifo: bool = False  # nobody starts before who comes first


@dataclass(frozen=True, slots=True)
class QueueGone:
    name: str


@dataclass(frozen=True, slots=True)
class PrioritySeen:
    """A PriorityClass object."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class PriorityGone:
    name: str


@dataclass(frozen=True, slots=True)
class BudgetSeen:
    """A PodDisruptionBudget, as its status has it."""

    namespace: str
    name: str
    selector: tuple[Expression, ...] | None = None  # None: of no pod; none of them: of all
    allowed: int = 0  # how many more of its pods may be evicted
    disrupted: tuple[str, ...] = ()  # pods whose eviction is counted in that already


@dataclass(frozen=True, slots=True)
class BudgetGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class NodeReported:
    """An agent's report: the hardware, newest first by (boot, generation)."""

    node: str
    boot: str
    generation: int
    topology: NodeTopology
    grants: tuple[Grant, ...] = ()  # the truth, from pod-resources


@dataclass(frozen=True, slots=True)
class MemoryExceeded:
    """An agent says that pods have more of their GPUs' memory than they may."""

    node: str
    pods: tuple[MemoryOver, ...]


@dataclass(frozen=True, slots=True)
class NodeSilent:
    """The agent has not been heard for too long."""

    node: str


@dataclass(frozen=True, slots=True)
class BindDone:
    pod: str  # uid
    node: str


@dataclass(frozen=True, slots=True)
class BindFailed:
    pod: str
    node: str
    why: str
    final: bool = False  # asking again can't help: the pod is gone or bound elsewhere


@dataclass(frozen=True, slots=True)
class EvictDone:
    pod: str
    why: str = field(default="")  # empty: accepted; else why it was refused (a disruption budget)
    trial: bool = False  # it was only asked whether it would be accepted


@dataclass(frozen=True, slots=True)
class JobSeen:
    """A Job object of batch.volcano.sh."""

    spec: JobSpec
    status: JobStatus = NO_STATUS
    created: float = 0.0
    deleting: bool = False
    error: str = ""  # why the object can't be used, naming the field; the Job waits with it
    owner: str = ""  # uid of its controller: a CronJob, a JobFlow


@dataclass(frozen=True, slots=True)
class CommandSeen:
    """Somebody wants something done to a Job or a Queue."""

    namespace: str
    name: str
    uid: str
    action: str
    kind: str  # Job, Queue; empty: of no matter here
    target: str  # the name
    target_uid: str = ""
    reason: str = ""
    message: str = ""
    created: float = 0.0


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
    plan: Plan | None = None  # None: it can't be read
    deadline_s: float | None = None  # so late a Job may be made; None: however late
    policy: str = "Allow"  # Forbid, Replace
    suspend: bool = False
    template: Json = field(default_factory=dict)  # the raw jobTemplate
    keep_done: int = 3
    keep_failed: int = 1
    created: float = 0.0
    last: float | None = None  # of its status
    success: float | None = None
    status: Json = field(default_factory=dict)  # as it is in the API
    error: str = ""  # why the object can't be used, naming the field
    deleting: bool = False


@dataclass(frozen=True, slots=True)
class CronGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Step:
    """Of a JobFlow: a Job of the JobTemplate of that name."""

    name: str
    after: tuple[str, ...] = ()  # steps that must be done before
    probes: tuple[tuple[str, str], ...] = ()  # or whose task has reached a phase
    patch: Json = field(default_factory=dict)  # merged into the template's spec


@dataclass(frozen=True, slots=True)
class FlowSeen:
    """A JobFlow object."""

    namespace: str
    name: str
    uid: str
    steps: tuple[Step, ...] = ()
    retain: bool = True  # its Jobs stay when it has succeeded
    phase: str = ""  # of its status
    status: Json = field(default_factory=dict)
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
    spec: Json
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    status: Json = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TemplateGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class JobGone:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Answered:
    """What came of a Create, Delete, SetStatus or Patch."""

    verb: str  # the decision's name
    kind: str
    namespace: str
    name: str
    uid: str = ""  # of the object that was created, or was there already
    why: str = ""  # empty: it is done; a Delete of what is gone already is done as well
    code: int = 0  # of the API server's answer, where it refused


# Whose turn it is, and what it may use.
# What is around Jobs.
BatchFact = (
    CommandSeen
    | CommandGone
    | CronSeen
    | CronGone
    | FlowSeen
    | FlowGone
    | TemplateSeen
    | TemplateGone
)

Rule = QueueSeen | QueueGone | NamespaceSeen | NamespaceGone | PrioritySeen | PriorityGone

Fact = (
    NodeSeen
    | NodeGone
    | PodSeen
    | PodGone
    | OwnerSeen
    | OwnerGone
    | GangSeen
    | GangGone
    | HyperNodeSeen
    | HyperNodeGone
    | NamespaceSeen
    | NamespaceGone
    | StorageFact
    | BudgetSeen
    | BudgetGone
    | NodeReported
    | MemoryExceeded
    | NodeSilent
    | BindDone
    | BindFailed
    | EvictDone
    | BatchFact
    | JobSeen
    | JobGone
    | Answered
    | Rule
)
