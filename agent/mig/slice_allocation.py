"""Which slices a container gets. Pure.

Of the fewest GPUs; beside the network cards that the container has; and of the GPU whose slices are
left with the least, so that others stay free for whoever wants many, or for being divided anew."""

from collections.abc import Collection

from agent.resources.gpu_allocation import DeviceRequest
from protos import slicing
from protos.nearest import distance
from protos.topology import NodeTopology


def preferred(
    question: DeviceRequest,
    topology: NodeTopology,
    held: Collection[str],
    cards: Collection[str] = (),
) -> tuple[str, ...]:
    """held: the slices that somebody has, of any profile. cards: names."""
    home = {part.uuid: gpu.index for gpu, part in slicing.of(topology)}
    free: dict[int, list[str]] = {}
    left: dict[int, int] = {}
    for gpu, part in slicing.of(topology):
        if part.uuid in question.available and part.uuid not in question.must:
            free.setdefault(gpu.index, []).append(part.uuid)
        if part.uuid not in held:
            left[gpu.index] = left.get(gpu.index, 0) + part.memory_bytes
    chosen = list(question.must)
    while free and (missing := question.size - len(chosen)) > 0:
        opened = {home[each] for each in chosen if each in home}
        best = min(
            free,
            key=lambda gpu: (
                gpu not in opened,
                -min(len(free[gpu]), missing),
                distance(topology, gpu, cards),
                left.get(gpu, 0),
                gpu,
            ),
        )
        chosen += free.pop(best)[:missing]
    rest = sorted(set(question.available) - set(chosen))  # that the survey has lost since
    return (*chosen, *rest[: max(0, question.size - len(chosen))])
