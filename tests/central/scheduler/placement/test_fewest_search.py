"""The exact choice of domains, against every set of them."""

import random
from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest

from central.model.arrays import Ints
from central.scheduler.placement import fewest_search
from central.scheduler.placement.fewest import nodes_needed
from central.scheduler.placement.fewest_search import cheapest
from tests.effort import seeds

Tree = tuple[Ints, Ints, Ints]  # paths, capacity and ties, as cheapest() takes them


def tree(dice: random.Random, levels: int) -> Tree:
    """Up to 9 nodes; no domain has two parents."""
    nodes = dice.randint(2, 9)
    whole = [tuple(dice.randrange(2 + level // 2) for level in range(levels)) for _ in range(nodes)]
    paths = []
    for level in range(levels):
        known = sorted({path[: level + 1] for path in whole})
        paths.append([known.index(path[: level + 1]) for path in whole])
    capacity = [dice.randint(1, dice.choice((2, 9))) for _ in range(nodes)]
    ties = [dice.randrange(dice.choice((1, 3, 1000))) for _ in range(max(paths[-1]) + 1)]
    return np.array(paths), np.array(capacity), np.array(ties)


def cost(of: Tree, count: int, opened: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of opened domains, the widest level first, then the ties; empty if too few pods fit."""
    paths, capacity, ties = of
    rows = np.isin(paths[-1], opened)
    if capacity[rows].sum() < count:
        return ()
    numbers = [len(np.unique(level[rows])) for level in paths]
    numbers.append(nodes_needed(capacity[rows], count))
    return *numbers, int(ties[list(opened)].sum())


def costs(of: Tree, count: int) -> Iterator[tuple[int, ...]]:
    """Of every set of domains that holds the pods."""
    domains = range(len(of[2]))
    for size in range(1, len(domains) + 1):
        for opened in combinations(domains, size):
            if found := cost(of, count, opened):
                yield found


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_no_set_of_domains_is_cheaper(levels: int) -> None:
    """Fewer domains of the widest level count more than any number of the next, and ties come last."""
    for seed in seeds(150):
        dice = random.Random(f"{seed} {levels}")
        of = tree(dice, levels)
        count = dice.randint(1, int(of[1].sum()))
        found = cheapest(*of, count)
        assert found is not None
        expected = min(costs(of, count))
        assert cost(of, count, tuple(found.tolist())) == expected, f"seed {seed}"


def test_a_search_that_is_too_large_leaves_out_the_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two racks that hold the pods one has fewer nodes, and the other is fuller."""
    paths, capacity = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]]), np.array([2, 2, 2, 3, 3])
    of = paths, capacity, np.array([0, 1])
    with_nodes = (5 + 5) * 7  # 5 nodes, and the block with as many of them; each for 0 to 6 pods
    racks_only = (2 + 2) * 7
    for cells, expected in ((with_nodes, [1]), (with_nodes - 1, [0]), (racks_only, [0])):
        monkeypatch.setattr(fewest_search, "CELLS", cells)
        assert (found := cheapest(*of, 6)) is not None
        assert found.tolist() == expected
    monkeypatch.setattr(fewest_search, "CELLS", racks_only - 1)
    assert cheapest(*of, 6) is None


def test_costs_that_cannot_be_compared_are_not_searched() -> None:
    """The sum of all costs would be larger than the numbers that are compared."""
    of = np.array([[0, 1]]), np.array([1, 1]), np.array([fewest_search.NEVER // 2] * 2)
    assert cheapest(*of, 2) is None
