"""survey(): a machine's raw facts -> its topology. Pure.

NVLink, bandwidth and weak pairs are in nvlink_pairs.py.

PCIe: the paths below /sys/devices say which switch, root port and host bridge two devices share;
across host bridges the NUMA node decides.

An island is a connected component of the GPUs under "is joined by NVLink": on a cube mesh all
eight, though not every two are joined. A GPU without NVLink is an island of its own, so that every
GPU is on exactly one. So is a GPU in MIG mode: its slices reach no other GPU.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from agent.machine import findings, nvlink_pairs, slice_profiles
from agent.machine.facts import GpuFacts, InfinibandDevice, Machine, PciDevice, RdmaCgroup
from protos.topology import Gpu, Hca, NodeTopology, NumaNode, RdmaLimit

ACTIVE = "ACTIVE"


def survey(machine: Machine, *, functions: bool = False) -> NodeTopology:
    """functions: virtual ones are cards of their own beside the physical."""
    gpus = tuple(replace(gpu, nvlinks=()) if gpu.mig else gpu for gpu in machine.nvml.gpus)
    pci = {device.address: device for device in machine.sysfs.pci}
    cards = _cards(machine.sysfs.infiniband, pci, functions=functions)
    physical = {card.pci: card.name for card in cards}
    addresses = [gpu.pci for gpu in gpus] + [card.pci for card in cards]
    side = len(addresses)
    links = [["X"] * side for _ in range(side)]
    for a, b in combinations(range(side), 2):
        word = pcie_word(pci.get(addresses[a]), pci.get(addresses[b]))
        if b < len(gpus):
            word = nvlink_pairs.word(gpus[a], gpus[b], word)
        links[a][b] = links[b][a] = word or "SYS"
    return NodeTopology(
        gpus=tuple(_gpu(place, gpu, pci.get(gpu.pci)) for place, gpu in enumerate(gpus)),
        hcas=tuple(_hca(card, pci[card.pci], physical) for card in cards),
        links=tuple(map(tuple, links)),
        islands=_islands(links, len(gpus)),
        numa_nodes=tuple(NumaNode(numa.id, numa.cpus) for numa in machine.sysfs.numa),
        rdma_cgroup=_limits(machine.sysfs.rdma_cgroup, cards),
        rdma_exclusive=machine.sysfs.rdma_exclusive,
        memlock=machine.host.memlock,
        driver_version=machine.nvml.driver_version,
        bandwidth=tuple(map(tuple, nvlink_pairs.bandwidth(gpus, links))),
        weak=nvlink_pairs.weak(gpus),
    )


def _gpu(place: int, gpu: GpuFacts, device: PciDevice | None) -> Gpu:
    found = findings.of(gpu)
    numa = device.numa if device else -1
    return Gpu(
        index=place,
        uuid=gpu.uuid or f"unknown-{place}",
        model=gpu.model,
        memory_bytes=gpu.memory_bytes,
        pci=gpu.pci,
        numa=numa,
        healthy=found is None,
        why=found.why if found else "",
        # NVML's own answer is cut to our cgroup by old drivers: sysfs first.
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
    )


def _clique(gpu: GpuFacts) -> str:
    """Empty where the fabric ends at this machine, or the GPU has not joined it."""
    fabric = gpu.fabric
    if fabric is None or fabric.state != nvlink_pairs.COMPLETED or fabric.status:
        return ""
    return f"{fabric.cluster_uuid}.{fabric.clique_id}" if fabric.cluster_uuid.strip("0") else ""


def pcie_word(a: PciDevice | None, b: PciDevice | None) -> str:
    """A word of nvidia-smi topo -m; empty where sysfs does not know one of the two."""
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
    """The host bridge, then the functions from the root port down to the device."""
    parts = path.split("/")
    start = next((place for place, part in enumerate(parts) if part.startswith("pci")), 0)
    return parts[start:]


def _islands(links: list[list[str]], count: int) -> tuple[tuple[int, ...], ...]:
    island = list(range(count))
    for a, b in combinations(range(count), 2):
        if links[a][b].startswith("NV") and island[a] != island[b]:
            low, high = sorted((island[a], island[b]))
            island = [low if name == high else name for name in island]
    return tuple(
        tuple(gpu for gpu in range(count) if island[gpu] == name) for name in sorted(set(island))
    )


def _cards(
    devices: tuple[InfinibandDevice, ...], pci: dict[str, PciDevice], *, functions: bool
) -> list[InfinibandDevice]:
    """Those a pod may be given: made of hardware, not for the switches' own management, and a
    virtual function only where its physical one is not here too, or where they are wanted."""
    here = {device.pci for device in devices}
    return [
        device
        for device in devices
        if device.pci in pci
        and not device.bridge
        and (functions or pci[device.pci].physfn not in here - {""})
    ]


def _hca(card: InfinibandDevice, device: PciDevice, physical: Mapping[str, str]) -> Hca:
    ports = [port for port in card.ports if port.state == ACTIVE] or list(card.ports)
    return Hca(
        name=card.name,
        pci=card.pci,
        numa=device.numa,
        link_layer=ports[0].link_layer if ports else "",
        rate_gbps=max((_rate(port.rate) for port in ports), default=0.0),
        port=ports[0].number if ports else 1,
        uverbs=card.uverbs,
        vendor=device.vendor,
        device=device.device,
        driver=device.driver,
        net=",".join(card.net),
        physical=physical.get(device.physfn, ""),
        why=_cut_off(card),
    )


def _cut_off(card: InfinibandDevice) -> str:
    """Why no work should be sent to this card; empty where it is fit."""
    if any(port.state == ACTIVE for port in card.ports):
        return ""
    states = ", ".join(f"{port.number} is {port.state or 'silent'}" for port in card.ports)
    return f"no port is ACTIVE: {states}" if states else "it has no port"


def _rate(text: str) -> float:
    """400 Gb/sec (4X NDR) -> 400.0"""
    number = text.split(" ", maxsplit=1)[0]
    return float(number) if number.replace(".", "", 1).isdigit() else 0.0


def _limits(
    cgroup: RdmaCgroup | None, cards: list[InfinibandDevice]
) -> tuple[tuple[str, RdmaLimit], ...] | None:
    if cgroup is None:
        return None
    limits = {card.name: RdmaLimit() for card in cards}
    for known in cgroup.limits:
        if known.name in limits:
            limits[known.name] = RdmaLimit(known.hca_handle, known.hca_object)
    return tuple(sorted(limits.items()))
