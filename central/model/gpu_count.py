"""Counts of GPUs: how many there are, used and free, for all who show it (central/server/stats/count_gpus.py)."""

from collections.abc import Iterable
from typing import NamedTuple

DIGITS = 4  # behind the point, in sums


class GpuCount(NamedTuple):
    """GPU equivalents: a share counts as its hundredths, a MIG slice as its fraction of a GPU.

    used: by pods of all schedulers, from the choice of the node until they have ended. free: for a pod, now."""

    gpus: int = 0
    used: float = 0.0
    free: float = 0.0
    whole: int = 0  # of the free ones, those that are not cut into parts

    def __str__(self) -> str:
        return f"{self.gpus} GPUs, {self.used:g} used, {self.free:g} free"


NO_GPUS = GpuCount()


def total(counts: Iterable[GpuCount]) -> GpuCount:
    gpus, used, free, whole = 0, 0.0, 0.0, 0
    for each in counts:
        gpus, used = gpus + each.gpus, used + each.used
        free, whole = free + each.free, whole + each.whole
    return GpuCount(gpus, round(used, DIGITS), round(free, DIGITS), whole)
