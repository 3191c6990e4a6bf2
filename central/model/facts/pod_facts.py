"""Facts about pods and about the controllers that own them."""

from dataclasses import dataclass, field, fields
from operator import attrgetter

from central.model.amounts import Amounts
from central.model.device_claims import DeviceNeeds, PodDeviceClaim
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


@dataclass(frozen=True, slots=True, eq=False)
class PodSpec:
    """The input of placement about a pod. Equal for pods that are alike, which are then decided together."""

    # sorted by name; with overhead and init containers; always has pods=1
    requests: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    # terms are alternatives, the requirements of a term hold together; None: no required affinity
    node_terms: NodeTerms | None = None
    tolerations: tuple[Toleration, ...] = ()
    # containers in order with their nvidia.com/gpu; last REST_OF_POD with what init containers have beyond that
    gpu_containers: tuple[tuple[str, int], ...] = ()
    rdma_containers: tuple[tuple[str, int], ...] = ()  # the same with their lockstep.dev/rdma
    rail_containers: tuple[tuple[str, str], ...] = ()  # containers with a rail that they request
    share_containers: tuple[tuple[str, int], ...] = ()  # the same with their lockstep.dev/gpu-share
    on_host: bool = False  # hostNetwork; set only for pods with RDMA NICs
    rdma_limits: tuple[tuple[str, int], ...] = ()  # hca_handle, hca_object; -1: max
    memory_cap: int = 0  # bytes of GPU memory that a share may use; 0: no cap
    memory_level: str = "none"  # weakest accepted enforcement, of gpu_sharing.REQUESTABLE
    gpu_models: tuple[str, ...] = ()  # accepted models, as patterns; empty: any
    features: tuple[str, ...] = ()  # that its kubelet must declare
    full_speed: bool = False  # no node with a slow GPU
    gpu_memory: int = 0  # bytes that each of its GPUs must have
    unsupported: str = ""  # a field that cannot be honoured; such a pod is refused
    rules: Rules | None = None  # rules about other pods
    volumes: Volumes | None = None  # set by PodClasses from the claims
    devices: DeviceNeeds | None = None  # set by PodClasses from the device claims
    same_attribute: str = ""  # of devices: the pods of the gang get equal values of it
    charges: Amounts = ()  # what queues count beyond the requests; set by PodClasses from the device claims
    matched: tuple[int, ...] = ()  # numbers of the rules that match it: set by PodClasses
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # A key of many dicts on the hot path, so it is hashed once.
        object.__setattr__(self, "_hash", hash(_values(self)))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, PodSpec) or self._hash != other._hash:
            return False
        same: bool = _values(self) == _values(other)
        return same

    def __reduce__(self) -> tuple[type["PodSpec"], tuple[object, ...]]:
        # Hashes of strings differ between processes, so unpickling computes the hash again.
        return PodSpec, _values(self)

    @property
    def has_nics(self) -> bool:
        """Returns whether it requests shares of RDMA NICs, by rail or not."""
        return bool(self.rdma_containers or self.rail_containers)

    @property
    def nics_in_pod_network(self) -> bool:
        """Returns whether it opens RDMA NICs from a network namespace of its own."""
        return self.has_nics and not self.on_host

    def request(self, resource: str) -> int:
        for name, amount in self.requests:
            if name == resource:
                return amount
        return 0


_values = attrgetter(*(part.name for part in fields(PodSpec) if part.init))


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
    gates: tuple[str, ...] = ()  # their names
    deleting: bool = False
    priority: int = 0
    created: float = 0.0  # seconds since the epoch
    order: tuple[int, str] = (0, "")  # rank in the gang: (index, name)
    task: str = ""  # its role in the job
    topology_required: str = ""  # annotation: a label key, "node" or "island"
    topology_preferred: str = ""
    placement: str = ""  # annotation: pack or spread
    runs_for_s: float | None = None  # expected run time; None: unknown
    started: float | None = None  # seconds since the epoch, from the kubelet
    ended: float | None = None  # ... or when its deletion was asked for; None: neither, or unknown
    checkpoint: float | None = None  # seconds since the epoch: work until then is saved
    podgroup: str = ""  # the name of its PodGroup of scheduling.k8s.io
    preempts: bool = True  # others may be evicted for it (not preemptionPolicy Never)
    labels: Labels = ()
    queue: str = ""  # annotation; the PodGroup's queue takes precedence
    claims: tuple[str, ...] = ()  # names of its PersistentVolumeClaims
    part: JobMember | None = None  # its place in a Job
    required_tier: int | None = None  # the same by tier number
    owner: str = ""  # uid of its controller, if OwnerSeen may describe its gang
    owner_name: str = ""  # replicaset/web-7d9
    service_account: str = ""  # its name
    user: str = ""  # who created it, as the admission policy says
    movable: bool = False  # may be evicted to make others fit if it fits elsewhere
    preemptable: bool | None = None  # false: never evicted; None: as its PodGroup says
    cooldown_s: float = 0.0  # run time before its gang may be evicted
    tied: bool = False  # its replacement runs on the same node or nowhere
    suspension_s: float | None = None  # what a suspension costs it; None: it can't be suspended
    grace_s: int = 0  # that it may take to end; 0: not known
    device_claims: tuple[PodDeviceClaim, ...] = ()
    stuck: str = ""  # why the kubelet cannot start a container; empty: it can
    ready: bool = True  # false: its kubelet has it and says that it is not ready
    start_within_s: float | None = None  # annotation: until it is ready; None: not set
    template: int = 0  # checksum of what must be there to start it: images, ConfigMaps, Secrets
    # Reason of its condition PodScheduled, and nominatedNodeName. The scheduler writes them, so a change is no news.
    told: tuple[str, str] = field(default=("", ""), compare=False)

    @property
    def gang_key(self) -> tuple[str, str, bool] | None:
        """Namespace, name, and whether the name is a gang's: a pod without a gang is a gang of its own
        name. None for a pod of another scheduler."""
        if not self.ours:
            return None
        return (self.namespace, self.gang or self.name, bool(self.gang))


@dataclass(frozen=True, slots=True)
class PodGone:
    uid: str


@dataclass(frozen=True, slots=True)
class OwnerSeen:
    """A controller of pods, with the gang settings that it has for all of them."""

    uid: str
    name: str  # replicaset/web-7d9
    above: str = ""  # its own controller: deployment/web
    gang_min: int | None = None
    queue: str = ""
    topology_required: str = ""
    required_tier: int | None = None
    error: str = ""  # the invalid field and why; its pods stay pending with it
    namespace: str = ""  # journals of older versions lack it


@dataclass(frozen=True, slots=True)
class OwnerGone:
    uid: str
