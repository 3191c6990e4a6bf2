"""Sizes by counts, against every assignment there is."""

import random
from collections.abc import Iterator, Sequence
from fractions import Fraction
from itertools import product

import pytest

from central.scheduler.elastic import sizes
from central.scheduler.elastic.sizes import SizeRange


def fulfilment(job: SizeRange, size: int) -> Fraction:
    """Written apart from the code, from the definition; only whole steps can be fulfilled."""
    top = max(range(job.least, job.most + 1, job.step))
    return Fraction(1) if top == job.least else Fraction(size - job.least, top - job.least)


def rating(jobs: list[SizeRange], given: Sequence[int]) -> tuple[object, ...]:
    pairs = list(zip(jobs, given, strict=True))
    return (
        sorted(fulfilment(job, size) for job, size in pairs),
        -sum(size != job.now for job, size in pairs),
        -sum(abs(size - job.now) for job, size in pairs),
        list(given),
    )


def brute_force(jobs: list[SizeRange], seats: int) -> list[int]:
    every = product(*(range(job.least, job.most + 1, job.step) for job in jobs))
    fitting: list[tuple[int, ...]] = [
        given
        for given in every
        if sum(size - job.least for job, size in zip(jobs, given, strict=True)) <= seats
    ]
    best = max(fitting, key=lambda given: rating(jobs, given))
    return list(best)


def cases(seeds: range, steps: tuple[int, ...]) -> Iterator[tuple[list[SizeRange], int]]:
    for seed in seeds:
        dice = random.Random(seed)
        jobs = []
        for _ in range(dice.randint(1, 4)):
            least, step = dice.randint(1, 4), dice.choice(steps)
            most = least + dice.randint(0, 8)
            jobs.append(SizeRange(least, most, step, dice.randint(least, most)))
        yield jobs, dice.randint(0, 12)


@pytest.mark.parametrize("base", range(0, 3600, 100))
def test_even_is_the_best_of_all_assignments(base: int) -> None:
    seeds = range(base, base + 100)
    for jobs, seats in (*cases(seeds, (1, 2, 3)), *cases(seeds, (1,)), *cases(seeds, (2,))):
        assert sizes.even(jobs, seats) == brute_force(jobs, seats), (jobs, seats)


def test_even_shares_a_pool() -> None:
    jobs = [SizeRange(2, 60, now=2) for _ in range(20)]
    found = sizes.even(jobs, 265 - 40)
    assert sum(found) == 265
    assert set(found) == {13, 14}


def test_the_lowest_level_counts_ranges_and_not_pods() -> None:
    wide, narrow = SizeRange(0, 40), SizeRange(0, 4)
    assert sizes.even([wide, narrow], 22) == [20, 2]


def test_a_job_that_has_the_seat_keeps_it() -> None:
    jobs = [SizeRange(1, 9, now=3), SizeRange(1, 9, now=4), SizeRange(1, 9, now=3)]
    assert sizes.even(jobs, 7) == [3, 4, 3]


def test_many_jobs_of_unlike_steps_take_every_seat_that_a_step_fits() -> None:
    jobs = [SizeRange(1, 65, step=1 + index % 4) for index in range(400)]
    found = sizes.even(jobs, 10_000)
    assert sum(size - job.least for job, size in zip(jobs, found, strict=True)) == 10_000
    levels = [fulfilment(job, size) for job, size in zip(jobs, found, strict=True)]
    assert max(levels) - min(levels) <= Fraction(4, 64)


def test_fill_serves_the_line() -> None:
    jobs = [SizeRange(1, 5), SizeRange(1, 9, step=4), SizeRange(1, 3)]
    assert sizes.fill(jobs, 9) == [5, 5, 2]
    assert sizes.fill(jobs, 3) == [4, 1, 1]
