"""The topology of a node as immutable values. Pure.

A set of GPUs is a bit mask: bit i is the GPU with index i.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LEVELS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")  # as in nvidia-smi topo -m, closest first


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG slice (MIG device)."""

    uuid: str
    profile: str  # 1g.10gb
    gi: int  # GPU instance id
    ci: int  # compute instance id within the GPU instance
    memory_bytes: int = 0
    healthy: bool = True
    why: str = ""  # why it is not healthy


@dataclass(frozen=True, slots=True)
class Gpu:
    index: int
    uuid: str
    model: str
    memory_bytes: int
    pci: str  # 0000:07:00.0
    numa: int = -1  # -1: none, as on machines without NUMA
    healthy: bool = True
    why: str = ""  # why it is not healthy
    cpu_affinity: str = ""  # 0-55,112-167
    gpu_numa: int = -1  # the NUMA node of its own memory (Grace)
    numa_affinity: str = ""  # 0, or 0,3-9,11-17 on Grace; empty: none
    clique: str = ""  # GPUs with the same clique are on one NVLink fabric, also across machines
    chassis: str = ""  # serial number of the rack's chassis
    slot: int = -1  # in the chassis
    tray: int = -1
    shares: int = 0  # lockstep.dev/gpu-share devices; 0: whole only
    mig: bool = False  # in MIG mode: only its slices are allocated
    mig_change: bool = False  # the next reset turns MIG mode on or off
    slices: tuple[Slice, ...] = ()
    enforcement: str = "none"  # of memory caps of its shares: one of gpu_sharing.RANKS
    share_why: str = ""  # why it has no shares although it should
    capability: str = ""  # CUDA compute capability: 9.0; empty: unknown
    pcie_root: str = ""  # pci0000:00; empty: unknown


@dataclass(frozen=True, slots=True)
class Hca:
    name: str  # mlx5_0
    pci: str
    numa: int = -1
    link_layer: str = ""  # InfiniBand or Ethernet
    rate_gbps: float = 0.0
    port: int = 1  # the first active port
    uverbs: str = ""  # uverbs0: device file below /dev/infiniband
    why: str = ""  # why it is unhealthy; empty: healthy
    shares: int = 0  # lockstep.dev/rdma devices, or those of its rail
    vendor: str = ""  # 0x15b3
    device: str = ""
    driver: str = ""  # mlx5_core
    net: str = ""  # network interfaces, comma-separated
    physical: str = ""  # for a virtual function: the physical NIC
    rail: str = (
        ""  # its resource if it is offered by rail: lockstep.dev/rail-0; empty: lockstep.dev/rdma
    )


@dataclass(frozen=True, slots=True)
class NumaNode:
    id: int
    cpus: str = ""


@dataclass(frozen=True, slots=True, order=True)
class RdmaLimit:
    hca_handle: int = -1  # -1: no limit (max)
    hca_object: int = -1


@dataclass(frozen=True, slots=True, order=True)
class Weak:
    """Two GPUs whose connection is degraded, or one GPU that is slow."""

    a: int
    b: int  # equal to a: that GPU is slow
    why: str


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's hardware. links[i][j] is one of LEVELS or NV#; rows and columns are the GPUs by
    index, then the HCAs in the order of hcas. islands are tuples of GPU indices."""

    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    islands: tuple[tuple[int, ...], ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    rdma_cgroup: tuple[tuple[str, RdmaLimit], ...] | None = None  # None: no rdma controller
    rdma_settable: bool = False  # the agent may set pods' limits
    rdma_default: RdmaLimit = RdmaLimit()  # of a pod without requested limits, on each of its NICs
    rdma_exclusive: bool = False  # RDMA devices are visible only in their network namespace
    memlock: int = 0  # bytes that containers may lock; -1: no limit, 0: unknown
    driver_version: str = ""
    cuda_version: str = ""  # of the driver: 12.8
    pcie_source: str = ""  # the file that PCIe paths come from; empty: /sys
    bandwidth: tuple[tuple[float, ...], ...] = ()  # GB/s per direction, by pair of GPUs
    weak: tuple[Weak, ...] = ()
    # GPUs below one PCIe root port, whose traffic to each other passes switches only. A GPU without
    # a switch is alone; one that is in none of them is not known to be below any.
    pcie_switches: tuple[tuple[int, ...], ...] = ()
    imex_why: str = ""  # why its GPUs have no clique although their fabric has other machines

    def shape(self) -> "Shape":
        """The same object for all machines of equal shape."""
        count = len(self.gpus)
        numa = tuple([gpu.numa for gpu in self.gpus])
        links = tuple([row[:count] for row in self.links[:count]])
        slow = mask_of(self.slow())
        reported = (links, self.islands, numa, self.pcie_switches, slow)
        if (known := _BY_REPORT.get(reported)) is not None:
            return known
        shape = Shape(
            links=links,
            islands=tuple(mask_of(island) for island in self.islands),
            numa=numa if len(set(numa)) > 1 else (),
            switches=tuple(mask_of(switch) for switch in self.pcie_switches),
            slow=slow,
        )
        if len(_BY_REPORT) >= _KNOWN_MOST:  # agents' reports may be all different
            _BY_REPORT.clear()
            _KNOWN.clear()
        shape = _BY_REPORT[reported] = _KNOWN.setdefault(shape, shape)
        return shape

    def slow(self) -> dict[int, str]:
        """Returns why each slow GPU is slow, by index."""
        return {pair.a: pair.why for pair in self.weak if pair.a == pair.b}

    def healthy_mask(self) -> int:
        """The GPUs that can be allocated, whole or in shares."""
        return mask_of(gpu.index for gpu in self.gpus if gpu.healthy and not gpu.mig)


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Devices of one resource that a container holds (observed) or is to get (an intent)."""

    namespace: str  # empty: `pod` is a UID, as the kubelet's checkpoint has it
    pod: str
    container: str
    resource: str
    # An intent for lockstep.dev/rdma names NICs, an observed grant their shares. On the wire,
    # grants of lockstep.dev/gpu-share name the GPU, and `limits` has the number of hundredths.
    device_ids: tuple[str, ...]
    # Of an intent: hca_handle and hca_object per NIC and pod; share: hundredths of the GPU; memory:
    # cap in bytes; least: lowest rank of its enforcement.
    limits: tuple[tuple[str, int], ...] = ()
    uid: str = ""  # of an intent: the pod's


@dataclass(frozen=True, slots=True, order=True)
class ClaimDevice:
    """A device of an allocated claim."""

    request: str  # of the claim, such as main, or main/second of a prioritized list
    device: str  # its name in the node's pool
    admin: bool = False  # by admin access, which keeps it from no other pod


@dataclass(frozen=True, slots=True, order=True)
class ClaimPlan:
    """A ResourceClaim that is allocated on a node, or prepared there."""

    namespace: str
    name: str
    uid: str
    devices: tuple[ClaimDevice, ...] = ()  # of this driver and node


@dataclass(frozen=True, slots=True, order=True)
class RdmaUse:
    """A pod's RDMA resources in use on one NIC, and their limit."""

    namespace: str
    pod: str
    card: str
    current: RdmaLimit
    limit: RdmaLimit
    failures: int = -1  # allocations refused at the limit; -1: unknown to the kernel


@dataclass(frozen=True, slots=True, order=True)
class MemoryOver:
    """A pod whose use of GPU memory exceeds its cap."""

    namespace: str
    pod: str
    uid: str
    gpu: int
    used: int  # bytes
    cap: int
    final: bool = False  # the grace period is over


@dataclass(frozen=True, slots=True, order=True)
class GpuUse:
    """The use of its GPUs by a container, at this moment."""

    namespace: str
    pod: str
    container: str
    utilization: float = -1.0  # 0 to 1, mean of its GPUs; -1: unknown
    memory: int = -1  # bytes of all its GPUs; -1: unknown


@dataclass(frozen=True, slots=True)
class Shape:
    """The part of a topology that placement uses, equal for equal machines: the GPUs' links,
    islands, NUMA nodes and PCIe switches, and which are slow. NUMA nodes and switches are stored because links show
    NVLink instead of the PCIe level."""

    links: tuple[tuple[str, ...], ...] = ()
    islands: tuple[int, ...] = field(default=())  # masks
    numa: tuple[int, ...] = ()  # by GPU; empty: one node, or unknown
    switches: tuple[int, ...] = ()  # masks; a GPU in none: unknown
    slow: int = 0  # mask
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Hashed once, because closest() is cached by shape.
        object.__setattr__(
            self, "_hash", hash((self.links, self.islands, self.numa, self.switches, self.slow))
        )

    def __hash__(self) -> int:
        return self._hash

    @property
    def count(self) -> int:
        return len(self.links)


# Equal machines share one Shape, so that cache look-ups compare by identity.
_KNOWN: dict[Shape, Shape] = {}
_BY_REPORT: dict[tuple[object, ...], Shape] = {}  # by what they are made of
_KNOWN_MOST = 1024


def mask_of(indices: Iterable[int]) -> int:
    mask = 0
    for index in indices:
        mask |= 1 << index
    return mask


def indices_of(mask: int) -> Iterator[int]:
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
