"""The memory cap of a container with GPU shares, from the scheduler's plan for it. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.resources.device_resource import ContainerKey
from protos.gpu_sharing import LEAST, MEMORY, hundredths, key_of
from protos.names import GPU_SHARE
from protos.topology import Grant


@dataclass(frozen=True, slots=True, order=True)
class MemoryCap:
    cap: int = 0  # bytes; 0: none
    least: int = 0  # rank of the weakest enforcement that is allowed


NO_CAP = MemoryCap()


def for_container(plans: Iterable[Grant], key: ContainerKey) -> MemoryCap | None:
    """Returns the container's memory cap; None if it has no plan."""
    for plan in plans:
        if plan.resource == GPU_SHARE and key_of(plan) == key:
            return _cap(plan)
    return None


def candidates(
    plans: Iterable[Grant],
    gpu: str,
    count: int,
    meant: Collection[ContainerKey],
    served: Collection[ContainerKey],
) -> set[MemoryCap]:
    """Caps of the containers that an Allocate may be for: of those in `meant`, else of all unserved
    containers with a plan for that many hundredths of the GPU."""
    waiting = [plan for plan in plans if plan.resource == GPU_SHARE and key_of(plan) not in served]
    found = {_cap(plan) for plan in waiting if key_of(plan) in meant}
    if len(found) == 1:
        return found
    return {
        _cap(plan) for plan in waiting if plan.device_ids == (gpu,) and hundredths(plan) == count
    }


def _cap(plan: Grant) -> MemoryCap:
    limits = dict(plan.limits)
    return MemoryCap(limits.get(MEMORY, 0), limits.get(LEAST, 0))
