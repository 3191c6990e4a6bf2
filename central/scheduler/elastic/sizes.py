"""How many members each elastic job gets, by counts: the jobs' pods are alike, so any seat serves any job.

fulfilment of a job: (size - least) / (most - least), 1 where least = most

even: the ascending vector of fulfilments is lexicographically greatest. Of several such assignments the one
that changes the fewest jobs, then the fewest pods, then the one that gives more to the jobs ahead in line.
fill: in line order, each job gets all that it can use.

even() is exact for jobs of equal steps, and for unlike steps as long as the search is small (MAX_STATES). A
larger one raises the lowest job that still fits, which may leave a job one step below its best size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from math import lcm

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
    levels = _Levels(jobs)
    surplus, left = levels.raise_all_together(seats)
    if len({job.step for job in jobs if job.span}) <= 1:
        levels.raise_some(surplus, left)
    elif len(jobs) * (left + 1) <= MAX_STATES:
        surplus = levels.best(surplus, left)
    else:
        levels.raise_lowest_that_fits(surplus, left)
    return [job.least + more for job, more in zip(jobs, surplus, strict=True)]


def fill(jobs: Sequence[SizeRange], seats: int) -> list[int]:
    """As even()."""
    sizes = []
    for job in jobs:
        more = min(job.span, seats // job.step * job.step)
        seats -= more
        sizes.append(job.least + more)
    return sizes


class _Levels:
    """Fulfilments in one unit, so that they are compared as whole numbers."""

    def __init__(self, jobs: Sequence[SizeRange]) -> None:
        self._jobs = jobs
        self._unit = lcm(*(job.span or 1 for job in jobs)) if jobs else 1
        self._worth = [self._unit // job.span if job.span else 0 for job in jobs]

    def _of(self, index: int, surplus: int) -> int:
        return surplus * self._worth[index] if self._worth[index] else self._unit

    def raise_all_together(self, seats: int) -> tuple[list[int], int]:
        """The least sizes at the highest level that all jobs reach, and the seats that are left."""
        jobs = self._jobs
        total, steps = sum(job.span for job in jobs), sum(job.step for job in jobs if job.span)
        if seats >= total:
            return [job.span for job in jobs], seats - total
        # Every job reaches this level: rounding up takes less than a step of each.
        surplus = [0] * len(jobs)
        if seats > steps:
            for index, job in enumerate(jobs):
                if job.span:
                    wanted = -(-(seats - steps) * job.span // (total * job.step))
                    surplus[index] = min(job.span, wanted * job.step)
        left = seats - sum(surplus)
        heap = [(self._of(index, surplus[index]), index) for index, job in enumerate(jobs)]
        heapify(heap)
        while heap and heap[0][0] < self._unit:
            level, lowest = heap[0][0], []
            while heap and heap[0][0] == level:
                lowest.append(heappop(heap)[1])
            needed = sum(jobs[index].step for index in lowest)
            if needed > left:
                break
            left -= needed
            for index in lowest:
                surplus[index] += jobs[index].step
                heap.append((self._of(index, surplus[index]), index))
            heapify(heap)
        return surplus, left

    def raise_some(self, surplus: list[int], left: int) -> None:
        """For equal steps: not all of the lowest can be raised. Those come first that get highest."""
        jobs = self._jobs
        levels = [self._of(index, more) for index, more in enumerate(surplus)]
        lowest = [index for index, level in enumerate(levels) if level == min(levels)]
        if not lowest or levels[lowest[0]] == self._unit:
            return
        step = jobs[lowest[0]].step
        lowest.sort(key=lambda index: self._preference(index, surplus[index]))
        for index in lowest[: left // step]:
            surplus[index] += step

    def _preference(self, index: int, surplus: int) -> tuple[int, int, int, int]:
        job = self._jobs[index]
        above, now = surplus + job.step, job.now - job.least
        changed = (above != now) - (surplus != now)
        return (-self._of(index, above), changed, abs(above - now) - abs(surplus - now), index)

    def raise_lowest_that_fits(self, surplus: list[int], left: int) -> None:
        jobs = self._jobs
        heap = [
            (self._of(index, surplus[index]), job.step, index)
            for index, job in enumerate(jobs)
            if surplus[index] < job.span
        ]
        heapify(heap)
        while heap:
            _, step, index = heap[0]
            if step > left:
                heappop(heap)  # the seats that are left only become fewer
                continue
            left -= step
            surplus[index] += step
            if surplus[index] < jobs[index].span:
                heapreplace(heap, (self._of(index, surplus[index]), step, index))
            else:
                heappop(heap)

    def best(self, base: list[int], left: int) -> list[int]:
        """The best way to give the seats that are left, job by job: for each number of seats only the best
        beginning matters, because what is added later moves both vectors alike."""
        rated: list[_Rated | None] = [_Rated((), 0, 0, ())] + [None] * left
        for index, job in enumerate(self._jobs):
            following: list[_Rated | None] = [None] * (left + 1)
            for used, found in enumerate(rated):
                if found is None:
                    continue
                most = min(left - used, job.span - base[index])
                for more in range(0, most + 1, job.step):
                    size = base[index] + more
                    level, now = self._of(index, size), job.now - job.least
                    tried = found.extended(level, size, now)
                    known = following[used + more]
                    if known is None or tried.key > known.key:
                        following[used + more] = tried
            rated = following
        return list(max((one for one in rated if one is not None), key=lambda one: one.key).sizes)


@dataclass(frozen=True, slots=True)
class _Rated:
    """An assignment of the first jobs."""

    levels: tuple[int, ...]  # ascending
    changed: int  # jobs
    pods: int  # that come or go
    sizes: tuple[int, ...]

    @property
    def key(self) -> tuple[object, ...]:
        return (self.levels, -self.changed, -self.pods, self.sizes)

    def extended(self, level: int, size: int, now: int) -> "_Rated":
        levels = tuple(sorted((*self.levels, level)))
        changed, pods = self.changed + (size != now), self.pods + abs(size - now)
        return _Rated(levels, changed, pods, (*self.sizes, size))
