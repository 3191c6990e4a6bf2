"""104 Spark applications at once on four nodes (published: 2003 s by the default scheduler with a node
for drivers, 1576 s with minResources; without such a node drivers alone fill the cluster)."""

from math import inf

import pytest

from tests.experiments import spark


@pytest.mark.parametrize("seed", range(2))
def test_minimum_resources_against_a_node_for_drivers(seed: int) -> None:
    stuck = spark.play(seed)
    assert stuck.makespan_s == inf
    assert stuck.stuck_drivers == 24, "every place is a driver's, and no executor has one"
    apart = spark.play(seed, driver_node=True)
    ours = spark.play(seed, least_cpu=3300)
    assert ours.makespan_s < 0.99 * apart.makespan_s
    assert ours.busy > apart.busy
