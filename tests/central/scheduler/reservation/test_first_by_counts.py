"""From when on a gang fits by counts, while pods end one after the other: a lower bound of when it fits."""

import random

import numpy as np
import pytest

from central.model.arrays import Ints
from central.scheduler.placement import PlacementRequest
from central.scheduler.reservation.release_forecast import ReleasablePods, fits_by_counts
from protos.names import NODE, RACK
from tests.central import factories
from tests.central.scheduler.small_cluster import World

NODES = 6


def releasable_of(dice: random.Random) -> tuple[World, ReleasablePods]:
    world = World(*(factories.node(f"n{n}", gpus=4, rack=f"r{n // 2}") for n in range(NODES)))
    pods = [
        factories.pod(
            f"p{number}", dice.choice((1, 1, 2)), node=f"n{number % NODES}", phase="Running"
        )
        for number in range(dice.randint(0, 2 * NODES))
    ]
    world.step(1.0, *pods)
    placed = [pod for pod in world.cluster.state.pods.values() if pod.node]
    dice.shuffle(placed)
    return world, ReleasablePods(world.cluster.state, placed)


@pytest.mark.parametrize("seed", range(20))
def test_it_is_the_first_count_at_which_the_gang_fits_by_counts(seed: int) -> None:
    dice = random.Random(seed)
    world, releasable = releasable_of(dice)
    snapshot, count = world.cluster.state.snapshot, len(releasable.pods)
    for required in ("", RACK, NODE):
        for size, gpus in ((1, 4), (2, 2), (3, 3), (6, 4), (4, 1), (7, 4)):
            groups = ((factories.spec(gpus), size),)
            request = PlacementRequest(groups, required=required)
            fits = []
            for gone in range(count + 1):
                chosen: Ints = np.arange(gone)
                with releasable.without(chosen) as without:
                    fits.append(fits_by_counts(without, request))
            for low in range(count):
                expected = next((n for n in range(low + 1, count + 1) if fits[n]), count + 1)
                assert releasable.first_by_counts(request, low) == expected
    assert not snapshot.is_half_changed
