"""Which cap a container with shares is to have: the centre's plans say it, once it is known whose plan it
is. Pure."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from agent.resources.device_resource import ContainerKey
from protos.gpu_sharing import LEAST, MEMORY, hundredths, key_of
from protos.names import GPU_SHARE
from protos.topology import Grant


@dataclass(frozen=True, slots=True, order=True)
class MemoryCap:
    cap: int = 0  # bytes; 0: none
    least: int = 0  # how surely it must hold: a rank


NO_CAP = MemoryCap()


def of(plans: Iterable[Grant], key: ContainerKey) -> MemoryCap | None:
    """None: there is no plan for this container."""
    for plan in plans:
        if plan.resource == GPU_SHARE and key_of(plan) == key:
            return _wish(plan)
    return None


def asked(
    plans: Iterable[Grant],
    gpu: str,
    part: int,
    meant: Collection[ContainerKey],
    served: Collection[ContainerKey],
) -> set[MemoryCap]:
    """Of those who may be the one that the kubelet asks for now: of the meant ones, else of all who
    wait for so much of that GPU."""
    waiting = [plan for plan in plans if plan.resource == GPU_SHARE and key_of(plan) not in served]
    found = {_wish(plan) for plan in waiting if key_of(plan) in meant}
    if len(found) == 1:
        return found
    return {
        _wish(plan) for plan in waiting if plan.device_ids == (gpu,) and hundredths(plan) == part
    }


def _wish(plan: Grant) -> MemoryCap:
    limits = dict(plan.limits)
    return MemoryCap(limits.get(MEMORY, 0), limits.get(LEAST, 0))
