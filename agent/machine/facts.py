"""The raw facts of one machine, as NVML, sysfs and the operating system tell them, in plain values.
A capture is these, written down; survey() makes a topology of them. Pure.

Everything a machine may not tell has a value for that: "" or -1 or None.
"""

from dataclasses import dataclass, field


class Unusable(Exception):
    """The input is bad, or the world is not as it has to be: one sentence for the person who can
    mend it. Commands print it and exit with 2."""


@dataclass(frozen=True, slots=True)
class NvLink:
    link: int
    active: bool
    remote: str = ""  # gpu, switch, npu; empty: not told
    remote_pci: str = ""  # of the peer GPU or the switch; empty: not told, as in many VMs


@dataclass(frozen=True, slots=True)
class Fabric:
    """What the GPU knows of the NVLink fabric it registered with (Hopper and later)."""

    state: int  # 0 not supported, 1 not started, 2 in progress, 3 completed
    status: int = 0  # an NVML return code; meaningful once the state is completed
    cluster_uuid: str = ""  # all zero: the fabric ends at this machine
    clique_id: int = 0
    health: int = 0  # 0 not told, 1 healthy, 2 unhealthy, 3 limited capacity


@dataclass(frozen=True, slots=True)
class Platform:
    """Where in a rack the GPU is (Blackwell and later)."""

    chassis: str = ""  # the serial number of the rack's chassis
    slot: int = -1
    tray: int = -1
    host: int = -1  # of the tray
    module: int = -1  # of the host


@dataclass(frozen=True, slots=True)
class Wear:
    """What a GPU tells of its own state. Volatile: since the driver was loaded or the GPU reset."""

    ecc_volatile: int = -1  # uncorrectable memory errors; -1: not told
    ecc_aggregate: int = -1
    rows_remapped: int = 0  # for uncorrectable errors
    rows_pending: bool = False  # a row will be remapped by the next reset
    rows_failed: bool = False  # there was no row left to remap to
    pages_pending: bool = False  # the same on GPUs before rows could be remapped
    recovery: int = -1  # what the driver asks for: 0 nothing, 1 reset, 2 reboot ...; -1: not told


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """A MIG device, as its own handle tells of it."""

    uuid: str
    name: str = ""  # NVIDIA A100-SXM4-40GB MIG 1g.5gb
    gi: int = 0  # GPU instance
    ci: int = 0  # compute instance in it
    gi_slices: int = 0  # of the GPU's processors, that the GPU instance has
    ci_slices: int = 0  # of these, that the compute instance has
    memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class GpuFacts:
    """One GPU by NVML's index. The rows p2p_nvlink and ancestors are by peer index: the status of
    the way over NVLink (0: open) and the level of the common PCIe ancestor (10, 20 ... 50)."""

    index: int
    uuid: str = ""
    model: str = ""
    pci: str = ""  # as sysfs writes it: 0000:07:00.0
    device_id: int = 0  # device in the upper, vendor in the lower half
    minor: int = -1  # /dev/nvidia<minor>
    serial: str = ""
    module_id: int = -1
    capability: str = ""  # CUDA compute capability: 9.0
    memory_bytes: int = 0
    memory_numa: int = -1  # the NUMA node that its own memory is (Grace)
    cpu_affinity: str = ""  # 0-55,112-167
    memory_affinity: str = ""  # 0,3-9
    mig: bool = False
    mig_change: bool = False  # the mode that the next reset brings is the other one
    slices: tuple[SliceFacts, ...] = ()
    nvlinks: tuple[NvLink, ...] = ()
    p2p_nvlink: tuple[int, ...] = ()
    ancestors: tuple[int, ...] = ()
    pcie_generation: int = 0  # the most that both ends of its slot can do; 0: not told
    pcie_width: int = 0  # lanes
    fabric: Fabric | None = None
    platform: Platform | None = None
    wear: Wear = Wear()
    fault: str = ""  # why NVML does not answer for it


@dataclass(frozen=True, slots=True)
class NvmlFacts:
    driver_version: str = ""
    nvml_version: str = ""
    cuda_version: str = ""
    gpus: tuple[GpuFacts, ...] = ()


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A GPU, a switch of NVLink, or a network card; the bridges above it are in its path."""

    address: str  # 0000:07:00.0
    path: str  # devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:07:00.0
    kind: str = ""  # the PCI class: 0x030200
    vendor: str = ""  # 0x10de
    device: str = ""
    numa: int = -1
    local_cpus: str = ""
    physfn: str = ""  # of a virtual function: the address of its physical one
    driver: str = ""  # of network cards: mlx5_core


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
    pci: str = ""  # empty: made of software (rxe, siw)
    uverbs: str = ""  # uverbs0
    ports: tuple[Port, ...] = ()
    bridge: bool = False  # manages NVLink switches; carries no one's traffic
    net: tuple[str, ...] = ()  # its network interfaces


@dataclass(frozen=True, slots=True)
class RdmaDevice:
    name: str
    hca_handle: int = -1  # -1: max
    hca_object: int = -1


@dataclass(frozen=True, slots=True)
class RdmaCgroup:
    """The kernel has the rdma controller. Limits are those of all pods together, where set."""

    version: int  # 1 or 2
    limits: tuple[RdmaDevice, ...] = ()


@dataclass(frozen=True, slots=True)
class SysfsFacts:
    pci: tuple[PciDevice, ...] = ()
    numa: tuple[NumaFacts, ...] = ()
    infiniband: tuple[InfinibandDevice, ...] = ()
    rdma_cgroup: RdmaCgroup | None = None
    rdma_exclusive: bool = (
        False  # an RDMA device is seen and opened in its own network namespace only
    )


@dataclass(frozen=True, slots=True)
class HostFacts:
    hostname: str = ""
    boot_id: str = ""
    kernel: str = ""
    cpus: int = 0
    memory_bytes: int = 0
    memlock: int = 0  # bytes that containers may lock; -1: no limit, 0: not known


@dataclass(frozen=True, slots=True)
class Machine:
    nvml: NvmlFacts = field(default_factory=NvmlFacts)
    sysfs: SysfsFacts = field(default_factory=SysfsFacts)
    host: HostFacts = field(default_factory=HostFacts)
