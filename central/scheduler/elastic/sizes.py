"""The sizes of elastic jobs, by counts: the jobs' pods are alike, so any seat serves any job.

even: the seats above the least sizes are levelled, first between tenants, then between the jobs of each. Of all
assignments the one whose ascending vector of seats above the least is lexicographically greatest, so a larger
most gains nothing before the others have theirs; then the one that changes the fewest jobs, then the fewest
pods, then the one that gives more to the jobs ahead in line.
fill: in line order, each job gets all that it can use.

Between jobs of one tenant even() is exact for equal steps, and for unlike steps as long as the search is small
(MAX_STATES). A larger one raises the lowest job that still fits, which may leave a job one step below its best
size.
"""

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from operator import itemgetter

import numpy as np

from central.model.arrays import Ints

MAX_STATES = 20_000  # jobs times seats to share, of the exact search for unlike steps


@dataclass(frozen=True, slots=True)
class SizeRange:
    """The sizes least, least + step, ... up to most, which a job may have, and the size that it has."""

    least: int
    most: int
    step: int = 1
    now: int = 0

    @property
    def span(self) -> int:
        """The most members above the least that whole steps give."""
        return (self.most - self.least) // self.step * self.step


def even(jobs: Sequence[SizeRange], seats: int) -> list[int]:
    """The jobs' sizes. jobs: in line order. seats: how many members fit beside all the least sizes."""
    surplus = _highest_common_level(jobs, seats)
    left = seats - sum(surplus)
    unlike_steps = len({job.step for job in jobs if job.span}) > 1
    if unlike_steps and len(jobs) * (left + 1) <= MAX_STATES:
        surplus = _best(jobs, surplus, left)
    else:
        _raise_lowest_that_fit(jobs, surplus, left)
    return [job.least + more for job, more in zip(jobs, surplus, strict=True)]


def even_by_tenant(jobs: Sequence[SizeRange], tenants: Sequence[Hashable], seats: int) -> list[int]:
    """The jobs' sizes: even() between the tenants, then between the jobs of each. tenants: whose each job is."""
    indices: dict[Hashable, list[int]] = {}
    for index, tenant in enumerate(tenants):
        indices.setdefault(tenant, []).append(index)
    owned = [[jobs[index] for index in of_one] for of_one in indices.values()]
    shares = even([_together(own) for own in owned], seats)
    found = [job.least for job in jobs]
    over = seats - sum(shares)  # what whole steps of one tenant leave over goes to the next
    for share, own, of_one in sorted(
        zip(shares, owned, indices.values(), strict=True), key=itemgetter(0)
    ):
        given = even(own, share + over)
        over += share - sum(size - job.least for size, job in zip(given, own, strict=True))
        for index, size in zip(of_one, given, strict=True):
            found[index] = size
    return found


def fill(jobs: Sequence[SizeRange], seats: int) -> list[int]:
    """Returns the jobs' sizes: in line order, each gets all that it can use. jobs, seats: as for even()"""
    sizes = []
    for job in jobs:
        more = min(job.span, seats // job.step * job.step)
        seats -= more
        sizes.append(job.least + more)
    return sizes


def _together(jobs: Sequence[SizeRange]) -> SizeRange:
    """The seats above the least sizes that the jobs of one tenant can use, as the range of one job."""
    steps = {job.step for job in jobs if job.span}
    now = sum(max(0, job.now - job.least) for job in jobs)
    return SizeRange(0, sum(job.span for job in jobs), steps.pop() if len(steps) == 1 else 1, now)


def _highest_common_level(jobs: Sequence[SizeRange], seats: int) -> list[int]:
    """Seats above the least sizes, at the highest level to which all jobs fit that can grow so far."""
    spans = np.array([job.span for job in jobs], dtype=np.int64)
    steps = np.array([job.step for job in jobs], dtype=np.int64)

    def at(level: int) -> Ints:
        found: Ints = np.minimum(spans, -(-level // steps) * steps)
        return found

    levels = range(1, min(seats, int(spans.max(initial=0))) + 1)
    found: list[int] = at(
        bisect_right(levels, seats, key=lambda level: int(at(level).sum()))
    ).tolist()
    return found


def _raise_lowest_that_fit(jobs: Sequence[SizeRange], surplus: list[int], left: int) -> None:
    """One step each time; among the lowest, of the job whose present size changes the least."""

    def place(index: int) -> tuple[int, int, int, int]:
        before, now = surplus[index], jobs[index].now - jobs[index].least
        above = before + jobs[index].step
        changed = (above != now) - (before != now)
        return (before, changed, abs(above - now) - abs(before - now), index)

    heap = [place(index) for index, job in enumerate(jobs) if surplus[index] < job.span]
    heapify(heap)
    while heap:
        index = heap[0][-1]
        if jobs[index].step > left:
            heappop(heap)  # the seats that are left only become fewer
            continue
        left -= jobs[index].step
        surplus[index] += jobs[index].step
        if surplus[index] < jobs[index].span:
            heapreplace(heap, place(index))
        else:
            heappop(heap)


def _best(jobs: Sequence[SizeRange], base: Sequence[int], left: int) -> list[int]:
    """The best way to give the seats that are left, job by job: for each number of seats only the best
    beginning matters, because what is added later moves both vectors alike."""
    rated: list[_Rated | None] = [((), 0, 0, ())] + [None] * left
    for job, start in zip(jobs, base, strict=True):
        following: list[_Rated | None] = [None] * (left + 1)
        for used, found in enumerate(rated):
            if found is None:
                continue
            for more in range(0, min(left - used, job.span - start) + 1, job.step):
                tried = _extended(found, start + more, job.now - job.least)
                known = following[used + more]
                if known is None or tried > known:
                    following[used + more] = tried
        rated = following
    return list(max(one for one in rated if one is not None)[-1])


# An assignment of the first jobs, the best as the greatest: the seats above the least sizes, ascending; minus the jobs
# that change, and minus the pods that come or go; the seats by job.
_Rated = tuple[tuple[int, ...], int, int, tuple[int, ...]]


def _extended(found: _Rated, size: int, now: int) -> _Rated:
    """Returns the assignment with one more job. size, now: seats above its least size, then and now."""
    levels, changed, pods, sizes = found
    ascending = tuple(sorted((*levels, size)))
    return ascending, changed - (size != now), pods - abs(size - now), (*sizes, size)
