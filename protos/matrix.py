"""Formats a node's topology as text: the matrix of `nvidia-smi topo -m` with NICs. Pure."""

from collections.abc import Iterator, Mapping

from protos import nic_access, slicing
from protos.common.text_fold import hung
from protos.topology import Gpu, NodeTopology

LOCKABLE = 1 << 30  # bytes; below this limit RDMA programs fail or fall back to TCP
AFFINITY = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
NONE = "N/A"
# NODE and SYS are told apart by the NUMA nodes in /sys, where nvidia-smi asks the driver.
LEGEND = """Legend:

  X    = Self
  SYS  = PCIe and the interconnect between NUMA nodes
  NODE = PCIe and the interconnect between PCIe host bridges of one NUMA node
  PHB  = PCIe and one PCIe host bridge (as a rule, the CPU)
  PXB  = Several PCIe bridges, no host bridge
  PIX  = At most one PCIe bridge
  NV#  = A bond of # NVLinks
"""


def rows(topology: NodeTopology) -> list[list[str]]:
    """The header and a row for each GPU and NIC, all of the same length."""
    gpus, hcas = topology.gpus, topology.hcas
    names = [f"GPU{gpu.index}" for gpu in gpus] + [
        f"NIC{position}" for position in range(len(hcas))
    ]
    table = [["", *names, *AFFINITY]]
    for position, (name, cells) in enumerate(zip(names, topology.links, strict=True)):
        columns = ["", "", ""]
        if position < len(gpus):
            gpu = gpus[position]
            numa_id = str(gpu.gpu_numa) if gpu.gpu_numa >= 0 else NONE
            columns = [gpu.cpu_affinity or NONE, gpu.numa_affinity or NONE, numa_id]
        table.append([name, *cells, *columns])
    return table


def fitting(topology: NodeTopology, width: int) -> str:
    """The matrix alone. A narrow terminal gets no columns for NICs; their rows say the same."""
    whole = "\n".join(_aligned(rows(topology)))
    if max(map(len, whole.splitlines())) <= width:
        return whole
    kept = range(len(topology.gpus) + 1)
    narrow = [[row[at] for at in kept] for row in rows(topology)]
    return "\n".join([*_aligned(narrow), "(a wider terminal also shows the columns of the NICs)"])


def table(
    topology: NodeTopology, holders: Mapping[str, str] | None = None, width: int = 10_000
) -> str:
    """The matrix, as fitting() has it, then what needs attention. Columns are separated by at least two spaces.
    holders: of MIG slices by uuid, if known."""
    parts = [LEGEND]
    if topology.hcas:
        nics = [f"  NIC{position}: {hca.name}" for position, hca in enumerate(topology.hcas)]
        parts.append("\n".join(["NIC Legend:", "", *nics, ""]))
    if switches := _switches(topology):
        parts.append("\n".join(["GPUs below one PCIe switch:", "", *switches, ""]))
    if topology.pcie_source:
        parts.append(f"PCIe paths are from {topology.pcie_source}")
    if topology.imex_why:
        parts.append(f"NVLink ends at this machine: {topology.imex_why}")
    if mig := [*_slices(topology, holders), *_modes(topology)]:
        parts.append("\n".join(["MIG:", "", *mig, ""]))
    if shared := list(_shared(topology)):
        parts.append("\n".join(["Shared GPUs, and how memory caps are enforced:", "", *shared, ""]))
    unhealthy = [f"  GPU{gpu.index}: {gpu.why}" for gpu in topology.gpus if not gpu.healthy]
    unhealthy += [
        f"  {slicing.words(gpu, part)}: {part.why}"
        for gpu, part in slicing.of(topology)
        if gpu.healthy and not part.healthy
    ]
    unhealthy += [
        f"  NIC{position}: {hca.why}" for position, hca in enumerate(topology.hcas) if hca.why
    ]
    if unhealthy:
        parts.append("\n".join(["Unhealthy:", "", *unhealthy, ""]))
    if access := list(nic_access.lines(topology)):
        parts.append("\n".join(["NICs for pods:", "", *access, ""]))
    if warnings := notes(topology):
        parts.append("\n".join(["RDMA:", "", *(f"  {each}" for each in warnings), ""]))
    if slow := [f"  GPU{gpu}: {why}" for gpu, why in topology.slow().items()]:
        parts.append("\n".join(["Slow GPUs:", "", *slow, ""]))
    pairs = (pair for pair in topology.weak if pair.a != pair.b)
    weak = [f"  GPU{pair.a} and GPU{pair.b}: {pair.why}" for pair in pairs]
    if weak:
        parts.append("\n".join(["Degraded GPU pairs:", "", *weak, ""]))
    notes_below = "\n\n".join(part.rstrip("\n") for part in parts)
    folded = (hung(line, width) for line in notes_below.split("\n"))
    return "\n".join([fitting(topology, width), "", *folded]) + "\n"


def notes(topology: NodeTopology) -> tuple[str, ...]:
    """Warnings for users of RDMA NICs."""
    found = []
    if topology.hcas and topology.rdma_exclusive:
        found.append(
            "RDMA devices are in exclusive network namespaces (rdma system show): only pods with "
            "hostNetwork can use the NICs of the host"
        )
    if _hidden(topology):
        found.append(
            "each GPU and NIC is in a PCI domain of its own, so /sys does not show which are close: "
            "give the agent the provider's topology file for NCCL (--pcie-tree, "
            "components/pcie-tree)"
        )
    if topology.hcas and 0 < topology.memlock < LOCKABLE:
        found.append(
            f"the container runtime limits locked memory to {topology.memlock // 1024} KiB, too "
            "little for RDMA (set LimitMEMLOCK=infinity for the runtime, or add CAP_IPC_LOCK to the container)"
        )
    return tuple(found)


def _hidden(topology: NodeTopology) -> bool:
    """Returns whether no two devices share a PCI domain, on a machine that is not Grace."""
    addresses = [gpu.pci for gpu in topology.gpus] + [hca.pci for hca in topology.hcas]
    domains = {address.partition(":")[0] for address in addresses}
    return (
        not topology.pcie_source
        and len(topology.gpus) > 1
        and len(topology.hcas) > 1
        and len(domains) == len(addresses)
        and all(gpu.gpu_numa < 0 for gpu in topology.gpus)
    )


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _switches(topology: NodeTopology) -> list[str]:
    """Returns lines with the GPUs below each PCIe switch; none if no two GPUs share a switch and every GPU's place is
    known."""
    known = {gpu for switch in topology.pcie_switches for gpu in switch}
    shared = [switch for switch in topology.pcie_switches if len(switch) > 1]
    unknown = [gpu.index for gpu in topology.gpus if gpu.index not in known]
    found = ["  " + " ".join(f"GPU{gpu}" for gpu in switch) for switch in shared]
    if unknown and len(topology.gpus) > 1:
        found.append("  unknown: " + " ".join(f"GPU{gpu}" for gpu in unknown))
    return found


def _slices(topology: NodeTopology, holders: Mapping[str, str] | None) -> Iterator[str]:
    rows = [
        [f"  GPU{gpu.index}", part.profile, f"gi {part.gi}", f"ci {part.ci}", part.uuid]
        + ([holders.get(part.uuid, "-")] if holders is not None else [])
        for gpu, part in slicing.of(topology)
    ]
    return iter(_aligned(rows))


def _shared(topology: NodeTopology) -> Iterator[str]:
    """One line for all GPUs with the same enforcement."""
    found: dict[str, list[str]] = {}
    for gpu in topology.gpus:
        if gpu.shares or gpu.share_why:
            how = gpu.share_why or gpu.enforcement
            found.setdefault(how, []).append(f"GPU{gpu.index}")
    return (f"  {', '.join(gpus)}: {how}" for how, gpus in found.items())


def _modes(topology: NodeTopology) -> Iterator[str]:
    """GPUs in MIG mode without slices, and those whose mode changes at the next reset."""
    for gpu in topology.gpus:
        if gpu.mig and not gpu.slices and gpu.healthy:
            how = f"nvidia-smi mig -i {gpu.index} -cgi PROFILE -C"
            yield f"  GPU{gpu.index}: MIG mode is on without slices ({how})"
        if gpu.mig_change:
            yield f"  GPU{gpu.index}: MIG mode is {_then(gpu)} after the next reset"


def _then(gpu: Gpu) -> str:
    return "off" if gpu.mig else "on"
