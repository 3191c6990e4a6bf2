"""Lying never pays: a tenant that lies in a field of its objects gains nothing by it, and whoever is within what its
queue deserves gets it within the grace, whatever the objects of others say. `make nightly`: ten thousand days."""

import os

import pytest

from tests.simulation.lying_days import ALL, NODE_GPUS, NODES, TENANTS, Gains, LyingDay

DAYS = int(os.environ.get("LOCKSTEP_DAYS", "2"))
FIRST_DAY = int(os.environ.get("LOCKSTEP_FIRST_DAY", "0"))


@pytest.mark.parametrize("seed", range(FIRST_DAY, FIRST_DAY + DAYS))
def test_nobody_waits_for_a_liar(seed: int) -> None:
    gains = Gains()
    gains.live(seed)
    assert gains.late == []


@pytest.mark.parametrize(
    ("lie", "seed"), [("cooldown", 1), ("budget", 5), ("grace", 5), ("yields", 1), (ALL, 1)]
)
def test_no_mark_keeps_others_from_what_their_queue_deserves(lie: str, seed: int) -> None:
    """On these days honest tenants wait for ever where the marks of borrowed pods hold."""
    day = LyingDay(seed, lie)
    day.run()
    assert day.late == []


def test_the_days_hold_what_they_are_for() -> None:
    """Everybody wants more than there is, and has most of what it deserves."""
    day = LyingDay(3)
    hours = day.run()
    assert sum(hours.values()) > 0.8 * NODES * NODE_GPUS / 2
    assert all(hours[tenant] > 0.8 * day.deserved[tenant] / 2 for tenant in TENANTS)
