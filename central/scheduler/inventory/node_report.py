"""What an agent's report says of pods and of the node's place, read off it. Pure."""

from central.model.facts import NodeReported
from central.scheduler.inventory.gpu_shares import GpuShares
from protos.gpu_sharing import hundredths
from protos.names import CHASSIS, CLIQUE, GPU, GPU_SHARE
from protos.topology import NodeTopology, mask_of

Name = tuple[str, str]  # namespace and pod


def levels(topology: NodeTopology) -> tuple[tuple[str, str], ...]:
    """Of a machine whose GPUs are not all in one clique there is none."""
    found = []
    for level, values in (
        (CLIQUE, {gpu.clique for gpu in topology.gpus}),
        (CHASSIS, {gpu.chassis for gpu in topology.gpus}),
    ):
        if len(values) == 1 and (value := values.pop()):
            found.append((level, value))
    return tuple(found)


def observed_shares(report: NodeReported) -> dict[Name, GpuShares]:
    """The hundredths that each pod holds, by GPU."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    found: dict[Name, GpuShares] = {}
    for grant in report.grants:
        gpus = [index[uuid] for uuid in grant.device_ids if uuid in index]
        if grant.resource == GPU_SHARE and gpus and hundredths(grant) > 0:
            parts = found.setdefault((grant.namespace, grant.pod), {})
            parts[gpus[0]] = parts.get(gpus[0], 0) + hundredths(grant)
    return found


def observed_gpus(report: NodeReported) -> dict[Name, int]:
    """The GPUs that each pod holds, as masks; what names no GPU of the node is left out."""
    index = {gpu.uuid: gpu.index for gpu in report.topology.gpus}
    masks: dict[Name, int] = {}
    for grant in report.grants:
        if grant.resource == GPU:
            mask = mask_of(index[uuid] for uuid in grant.device_ids if uuid in index)
            name = (grant.namespace, grant.pod)
            masks[name] = masks.get(name, 0) | mask
    return masks


def gpu_models(topology: NodeTopology) -> tuple[tuple[str, int], ...]:
    """Model and memory of its GPUs; one that can't be read just now is none of a kind of its own."""
    return tuple(sorted({(g.model, g.memory_bytes) for g in topology.gpus if g.model}))
