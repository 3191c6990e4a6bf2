"""survey() derives a machine's topology from its raw facts. Pure. nvlink_pairs.py has NVLink and
bandwidth.

PCIe: the paths below /sys/devices (or of a file, see pcie_tree) tell which switch, root port and
host bridge two devices share. Across host bridges the NUMA node decides. So two host bridges of one
NUMA node are NODE, as the legend of `nvidia-smi topo -m` has it; on some machines that program
prints SYS for them (docs/concepts/topology.md).

An island is a connected component of GPUs joined by NVLink. On a cube mesh that is all eight GPUs,
although not every pair is joined. A GPU without NVLink is an island of its own, so every GPU is on
exactly one island. So is a GPU in MIG mode, because its slices can't use NVLink.

PCIe switches: GPUs below one root port reach each other through switches only, whether these are one
or several in a row (PIX or PXB, if NVLink did not hide it in the matrix). A GPU of its own root port
is alone. A GPU that sits on a host bridge itself, as only in VMs, has an unknown place.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import combinations

from agent.machine import findings, nvlink_pairs, pcie_tree, slice_profiles
from agent.machine.facts import GpuFacts, InfinibandDevice, Machine, PciDevice, RdmaCgroup
from protos.topology import Gpu, Hca, NodeTopology, NumaNode, RdmaLimit, Weak

ACTIVE = "ACTIVE"
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
RATE = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?(?= |$)")


def survey(machine: Machine, *, functions: bool = False) -> NodeTopology:
    """functions: list virtual functions beside their physical NICs."""
    gpus = tuple(replace(gpu, nvlinks=()) if gpu.mig else gpu for gpu in machine.nvml.gpus)
    pci = {device.address: device for device in machine.sysfs.pci}
    nics = _nics(machine.sysfs.infiniband, pci, functions=functions)
    physical = {nic.pci: nic.name for nic in nics}
    addresses = [gpu.pci for gpu in gpus] + [nic.pci for nic in nics]
    side = len(addresses)
    links = [["X"] * side for _ in range(side)]
    for a, b in combinations(range(side), 2):
        connection = pcie_connection(pci.get(addresses[a]), pci.get(addresses[b]))
        if b < len(gpus):
            connection = nvlink_pairs.connection(gpus[a], gpus[b], connection)
        links[a][b] = links[b][a] = connection or "SYS"
    return NodeTopology(
        gpus=tuple(_gpu(position, gpu, pci.get(gpu.pci)) for position, gpu in enumerate(gpus)),
        hcas=tuple(_hca(nic, pci[nic.pci], physical) for nic in nics),
        links=tuple(map(tuple, links)),
        islands=_islands(links, len(gpus)),
        pcie_switches=_switches([pci.get(gpu.pci) for gpu in gpus]),
        numa_nodes=tuple(NumaNode(numa.id, numa.cpus) for numa in machine.sysfs.numa),
        rdma_cgroup=_limits(machine.sysfs.rdma_cgroup, nics),
        rdma_exclusive=machine.sysfs.rdma_exclusive,
        pcie_source=machine.sysfs.pcie_source,
        memlock=machine.host.memlock,
        driver_version=machine.nvml.driver_version,
        cuda_version=machine.nvml.cuda_version,
        bandwidth=tuple(map(tuple, nvlink_pairs.bandwidth(gpus, links))),
        weak=(*nvlink_pairs.weak(gpus), *_slow(gpus)),
    )


def _gpu(position: int, gpu: GpuFacts, device: PciDevice | None) -> Gpu:
    found = findings.from_facts(gpu)
    numa = device.numa if device else -1
    return Gpu(
        index=position,
        uuid=gpu.uuid or f"unknown-{position}",
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        pci=gpu.pci,
        numa=numa,
        healthy=found is None,
        why=found.why if found else "",
        # Old drivers cut NVML's value to the cgroup of this process, so sysfs comes first.
        cpu_affinity=(device.local_cpus if device else "") or gpu.cpu_affinity,
        gpu_numa=gpu.memory_numa,
        numa_affinity=gpu.memory_affinity or (str(numa) if numa >= 0 else ""),
        mig=gpu.mig,
        mig_change=gpu.mig_change,
        slices=slice_profiles.slices(gpu),
        clique=_clique(gpu),
        chassis=gpu.platform.chassis if gpu.platform else "",
        slot=gpu.platform.slot if gpu.platform else -1,
        tray=gpu.platform.tray if gpu.platform else -1,
        capability=gpu.capability,
        pcie_root=_root(device.path) if device else "",
    )


def _slow(gpus: tuple[GpuFacts, ...]) -> Iterator[Weak]:
    for position, gpu in enumerate(gpus):
        if not gpu.fault and (found := findings.slow(gpu)) is not None:
            yield Weak(position, position, found.why)


def _clique(gpu: GpuFacts) -> str:
    """Empty if the fabric ends at this machine, or the GPU is not registered with it."""
    fabric = gpu.fabric
    if fabric is None or fabric.state != nvlink_pairs.COMPLETED or fabric.status:
        return ""
    return f"{fabric.cluster_uuid}.{fabric.clique_id}" if fabric.cluster_uuid.strip("0") else ""


def pcie_connection(a: PciDevice | None, b: PciDevice | None) -> str:
    """The name that `nvidia-smi topo -m` gives to the connection; empty if sysfs lacks one of the
    two."""
    if a is None or b is None:
        return ""
    (root_a, *chain_a), (root_b, *chain_b) = _chain(a.path), _chain(b.path)
    if root_a != root_b:
        return "NODE" if a.numa == b.numa >= 0 else "SYS"
    common = 0
    for left, right in zip(chain_a, chain_b, strict=False):
        if left != right:
            break
        common += 1
    if common == 0:
        return "PHB"
    if len(chain_a) - common <= 2 and len(chain_b) - common <= 2:
        return "PIX"
    return "PXB"


def _chain(path: str) -> list[str]:
    """The host bridge, then the devices from the root port down."""
    parts = path.split("/")
    start = next((position for position, part in enumerate(parts) if part.startswith("pci")), 0)
    return parts[start:]


def _root(path: str) -> str:
    """The kernel's name of the root complex; empty for one that a file made up."""
    root = _chain(path)[0]
    return root if ROOT.fullmatch(root) else ""


def _islands(links: list[list[str]], count: int) -> tuple[tuple[int, ...], ...]:
    island = list(range(count))
    for a, b in combinations(range(count), 2):
        if links[a][b].startswith("NV") and island[a] != island[b]:
            low, high = sorted((island[a], island[b]))
            island = [low if name == high else name for name in island]
    return tuple(
        tuple(gpu for gpu in range(count) if island[gpu] == name) for name in sorted(set(island))
    )


def _switches(devices: list[PciDevice | None]) -> tuple[tuple[int, ...], ...]:
    """devices: of the GPUs by index; None if /sys lacks it."""
    below: dict[tuple[str, ...], list[int]] = {}
    for gpu, device in enumerate(devices):
        chain = _chain(device.path) if device is not None else []
        # A file says where a GPU is even if that is right at the CPU.
        if len(chain) > 2 or (len(chain) == 2 and chain[0].startswith(pcie_tree.ROOTS)):
            below.setdefault(tuple(chain[:2]), []).append(gpu)
    return tuple(map(tuple, below.values()))


def _nics(
    devices: tuple[InfinibandDevice, ...], pci: dict[str, PciDevice], *, functions: bool
) -> list[InfinibandDevice]:
    """The NICs that pods may use: hardware, not for the management of NVSwitches. A virtual
    function is listed only if its physical function is not on this machine, or if functions are
    requested."""
    here = {device.pci for device in devices}
    return [
        device
        for device in devices
        if device.pci in pci
        and not device.bridge
        and (functions or pci[device.pci].physfn not in here - {""})
    ]


def _hca(nic: InfinibandDevice, device: PciDevice, physical: Mapping[str, str]) -> Hca:
    ports = [port for port in nic.ports if port.state == ACTIVE] or list(nic.ports)
    return Hca(
        name=nic.name,
        pci=nic.pci,
        numa=device.numa,
        link_layer=ports[0].link_layer if ports else "",
        rate_gbps=max((_rate(port.rate) for port in ports), default=0.0),
        port=ports[0].number if ports else 1,
        uverbs=nic.uverbs,
        vendor=device.vendor,
        device=device.device,
        driver=device.driver,
        net=",".join(nic.net),
        physical=physical.get(device.physfn, ""),
        why=_unhealthy(nic),
    )


def _unhealthy(nic: InfinibandDevice) -> str:
    """Returns why the NIC is unhealthy; "" if it is healthy."""
    if any(port.state == ACTIVE for port in nic.ports):
        return ""
    states = ", ".join(f"{port.number} is {port.state or 'unknown'}" for port in nic.ports)
    return f"no port is ACTIVE: {states}" if states else "the NIC has no port"


def _rate(text: str) -> float:
    """400 Gb/sec (4X NDR) -> 400.0"""
    number = RATE.match(text)
    return float(number[0]) if number else 0.0


def _limits(
    cgroup: RdmaCgroup | None, nics: list[InfinibandDevice]
) -> tuple[tuple[str, RdmaLimit], ...] | None:
    if cgroup is None:
        return None
    limits = {nic.name: RdmaLimit() for nic in nics}
    for known in cgroup.limits:
        if known.name in limits:
            limits[known.name] = RdmaLimit(known.hca_handle, known.hca_object)
    return tuple(sorted(limits.items()))
