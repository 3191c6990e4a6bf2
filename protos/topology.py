"""The words for a node's shape, in plain immutable values. Pure.

A set of GPUs is a bit mask: bit i is the GPU of index i.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

LEVELS = ("X", "PIX", "PXB", "PHB", "NODE", "SYS")  # the words of nvidia-smi topo -m, closest first


@dataclass(frozen=True, slots=True)
class Slice:
    """A MIG slice: a part of a GPU that is a device of its own."""

    uuid: str
    profile: str  # 1g.10gb
    gi: int  # its GPU instance, of the GPU's
    ci: int  # its compute instance, of the GPU instance's
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
    numa: int = -1  # -1: none, as on a machine of one node
    healthy: bool = True
    why: str = ""  # why it is not healthy
    cpu_affinity: str = ""  # 0-55,112-167
    gpu_numa: int = -1  # the NUMA node of its own memory (Grace)
    numa_affinity: str = ""  # 0, or 0,3-9,11-17 on Grace; empty: none
    clique: str = ""  # GPUs of one clique, whatever their machines, reach each other by NVLink
    chassis: str = ""  # the rack that the machine is in, by its own serial number
    slot: int = -1  # in the chassis
    tray: int = -1
    shares: int = 0  # of lockstep.dev/gpu-share that it is offered as; 0: whole only
    mig: bool = False  # in MIG mode: it is given in slices only
    mig_change: bool = False  # its next reset turns MIG mode on, or off
    slices: tuple[Slice, ...] = ()
    enforcement: str = "none"  # of caps on the memory of its shares: a word of sharing.RANKS
    share_why: str = ""  # why shares of it are not offered, though they should be


@dataclass(frozen=True, slots=True)
class Hca:
    name: str  # mlx5_0
    pci: str
    numa: int = -1
    link_layer: str = ""  # InfiniBand or Ethernet
    rate_gbps: float = 0.0
    port: int = 1  # the first that is up
    uverbs: str = ""  # uverbs0: its file below /dev/infiniband
    why: str = ""  # why no work should be sent to it; empty: it is fit
    shares: int = 0  # of lockstep.dev/rdma that it is offered as
    vendor: str = ""  # 0x15b3
    device: str = ""
    driver: str = ""  # mlx5_core
    net: str = ""  # its network interfaces, comma separated
    physical: str = ""  # of a virtual function: the card that it is part of


@dataclass(frozen=True, slots=True)
class NumaNode:
    id: int
    cpus: str = ""


@dataclass(frozen=True, slots=True, order=True)
class RdmaLimit:
    hca_handle: int = -1  # -1: max
    hca_object: int = -1


@dataclass(frozen=True, slots=True, order=True)
class Weak:
    """Two GPUs that are joined worse than they are built to be."""

    a: int
    b: int
    why: str


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """A node's hardware. links[i][j] is a word of LEVELS or NV#; rows and columns are the GPUs
    by index, then the HCAs by their order in hcas. islands hold GPU indices."""

    gpus: tuple[Gpu, ...] = ()
    hcas: tuple[Hca, ...] = ()
    links: tuple[tuple[str, ...], ...] = ()
    islands: tuple[tuple[int, ...], ...] = ()
    numa_nodes: tuple[NumaNode, ...] = ()
    rdma_cgroup: tuple[tuple[str, RdmaLimit], ...] | None = None  # None: no controller
    rdma_settable: bool = False  # the agent may set pods' limits
    rdma_default: RdmaLimit = RdmaLimit()  # of each of its cards, of a pod that wishes nothing
    rdma_exclusive: bool = False  # cards can be opened in the host's network namespace only
    memlock: int = 0  # bytes that containers may lock, -1: no limit, 0: not known
    driver_version: str = ""
    bandwidth: tuple[tuple[float, ...], ...] = ()  # of each pair of GPUs, GB/s each way
    weak: tuple[Weak, ...] = ()

    def shape(self) -> "Shape":
        count = len(self.gpus)
        numa = tuple(gpu.numa for gpu in self.gpus)
        shape = Shape(
            links=tuple(row[:count] for row in self.links[:count]),
            islands=tuple(mask_of(island) for island in self.islands),
            numa=numa if len(set(numa)) > 1 else (),
        )
        return _KNOWN.setdefault(shape, shape)

    def healthy_mask(self) -> int:
        """The GPUs that are fit to be given, whole or in shares."""
        return mask_of(gpu.index for gpu in self.gpus if gpu.healthy and not gpu.mig)


@dataclass(frozen=True, slots=True, order=True)
class Grant:
    """Devices of one resource that one container holds (the truth), or should get (an intent)."""

    namespace: str
    pod: str
    container: str
    resource: str
    # An intent of network cards names cards, the truth their shares. Between agent and centre
    # grants of lockstep.dev/gpu-share name the GPU, and limits how much of it.
    device_ids: tuple[str, ...]
    # Of an intent: hca_handle, hca_object, per card and pod; share: hundredths of the GPU; memory and
    # least: bytes of it, and how surely.
    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class RdmaUse:
    """What a pod uses of one network card, and may use."""

    namespace: str
    pod: str
    card: str
    current: RdmaLimit
    limit: RdmaLimit
    failures: int = -1  # how often its limit was in the way; -1: the kernel does not tell


@dataclass(frozen=True, slots=True, order=True)
class MemoryOver:
    """A pod has more of its GPU's memory than it may."""

    namespace: str
    pod: str
    uid: str
    gpu: int
    used: int  # bytes
    cap: int
    final: bool = False  # its grace is over


@dataclass(frozen=True, slots=True)
class Shape:
    """What placement needs of a node, equal for equal machines: the GPUs' links, islands and
    NUMA nodes (which the links do not tell where NVLink hides them)."""

    links: tuple[tuple[str, ...], ...] = ()
    islands: tuple[int, ...] = field(default=())  # masks
    numa: tuple[int, ...] = ()  # by GPU; empty: all on one, or not known
    _hash: int = field(default=0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # closest() is cached by it: hashed once, not at every question.
        object.__setattr__(self, "_hash", hash((self.links, self.islands, self.numa)))

    def __hash__(self) -> int:
        return self._hash

    @property
    def count(self) -> int:
        return len(self.links)


# Equal machines share one shape: whatever is cached by it is found by identity.
_KNOWN: dict[Shape, Shape] = {}


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
