"""Judged by an exact solver on small cases: the level that is crossed is the lowest there is, the parts are
the fewest, and a "no" is true."""

import random
from collections import defaultdict

import pytest

from central.scheduler.placement import ANYWHERE, PlacementRequest, fit
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, GPU, RACK
from tests.central import factories
from tests.central.scheduler.exact.model import Model
from tests.central.scheduler.exact.space import nodes_of, opened, place, pods_of


def cluster(seed: int) -> Snapshot:
    """2 blocks of up to 3 racks of up to 3 nodes with 0 to 8 GPUs free, some with islands known."""
    dice = random.Random(seed)
    snapshot = Snapshot((BLOCK, RACK))
    for block in range(2):
        for rack in range(dice.randint(1, 3)):
            for spot in range(dice.randint(1, 3)):
                name = f"{block}{rack}{spot}"
                row = snapshot.put_node(
                    factories.node(name, block=f"b{block}", rack=f"r{rack}", gpus=8)
                )
                used = dice.randint(0, 8)
                if dice.random() < 0.7:
                    halves = ((0, 1, 2, 3), (4, 5, 6, 7))
                    shape = factories.topology(8, halves).shape()
                    snapshot.put_gpus(row, shape, sum(1 << i for i in range(used, 8)))
                if used:
                    snapshot.take(row, factories.spec(used), 1, 0)
    return snapshot


def best_level(snapshot: Snapshot, gpus: int, count: int) -> str:
    """The lowest level at which some domain has room, by asking each of them."""
    rows = range(len(snapshot.columns.row))
    if any(
        shape is not None and (island & mask).bit_count() >= gpus * count
        for shape, mask in zip(
            snapshot.columns.gpus.shape, snapshot.columns.gpus.free_mask, strict=True
        )
        for island in (shape.islands if shape else ())
    ):
        return "island"

    def room(group: list[int]) -> int:
        return sum(int(snapshot.columns.gpus.count[row]) // gpus for row in group)

    if any(room([row]) >= count for row in rows):
        return "node"
    for level in (1, 0):
        of = snapshot.columns.domains.of[level]
        if any(room([r for r in rows if of[r] == d]) >= count for d in set(of[list(rows)])):
            return (BLOCK, RACK)[level]
    return ANYWHERE if room(list(rows)) >= count else ""


def level_of(snapshot: Snapshot, rows: list[int], masks: int) -> str:
    if len(set(rows)) == 1:
        shape = snapshot.columns.gpus.shape[rows[0]]
        if shape is not None and any(not masks & ~island for island in shape.islands):
            return "island"
        return "node"
    for level in (1, 0):
        if len({int(snapshot.columns.domains.of[level, row]) for row in rows}) == 1:
            return (BLOCK, RACK)[level]
    return ANYWHERE


@pytest.mark.long
@pytest.mark.parametrize("base", range(0, 1500, 100))
def test_the_lowest_level_the_fewest_nodes_and_a_true_no(base: int) -> None:
    for seed in range(base, base + 100):
        snapshot = cluster(seed)
        dice = random.Random(seed + 10**6)
        gpus, count = dice.choice((1, 2, 4, 8)), dice.randint(1, 10)
        expected = best_level(snapshot, gpus, count)
        before = snapshot.columns.free.copy(), list(snapshot.columns.gpus.free_mask)
        draft = Draft(snapshot)
        want = PlacementRequest(((factories.spec(gpus), count),))
        if not expected:
            with pytest.raises(DoesNotFit):
                fit(draft, want)
            assert (snapshot.columns.free == before[0]).all()
            assert snapshot.columns.gpus.free_mask == before[1]
            continue
        room = {
            row: int(snapshot.columns.gpus.count[row]) // gpus
            for row in snapshot.columns.row.values()
        }
        seats = fit(draft, want)
        rows = [seat.row for seat in seats]
        masks = 0
        for seat in seats:
            masks |= seat.gpus
        assert sum(seat.pods for seat in seats) == count
        assert level_of(snapshot, rows, masks) == expected, f"seed {seed}"
        if expected == RACK:
            fewest = fewest_nodes(snapshot, room, count, level=1)
            assert len(set(rows)) == fewest, f"seed {seed}"
        draft.undo()
        assert (snapshot.columns.free == before[0]).all()
        assert snapshot.columns.gpus.free_mask == before[1]


def fewest_nodes(snapshot: Snapshot, room: dict[int, int], count: int, level: int) -> int:
    model, racks = Model(), defaultdict[int, list[int]](list)
    for row in room:
        racks[int(snapshot.columns.domains.of[level, row])].append(row)
    free = nodes_of(room)
    placed = place(model, free, pods_of([1] * count), list(racks.values()))
    least = model.least([opened(model, placed, [[row] for row in room])])
    assert least is not None, "no rack takes it"
    return least[0]


@pytest.mark.long
def test_gangs_of_unlike_pods_fit_in_one_rack_where_one_has_room_for_all() -> None:
    for seed in range(300):
        snapshot = cluster(seed)
        want = PlacementRequest(
            ((factories.spec(4), 2), (factories.spec(1), 2), (factories.spec(0, cpu=1000), 1)), RACK
        )
        draft = Draft(snapshot)
        try:
            seats = fit(draft, want)
        except DoesNotFit:
            assert not draft.assignments
            continue
        assert len({int(snapshot.columns.domains.of[1, seat.row]) for seat in seats}) == 1
        assert [seat.spec.request(GPU) for seat in seats] == sorted(
            (seat.spec.request(GPU) for seat in seats), key=[4, 1, 0].index
        )


def test_the_rest_of_a_gang_joins_those_who_are_there() -> None:
    snapshot = Snapshot((BLOCK, RACK))
    for name, rack in (("a", "r1"), ("b", "r1"), ("c", "r2"), ("d", "r2")):
        snapshot.put_node(factories.node(name, rack=rack))
    anchor = snapshot.columns.row["c"]
    seats = fit(
        Draft(snapshot), PlacementRequest(((factories.spec(8), 1),), RACK, existing_rows=(anchor,))
    )
    assert snapshot.columns.names[seats[0].row] == "c"
    snapshot.take(anchor, factories.spec(8), 1)
    seats = fit(
        Draft(snapshot), PlacementRequest(((factories.spec(8), 1),), RACK, existing_rows=(anchor,))
    )
    assert snapshot.columns.names[seats[0].row] == "d"


def test_an_unknown_level_is_named() -> None:
    snapshot = Snapshot((RACK,))
    snapshot.put_node(factories.node("a", rack="r"))
    with pytest.raises(DoesNotFit, match=r"topology level example\.com/row is not one of"):
        fit(Draft(snapshot), PlacementRequest(((factories.spec(1), 1),), "example.com/row"))
