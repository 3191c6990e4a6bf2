"""The fewest domains of each level, against every set of nodes on small trees: the closest domain first, then the
widest level first, whatever level is preferred."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest

from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.placement.fewest import fewest_children, fill_fewest, nodes_needed
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, RACK, ZONE
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

Path = tuple[str, str, str]
LEVELS = (ZONE, BLOCK, RACK)
Node = tuple[Path, int]


def tree(dice: random.Random) -> list[Node]:
    """Up to 11 nodes with up to 6 free GPUs, by their zone, block and rack."""
    most, shape = dice.randint(5, 11), dice.choice(((1, 2, 3), (1, 3, 2), (2, 2, 2), (1, 4, 3)))
    free = dice.choice((4, 6))
    nodes = []
    for _ in range(most):
        zone, block, rack = (dice.randrange(size) for size in shape)
        nodes.append(((f"z{zone}", f"b{zone}{block}", f"r{zone}{block}{rack}"), free))
    return [(path, dice.randint(0, free)) for path, free in nodes]


def snapshot_of(nodes: Sequence[Node]) -> Snapshot:
    snapshot = Snapshot(LEVELS)
    for number, (path, free) in enumerate(nodes):
        labels = dict(zip(LEVELS, path, strict=True))
        row = snapshot.put_node(factories.node(f"n{number:02}", gpus=6, labels=labels))
        if free < 6:
            snapshot.take(row, factories.spec(6 - free), 1, 0)
    return snapshot


def domains(paths: Sequence[Path], nodes: int) -> tuple[int, ...]:
    """The level that is crossed, then how many zones, blocks, racks and nodes."""
    zones, blocks, racks = (len({path[level] for path in paths}) for level in range(3))
    crossed = 0 if nodes == 1 else 1 if racks == 1 else 2 if blocks == 1 else 3 if zones == 1 else 4
    return crossed, zones, blocks, racks, nodes


def best(nodes: Sequence[Node], count: int) -> tuple[int, ...]:
    """Of all sets of nodes that hold so many pods of one GPU; empty if there is none."""
    found: tuple[int, ...] = ()
    some = [node for node in nodes if node[1]]
    for bits in range(1 << len(some)):
        chosen = [node for i, node in enumerate(some) if bits >> i & 1]
        if sum(free for _, free in chosen) >= count:
            this = domains([path for path, _ in chosen], len(chosen))
            found = min(found, this) if found else this
    return found


@pytest.mark.parametrize("preferred", ["", "node", RACK, BLOCK])
def test_the_fewest_domains_of_every_level(preferred: str) -> None:
    crossed = Counter[int]()
    for seed in seeds(250):
        dice = random.Random(f"{seed} {preferred}")
        nodes = tree(dice)
        count = dice.randint(3, 30)
        expected = best(nodes, count)
        snapshot = snapshot_of(nodes)
        request = PlacementRequest(((factories.spec(1), count),), preferred=preferred)
        try:
            taken = fit(Draft(snapshot), request)
        except DoesNotFit:
            assert not expected
            continue
        rows = {each.row for each in taken}
        paths = [nodes[int(snapshot.columns.names[row][1:])][0] for row in rows]
        assert domains(paths, len(rows)) == expected, f"seed {seed}"
        assert sum(each.pods for each in taken) == count
        crossed[expected[0]] += 1
    assert not ALL_SEEDS or min(crossed[level] for level in range(1, 5)) > 5, crossed


@pytest.mark.parametrize(
    ("capacity", "count", "needed"),
    [
        ([1, 4, 2, 4], 1, 1),
        ([1, 4, 2, 4], 4, 1),
        ([1, 4, 2, 4], 5, 2),
        ([1, 4, 2, 4], 8, 2),
        ([1, 4, 2, 4], 9, 3),
        ([1, 4, 2, 4], 11, 4),
        ([20, 100, 50], 100, 1),
        ([20, 100, 50], 101, 2),
        ([20, 100, 50], 150, 2),
        ([20, 100, 50], 170, 3),
    ],
)
def test_so_many_nodes_hold_the_pods(capacity: list[int], count: int, needed: int) -> None:
    """Those with the most capacity first, counted by size or, where the sizes are large, sorted."""
    assert nodes_needed(np.array(capacity), count) == needed


@pytest.mark.parametrize("scale", [1, 30])
def test_so_many_children_of_each_parent_hold_the_pods(scale: int) -> None:
    """The first child belongs to no parent, and one has no capacity."""
    capacity = np.array([9, 4, 0, 4, 2, 1, 9, 3, 3, 3]) * scale
    parent = np.array([-1, 0, 0, 0, 0, 0, 1, 2, 2, 2])
    assert fewest_children(capacity, parent, 3, 9 * scale).tolist() == [3, 1, 3]


def test_children_for_one_pod_each() -> None:
    assert fewest_children(np.array([1, 1, 1, 1]), np.array([0, 0, 1, 1]), 2, 2).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (2, {4: 2}),
        (3, {3: 3}),
        (8, {0: 8}),
        (11, {0: 8, 3: 3}),
        (16, {0: 8, 1: 8}),
        (25, {0: 8, 1: 8, 2: 4, 3: 3, 4: 2}),
    ],
)
def test_the_last_node_is_the_tightest_for_the_rest(count: int, expected: dict[int, int]) -> None:
    snapshot = snapshot_of([(("z", "b", "r"), 6)] * 5)
    capacity = np.array([8, 8, 4, 3, 2])
    rows, counts = fill_fewest(snapshot, capacity, np.arange(5), count, len(LEVELS))
    assert dict(zip(rows.tolist(), counts.tolist(), strict=True)) == expected


def test_one_pod_more_than_the_nodes_hold_is_refused() -> None:
    snapshot = snapshot_of([(("z", "b", "r"), 6)] * 2)
    with pytest.raises(DoesNotFit):
        fill_fewest(snapshot, np.array([3, 2]), np.arange(2), 6, len(LEVELS))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        # capacity and free GPUs of the first block's racks, a node each
        (((4, 3), (4, 3), (3, 6), (2, 2)), ((4, 3), (3, 6), (2, 2))),
        (((4, 4), (3, 6), (3, 3), (2, 2)), ((4, 4), (3, 3), (2, 2))),
    ],
    ids=["capacity", "free GPUs"],
)
def test_of_equally_few_racks_the_fullest_are_searched(
    nodes: Sequence[tuple[int, int]], expected: Sequence[tuple[int, int]]
) -> None:
    """Those that hold the least, and then those with the fewest free GPUs. The second block has a rack that alone holds
    nearly all, so the largest racks of the first are not certainly the fewest."""
    free = [(("z", "b0", f"r{number}"), gpus) for number, (_, gpus) in enumerate(nodes)]
    snapshot = snapshot_of([*free, (("z", "b1", "r9"), 6)])
    capacity = np.array([*(each for each, _ in nodes), 8])
    rows, counts = fill_fewest(snapshot, capacity, np.arange(len(capacity)), 9, LEVELS.index(BLOCK))
    assert sorted(nodes[row] for row in rows.tolist()) == sorted(expected)
    assert counts.sum() == 9


def test_the_last_of_equal_nodes_is_the_fullest() -> None:
    snapshot = snapshot_of([(("z", "b", "r"), free) for free in (6, 5, 2, 4)])
    rows, _ = fill_fewest(snapshot, np.array([2, 1, 1, 1]), np.arange(4), 3, len(LEVELS))
    assert rows.tolist() == [0, 2]


def test_nodes_without_a_rack_go_before_a_whole_rack() -> None:
    """Also where no node has GPUs, so that all racks have equally few free ones."""
    snapshot = Snapshot((RACK,))
    for name, rack in (("a", "r1"), ("b", "r2"), ("c", "")):
        snapshot.put_node(factories.node(name, gpus=0, rack=rack))
    rows, _ = fill_fewest(snapshot, np.array([4, 4, 4]), np.arange(3), 8, 0)
    assert {snapshot.columns.names[row] for row in rows.tolist()} == {"a", "c"}


def test_rows_of_one_domain_follow_each_other() -> None:
    """On every level. Nodes without a label are together, too."""
    several = 0
    for seed in seeds(100):
        dice = random.Random(seed)
        paths: list[Path] = []
        for (zone, block, rack), _ in tree(dice):
            depth = dice.choice((0, 1, 2, 3, 3))
            paths.append((zone * (depth > 0), block * (depth > 1), rack * (depth > 2)))
        snapshot = snapshot_of([(path, 6) for path in paths])
        capacity = np.array([dice.randint(1, 4) for _ in paths])
        count = int(capacity.sum()) - 2
        rows, counts = fill_fewest(snapshot, capacity, np.arange(len(paths)), count, 0)
        assert (counts <= capacity[rows]).all()
        for length in range(1, 4):
            of = [paths[row][:length] for row in rows.tolist()]
            changes = sum(one != other for one, other in pairwise(of))
            assert changes == len(set(of)) - 1, f"seed {seed}"
            several += changes > 1
    assert not ALL_SEEDS or several > 100


def test_a_block_is_chosen_by_the_nodes_in_its_fewest_racks() -> None:
    """Four nodes of all racks would do in the first block, but its two racks with room for all need seven."""
    blocks = (((4, 1, 1, 1), (2, 2, 2), (5,)), ((4, 3), (3, 2, 1)))
    nodes = [
        (("z", f"b{block}", f"r{block}{rack}"), free)
        for block, racks in enumerate(blocks)
        for rack, sizes in enumerate(racks)
        for free in sizes
    ]
    snapshot = snapshot_of(nodes)
    taken = fit(Draft(snapshot), PlacementRequest(((factories.spec(1), 13),)))
    paths = [nodes[each.row][0] for each in taken]
    assert domains(paths, len(paths)) == (2, 1, 1, 2, 5)
