"""Where victims are chosen by sorting, no other set of them does less harm."""

import random
from dataclasses import replace

import numpy as np
import pytest

from central.scheduler.preemption import exact_search, independent_units, least_harm
from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem, total_harm
from tests.central.scheduler.exact.units import least, levels_of


def problem(dice: random.Random) -> LeastHarmProblem:
    """Two resources; the second one is mostly not short."""
    ask = (dice.choice((1, 2, 3)), dice.choice((1, 1, 2)))
    free = {row: (dice.randrange(-1, 3), dice.choice((0, 20, 20, 20))) for row in range(3)}
    units = [
        EvictionUnit(
            gang,
            True,
            (1, dice.randrange(2), dice.randrange(5), 1, 0, 0, 0),
            {row: (dice.choice((0, 1, 2, 3)), dice.randrange(2)) for row in _rows(dice)},
            rank=dice.randrange(3),
        )
        for gang in range(dice.randrange(1, 7))
    ]
    return LeastHarmProblem(free, ask, dice.randrange(1, 4), units, {})


def _rows(dice: random.Random) -> list[int]:
    return dice.sample(range(3), 2) if dice.random() < 0.03 else [dice.randrange(3)]


def pods(have: tuple[int, ...], ask: tuple[int, ...]) -> int:
    count = 0
    while all(amount >= (count + 1) * each for amount, each in zip(have, ask, strict=True)):
        count += 1
    return count


def gained(made: LeastHarmProblem, chosen: tuple[EvictionUnit, ...]) -> int:
    total = 0
    for row, free in made.free.items():
        after = tuple(
            amount + sum(unit.frees[row][index] for unit in chosen if row in unit.frees)
            for index, amount in enumerate(free)
        )
        ask = tuple(made.request)
        total += pods(after, ask) - pods(tuple(free), ask)
    return total


@pytest.mark.parametrize("seed", range(4))
def test_no_set_of_victims_does_less_harm(seed: int) -> None:
    answered = 0
    for number in range(1000):
        made = problem(random.Random(seed * 1000 + number))
        found = independent_units.best(made)
        if found is None:
            continue
        answered += 1
        assert gained(made, tuple(found)) >= made.missing
        best = least(made)
        assert levels_of(total_harm(found)) == best, (made.free, made.request, made.units)
    assert answered > 50


@pytest.mark.parametrize("seed", range(4))
def test_of_one_missing_pod_it_is_the_choice_that_the_search_would_make(seed: int) -> None:
    """Members above a minimum beside whole gangs, on one row or two; many of equal harm and rank."""
    answered = 0
    for number in range(1000):
        dice = random.Random(seed * 1000 + number)
        made, units, surplus = problem(dice), list[EvictionUnit](), dict[int, int]()
        for gang in range(dice.randrange(1, 4)):
            surplus[gang] = dice.randrange(3)
            rows, lost = dice.sample(range(3), dice.randrange(1, 3)), dice.randrange(3)
            frees: dict[int, tuple[int, ...]] = {
                row: (dice.randrange(3), dice.randrange(2)) for row in rows
            }
            if dice.random() < 0.8:
                each = (dice.randrange(1, 3), 1, 2 * lost, len(rows), 0, 0, 0)
                units.append(EvictionUnit(gang, True, each, frees, rank=dice.randrange(2)))
            for member, row in enumerate(rows if surplus[gang] else ()):
                own = {row: frees[row]}
                each = (units[-1].harm[0] if units else 1, 0, lost, 1, 0, 0, 0)
                rank = dice.randrange(2)
                units.append(EvictionUnit(gang, False, each, own, 10 * gang + member, rank))
        if not units:
            continue
        made = LeastHarmProblem(made.free, made.request, 1, units, surplus)
        found = independent_units.best(made)
        if found is None:
            continue
        answered += 1
        searched = least_harm.choose_victims(made)
        searched, _ = exact_search.improve(made, searched, 4_000)
        assert found == searched, (made.free, made.request, units)
    assert answered > 200


@pytest.mark.parametrize("seed", range(4))
def test_of_one_missing_pod_arrays_say_what_units_say(seed: int) -> None:
    """Of gangs of one row each, many of equal harm."""
    answered = 0
    for number in range(1000):
        dice = random.Random(seed * 1000 + number)
        made = problem(dice)
        units = [replace(unit, rank=0) for unit in made.units if len(unit.frees) == 1]
        one = replace(made, units=units, missing=1).without_useless()
        if (found := independent_units.best(one)) is None:
            continue
        answered += 1
        gangs = independent_units.SingleRowGangs(
            np.array([row for unit in one.units for row in unit.frees]),
            np.array([amounts for unit in one.units for amounts in unit.frees.values()]),
            np.array([unit.harm for unit in one.units]),
        )
        free = np.array([one.free[row] for row in range(3)])
        chosen = independent_units.best_gangs(free, np.array(one.request), 1, gangs)
        assert chosen is not None
        assert [one.units[index] for index in chosen] == found, (one.free, one.request)
    assert answered > 200


def test_pods_of_one_gpu_on_full_nodes_are_sorted() -> None:
    units = [
        EvictionUnit(gang, True, (1, 1, 9 - gang, 1, 0, 0, 0), {gang // 2: (1,)})
        for gang in range(8)
    ]
    made = LeastHarmProblem(dict.fromkeys(range(4), (0,)), (1,), 3, units, {})
    found = independent_units.best(made)
    assert found is not None
    assert [unit.gang for unit in found] == [7, 6, 5]
