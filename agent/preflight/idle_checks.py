"""Checks of idle GPUs beside their health: fewer NVLinks than the neighbours, and no working NIC nearby. Pure."""

from collections.abc import Collection, Iterable, Mapping

from agent.machine.facts import GpuFacts
from protos.nearest import adjacent_nics
from protos.topology import Gpu, NodeTopology

Pair = tuple[str, str]  # UUIDs


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


def blamed(pairs: Mapping[Pair, str]) -> dict[str, str]:
    """The GPUs that explain all copies that failed, with the reason of one of theirs: the one with the most failed
    copies, then the one with the most of the others. Where several have as many, nothing tells them apart, and all are
    named."""
    left = dict(pairs)
    found: dict[str, str] = {}
    while left:
        counts: dict[str, int] = {}
        for pair in left:
            for uuid in set(pair):
                counts[uuid] = counts.get(uuid, 0) + 1
        most = max(counts.values())
        worst = {uuid for uuid, count in counts.items() if count == most}
        for pair, why in sorted(left.items()):
            for uuid in worst.intersection(pair):
                found.setdefault(uuid, why)
        left = {pair: why for pair, why in left.items() if not worst.intersection(pair)}
    return found
