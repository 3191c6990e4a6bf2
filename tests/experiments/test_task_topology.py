"""Task topology, as the seed documents measured it: three TensorFlow jobs take 277 s with the default
scheduler and 185 s where servers and workers are placed by role."""

import random
from collections import Counter

import pytest

from tests.experiments import stage, topology

PODS = [*(f"tf-ps-{i}" for i in range(2)), *(f"tf-worker-{i}" for i in range(4))]
DEFAULT_S, BEST_S = 277, 185


def test_ours_is_the_published_best_whatever_the_order() -> None:
    """Servers on two nodes, each with two workers: 185 of 277 is two thirds."""
    for seed in (None, *range(20)):
        story, took = stage.ours("task-topology", shuffled=seed)
        jobs = topology.ours(story)
        assert len(took) == len(jobs) == 3
        for placement in jobs.values():
            assert (topology.remote(placement), topology.pairs(placement)) == (2, 4)
            assert len(set(placement.values())) == 2
    assert pytest.approx(BEST_S, abs=1) == DEFAULT_S * 2 / 3


def test_spreading_and_packing_have_three_remote_workers() -> None:
    """The published figure's (a) and (b), where servers come first."""
    for seed in range(50):
        dice = random.Random(seed)
        a, b = topology.spread(PODS, dice), topology.packed(PODS, dice)
        assert (topology.remote(a), topology.pairs(a)) == (3, 6)
        assert (topology.remote(b), topology.pairs(b)) == (3, 6)


def test_in_any_order_the_default_is_worse_and_unstable() -> None:
    counts: Counter[int] = Counter()
    for seed in range(2000):
        dice = random.Random(seed)
        counts[topology.remote(topology.spread(dice.sample(PODS, 6), dice))] += 1
    assert counts[4] / 2000 == pytest.approx(0.2, abs=0.03)  # two waves of three; both on one node
    assert counts[3] / 2000 == pytest.approx(0.8, abs=0.03)


def test_the_box_of_vgg16() -> None:
    """Published, in seconds: with topology and packing 1835; default 1830 at best, 2210, 2630, 3500 by
    quarters, 4090 at worst. A line through 1835 (two remote workers) and the median (three), and
    places left by chance: the best and the last quarter follow."""
    runs = 4000
    found = sorted(
        topology.remote(topology.anywhere(PODS, random.Random(seed))) for seed in range(runs)
    )

    def seconds(remote: int) -> float:
        return 1835 + (2630 - 1835) * (remote - 2)

    assert seconds(found[runs // 2]) == 2630
    assert seconds(found[0]) == pytest.approx(1830, rel=0.01)
    assert seconds(found[runs * 3 // 4]) == pytest.approx(3500, rel=0.03)
    assert found[-1] == 4  # not what 4090 would need: the worst runs had other troubles, too
