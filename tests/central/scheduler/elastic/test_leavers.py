"""Who leaves, against every choice there is."""

import random
from collections import Counter
from itertools import combinations

import pytest

from central.scheduler.elastic import leavers
from central.scheduler.elastic.leavers import Seat
from tests.effort import seeds


def rating(seats: list[Seat], gone: set[int]) -> tuple[int, ...]:
    """Less is better. Written apart from the code."""
    stay = [seat for seat in seats if seat.number not in gone]
    inside = [Counter(seat.path[: level + 1] for seat in stay) for level in range(3)]
    domains = [len(each) for each in inside]
    uneven = [-sum(members**2 for members in each.values()) for each in inside]
    left = [seat for seat in seats if seat.number in gone]
    return (*domains, *uneven, sum(seat.lost for seat in left), -sum(seat.number for seat in left))


@pytest.mark.long
def test_the_choice_is_the_best_of_all() -> None:
    for seed in seeds(5000):
        dice = random.Random(seed)
        count = dice.randint(1, 9 if seed % 10 else 12)
        seats = [
            Seat(
                number,
                (dice.randint(0, 1), dice.randint(0, 2), dice.randint(0, 2)),
                dice.choice((0, 0, 5)),
            )
            for number in dice.sample(range(30), count)
        ]
        leave = dice.randint(0, count)
        found = set(leavers.choose(seats, leave))
        assert len(found) == leave
        best = min(
            rating(seats, set(gone))
            for gone in combinations([seat.number for seat in seats], leave)
        )
        assert rating(seats, found) == best, (seats, leave)


def test_two_nodes_of_two_become_one_of_two() -> None:
    """The highest numbers would leave one member on each node."""
    seats = [Seat(0, (0, 0)), Seat(1, (0, 1)), Seat(2, (0, 0)), Seat(3, (0, 1))]
    assert leavers.choose(seats, 2) == [1, 3]


def test_a_rack_is_left_before_a_node_of_the_larger_one() -> None:
    seats = [Seat(n, (0, n // 2)) for n in range(4)] + [Seat(n, (1, 9)) for n in (4, 5)]
    assert leavers.choose(seats, 2) == [4, 5]


def test_the_rack_that_has_the_fewest_gives_first() -> None:
    """Three racks stay in use whoever leaves. The next shrink frees the third."""
    seats = [Seat(n, (0, n // 2)) for n in range(6)] + [Seat(n, (1, n // 2)) for n in range(6, 10)]
    seats += [Seat(n, (2, n // 2)) for n in range(10, 14)]
    assert leavers.choose(seats, 2) == [12, 13]
    seats[0] = seats[0]._replace(lost=5)
    assert leavers.choose(seats, 2) == [12, 13]


def test_equal_members_leave_from_the_highest_number_down() -> None:
    assert leavers.choose([Seat(n, (0, 0)) for n in range(4)], 2) == [2, 3]
    assert leavers.choose([Seat(n, (0, 0), lost=n == 3) for n in range(4)], 2) == [1, 2]


def freed_and_could(seed: int, *, highest_first: bool = False) -> tuple[int, int]:
    """Of 64 members anywhere on 16 racks of four nodes, after ten shrinks of any size: racks that became free, and
    those that could be if all who left had been chosen at once."""
    draw = random.Random(seed)
    places = [(rack, node) for rack in range(16) for node in range(4) for _ in range(4)]
    seats = [
        Seat(number, (rack, rack * 4 + node))
        for number, (rack, node) in enumerate(draw.sample(places, 64))
    ]
    before = Counter(seat.path[0] for seat in seats)
    for _ in range(10):
        count = min(draw.randint(1, 8), len(seats) - 1)
        gone = [seat.number for seat in seats[-count:]]
        gone = gone if highest_first else leavers.choose(seats, count)
        seats = [seat for seat in seats if seat.number not in gone]
    left, could = 64 - len(seats), 0
    for count in sorted(before.values()):
        could += count <= left
        left -= count
    return len(before) - len({seat.path[0] for seat in seats}), could


@pytest.mark.long
def test_ten_shrinks_free_whole_racks() -> None:
    """Though each shrink knows nothing of the next ones: nine in ten of those that could be free."""
    found = [freed_and_could(seed) for seed in seeds(100)]
    share = sum(freed for freed, _ in found) / sum(could for _, could in found)
    assert share >= 0.9, share
    others = [freed_and_could(seed, highest_first=True) for seed in seeds(100)]
    assert sum(freed for freed, _ in others) < 0.6 * sum(could for _, could in others)
