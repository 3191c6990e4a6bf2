"""The raw facts of one machine from NVML, sysfs and the operating system, as plain values. A
capture stores them; survey() derives the topology from them. Pure.

A fact that the machine does not report is "", -1 or None unless a comment says otherwise.
"""

from dataclasses import dataclass, field


class Unusable(Exception):
    """Bad input, or a machine that can't be used in its present state. The message is for the
    person who can fix it; commands print it and exit with 2."""


@dataclass(frozen=True, slots=True)
class NvLink:
    link: int
    active: bool
    remote: str = ""  # gpu, switch, npu; empty: unknown
    remote_pci: str = ""  # of the peer GPU or the switch; empty: unknown, as in many VMs


@dataclass(frozen=True, slots=True)
class Fabric:
    """The GPU's registration with its NVLink fabric (Hopper and later)."""

    state: int  # 0 not supported, 1 not started, 2 in progress, 3 completed
    status: int = 0  # an NVML return code, valid in state 3
    cluster_uuid: str = ""  # all zero: the fabric does not extend beyond this machine
    clique_id: int = 0
    health: int = 0  # 0 unknown, 1 healthy, 2 unhealthy, 3 limited capacity


@dataclass(frozen=True, slots=True)
class Platform:
    """The GPU's position in a rack (Blackwell and later)."""

    chassis: str = ""  # serial number of the rack's chassis
    slot: int = -1
    tray: int = -1
    host: int = -1  # of the tray
    module: int = -1  # of the host


@dataclass(frozen=True, slots=True)
class Wear:
    """A GPU's error counters and pending repairs. Volatile counters start at zero when the driver
    is loaded or the GPU is reset."""

    ecc_volatile: int = -1  # uncorrectable memory errors; -1: unknown
    ecc_aggregate: int = -1
    rows_remapped: int = 0  # for uncorrectable errors
    rows_pending: bool = False  # a row will be remapped by the next reset
    rows_failed: bool = False  # no spare row was left
    pages_pending: bool = (
        False  # a page will be retired by the next reset (GPUs without row remapping)
    )
    recovery: int = -1  # the driver's recovery action: 0 none, 1 reset, 2 reboot ...; -1: unknown


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """A MIG device (slice), read from its own handle."""

    uuid: str
    name: str = ""  # NVIDIA A100-SXM4-40GB MIG 1g.5gb
    gi: int = 0  # GPU instance id
    ci: int = 0  # compute instance id within the GPU instance
    gi_slices: int = 0  # compute slices of the GPU instance
    ci_slices: int = 0  # compute slices of the compute instance
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU by NVML's index. The rows p2p_nvlink and ancestors are indexed by peer GPU: the
    status of peer-to-peer over NVLink (0: usable) and the level of the common PCIe ancestor (10, 20
    ... 50)."""

    index: int
    uuid: str = ""
    model: str = ""
    pci: str = ""  # as sysfs writes it: 0000:07:00.0
    device_id: int = 0  # device in the upper 16 bits, vendor in the lower
    minor: int = -1  # /dev/nvidia<minor>
    serial: str = ""
    module_id: int = -1
    capability: str = ""  # CUDA compute capability: 9.0
    memory_bytes: int = 0
    memory_numa: int = -1  # the NUMA node of the GPU's own memory (Grace)
    cpu_affinity: str = ""  # 0-55,112-167
    memory_affinity: str = ""  # 0,3-9
    mig: bool = False
    mig_change: bool = False  # the next reset changes the MIG mode
    slices: tuple[SliceFacts, ...] = ()
    nvlinks: tuple[NvLink, ...] = ()
    p2p_nvlink: tuple[int, ...] = ()
    ancestors: tuple[int, ...] = ()
    pcie_generation: int = 0  # maximum of GPU and slot; 0: unknown
    pcie_width: int = 0  # lanes
    fabric: Fabric | None = None
    platform: Platform | None = None
    wear: Wear = Wear()
    clock_events: int = 0  # reasons for lower clocks, as a bit mask of NVML; 0: none, or unknown
    fault: str = ""  # why NVML can't read this GPU
    denied: tuple[str, ...] = ()  # calls that the driver refused for lack of rights
    corrupt: tuple[str, ...] = ()  # queries that failed because the InfoROM is corrupted
    # Whether NVML reports no memory of its own.
    integrated: bool = field(default=False, compare=False)
    # Queries with a value, and with the answer UNKNOWN; captures lack them.
    answered: tuple[str, ...] = field(default=(), compare=False)
    unknown: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    gpus: tuple[GpuFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A GPU, an NVSwitch or a NIC; its path names the bridges above it."""

    address: str  # 0000:07:00.0
    path: str  # devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:07:00.0
    kind: str = ""  # the PCI class: 0x030200
    vendor: str = ""  # 0x10de
    device: str = ""
    numa: int = -1
    local_cpus: str = ""
    physfn: str = ""  # for a virtual function: the address of its physical function
    driver: str = ""  # of NICs only: mlx5_core


@dataclass(frozen=True, slots=True)
class NumaFacts:
    id: int
    cpus: str = ""
    distance: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    state: str = ""  # ACTIVE
    link_layer: str = ""  # InfiniBand or Ethernet
    rate: str = ""  # 400 Gb/sec (4X NDR)


@dataclass(frozen=True, slots=True)
class InfinibandDevice:
    name: str
    pci: str = ""  # empty: a software device (rxe, siw)
    uverbs: str = ""  # uverbs0
    ports: tuple[Port, ...] = ()
    bridge: bool = False  # manages NVSwitches; not for network traffic
    net: tuple[str, ...] = ()  # names of its network interfaces


@dataclass(frozen=True, slots=True)
class RdmaDeviceLimit:
    """The rdma.max of one device."""

    name: str
    hca_handle: int = -1  # -1: no limit (max)
    hca_object: int = -1


@dataclass(frozen=True, slots=True)
class RdmaCgroup:
    """The kernel's rdma controller, and the limits of the kubelet's cgroup for all pods, if set."""

    version: int  # 1 or 2
    limits: tuple[RdmaDeviceLimit, ...] = ()


@dataclass(frozen=True, slots=True)
class SysfsFacts:
    pci: tuple[PciDevice, ...] = ()
    numa: tuple[NumaFacts, ...] = ()
    infiniband: tuple[InfinibandDevice, ...] = ()
    rdma_cgroup: RdmaCgroup | None = None
    rdma_exclusive: bool = False  # RDMA devices are visible only in their network namespace
    pcie_source: str = ""  # where the paths of pci come from; empty: /sys


@dataclass(frozen=True, slots=True)
class HostFacts:
    hostname: str = ""
    boot_id: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    memlock: int = 0  # bytes that containers may lock; -1: no limit, 0: unknown


@dataclass(frozen=True, slots=True)
class Machine:
    nvml: NvmlFacts = field(default_factory=NvmlFacts)
    sysfs: SysfsFacts = field(default_factory=SysfsFacts)
    host: HostFacts = field(default_factory=HostFacts)
