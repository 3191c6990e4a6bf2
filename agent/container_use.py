"""Use of GPUs by container, for the report: how busy they are, and their memory.

A container alone on its GPUs has the driver's figures of these GPUs. Containers that share a GPU have the sums of their
pod's processes, where the agent sees the host's processes. MIG slices have their memory, since NVML has no utilization
of them.
"""

from collections.abc import Mapping
from pathlib import Path

from agent import cgroups
from agent.kubelet import checkpoint
from agent.node_state import NodeState
from agent.nvml.processes import MemoryByPid, RateByPid
from agent.nvml.usage import Usage
from protos.names import GPU, GPU_SHARE, MIG
from protos.nearest import device_of
from protos.topology import GpuUse, Grant

MOST = (
    1024  # containers of a report; a node has 64 GPUs of 100 shares at most, and few pods on each
)
MOST_BYTES = (1 << 63) - 1
UNKNOWN = -1


def exclusive(state: NodeState, usage: Mapping[str, Usage]) -> list[GpuUse]:
    """Returns the use by containers that share no GPU."""
    found = []
    for grant in state.grants:
        if grant.resource == GPU or grant.resource.startswith(MIG):
            known = [usage[each] for each in grant.device_ids if each in usage]
            rates = [each.utilization for each in known if each.utilization is not None]
            sizes = [each.memory_used for each in known if each.memory_used is not None]
            rate = sum(rates) / len(rates) if rates else UNKNOWN
            found.append(_use(grant, rate, sum(sizes) if sizes else UNKNOWN))
    return found


def shared_gpus(state: NodeState) -> list[str]:
    """Returns the GPUs whose processes shared() needs, by UUID."""
    return sorted({device_of(g.device_ids[0]) for g in state.grants if g.resource == GPU_SHARE})


def shared(
    state: NodeState,
    memory: Mapping[str, MemoryByPid | None],
    rates: Mapping[str, RateByPid],
    proc: Path,
    plugins: Path,
) -> list[GpuUse]:
    """Returns the use by containers with shares; none where the agent does not see the host's processes. A pod with
    several has all in the first. Raises OSError."""
    if not cgroups.sees_host(proc):
        return []
    grants = {(g.container, g.device_ids): g for g in state.grants if g.resource == GPU_SHARE}
    holders: dict[tuple[str, str], Grant] = {}
    for entry in checkpoint.read(plugins):
        if grant := grants.get((entry.container, entry.device_ids)):
            holders.setdefault((entry.uid, device_of(entry.device_ids[0])), grant)
    found: dict[Grant, tuple[float, int]] = {
        grant: (0.0, 0) if memory.get(gpu) is not None else (UNKNOWN, UNKNOWN)
        for (_, gpu), grant in holders.items()
    }
    for gpu, sizes in memory.items():
        for pid, size in (sizes or {}).items():
            grant = holders.get((cgroups.pod_of(proc, pid) or "", gpu))
            if grant is not None:
                rate, total = found[grant]
                found[grant] = (min(1.0, rate + rates.get(gpu, {}).get(pid, 0.0)), total + size)
    return [_use(grant, *sums) for grant, sums in found.items()]


def _use(grant: Grant, rate: float, memory: int) -> GpuUse:
    whose = (grant.namespace, grant.pod, grant.container)
    return GpuUse(*whose, min(1.0, round(rate, 3)), min(memory, MOST_BYTES))
