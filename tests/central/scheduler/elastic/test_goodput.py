"""Sizes by speed, against every assignment there is."""

import random
from itertools import product

import pytest

from central.model import speed_table
from central.model.jobspec import GOODPUT, ElasticTask
from central.scheduler.elastic.goodput import SpeedCurve, curve, goodput

Case = tuple[list[SpeedCurve], list[int], int]


def _task(least: int, speeds: list[float], step: int = 1) -> ElasticTask:
    """speeds: by allowed size."""
    sizes = [least + index * step for index in range(len(speeds))]
    table = speed_table.parse(
        " ".join(f"{size}:{speed:.9f}" for size, speed in zip(sizes, speeds, strict=True))
    )
    useful = table.useful(sizes)
    return ElasticTask("w", least, sizes[-1], step, GOODPUT, speeds=table, useful=useful)


def _case(dice: random.Random, *, concave: bool) -> Case:
    """Up to four jobs of up to six sizes."""
    curves = []
    for _ in range(dice.randint(1, 4)):
        gains = [dice.uniform(0.01, 1.0) for _ in range(dice.randint(2, 6))]
        if concave:
            gains.sort(reverse=True)
        speeds = [1.0 + sum(gains[:count]) for count in range(len(gains) + 1)]
        step = 1 if concave else dice.choice((1, 2))
        curves.append(curve(_task(dice.randint(1, 3), speeds, step)))
    fair = [dice.choice(one.sizes) for one in curves]
    return curves, fair, dice.randint(0, 12)


def _harm(curves: list[SpeedCurve], fair: list[int], given: list[int]) -> float:
    together = zip(curves, fair, given, strict=True)
    return sum(one.harm(size) / one.harm(share) for one, share, size in together)


def _least_harm(curves: list[SpeedCurve], fair: list[int], seats: int) -> float:
    least = sum(one.sizes[0] for one in curves)
    return min(
        _harm(curves, fair, list(given))
        for given in product(*(one.sizes for one in curves))
        if sum(given) - least <= seats
    )


@pytest.mark.long
@pytest.mark.parametrize("base", range(0, 400, 100))
def test_speeds_that_grow_by_less_and_less_are_shared_best(base: int) -> None:
    for seed in range(base, base + 100):
        curves, fair, seats = _case(random.Random(seed), concave=True)
        given = goodput(curves, fair, [one.sizes[0] for one in curves], seats)
        assert sum(given) - sum(one.sizes[0] for one in curves) <= seats
        best = _least_harm(curves, fair, seats)
        assert _harm(curves, fair, given) == pytest.approx(best, rel=1e-9), seed


@pytest.mark.parametrize("base", range(0, 400, 100))
def test_any_speeds_are_shared_as_well_as_fewer_seats_could_be(base: int) -> None:
    """Fewer by less than the longest piece of a curve."""
    for seed in range(base, base + 100):
        curves, fair, seats = _case(random.Random(seed), concave=False)
        given = goodput(curves, fair, [one.sizes[0] for one in curves], seats)
        assert all(size in one.sizes for one, size in zip(curves, given, strict=True))
        assert sum(given) - sum(one.sizes[0] for one in curves) <= seats
        longest = max(one.sizes[-1] - one.sizes[0] for one in curves)
        fewer = max(0, seats - longest + 1)
        assert _harm(curves, fair, given) <= _least_harm(curves, fair, fewer) * (1 + 1e-9), seed


def test_who_gains_most_gets_the_seats() -> None:
    good = curve(_task(1, [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]))
    poor = curve(_task(1, [1.0, 1.1, 1.15, 1.2, 1.22, 1.24, 1.25, 1.26]))
    assert goodput([poor, good], [4, 4], [1, 1], 6) == [1, 7]


def test_nobody_is_left_far_behind() -> None:
    """Two that scale alike, of which one began with more."""
    alike = curve(_task(1, [float(size) for size in range(1, 9)]))
    assert goodput([alike, alike], [4, 4], [8, 1], 6) == [4, 4]


def test_who_has_the_seat_keeps_it() -> None:
    alike = curve(_task(1, [1.0, 2.0, 3.0, 4.0]))
    assert goodput([alike, alike], [2, 2], [1, 2], 1) == [1, 2]
    assert goodput([alike, alike], [2, 2], [2, 1], 1) == [2, 1]


def test_without_speeds_it_counts_as_fast_as_it_has_members() -> None:
    plain = curve(ElasticTask("w", 1, 8, objective=GOODPUT))
    assert plain.harms[3] == pytest.approx(4**-0.5)
    assert goodput([plain, plain], [4, 4], [1, 1], 6) == [4, 4]


def test_a_step_that_only_pays_together_is_taken_whole() -> None:
    """Three members are hardly faster than one, four are four times as fast."""
    island = curve(_task(1, [1.0, 1.01, 1.02, 4.0]))
    slow = curve(_task(1, [1.0, 1.3, 1.6, 1.9]))
    assert goodput([island, slow], [2, 2], [1, 1], 3) == [4, 1]
    assert goodput([island, slow], [2, 2], [1, 1], 2) == [3, 1]


def test_a_speed_above_proportion_counts_as_proportion() -> None:
    claimed, plain = curve(_task(2, [1.0, 90.0, 1000.0])), curve(_task(2, [1.0, 1.5, 2.0]))
    assert claimed == plain
