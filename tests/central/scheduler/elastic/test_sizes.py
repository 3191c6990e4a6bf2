"""Sizes by counts, against every assignment there is."""

import random
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from central.scheduler.elastic import sizes
from central.scheduler.elastic.sizes import SizeRange


def rating(jobs: list[SizeRange], given: Sequence[int]) -> tuple[object, ...]:
    pairs = list(zip(jobs, given, strict=True))
    return (
        sorted(size - job.least for job, size in pairs),
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


def test_a_larger_most_gains_nothing_before_the_others_have_theirs() -> None:
    for most in (40, 10_000, 2**40):
        assert sizes.even([SizeRange(2, 64), SizeRange(1, most)], 61) == [33, 31]
        assert sizes.even([SizeRange(0, most), SizeRange(0, 4)], 22) == [18, 4]


def test_many_jobs_of_a_tenant_share_what_one_job_of_another_gets() -> None:
    jobs = [SizeRange(1, 64), *[SizeRange(1, 64)] * 15]
    found = sizes.even_by_tenant(jobs, ["one", *["many"] * 15], 48)
    assert found[0] == 25
    assert sum(found[1:]) == 15 + 24


@pytest.mark.parametrize("seed", range(200))
def test_tenants_are_level_and_leave_no_seat_that_a_step_fits(seed: int) -> None:
    dice = random.Random(seed)
    step = dice.choice((1, 1, 2, 3))
    jobs = [
        SizeRange(least, least + dice.randint(0, 9), dice.choice((step, 1, 2)), least)
        for least in (dice.randint(1, 4) for _ in range(dice.randint(1, 8)))
    ]
    tenants = [dice.choice("abc") for _ in jobs]
    seats = dice.randint(0, 30)
    given = sizes.even_by_tenant(jobs, tenants, seats)
    more = [size - job.least for job, size in zip(jobs, given, strict=True)]
    assert all(one % job.step == 0 <= one <= job.span for job, one in zip(jobs, more, strict=True))
    left = seats - sum(more)
    assert left >= 0
    growing = [i for i, job in enumerate(jobs) if more[i] < job.span]
    widest = max((job.step for job in jobs), default=1)
    assert all(jobs[i].step > left for i in growing if widest == 1), (jobs, tenants, given)
    has = {
        tenant: sum(one for one, of in zip(more, tenants, strict=True) if of == tenant)
        for tenant in tenants
    }
    for i in growing:
        assert has[tenants[i]] + 2 * widest > max(has.values()), (jobs, tenants, given)


def test_one_tenant_has_the_sizes_that_its_jobs_have_alone() -> None:
    for jobs, seats in cases(range(300), (1, 2, 3)):
        assert sizes.even_by_tenant(jobs, ["a"] * len(jobs), seats) == sizes.even(jobs, seats)


def test_a_job_that_has_the_seat_keeps_it() -> None:
    jobs = [SizeRange(1, 9, now=3), SizeRange(1, 9, now=4), SizeRange(1, 9, now=3)]
    assert sizes.even(jobs, 7) == [3, 4, 3]


def test_many_jobs_of_unlike_steps_take_every_seat_that_a_step_fits() -> None:
    jobs = [SizeRange(1, 65, step=1 + index % 4) for index in range(400)]
    found = sizes.even(jobs, 10_000)
    assert sum(size - job.least for job, size in zip(jobs, found, strict=True)) == 10_000
    levels = [size - job.least for job, size in zip(jobs, found, strict=True)]
    assert max(levels) - min(levels) <= 4


def test_fill_serves_the_line() -> None:
    jobs = [SizeRange(1, 5), SizeRange(1, 9, step=4), SizeRange(1, 3)]
    assert sizes.fill(jobs, 9) == [5, 5, 2]
    assert sizes.fill(jobs, 3) == [4, 1, 1]
