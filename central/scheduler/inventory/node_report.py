"""Reads an agent's report: the devices of each pod, GPU models, and network levels."""

from central.model.facts import NodeReported
from central.scheduler.inventory.gpu_shares import GpuShares
from protos.gpu_sharing import hundredths
from protos.names import CHASSIS, CLIQUE, GPU, GPU_SHARE
from protos.topology import NodeTopology, mask_of

Name = tuple[str, str]  # namespace and pod


def levels(topology: NodeTopology) -> tuple[tuple[str, str], ...]:
    """The node's NVLink clique and chassis, each only if all its GPUs are in the same one."""
    found = []
    for level, values in (
        (CLIQUE, {gpu.clique for gpu in topology.gpus}),
        (CHASSIS, {gpu.chassis for gpu in topology.gpus}),
    ):
        if len(values) == 1 and (value := values.pop()):
            found.append((level, value))
    return tuple(found)


def observed_shares(report: NodeReported) -> dict[Name, GpuShares]:
    """The hundredths that each pod has, by GPU."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    found: dict[Name, GpuShares] = {}
    for grant in report.grants:
        gpus = [index[uuid] for uuid in grant.device_ids if uuid in index]
        if grant.resource == GPU_SHARE and gpus and hundredths(grant) > 0:
            parts = found.setdefault((grant.namespace, grant.pod), {})
            parts[gpus[0]] = parts.get(gpus[0], 0) + hundredths(grant)
    return found


def observed_gpus(report: NodeReported) -> dict[Name, int]:
    """The mask of GPUs that each pod has. Unknown device ids are ignored."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    masks: dict[Name, int] = {}
    for grant in report.grants:
        if grant.resource == GPU:
            mask = mask_of(index[uuid] for uuid in grant.device_ids if uuid in index)
            name = (grant.namespace, grant.pod)
            masks[name] = masks.get(name, 0) | mask
    return masks


def gpu_models(topology: NodeTopology) -> tuple[tuple[str, int], ...]:
    """The distinct (model, memory in bytes) of the GPUs. A GPU whose model cannot be read is left out."""
    return tuple(sorted({(g.model, g.memory_bytes) for g in topology.gpus if g.model}))
