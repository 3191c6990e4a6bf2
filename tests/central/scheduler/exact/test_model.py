"""The judge itself: the least values of small programs, compared with every solution."""

import random
from itertools import product

from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.space import fits, nodes_of, opened, place, pods_of
from tests.effort import examples


def test_objectives_are_least_from_left_to_right() -> None:
    possible = 0
    for seed in range(examples(200)):
        dice, model = random.Random(seed), Model()
        bounds = [(low := dice.randint(-2, 1), low + dice.randint(0, 3)) for _ in range(4)]
        variables = [model.integer(*each) for each in bounds]
        rows = [[dice.randint(-3, 3) for _ in range(5)] for _ in range(3)]
        levels = [[dice.choice((-5, 0, 1, 10**6)) for _ in range(4)] for _ in range(3)]
        for *factors, most in rows:
            model.at_most(total(x * f for x, f in zip(variables, factors, strict=True)), most)
        every = [
            tuple(sum(f * x for f, x in zip(level, values, strict=True)) for level in levels)
            for values in product(*(range(low, high + 1) for low, high in bounds))
            if all(
                sum(f * x for f, x in zip(factors, values, strict=True)) <= most
                for *factors, most in rows
            )
        ]
        sums = [total(x * f for x, f in zip(variables, level, strict=True)) for level in levels]
        assert model.least(sums) == min(every, default=None), seed
        possible += bool(every)
    assert possible > 10


def test_a_row_holds_where_its_conditions_do() -> None:
    model = Model()
    amount, first, second = model.integer(0, 9), model.binary(), model.binary()
    model.at_most(5, amount, first, second)
    assert model.least([amount], 1 - first) == (0,)
    assert model.least([amount], 1 - first, 1 - second) == (5,)
    model.equal(amount, 7, first)
    assert model.least([amount], 1 - first) == (7,)
    assert not model.is_possible(1 - first, amount - 6)
    assert model.least([Sum(constant=3), amount, -first]) == (3, 0, 0)


def test_pods_are_on_nodes_that_have_space_for_them() -> None:
    free = nodes_of({"a": 5, "b": 3})
    assert fits(free, pods_of([3, 3, 2]))
    assert not fits(free, pods_of([4, 4]))
    model = Model()
    placed = place(model, free, pods_of([2, 2, 1]), [["a"], ["b"]])
    assert model.least([opened(model, placed, [["a"], ["b"]])]) == (1,)
    assert sorted(name for one in placed for name, count in one.items() if model.value(count)) == [
        *"aa"
    ]
