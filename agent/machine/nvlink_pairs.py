"""The connection of each pair of GPUs: its name, its bandwidth, and whether it is degraded. Pure.

The NVLink count of a pair is the number of active links from one GPU to the other. If there are
none and both have links into a switch, it is the smaller number of those, provided that
peer-to-peer over NVLink is usable between the two and both are registered with the same fabric. If
the two sides report different numbers, the smaller one counts.

Example: two GPUs of an NVSwitch machine with 18 and 17 active links into the switch are NV17, and
the pair is reported as degraded, because 18 links were built.

Design: docs/design/topology.md
"""

from collections.abc import Mapping, Sequence
from itertools import combinations

from agent.machine.facts import GpuFacts
from protos.topology import Weak

COMPLETED = 3
NVML_LEVELS = {0: "PIX", 10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}
# Usable bandwidth of one NVLink in GB/s per direction, by the first compute capability that has it,
# as NCCL counts it.
NVLINK = (((6, 0), 18.0), ((7, 0), 20.0), ((8, 6), 12.0), ((9, 0), 20.6), ((10, 0), 40.1))
PCIE_16 = {
    1: 3.0,
    2: 6.0,
    3: 12.0,
    4: 24.0,
    5: 48.0,
    6: 96.0,
}  # GB/s of sixteen lanes, by generation
SOCKETS = 10.0  # GB/s, upper bound between two sockets


def connection(a: GpuFacts, b: GpuFacts, pcie: str) -> str:
    """The name that `nvidia-smi topo -m` gives to the connection; empty if unknown. `pcie` is the
    name by sysfs, empty if unknown."""
    count = nvlinks(a, b)
    if count:
        return f"NV{count}"
    if pcie:
        return pcie
    level = a.ancestors[b.index] if b.index < len(a.ancestors) else -1
    return NVML_LEVELS.get(level, "")


def nvlinks(a: GpuFacts, b: GpuFacts) -> int:
    direct = _toward(a, b), _toward(b, a)
    if all(direct):
        return min(direct)
    if any(direct):
        return max(direct)  # only one side reports the remote ends of its links
    return min(_switched(a), _switched(b)) if _reach(a, b) and _reach(b, a) else 0


def _toward(a: GpuFacts, b: GpuFacts) -> int:
    return sum(1 for link in a.nvlinks if link.active and b.pci and link.remote_pci == b.pci)


def _switched(gpu: GpuFacts) -> int:
    """Active links into a switch. In VMs the remote end is unknown, and is taken for a switch."""
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


def bandwidth(gpus: Sequence[GpuFacts], links: Sequence[Sequence[str]]) -> list[list[float]]:
    """Expected GB/s per direction for each pair of GPUs; 0 on the diagonal."""
    made = [[0.0] * len(gpus) for _ in gpus]
    for a, b in combinations(range(len(gpus)), 2):
        made[a][b] = made[b][a] = _speed(gpus[a], gpus[b], links[a][b])
    return made


def _speed(a: GpuFacts, b: GpuFacts, joined: str) -> float:
    if joined.startswith("NV"):
        return round(int(joined[2:]) * min(_link_speed(a), _link_speed(b)), 1)
    lanes = min(_pcie_speed(a), _pcie_speed(b))
    return min(lanes, SOCKETS) if joined == "SYS" else lanes


def _link_speed(gpu: GpuFacts) -> float:
    major, _, minor = gpu.capability.partition(".")
    own = (int(major), int(minor or 0)) if major.isdigit() else (0, 0)
    return max((first, speed) for first, speed in (((0, 0), 18.0), *NVLINK) if first <= own)[1]


def _pcie_speed(gpu: GpuFacts) -> float:
    """GB/s; sixteen lanes of generation 3 if NVML reports neither."""
    full = PCIE_16.get(gpu.pcie_generation or 3, max(PCIE_16.values()))
    return round(full * min(gpu.pcie_width or 16, 16) / 16, 1)


def weak(gpus: Sequence[GpuFacts]) -> tuple[Weak, ...]:
    """The degraded pairs, with the reason. GPUs that can't be read or are in MIG mode are left out.

    With NVSwitches, GPUs of one model have equally many links, so a smaller number means that links
    are down. Without a switch the remote end of an inactive link is unknown, and it may have no
    cable."""
    built: dict[str, int] = {}  # links into a switch, by model
    for gpu in gpus:
        if _switched(gpu) and not _direct(gpu):
            built[gpu.model] = max(built.get(gpu.model, 0), len(gpu.nvlinks))
    known = [gpu for gpu in gpus if not gpu.fault and not gpu.mig]
    found = ((a, b, _weakness(a, b, built)) for a, b in combinations(known, 2))
    return tuple(Weak(a.index, b.index, why) for a, b, why in found if why)


def _weakness(a: GpuFacts, b: GpuFacts, links: Mapping[str, int]) -> str:
    forth, back = _toward(a, b), _toward(b, a)
    if forth != back:
        return f"one GPU reports {max(forth, back)} NVLinks to the other, which reports {min(forth, back)}"
    built = min(links.get(a.model, 0), links.get(b.model, 0))
    if forth or not built:
        return ""
    up = min(_switched(a), _switched(b))
    if up < built:
        return f"{up} of {built} NVLinks are active"
    return "" if nvlinks(a, b) else _parted(a, b)


def _direct(gpu: GpuFacts) -> bool:
    return any(link.active and link.remote == "gpu" for link in gpu.nvlinks)


def _parted(a: GpuFacts, b: GpuFacts) -> str:
    if a.fabric and b.fabric:
        if {a.fabric.state, b.fabric.state} != {COMPLETED}:
            return "not both GPUs are registered with the NVLink fabric"
        if a.fabric.clique_id != b.fabric.clique_id:
            return f"different fabric cliques: {a.fabric.clique_id} and {b.fabric.clique_id}"
    return "peer-to-peer over NVLink is not usable between them"
