"""Sums of resources by name, and the names of queues that exist without an object."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # commands that list jobs import this module, and the facts would bring numpy
    from central.model.facts import PodSpec

Sums = dict[str, int]  # by resource, without zeroes


ROOT, DEFAULT = "root", "default"

# In sums of queues: GPUs, shares and MIG slices in one currency (central/scheduler/queues/gpu_currency.py), that many
# units to a GPU.
GPU_EQUIVALENTS = "gpu-equivalents"
GPU_UNITS = 8400


def requested(groups: Iterable[tuple["PodSpec", int]]) -> Sums:
    """Returns the sum of what that many pods of these classes request, and of the devices of their claims."""
    sums: Sums = {}
    for spec, count in groups:
        add(sums, dict(spec.requests), count)
        if spec.charges:
            add(sums, dict(spec.charges), count)
    return sums


def add(sums: Sums, more: Mapping[str, int], times: int) -> None:
    """Adds the amounts `times` times; times may be negative."""
    for resource, amount in more.items():
        left = sums.get(resource, 0) + amount * times
        if left:
            sums[resource] = left
        else:
            sums.pop(resource, None)
