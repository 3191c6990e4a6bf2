"""Shares by weight, not by the number of pods (published as a claim, without numbers)."""

from collections import Counter

import pytest

from tests.experiments import stage


@pytest.mark.parametrize("seed", [None, *range(8)])
def test_queues_of_weights_3_and_1_get_12_and_4_of_16_processors(seed: int | None) -> None:
    """While both want more; then all goes to the one that still does."""
    story, _ = stage.ours("fair-share", shuffled=seed)
    rounds: dict[float, Counter[str]] = {}
    for placed in story.placed:
        rounds.setdefault(placed.at_s, Counter())[placed.pod.partition("-")[0]] += 1
    first, second, *rest = rounds.values()
    assert first == second == {"many": 12, "few": 4}
    assert [counts["many"] for counts in rest] == [16, 16, 16, 8]
    assert story.makespan_s == 6 * 600
