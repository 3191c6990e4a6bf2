"""Prometheus metrics of MIG slices, and of their use by containers."""

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from agent.node_state import NodeState
from agent.nvml.usage import Usage
from protos import slicing
from protos.topology import Gpu, Slice

LABELS = ("gpu", "uuid", "slice", "profile")


def families(state: NodeState, usage: Mapping[str, Usage]) -> Iterator[Metric]:
    """usage: of GPUs and slices, by uuid."""
    there = {part.uuid: (gpu, part) for gpu, part in slicing.of(state.topology)}
    if not there:
        return
    used = {uuid: each.memory_used for uuid, each in usage.items() if uuid in there}
    for name, what, values in (
        (
            "healthy",
            "1 if the slice is healthy",
            {u: int(part.healthy) for u, (_, part) in there.items()},
        ),
        (
            "memory_bytes",
            "Memory of the slice in bytes",
            {u: p.memory_bytes for u, (_, p) in there.items()},
        ),
        ("memory_used_bytes", "Memory in use in bytes", used),
    ):
        family = GaugeMetricFamily(f"lockstep_slice_{name}", what, labels=LABELS)
        for uuid, value in values.items():
            if value is not None:
                family.add_metric(_labels(*there[uuid]), value)
        yield family
    family = GaugeMetricFamily(
        "lockstep_grant_slice_memory_used_bytes",
        "Memory in use of a slice allocated to a container, in bytes",
        labels=("namespace", "pod", "container", *LABELS, "enforcement"),
    )
    for grant in state.grants:
        for uuid in grant.device_ids if slicing.is_slice(grant.resource) else ():
            if (value := used.get(uuid)) is not None:
                gpu, part = there[uuid]
                holder = (grant.namespace, grant.pod, grant.container)
                level = slicing.enforcement(part.profile)
                family.add_metric((*holder, *_labels(gpu, part), level), value)
    yield family


def _labels(gpu: Gpu, part: Slice) -> tuple[str, ...]:
    return str(gpu.index), gpu.uuid, part.uuid, part.profile
