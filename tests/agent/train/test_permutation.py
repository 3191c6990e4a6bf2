"""The permutation of the records: a bijection, the same with numpy and without, and well mixed."""

from collections import Counter
from itertools import pairwise, permutations

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.train import permutation
from agent.train.permutation import Permutation

LENGTHS = [*range(1, 130), 1000, 1023, 1024, 1025, 4097]


@pytest.mark.parametrize("key", [(0,), (7, 1), (7, 2)])
def test_each_number_comes_once(key: tuple[int, ...]) -> None:
    for length in LENGTHS:
        found = Permutation(length, *key)
        assert sorted(map(found.at, range(length))) == list(range(length))


@given(
    length=st.integers(1, 2**62),
    key=st.integers(-(2**70), 2**70),
    place=st.floats(0, 1, exclude_max=True),
    count=st.integers(0, 200),
)
@settings(deadline=None)
def test_numpy_gives_the_same_numbers(length: int, key: int, place: float, count: int) -> None:
    found = Permutation(length, key)
    start = min(int(length * place), length - 1)
    stop = min(length, start + count)
    one_by_one = [found.at(position) for position in range(start, stop)]
    vector = found._vector(numpy.arange(start, stop, dtype=numpy.uint64))
    assert vector == one_by_one == found.span(start, stop)
    assert all(type(value) is int for value in vector)


def test_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    with_numpy = Permutation(5000, 3).span(0, 5000)
    monkeypatch.setattr(permutation, "numpy", None)
    assert Permutation(5000, 3).span(0, 5000) == with_numpy


def test_the_numbers_stay_the_same_in_later_versions() -> None:
    """A checkpoint's position means the same records after an upgrade."""
    assert Permutation(20, 1, 2).span(0, 20) == [
        15,
        16,
        12,
        8,
        6,
        10,
        17,
        1,
        4,
        9,
        19,
        5,
        3,
        18,
        0,
        2,
        14,
        11,
        13,
        7,
    ]
    assert Permutation(10**12, 5).span(0, 2) == [650962831575, 224410663029]


def test_positions_are_uniform() -> None:
    """Chi-square over 4,000 keys: where record 0 of ten comes. 99.9 % of uniform ones lie below 27.88."""
    counts = Counter(Permutation(10, key).at(0) for key in range(4000))
    assert sum((counts[value] - 400) ** 2 / 400 for value in range(10)) < 27.88


def test_all_orders_of_four_occur() -> None:
    counts = Counter(tuple(Permutation(4, key).span(0, 4)) for key in range(4800))
    assert set(counts) == set(permutations(range(4)))
    assert sum((count - 200) ** 2 / 200 for count in counts.values()) < 49.73  # 99.9 %, 23 degrees


def test_neighbours_do_not_stay_neighbours() -> None:
    found = Permutation(10_000, 1).span(0, 10_000)
    assert sum(abs(a - b) == 1 for a, b in pairwise(found)) < 15  # mean: 2


@pytest.mark.parametrize("length", [0, -1, 2**62 + 1])
def test_a_length_that_is_none(length: int) -> None:
    with pytest.raises(ValueError, match=f"length={length}"):
        Permutation(length)


def test_a_position_outside() -> None:
    with pytest.raises(IndexError):
        Permutation(5).at(5)
    with pytest.raises(IndexError):
        Permutation(5).span(3, 6)
