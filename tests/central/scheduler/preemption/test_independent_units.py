"""Where victims are chosen by sorting, no other set of them does less harm."""

import random

import numpy as np
import pytest

from central.scheduler.preemption import exact_search, least_harm
from central.scheduler.preemption.independent_units import SingleRowGangs, best_gangs
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
            {dice.randrange(3): (dice.choice((0, 1, 2, 3)), dice.randrange(2))},
        )
        for gang in range(dice.randrange(1, 7))
    ]
    return LeastHarmProblem(free, ask, dice.randrange(1, 4), units, {})


def best(made: LeastHarmProblem) -> list[EvictionUnit] | None:
    gangs = SingleRowGangs(
        np.array([row for unit in made.units for row in unit.frees]),
        np.array([amounts for unit in made.units for amounts in unit.frees.values()]),
        np.array([unit.harm for unit in made.units]),
    )
    free = np.array([made.free[row] for row in sorted(made.free)])
    chosen = best_gangs(free, np.array(made.request), made.missing, gangs)
    return [made.units[index] for index in chosen] if chosen is not None else None


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


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_no_set_of_victims_does_less_harm(seed: int) -> None:
    answered = 0
    for number in range(1000):
        made = problem(random.Random(seed * 1000 + number))
        found = best(made)
        if found is None:
            continue
        answered += 1
        assert gained(made, tuple(found)) >= made.missing
        assert levels_of(total_harm(found)) == least(made), (made.free, made.request, made.units)
        if made.missing == 1:
            searched = least_harm.choose_victims(made.without_useless())
            searched, _ = exact_search.improve(made, searched, 4_000)
            assert found == searched, (made.free, made.request, made.units)
    assert answered > 50


def test_pods_of_one_gpu_on_full_nodes_are_sorted() -> None:
    units = [
        EvictionUnit(gang, True, (1, 1, 9 - gang, 1, 0, 0, 0), {gang // 2: (1,)})
        for gang in range(8)
    ]
    found = best(LeastHarmProblem(dict.fromkeys(range(4), (0,)), (1,), 3, units, {}))
    assert found is not None
    assert [unit.gang for unit in found] == [7, 6, 5]
