"""Exponents are those of the last doubling, and every dimension doubles twice."""

import pytest

from tests.benchmarks.growth import DIMENSIONS, Grown, grown


def test_the_exponent_is_that_of_the_last_doubling() -> None:
    assert Grown("nodes", (1, 2, 4), (5.0, 5.0, 10.0)).exponent == 1.0
    assert Grown("nodes", (1, 2, 4), (1.0, 2.0, 8.0)).exponent == 2.0


@pytest.mark.parametrize("name", DIMENSIONS)
def test_sizes_double(name: str) -> None:
    first, second, last = DIMENSIONS[name][1]
    assert (second, last) == (2 * first, 4 * first)


def test_dimensions_are_chosen_by_words() -> None:
    DIMENSIONS["a test"] = (float, (1, 2, 4))
    try:
        assert [*grown(("a test",), lambda _: None)] == [
            Grown("a test", (1, 2, 4), [1.0, 2.0, 4.0])
        ]
    finally:
        del DIMENSIONS["a test"]
