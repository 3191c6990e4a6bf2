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


@pytest.mark.nightly  # about the days alone
def test_mixed_days_have_what_they_are_for() -> None:
    """Within so many days that a change of the scheduler moves none of it beyond them."""
    missing = {"a dry run", "an eviction", "a new copy of the scheduler", "50 compared sentences"}
    compared = 0
    for seed in range(120):
        day = MixedDay(seed).live()
        compared += day.compared
        evictions = [each for each in day.decisions if isinstance(each, Evict)]
        missing -= {"a dry run" if each.trial else "an eviction" for each in evictions}
        missing -= {"a new copy of the scheduler"} if day.remade else set()
        missing -= {"50 compared sentences"} if compared > 50 else set()
        if not missing:
            return
    pytest.fail(f"none of 120 days has {sorted(missing)}")
