"""Pods, and what controllers say for theirs."""

from dataclasses import dataclass, field, fields

from central.model.jobspec import JobMember
from central.model.pod_rules import Labels, NodeTerms, Rules
from central.model.volumes import Volumes


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
    on_host: bool = False  # in the host's network; told of pods with network cards alone
    rdma_limits: tuple[tuple[str, int], ...] = ()  # hca_handle, hca_object; -1: max
    memory_cap: int = 0  # bytes of its GPU that it may have; 0: no cap
    memory_level: str = "none"  # how surely at least, of gpu_sharing.REQUESTABLE
    gpu_models: tuple[str, ...] = ()  # of which its GPUs must be one, as patterns; none: any
    gpu_memory: int = 0  # bytes that its GPUs must have, each
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

    @property
    def nics_in_pod_network(self) -> bool:
        """Whether it opens RDMA network cards from a network namespace of its own."""
        return bool(self.rdma_containers) and not self.on_host

    def request(self, resource: str) -> int:
        return dict(self.requests).get(resource, 0)


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
    part: JobMember | None = None  # of a Job
    required_tier: int | None = None  # what topology_required says, by number
    owner: str = ""  # uid of its controller, where that may say more (see owners)
    owner_name: str = ""  # replicaset/web-7d9
    movable: bool = False  # it may be evicted so that others fit, if it fits elsewhere


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


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
