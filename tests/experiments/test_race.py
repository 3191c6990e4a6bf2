"""Beside another scheduler on the same nodes: conflicts happen as news take time, and are repaired."""

import pytest

from tests.experiments.race import Race, Score

pytestmark = pytest.mark.slow

GANGS, SINGLES, OVER_S = 40, 160, 200.0


def race(seed: int, lag_s: float, *, packs: bool) -> Score:
    score = Race(seed, lag_s, packs=packs).run(GANGS, SINGLES, OVER_S)
    assert score.gangs_done == GANGS  # each ran whole, and to its end
    assert score.theirs_done == SINGLES
    return score


@pytest.mark.parametrize("packs", [False, True], ids=["spreads", "packs"])
def test_conflicts_grow_with_the_delay_of_news_and_every_gang_runs_whole(packs: bool) -> None:
    rates = []
    for lag_s in (0.0, 0.01, 1.0):
        scores = [race(seed, lag_s, packs=packs) for seed in range(2)]
        rates.append(sum(score.conflicts for score in scores) / len(scores))
    at_once, soon, late = rates
    assert at_once == 0
    assert soon < 0.1
    assert soon < late < 0.5


def test_the_same_seed_runs_the_same_race() -> None:
    assert race(3, 0.1, packs=False) == race(3, 0.1, packs=False)
