"""A preferred level beside the closest domain: against every set of racks, and as a story. The fewest blocks come
first, then the fewest racks, whatever is preferred."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import UpdateGangStatus
from central.model.facts import PodGone
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, SubgroupRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, NODE, RACK
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

Rack = Sequence[int]  # free GPUs of its nodes
Fits = Callable[[Sequence[Rack]], bool]


def cluster(dice: random.Random) -> tuple[Snapshot, dict[str, list[int]]]:
    """Up to 4 blocks of up to 3 racks of up to 4 nodes of 8 GPUs, some of them in use, and what is free by rack."""
    snapshot, free = Snapshot((BLOCK, RACK)), dict[str, list[int]]()
    for block in range(dice.randint(2, 4)):
        for rack in range(dice.randint(2, 3)):
            for place in range(dice.randint(2, 4)):
                name = f"{block}{rack}{place}"
                node = factories.node(name, block=f"b{block}", rack=f"r{block}{rack}", gpus=8)
                row = snapshot.put_node(node)
                if used := dice.choice((0, 0, 0, dice.randint(1, 8))):
                    snapshot.take(row, factories.spec(used), 1, 0)
                free.setdefault(name[:2], []).append(8 - used)
    return snapshot, free


def fewest(free: dict[str, list[int]], fits: Fits) -> tuple[int, int]:
    """Blocks and racks; (0, 0): they fit nowhere."""
    found = [(0, 0)]
    for size in range(1, len(free) + 1):
        for chosen in combinations(free, size):
            this = (len({rack[0] for rack in chosen}), size)
            if (found == [(0, 0)] or this < found[0]) and fits([free[rack] for rack in chosen]):
                found = [this]
    return found[0]


def equal_pods(dice: random.Random, total: int) -> tuple[PlacementRequest, Fits]:
    gpus = dice.choice((1, 2, 4, 8))
    count = dice.randint(8 // gpus, max(8, total) // gpus)
    return PlacementRequest(
        ((factories.spec(gpus), count),)
    ), lambda racks: sum(free // gpus for rack in racks for free in rack) >= count


def unlike_pods(dice: random.Random, total: int) -> tuple[PlacementRequest, Fits]:
    twos, ones = dice.randint(1, total // 4 + 1), dice.randint(1, total // 2 + 1)
    groups = ((factories.spec(2), twos), (factories.spec(1), ones))
    return (
        PlacementRequest(groups),
        lambda racks: (
            sum(free // 2 for rack in racks for free in rack) >= twos
            and sum(map(sum, racks)) >= 2 * twos + ones
        ),
    )


def rings(dice: random.Random, total: int) -> tuple[PlacementRequest, Fits]:
    """Subgroups, each in one rack. They are too large for a node."""
    gpus, size, copies = dice.choice((3, 4)), dice.choice((3, 4)), dice.randint(2, 12)
    spec = factories.spec(gpus)
    part = SubgroupRequest(((spec, size),), required=RACK, copies=copies)
    request = PlacementRequest(((spec, size * copies),), subgroups=(part,))
    return (
        request,
        lambda racks: sum(sum(free // gpus for free in rack) // size for rack in racks) >= copies,
    )


@pytest.mark.parametrize("drawn", [equal_pods, unlike_pods, rings])
@pytest.mark.parametrize("preferred", ["", RACK, NODE])
def test_the_fewest_blocks_then_the_fewest_racks(
    drawn: Callable[[random.Random, int], tuple[PlacementRequest, Fits]], preferred: str
) -> None:
    more, wide = 0, 0
    for seed in seeds(100):
        dice = random.Random(seed)
        snapshot, free = cluster(dice)
        request, fits = drawn(dice, sum(map(sum, free.values())))
        least = fewest(free, fits)
        try:
            taken = fit(Draft(snapshot), replace(request, preferred=preferred))
        except DoesNotFit:
            assert least == (0, 0), f"seed {seed}"
            continue
        racks = {snapshot.columns.names[each.row][:2] for each in taken}
        assert len({rack[0] for rack in racks}) == least[0], f"seed {seed}"
        more += len(racks) - least[1]
        wide += least[0] > 1
    assert more <= (3 if drawn is unlike_pods else 0), "unlike pods take a rack more now and then"
    assert not ALL_SEEDS or wide > 10


def racks_of(pods: int, **preferred: object) -> int:
    """How many racks so many pods of one GPU get: block a has three of 2 GPUs, b, c and d have one of 3."""
    nodes = [factories.node(f"a{i}", block="a", rack=f"a{i}", gpus=2) for i in range(3)]
    nodes += [factories.node(f"{b}0", block=b, rack=f"{b}0", gpus=3) for b in "bcd"]
    made = new_scheduler((BLOCK, RACK))
    members = [factories.pod(f"g-{i}", 1, "g") for i in range(pods)]
    schedule_once(made, [*nodes, factories.gang("g", pods, **preferred), *members], 0.0)
    return len({pod.node for pod in made.state.pods.values()})


def test_the_closest_domain_comes_before_the_preferred_level() -> None:
    """Three racks of one block, although two racks of two blocks would do."""
    assert racks_of(6) == 3
    assert racks_of(6, topology_preferred=RACK) == 3


def test_fewer_blocks_come_before_the_preferred_level() -> None:
    """No block takes all: four racks of two blocks, or three racks of three."""
    assert racks_of(8) == 4
    assert racks_of(8, topology_preferred=RACK) == 4


def test_a_replacement_joins_the_racks_that_the_gang_is_in() -> None:
    nodes = [factories.node(f"{r}{i}", block="b", rack=r, gpus=2) for r in "xyz" for i in range(2)]
    made = new_scheduler((BLOCK, RACK))
    pods = [factories.pod(f"g-{i}", 1, "g") for i in range(6)]
    schedule_once(made, [*nodes, factories.gang("g", 6), *pods], 0.0)
    racks = {pod.node[0] for pod in made.state.pods.values()}
    lost = made.state.pods["uid-g-5"].node
    assert len(racks) == 2
    blocker = factories.pod("other", 2, node=lost)
    schedule_once(made, [PodGone("uid-g-5"), blocker], 1.0)
    schedule_once(made, [factories.pod("g-5", 1, "g")], 2.0)
    new = made.state.pods["uid-g-5"].node
    assert not new or new[0] in racks
    assert new


def test_a_preferred_level_that_does_not_exist_is_named() -> None:
    made = new_scheduler((BLOCK, RACK))
    wish = factories.gang("g", 1, topology_preferred="example.com/row")
    decisions = schedule_once(made, [factories.node("a"), wish, factories.pod("g-0", 1, "g")], 0.0)
    told = next(d.reason for d in decisions if isinstance(d, UpdateGangStatus))
    assert told.startswith("can never start: topology level example.com/row is not one of")


@pytest.mark.parametrize(("declared", "starts"), [(True, False), (False, True)])
def test_the_tier_that_pods_require_counts_where_there_is_no_podgroup(
    declared: bool, starts: bool
) -> None:
    """declared: by the object of a controller, such as a LeaderWorkerSet. A PodGroup says its tier itself."""
    scheduler = new_scheduler((BLOCK, RACK))
    nodes = [factories.node(name, block="b", rack=f"r-{name}") for name in "ab"]
    pods = [factories.pod(f"g-{rank}", 8, "g", required_tier=1) for rank in range(2)]
    schedule_once(scheduler, [*nodes, factories.gang("g", 2, declared=declared), *pods], 0.0)
    assert {bool(pod.node) for pod in scheduler.state.pods.values()} == {starts}
