"""The fewest domains of each level, against every set of nodes on small trees: the closest domain first, then the
preferred level, then the widest level first."""

import random
from collections import Counter
from collections.abc import Sequence

import pytest

from central.scheduler.placement import PlacementRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, RACK, ZONE
from tests.central import factories

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


def domains(paths: Sequence[Path], nodes: int, preferred: str) -> tuple[int, ...]:
    """The level that is crossed, then how many zones, blocks, racks and nodes, the preferred level first."""
    zones, blocks, racks = (len({path[level] for path in paths}) for level in range(3))
    crossed = 0 if nodes == 1 else 1 if racks == 1 else 2 if blocks == 1 else 3 if zones == 1 else 4
    by_level = {ZONE: zones, BLOCK: blocks, RACK: racks, "node": nodes}
    return crossed, by_level.get(preferred, 0), *by_level.values()


def best(nodes: Sequence[Node], count: int, preferred: str) -> tuple[int, ...]:
    """Of all sets of nodes that hold so many pods of one GPU; empty if there is none."""
    found: tuple[int, ...] = ()
    some = [node for node in nodes if node[1]]
    for bits in range(1 << len(some)):
        chosen = [node for i, node in enumerate(some) if bits >> i & 1]
        if sum(free for _, free in chosen) >= count:
            this = domains([path for path, _ in chosen], len(chosen), preferred)
            found = min(found, this) if found else this
    return found


@pytest.mark.parametrize("preferred", ["", "node", RACK, BLOCK])
def test_the_fewest_domains_of_every_level(preferred: str) -> None:
    crossed = Counter[int]()
    for seed in range(250):
        dice = random.Random(f"{seed} {preferred}")
        nodes = tree(dice)
        count = dice.randint(3, 30)
        expected = best(nodes, count, preferred)
        snapshot = snapshot_of(nodes)
        request = PlacementRequest(((factories.spec(1), count),), preferred=preferred)
        try:
            taken = fit(Draft(snapshot), request)
        except DoesNotFit:
            assert not expected
            continue
        rows = {each.row for each in taken}
        paths = [nodes[int(snapshot.columns.names[row][1:])][0] for row in rows]
        assert domains(paths, len(rows), preferred) == expected, f"seed {seed}"
        assert sum(each.pods for each in taken) == count
        crossed[expected[0]] += 1
    assert min(crossed[level] for level in range(1, 5)) > 5, crossed
