"""Checks of idle GPUs beside their health: fewer NVLinks than the neighbours, and no working NIC nearby. Pure."""

from collections.abc import Collection, Iterable

from agent.machine.facts import GpuFacts
from protos.nearest import adjacent_nics
from protos.topology import Gpu, NodeTopology


def failures(
    topology: NodeTopology, facts: Iterable[GpuFacts], uuids: Collection[str]
) -> dict[str, str]:
    """Returns the cause of each failure by the GPU's UUID. GPUs that pass are left out."""
    links = _links(facts)
    found: dict[str, str] = {}
    for gpu in topology.gpus:
        if gpu.uuid in uuids and (why := links.get(gpu.uuid) or _nics(topology, gpu)):
            found[gpu.uuid] = why
    return found


def _links(facts: Iterable[GpuFacts]) -> dict[str, str]:
    """GPUs with fewer links to NVSwitches than others of the same model. Direct links differ by design, and are not
    compared."""
    up: dict[str, dict[str, int]] = {}
    for gpu in facts:
        if gpu.uuid and not gpu.mig and gpu.nvlinks:
            count = sum(link.active and link.remote == "switch" for link in gpu.nvlinks)
            up.setdefault(gpu.model, {})[gpu.uuid] = count
    return {
        uuid: f"{count} of {max(counts.values())} NVLinks to the switches are up"
        for counts in up.values()
        for uuid, count in counts.items()
        if count < max(counts.values())
    }


def _nics(topology: NodeTopology, gpu: Gpu) -> str:
    """Returns why no NIC beside the GPU works, else "". The GPU's traffic would take the NIC of another GPU."""
    beside = adjacent_nics(topology, 1 << gpu.index)
    whys = {hca.name: hca.why for hca in topology.hcas if hca.name in beside}
    if not whys or not all(whys.values()):
        return ""
    return "; ".join(f"NIC {name} beside it: {why}" for name, why in sorted(whys.items()))
