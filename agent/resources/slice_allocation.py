"""The choice of MIG slices for a container. Pure.

The choice prefers, in this order: few GPUs; GPUs near the container's RDMA NICs; GPUs with the
least free slice memory, so that other GPUs stay free for large requests or for another
partitioning.

Example: GPU 0 has one free slice and GPU 1 has three. A request for one slice takes that of GPU 0,
a request for two takes two of GPU 1."""

from collections.abc import Collection

from agent.resources.device_resource import DeviceRequest
from protos import slicing
from protos.nearest import distance
from protos.topology import NodeTopology


def preferred(
    request: DeviceRequest,
    topology: NodeTopology,
    held: Collection[str],
    nics: Collection[str] = (),
) -> tuple[str, ...]:
    """held: UUIDs of allocated slices of all profiles. nics: names."""
    home = {part.uuid: gpu.index for gpu, part in slicing.of(topology)}
    free: dict[int, list[str]] = {}
    left: dict[int, int] = {}
    for gpu, part in slicing.of(topology):
        if part.uuid in request.available and part.uuid not in request.must:
            free.setdefault(gpu.index, []).append(part.uuid)
        if part.uuid not in held:
            left[gpu.index] = left.get(gpu.index, 0) + part.memory_bytes
    chosen = list(request.must)
    while free and (missing := request.size - len(chosen)) > 0:
        opened = {home[each] for each in chosen if each in home}
        best = min(
            free,
            key=lambda gpu: (
                gpu not in opened,
                -min(len(free[gpu]), missing),
                distance(topology, gpu, nics),
                left.get(gpu, 0),
                gpu,
            ),
        )
        chosen += free.pop(best)[:missing]
    rest = sorted(set(request.available) - set(chosen))  # missing in the newest topology
    return (*chosen, *rest[: max(0, request.size - len(chosen))])
