"""Amounts and run times that no real pod has, as a node or a user may claim them: sums stay right."""

import pytest

from central.model import limits
from central.model.facts import Fact, PodSpec
from central.scheduler.preemption.harm import LOST_MOST_S, SIZE_MOST, HarmScale, gpus
from protos.names import GPU
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

NOW = 1_800_000_000.0
YEAR_1 = -62_135_596_800.0
MOST = limits.POD_AMOUNT


def running(name: str, node: str, members: int, started: float, **requests: int) -> list[Fact]:
    """A gang that another scheduler might have bound: nobody compared its requests with the node."""
    spec = PodSpec(((GPU, 1), ("pods", 1), *sorted(requests.items())))
    pods = [
        factories.pod(
            f"{name}-{rank}", gang=name, spec=spec, node=node, phase="Running", started=started
        )
        for rank in range(members)
    ]
    return [factories.gang(name, members), *pods]


@pytest.mark.parametrize("members", [1, 3, 8])
@pytest.mark.parametrize("started", [YEAR_1, YEAR_1 + 12_345_678.0, 0.0, 1.0e9])
@pytest.mark.parametrize("resource", ["cpu", "memory"])
@pytest.mark.parametrize("amount", [MOST, MOST - 12_345, MOST // 3])
def test_the_gang_that_claims_to_lose_more_stays(
    members: int, started: float, resource: str, amount: int
) -> None:
    world = World(*(factories.node(name, gpus=members) for name in "ab"))
    world.step(NOW, *running("huge", "a", members, started, **{resource: amount}))
    world.step(NOW, *running("small", "b", members, NOW - 10.0, cpu=100))
    world.step(NOW + 60.0, *job("urgent", members, gpus=1, priority=5, created=NOW))
    assert {name.rpartition("-")[0] for name in world.evicted} == {"small"}


def test_what_a_pod_counts_at_most() -> None:
    largest = PodSpec((("cpu", MOST), (GPU, 1)))
    assert gpus(largest) == SIZE_MOST
    assert SIZE_MOST * LOST_MOST_S * 512 < 2**63
    assert HarmScale((0,), NOW).of(0, [], breaks=False)[2] == 0
