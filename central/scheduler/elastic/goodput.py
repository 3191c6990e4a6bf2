"""Sizes by speed: the sum over the jobs of (speed / speed at the even share) ** -0.5 is made small. So seats go where
they speed a job up most, and no job is left far behind: a job at a quarter of the speed of its even share counts as
two.

Seats are given in the order of their worth: along the lower convex hull of each job's sizes, the steepest piece first.
For speeds that grow by less and less this is the best there is. Otherwise it is as good as the best with fewer seats,
by less than the longest piece, because the last piece may not fit.

Design: docs/design/elastic-speeds.md
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from heapq import heapify, heappop, heapreplace
from itertools import pairwise

from central.model.jobspec import ElasticTask
from central.model.speed_table import SpeedTable

POWER = -0.5


@dataclass(frozen=True, slots=True)
class SpeedCurve:
    """A job's allowed sizes, ascending, and what it would be like to have them: speed ** POWER, in its own unit.
    pieces: of the lower convex hull, as harm for each seat and indices of two sizes; the flattest first."""

    sizes: tuple[int, ...]
    harms: tuple[float, ...]
    pieces: tuple[tuple[float, int, int], ...]

    def harm(self, size: int) -> float:
        """Returns the harm of the largest allowed size that is no larger; at least of the smallest one."""
        return self.harms[max(bisect_right(self.sizes, size) - 1, 0)]


def curve(task: ElasticTask) -> SpeedCurve:
    """Returns the curve of the job. Without speeds it counts as fast as it has members."""
    if task.speeds is None:
        return _linear(task.least, task.most, task.step)
    return _known(task.speeds, task.useful)


@lru_cache(maxsize=1024)
def _linear(least: int, most: int, step: int) -> SpeedCurve:
    sizes = tuple(range(least, most + 1, step))
    return _curve(sizes, tuple(map(float, sizes)))


@lru_cache(maxsize=1024)
def _known(speeds: SpeedTable, useful: tuple[int, ...]) -> SpeedCurve:
    """Counts a declared speed at most in proportion to the members, so that no Job draws seats by a claim that others
    cannot make."""
    least = useful[0]
    each = speeds.fastest(least) / least
    return _curve(useful, tuple(min(speeds.fastest(size), each * size) for size in useful))


def _curve(sizes: tuple[int, ...], speeds: tuple[float, ...]) -> SpeedCurve:
    harms = tuple(speed**POWER for speed in speeds)
    corners: list[int] = []
    for index, size in enumerate(sizes):
        while len(corners) > 1:
            first, second = corners[-2:]
            before = (harms[second] - harms[first]) * (size - sizes[first])
            if before < (harms[index] - harms[first]) * (sizes[second] - sizes[first]):
                break
            corners.pop()
        corners.append(index)
    pieces = [
        ((harms[after] - harms[at]) / (sizes[after] - sizes[at]), at, after)
        for at, after in pairwise(corners)
    ]
    return SpeedCurve(sizes, harms, tuple(pieces[::-1]))


def price(curves: Sequence[SpeedCurve], seats: int) -> float:
    """Returns by how much one more seat lowers the sum of the jobs' harms, each in units of that at its least size; 0
    if they can use no more. seats: how many members fit beside all the least sizes."""
    pieces = sorted(
        (slope / one.harms[0], one.sizes[after] - one.sizes[at])
        for one in curves
        for slope, at, after in one.pieces
    )
    for slope, taken in pieces:
        seats -= taken
        if seats < 0:
            return -slope
    return 0.0


def goodput(
    curves: Sequence[SpeedCurve], fair: Sequence[int], present: Sequence[int], seats: int
) -> list[int]:
    """The jobs' sizes. fair: their even shares. seats: how many members fit beside all the least sizes. Among equals
    who has the seat keeps it, then the first in line gets it."""
    given = [0] * len(curves)  # indices of sizes
    units = [1 / one.harm(share) for one, share in zip(curves, fair, strict=True)]
    left = [len(one.pieces) for one in curves]  # pieces of each job that are not given
    heap: list[tuple[float, bool, int]] = []
    for job, one in enumerate(curves):
        if one.pieces:
            slope, _, after = one.pieces[-1]
            heap.append((slope * units[job], one.sizes[after] > present[job], job))
    heapify(heap)
    while heap and seats > 0:
        _, _, job = heap[0]
        one = curves[job]
        left[job] -= 1
        _, at, after = one.pieces[left[job]]
        if (taken := one.sizes[after] - one.sizes[at]) <= seats:
            given[job] = after
        else:
            given[job] = bisect_right(one.sizes, one.sizes[at] + seats) - 1
            taken = one.sizes[given[job]] - one.sizes[at]
            left[job] = 0
        seats -= taken
        if left[job]:
            slope, _, following = one.pieces[left[job] - 1]
            following_is_new = one.sizes[following] > present[job]
            heapreplace(heap, (slope * units[job], following_is_new, job))
        else:
            heappop(heap)
    return [one.sizes[index] for one, index in zip(curves, given, strict=True)]
