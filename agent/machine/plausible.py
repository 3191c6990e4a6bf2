"""Makes facts plausible before anything relies on them: a driver or a file system that lies about one
device must not cost the others. A GPU whose identity or memory cannot be right is unhealthy with the
reason; any other value that cannot be right counts as unknown. The scheduler refuses reports beyond
the same limits. Pure.

Design: docs/design/hostile-inputs.md
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from agent.machine.facts import (
    GpuFacts,
    InfinibandDevice,
    Machine,
    NvLink,
    NvmlFacts,
    PciDevice,
    Platform,
    RdmaCgroup,
    RdmaDeviceLimit,
    SliceFacts,
    SysfsFacts,
)

GPUS, NICS, SLICES, NUMA_NODES = 62, 512, 64, 4096
GPU_MEMORY = 1 << 47  # bytes
AMOUNT = (1 << 31) - 1  # handles or objects of a NIC
PORTS, LINKS, TEXT = 16, 64, 253
SMALL = 65535  # NUMA nodes, minor numbers, ports, instances
PCIE = 64  # generations, lanes
MEMLOCK = 1 << 62
# CUDA compute capabilities of Tegra X1 and X2, Xavier, Orin, Thor (by two names) and GB10.
INTEGRATED = frozenset({"5.3", "6.2", "7.2", "8.7", "10.1", "11.0", "12.1"})

# The kubelet's limit is 63. Slices of old drivers are named MIG-GPU-<uuid>/1/0.
DEVICE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
CAPABILITY = re.compile(r"[0-9]{1,3}\.[0-9]{1,3}")
CPUS = re.compile(r"[0-9,-]{0,1024}")


def checked(machine: Machine) -> tuple[Machine, tuple[str, ...]]:
    """The plausible machine, and sentences about devices that are left out or need attention."""
    notes: list[str] = []
    return (
        replace(
            machine,
            nvml=_nvml(machine.nvml, notes),
            sysfs=_sysfs(machine.sysfs, notes),
            host=replace(machine.host, memlock=max(-1, min(machine.host.memlock, MEMLOCK))),
        ),
        tuple(notes),
    )


def _nvml(nvml: NvmlFacts, notes: list[str]) -> NvmlFacts:
    if len(nvml.gpus) > GPUS:
        notes.append(f"the driver lists {len(nvml.gpus)} GPUs; {GPUS} are used")
    notes += [
        f"GPU {gpu.index}: its InfoROM is corrupted ({', '.join(gpu.corrupt[:3])}); it still works"
        for gpu in nvml.gpus[:GPUS]
        if gpu.corrupt
    ]
    first: dict[str, int] = {}
    gpus = tuple(
        _gpu(replace(gpu, index=position), first) for position, gpu in enumerate(nvml.gpus[:GPUS])
    )
    return replace(
        nvml,
        driver_version=_text(nvml.driver_version),
        nvml_version=_text(nvml.nvml_version),
        cuda_version=_text(nvml.cuda_version),
        gpus=gpus,
    )


def _gpu(gpu: GpuFacts, first: dict[str, int]) -> GpuFacts:
    """first: the index of each UUID's first GPU or slice, which this one is added to."""
    fault = gpu.fault or _fault(gpu, first)
    uuid = gpu.uuid if DEVICE_ID.fullmatch(gpu.uuid) and gpu.uuid not in first else ""
    if uuid:
        first[uuid] = gpu.index
    return replace(
        gpu,
        uuid=uuid,
        model=_text(gpu.model),
        pci=_pci(gpu.pci),
        minor=_small(gpu.minor),
        serial=_text(gpu.serial),
        module_id=_small(gpu.module_id),
        capability=gpu.capability if CAPABILITY.fullmatch(gpu.capability) else "",
        memory_bytes=gpu.memory_bytes if 0 <= gpu.memory_bytes <= GPU_MEMORY else 0,
        memory_numa=_small(gpu.memory_numa),
        cpu_affinity=_cpus(gpu.cpu_affinity),
        memory_affinity=_cpus(gpu.memory_affinity),
        slices=tuple(_slices(gpu.slices, gpu.index, first)),
        nvlinks=tuple(_link(link) for link in gpu.nvlinks[:LINKS]),
        p2p_nvlink=gpu.p2p_nvlink[:GPUS],
        ancestors=gpu.ancestors[:GPUS],
        pcie_generation=gpu.pcie_generation if 0 <= gpu.pcie_generation <= PCIE else 0,
        pcie_width=gpu.pcie_width if 0 <= gpu.pcie_width <= PCIE else 0,
        fabric=gpu.fabric and replace(gpu.fabric, cluster_uuid=_text(gpu.fabric.cluster_uuid)),
        platform=gpu.platform and _platform(gpu.platform),
        fault=_text(fault),
    )


def _fault(gpu: GpuFacts, first: dict[str, int]) -> str:
    if not DEVICE_ID.fullmatch(gpu.uuid):
        return f'NVML says that its UUID is "{_text(gpu.uuid)[:64]}"'
    if gpu.uuid in first:
        return f"NVML says that it has the UUID of GPU {first[gpu.uuid]}"
    if not 0 <= gpu.memory_bytes <= GPU_MEMORY:
        return f"NVML says that it has {gpu.memory_bytes} bytes of memory"
    if not gpu.memory_bytes and not _may_lack_memory(gpu):
        return "NVML reports no memory"
    return ""


def _may_lack_memory(gpu: GpuFacts) -> bool:
    """Integrated GPUs use the machine's memory. GPUs in MIG mode show theirs only to agents with the rights."""
    integrated = gpu.integrated or gpu.capability in INTEGRATED or "(nvgpu)" in gpu.model
    return integrated or "nvmlDeviceGetMemoryInfo" in gpu.denied + gpu.corrupt


def _slices(
    slices: tuple[SliceFacts, ...], gpu: int, first: dict[str, int]
) -> Iterable[SliceFacts]:
    for part in slices[:SLICES]:
        plain = DEVICE_ID.fullmatch(part.uuid) and part.uuid not in first
        if plain and 0 <= part.gi <= SMALL and 0 <= part.ci <= SMALL:
            first[part.uuid] = gpu
            memory = part.memory_bytes if 0 <= part.memory_bytes <= GPU_MEMORY else 0
            yield replace(
                part,
                name=_text(part.name),
                gi_slices=max(0, min(part.gi_slices, SLICES)),
                ci_slices=max(0, min(part.ci_slices, SLICES)),
                memory_bytes=memory,
            )


def _platform(platform: Platform) -> Platform:
    return replace(
        platform,
        chassis=_text(platform.chassis),
        slot=_small(platform.slot),
        tray=_small(platform.tray),
    )


def _link(link: NvLink) -> NvLink:
    return replace(link, remote_pci=_pci(link.remote_pci))


def _sysfs(sysfs: SysfsFacts, notes: list[str]) -> SysfsFacts:
    named = [each for each in sysfs.infiniband if NAME.fullmatch(each.name)]
    if wrong := len(sysfs.infiniband) - len(named):
        notes.append(f"{wrong} RDMA devices are left out: their names cannot be those of devices")
    if len(named) > NICS:
        notes.append(f"/sys lists {len(named)} RDMA devices; {NICS} are used")
    return replace(
        sysfs,
        pci=tuple(_function(each) for each in sysfs.pci if PCI.fullmatch(each.address)),
        pcie_source=_text(sysfs.pcie_source),
        numa=tuple(
            replace(numa, cpus=_cpus(numa.cpus))
            for numa in sysfs.numa[:NUMA_NODES]
            if 0 <= numa.id <= SMALL
        ),
        infiniband=tuple(map(_nic, named[:NICS])),
        rdma_cgroup=sysfs.rdma_cgroup and _cgroup(sysfs.rdma_cgroup),
    )


def _function(device: PciDevice) -> PciDevice:
    return replace(
        device,
        vendor=_text(device.vendor),
        device=_text(device.device),
        numa=_small(device.numa),
        local_cpus=_cpus(device.local_cpus),
        driver=_text(device.driver),
    )


def _nic(nic: InfinibandDevice) -> InfinibandDevice:
    ports = (
        replace(port, state=_text(port.state), link_layer=_text(port.link_layer))
        for port in nic.ports[:PORTS]
        if 0 <= port.number <= SMALL
    )
    return replace(
        nic,
        uverbs=nic.uverbs if NAME.fullmatch(nic.uverbs) else "",
        ports=tuple(ports),
        net=tuple(_text(each) for each in nic.net[:PORTS]),
    )


def _cgroup(cgroup: RdmaCgroup) -> RdmaCgroup:
    def limit(each: RdmaDeviceLimit) -> RdmaDeviceLimit:
        return RdmaDeviceLimit(
            each.name, min(each.hca_handle, AMOUNT), min(each.hca_object, AMOUNT)
        )

    return replace(cgroup, limits=tuple(map(limit, cgroup.limits[: 2 * NICS])))


def _text(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text[:TEXT])


def _small(number: int) -> int:
    return number if 0 <= number <= SMALL else -1


def _pci(address: str) -> str:
    return address if PCI.fullmatch(address) else ""


def _cpus(text: str) -> str:
    return text if CPUS.fullmatch(text) else ""
