"""A node's topology for people and for programs: the matrix as `nvidia-smi topo -m` words it,
network cards included, and the JSON of `topology -o json`. Pure."""

from collections.abc import Iterator, Mapping

from protos import slicing
from protos.topology import Gpu, NodeTopology, RdmaLimit

LOCKABLE = 1 << 30  # bytes: with less to lock, RDMA programs fail or fall back to TCP
AFFINITY = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
NONE = "N/A"
LEGEND = """Legend:

  X    = Self
  SYS  = PCIe and the interconnect between NUMA nodes
  NODE = PCIe and the interconnect between PCIe host bridges of one NUMA node
  PHB  = PCIe and one PCIe host bridge (as a rule, the CPU)
  PXB  = Several PCIe bridges, no host bridge
  PIX  = At most one PCIe bridge
  NV#  = A bond of # NVLinks
"""


def words(topology: NodeTopology) -> list[list[str]]:
    """The header, then a row for each GPU and each HCA; all of the same length."""
    gpus, hcas = topology.gpus, topology.hcas
    names = [f"GPU{gpu.index}" for gpu in gpus] + [f"NIC{place}" for place in range(len(hcas))]
    rows = [["", *names, *AFFINITY]]
    for place, (name, cells) in enumerate(zip(names, topology.links, strict=True)):
        columns = ["", "", ""]
        if place < len(gpus):
            gpu = gpus[place]
            numa_id = str(gpu.gpu_numa) if gpu.gpu_numa >= 0 else NONE
            columns = [gpu.cpu_affinity or NONE, gpu.numa_affinity or NONE, numa_id]
        rows.append([name, *cells, *columns])
    return rows


def table(topology: NodeTopology, holders: Mapping[str, str] | None = None) -> str:
    """Columns are aligned and two spaces apart, so that they can be split again. holders: of MIG
    slices, by uuid, where they are known."""
    parts = ["\n".join(_aligned(words(topology))), LEGEND]
    if topology.hcas:
        cards = [f"  NIC{place}: {hca.name}" for place, hca in enumerate(topology.hcas)]
        parts.append("\n".join(["NIC Legend:", "", *cards, ""]))
    if mig := [*_slices(topology, holders), *_modes(topology)]:
        parts.append("\n".join(["MIG:", "", *mig, ""]))
    if shared := list(_shared(topology)):
        parts.append("\n".join(["In shares, and how caps of their memory hold:", "", *shared, ""]))
    unfit = [f"  GPU{gpu.index}: {gpu.why}" for gpu in topology.gpus if not gpu.healthy]
    unfit += [
        f"  {slicing.words(gpu, part)}: {part.why}"
        for gpu, part in slicing.of(topology)
        if gpu.healthy and not part.healthy
    ]
    unfit += [f"  NIC{place}: {hca.why}" for place, hca in enumerate(topology.hcas) if hca.why]
    if unfit:
        parts.append("\n".join(["Not fit for work:", "", *unfit, ""]))
    if told := notes(topology):
        parts.append("\n".join(["Network cards:", "", *(f"  {each}" for each in told), ""]))
    weak = [f"  GPU{pair.a} and GPU{pair.b}: {pair.why}" for pair in topology.weak]
    if weak:
        parts.append("\n".join(["Joined worse than they are built for:", "", *weak, ""]))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def notes(topology: NodeTopology) -> tuple[str, ...]:
    """What whoever uses the network cards should know."""
    found = []
    if topology.hcas and topology.rdma_exclusive:
        found.append(
            "RDMA devices are in exclusive network namespaces (rdma system show): only pods with "
            "hostNetwork can open the cards of the host"
        )
    if topology.hcas and 0 < topology.memlock < LOCKABLE:
        found.append(
            f"containers may lock {topology.memlock // 1024} KiB of memory, by their runtime's limit: RDMA "
            "needs more (LimitMEMLOCK=infinity for the runtime, or CAP_IPC_LOCK for the container)"
        )
    return tuple(found)


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _slices(topology: NodeTopology, holders: Mapping[str, str] | None) -> Iterator[str]:
    rows = [
        [f"  GPU{gpu.index}", part.profile, f"gi {part.gi}", f"ci {part.ci}", part.uuid]
        + ([holders.get(part.uuid, "-")] if holders is not None else [])
        for gpu, part in slicing.of(topology)
    ]
    return iter(_aligned(rows))


def _shared(topology: NodeTopology) -> Iterator[str]:
    """GPUs that are shared alike in one line."""
    found: dict[str, list[str]] = {}
    for gpu in topology.gpus:
        if gpu.shares or gpu.share_why:
            how = gpu.share_why or gpu.enforcement
            found.setdefault(how, []).append(f"GPU{gpu.index}")
    return (f"  {', '.join(gpus)}: {how}" for how, gpus in found.items())


def _modes(topology: NodeTopology) -> Iterator[str]:
    """Of GPUs that are in the mode for nothing, or soon in another one."""
    for gpu in topology.gpus:
        if gpu.mig and not gpu.slices:
            how = f"nvidia-smi mig -i {gpu.index} -cgi PROFILE -C"
            yield f"  GPU{gpu.index}: MIG mode is on and there are no slices ({how})"
        if gpu.mig_change:
            yield f"  GPU{gpu.index}: MIG mode is {_then(gpu)} after its next reset"


def _then(gpu: Gpu) -> str:
    return "off" if gpu.mig else "on"


def to_json(node: str, topology: NodeTopology) -> dict[str, object]:
    return {
        "node": node,
        "gpus": [
            {
                "index": gpu.index,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "memory_bytes": gpu.memory_bytes,
                "pci": gpu.pci,
                "numa": gpu.numa,
                "healthy": gpu.healthy,
                "why": gpu.why,
                "cpu_affinity": gpu.cpu_affinity,
                "numa_affinity": gpu.numa_affinity,
                "gpu_numa": gpu.gpu_numa,
                "clique": gpu.clique,
                "chassis": gpu.chassis,
                "slot": gpu.slot,
                "tray": gpu.tray,
                "mig": gpu.mig,
                "mig_change": gpu.mig_change,
                "slices": [
                    {
                        "uuid": part.uuid,
                        "profile": part.profile,
                        "gi": part.gi,
                        "ci": part.ci,
                        "memory_bytes": part.memory_bytes,
                        "healthy": part.healthy,
                        "why": part.why,
                    }
                    for part in gpu.slices
                ],
                "shares": gpu.shares,
                "enforcement": gpu.enforcement,
                "share_why": gpu.share_why,
            }
            for gpu in topology.gpus
        ],
        "hcas": [
            {
                "name": hca.name,
                "pci": hca.pci,
                "numa": hca.numa,
                "link_layer": hca.link_layer,
                "rate_gbps": hca.rate_gbps,
                "port": hca.port,
                "uverbs": hca.uverbs,
                "why": hca.why,
                "shares": hca.shares,
                "vendor": hca.vendor,
                "device": hca.device,
                "driver": hca.driver,
                "net": hca.net,
                "physical": hca.physical,
            }
            for hca in topology.hcas
        ],
        "links": [list(row) for row in topology.links],
        "islands": [list(island) for island in topology.islands],
        "numa_nodes": [{"id": numa.id, "cpus": numa.cpus} for numa in topology.numa_nodes],
        "rdma_cgroup": {
            "available": topology.rdma_cgroup is not None,
            "devices": {name: _limit(limit) for name, limit in topology.rdma_cgroup or ()},
        },
        "rdma_exclusive": topology.rdma_exclusive,
        "memlock": topology.memlock,
        "driver_version": topology.driver_version,
        "bandwidth_gb_per_s": [list(row) for row in topology.bandwidth],
        "weak": [{"gpus": [pair.a, pair.b], "why": pair.why} for pair in topology.weak],
    }


def _limit(limit: RdmaLimit) -> dict[str, int | str]:
    """In the words of rdma.max."""
    return {
        "hca_handle": limit.hca_handle if limit.hca_handle >= 0 else "max",
        "hca_object": limit.hca_object if limit.hca_object >= 0 else "max",
    }
