"""Seeded days of small worlds, each with some of many features: gangs, queues, nodes and events that other days draw
apart meet each other here. All that a cycle decides and says is counted again (small_worlds.py)."""

import os
from itertools import combinations

import pytest

from central.model.decisions import Evict
from tests.simulation.mixed_day import EVERY, MixedDay

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "4")) * 3
FIRST = int(os.environ.get("LOCKSTEP_FIRST_DAY", "0"))


@pytest.mark.parametrize(
    "seed",
    [
        pytest.param(seed, marks=pytest.mark.slow if seed > FIRST + 2 else ())
        for seed in range(FIRST, FIRST + DAYS)
    ],
)
def test_a_mixed_day(seed: int) -> None:
    assert MixedDay(seed).live().decisions


def test_any_two_features_meet() -> None:
    """In the days of one night."""
    drawn = [MixedDay.drawn(seed) for seed in range(200)]
    met = {pair for features in drawn for pair in combinations(sorted(features), 2)}
    assert not set(combinations(sorted(EVERY), 2)) - met


@pytest.mark.slow
def test_mixed_days_have_what_they_are_for() -> None:
    days = [MixedDay(seed).live() for seed in range(12)]
    every = [each for day in days for each in day.decisions]
    assert {each.trial for each in every if isinstance(each, Evict)} == {True, False}
    assert any(day.remade for day in days)
    assert sum(day.compared for day in days) > 50
