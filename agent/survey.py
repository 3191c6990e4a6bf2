"""survey(): a machine's raw facts -> its topology. Pure.

NVLink: a pair's count is the number of active links that lead from one to the other. Where none
does and both have links into a switch, it is the smaller number of those, if peer-to-peer over NVLink
is open between the two and both registered with the same fabric. Where the two sides differ, the
smaller number counts.

PCIe: the paths below /sys/devices say which switch, root port and host bridge two devices share;
across host bridges the NUMA node decides.

An island is a connected component of the GPUs under "is joined by NVLink": on a cube mesh all
eight, though not every two are joined. A GPU without NVLink is an island of its own, so that every
GPU is on exactly one.
"""

from itertools import combinations

from agent import findings
from agent.machine import (
    GpuFacts,
    InfinibandDevice,
    Machine,
    PciDevice,
    RdmaCgroup,
)
from protos.topology import Gpu, Hca, NodeTopology, NumaNode, RdmaLimit

COMPLETED = 3
NVML_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
ACTIVE = "ACTIVE"


def survey(machine: Machine) -> NodeTopology:
    gpus = machine.nvml.gpus
    pci = {device.address: device for device in machine.sysfs.pci}
    cards = _cards(machine.sysfs.infiniband, pci)
    addresses = [gpu.pci for gpu in gpus] + [card.pci for card in cards]
    side = len(addresses)
    links = [["X"] * side for _ in range(side)]
    for a, b in combinations(range(side), 2):
        word = pcie_word(pci.get(addresses[a]), pci.get(addresses[b]))
        if b < len(gpus):
            word = _gpu_pair(gpus[a], gpus[b], word)
        links[a][b] = links[b][a] = word or "SYS"
    return NodeTopology(
        gpus=tuple(_gpu(place, gpu, pci.get(gpu.pci)) for place, gpu in enumerate(gpus)),
        hcas=tuple(_hca(card, pci[card.pci]) for card in cards),
        links=tuple(map(tuple, links)),
        islands=_islands(links, len(gpus)),
        numa_nodes=tuple(NumaNode(numa.id, numa.cpus) for numa in machine.sysfs.numa),
        rdma_cgroup=_limits(machine.sysfs.rdma_cgroup, cards),
        driver_version=machine.nvml.driver_version,
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
    )


def _gpu_pair(a: GpuFacts, b: GpuFacts, pcie: str) -> str:
    count = _nvlinks(a, b)
    if count:
        return f"NV{count}"
    if pcie:
        return pcie
    level = a.ancestors[b.index] if b.index < len(a.ancestors) else -1
    return NVML_LEVELS.get(level, "")


def _nvlinks(a: GpuFacts, b: GpuFacts) -> int:
    direct = _toward(a, b), _toward(b, a)
    if all(direct):
        return min(direct)
    if any(direct):
        return max(direct)  # only one side tells where its links lead
    return min(_switched(a), _switched(b)) if _reach(a, b) and _reach(b, a) else 0


def _toward(a: GpuFacts, b: GpuFacts) -> int:
    return sum(1 for link in a.nvlinks if link.active and b.pci and link.remote_pci == b.pci)


def _switched(gpu: GpuFacts) -> int:
    """Links into a switch. In a VM the far end has no name: then it is a switch, too."""
    return sum(1 for link in gpu.nvlinks if link.active and link.remote in ("switch", ""))


def _reach(a: GpuFacts, b: GpuFacts) -> bool:
    if b.index >= len(a.p2p_nvlink) or a.p2p_nvlink[b.index] != 0:
        return False
    if a.fabric is None or b.fabric is None:
        return a.fabric == b.fabric
    if a.fabric.state == b.fabric.state == 0:
        return True
    return (a.fabric.state == b.fabric.state == COMPLETED) and (
        (a.fabric.cluster_uuid, a.fabric.clique_id) == (b.fabric.cluster_uuid, b.fabric.clique_id)
    )


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
    devices: tuple[InfinibandDevice, ...], pci: dict[str, PciDevice]
) -> list[InfinibandDevice]:
    """Those a pod may be given: made of hardware, not for the switches' own management, and a
    virtual function only where its physical one is not here too."""
    here = {device.pci for device in devices}
    return [
        device
        for device in devices
        if device.pci in pci and not device.bridge and pci[device.pci].physfn not in here - {""}
    ]


def _hca(card: InfinibandDevice, device: PciDevice) -> Hca:
    ports = [port for port in card.ports if port.state == ACTIVE] or list(card.ports)
    return Hca(
        name=card.name,
        pci=card.pci,
        numa=device.numa,
        link_layer=ports[0].link_layer if ports else "",
        rate_gbps=max((_rate(port.rate) for port in ports), default=0.0),
        port=ports[0].number if ports else 1,
        uverbs=card.uverbs,
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
