"""Pods with a part of a GPU, as gangs that want to be close, stand in groups or have roles: against trying
every way on small machines."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, PodSpec, Roles, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.inventory.gpu_shares import NOTHING
from central.scheduler.placement import PlacementRequest, RolePreferences, SubgroupRequest, fit
from central.scheduler.placement.role_placement import build_problem
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import ISLAND, NODE, RACK
from protos.topology import indices_of, mask_of
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds

PAIRS = ((0, 1), (2, 3))
Free = dict[tuple[int, int], int]  # hundredths by row and GPU


def part(share: int, cpu: int = 100) -> PodSpec:
    return factories.part("p", share, cpu=cpu).spec


def small(dice: random.Random, nodes: int = 3) -> Snapshot:
    """Nodes of two pairs of GPUs: free, somebody's, or open."""
    snapshot = Snapshot((RACK,))
    for place in range(nodes):
        row = snapshot.put_node(
            factories.node(f"n{place}", rack=f"r{place % 2}", gpus=4, shares=True)
        )
        shape = factories.topology(4, PAIRS).shape()
        left = {gpu: dice.choice((10, 30, 50, 70)) for gpu in range(4) if dice.random() < 0.4}
        gone = [gpu for gpu in range(4) if gpu not in left and dice.random() < 0.3]
        free = mask_of(set(range(4)) - set(left) - set(gone))
        snapshot.put_gpus(row, shape, free, (0b1111, *NOTHING[1:]), left)
    return snapshot


@pytest.mark.parametrize(("left", "gpu"), [({0: 90, 2: 20}, 2), ({0: 20, 2: 90}, 0)])
def test_the_island_whose_open_gpus_are_fullest_comes_first(left: dict[int, int], gpu: int) -> None:
    snapshot = Snapshot((RACK,))
    row = snapshot.put_node(factories.node("n", gpus=4, shares=True))
    shape = factories.topology(4, PAIRS).shape()
    snapshot.put_gpus(row, shape, 0b1010, (0b1111, *NOTHING[1:]), left)
    (seat,) = fit(Draft(snapshot), PlacementRequest(((part(15), 1),), ISLAND))
    assert seat.gpus == 1 << gpu


def free_of(snapshot: Snapshot) -> Free:
    found = {
        (row, gpu): part
        for row in snapshot.columns.row.values()
        for gpu, part in snapshot.columns.gpus.free_shares[row].items()
    }
    return found | {
        (row, gpu): 100
        for row in snapshot.columns.row.values()
        for gpu in indices_of(snapshot.columns.gpus.free_mask[row])
    }


def places(free: Free, level: str) -> Iterator[list[tuple[int, int]]]:
    """The GPUs of each domain of the level."""
    for row in sorted({row for row, _ in free}):
        if level == NODE:
            yield [cell for cell in free if cell[0] == row]
        else:
            yield from ([c for c in free if c[0] == row and c[1] in pair] for pair in PAIRS)


def sound(before: Free, seats: Sequence[Assignment]) -> None:
    """Nobody got what was not there."""
    used: Counter[tuple[int, int]] = Counter()
    for seat in seats:
        share = dict(seat.spec.requests).get("lockstep.dev/gpu-share", 0)
        for gpu in indices_of(seat.gpus):
            used[seat.row, gpu] += share * seat.pods if share else 100
    assert all(used[cell] <= before.get(cell, 0) for cell in used)


def tried(snapshot: Snapshot, want: PlacementRequest) -> list[Assignment] | None:
    before, draft = free_of(snapshot), Draft(snapshot)
    try:
        seats = list(fit(draft, want))
    except DoesNotFit:
        seats = None
    if seats is not None:
        sound(before, seats)
    draft.undo()
    assert free_of(snapshot) == before
    return seats


@pytest.mark.parametrize("level", ["island", NODE])
def test_equal_parts_close_together_exactly(level: str) -> None:
    answers: Counter[bool] = Counter()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot, share, count = small(dice), dice.choice((20, 30, 60, 100)), dice.randint(1, 7)
        free = free_of(snapshot)
        rooms = [sum(free[c] // share for c in cells) for cells in places(free, level)]
        seats = tried(snapshot, PlacementRequest(((part(share), count),), level))
        answers[seats is not None] += 1
        assert (seats is not None) == any(room >= count for room in rooms), f"seed {seed}"
        for seat in seats or ():
            assert level == NODE or any(
                {(s.row, g) for s in seats or () for g in indices_of(s.gpus)} <= set(cells)
                for cells in places(free, level)
            ), seat
    assert not ALL_SEEDS or min(answers.values()) > 50


def one_node(left: dict[int, int], free: Sequence[int]) -> Snapshot:
    """Two pairs of GPUs. left: hundredths of shared GPUs; free: the GPUs that are whole."""
    snapshot = Snapshot((RACK,))
    row = snapshot.put_node(factories.node("a", rack="r", gpus=4, shares=True))
    shape = factories.topology(4, PAIRS).shape()
    snapshot.put_gpus(row, shape, mask_of(free), (0b1111, *NOTHING[1:]), left)
    return snapshot


def gpus_for(snapshot: Snapshot, share: int, count: int) -> list[list[int]]:
    seats = fit(Draft(snapshot), PlacementRequest(((part(share), count),)))
    return [list(indices_of(seat.gpus)) for seat in seats]


def test_one_share_takes_the_fullest_gpu_of_the_node_whatever_its_island() -> None:
    """GPU 0 has the least left. Its island has more free than the other, which islands would prefer."""
    assert gpus_for(one_node({0: 30, 2: 50}, free=[1]), share=20, count=1) == [[0]]


def test_two_shares_of_a_gang_stay_in_one_island() -> None:
    """GPU 2 has the least left, but its island cannot take both without opening GPU 3."""
    assert gpus_for(one_node({0: 30, 1: 30, 2: 20}, free=[3]), share=20, count=2) == [[0], [1]]


def test_whole_gpus_and_equal_parts_in_one_island_exactly() -> None:
    answers: Counter[bool] = Counter()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot, share, count = small(dice), dice.choice((20, 30, 60)), dice.randint(1, 4)
        free = free_of(snapshot)
        possible = False
        for cells in places(free, "island"):
            whole = [c for c in cells if free[c] == 100]
            rest = sum(free[c] // share for c in cells) - 100 // share
            possible |= bool(whole) and rest >= count
        groups = ((factories.spec(1), 1), (part(share), count))
        answers[possible] += 1
        assert (tried(snapshot, PlacementRequest(groups, "island")) is not None) == possible, (
            f"seed {seed}"
        )
    assert not ALL_SEEDS or min(answers.values()) > 50


def test_equal_groups_of_parts_each_in_an_island_exactly() -> None:
    answers: Counter[bool] = Counter()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot, share = small(dice), dice.choice((20, 30, 60))
        size, times = dice.randint(1, 4), dice.randint(1, 4)
        free = free_of(snapshot)
        units = sum(
            sum(free[c] // share for c in cells) // size for cells in places(free, "island")
        )
        groups = ((part(share), size),)
        want = PlacementRequest(
            ((part(share), size * times),),
            subgroups=(SubgroupRequest(groups, "island", copies=times),),
        )
        answers[units >= times] += 1
        assert (tried(snapshot, want) is not None) == (units >= times), f"seed {seed}"
    assert not ALL_SEEDS or min(answers.values()) > 50


def test_roles_of_parts_sit_as_well_as_trying_everything_finds() -> None:
    """Two roles of equal parts beside each other, one apart from itself: the cost is the least there is."""
    better = 0
    for seed in seeds(150):
        dice = random.Random(seed)
        snapshot = small(dice)
        share = dice.choice((30, 50))
        a, b = part(share, 100), part(share, 200)
        counts = (dice.randint(1, 2), dice.randint(1, 3))
        roles = RolePreferences(
            ((a, counts[0]), (b, counts[1])), affinity=((0, 1),), anti_affinity=((0, 0),)
        )
        seats = tried(snapshot, PlacementRequest(roles.pods, roles=roles))
        rows = sorted(snapshot.columns.row.values())
        free = free_of(snapshot)
        room = {row: sum(n // share for (r, _), n in free.items() if r == row) for row in rows}
        if seats is None:
            assert sum(room.values()) < sum(counts), f"seed {seed}"
            continue
        problem = build_problem(snapshot, roles, snapshot.columns.name_rank()[rows] * 0 + rows)
        taken = [
            tuple(sum(s.pods for s in seats if s.row == row and s.spec == spec) for spec in (a, b))
            for row in rows
        ]
        here = {snapshot.columns.domains.of[0, seat.row] for seat in seats}
        inside = [
            row for row in rows if len(here) > 1 or snapshot.columns.domains.of[0, row] in here
        ]
        ways = [
            plan
            for plan in product(
                *(list(product(range(counts[0] + 1), range(counts[1] + 1))) for _ in rows)
            )
            if all(sum(vector[i] for vector in plan) == counts[i] for i in (0, 1))
            and all(
                sum(v) <= room[row] and (row in inside or not any(v))
                for row, v in zip(rows, plan, strict=True)
            )
        ]
        least = min(problem.total_cost(plan) for plan in ways)
        assert problem.total_cost(taken) == least, f"seed {seed}"
        better += least < max(problem.total_cost(plan) for plan in ways)
    assert not ALL_SEEDS or better > 50


def machines(*names: str) -> list[Fact]:
    what = factories.topology(4, PAIRS, shares=True)
    nodes: list[Fact] = [factories.node(name, gpus=4, rack="r", shares=True) for name in names]
    return [*nodes, *(factories.report(name, what) for name in names)]


def test_a_gang_of_parts_spreads_over_nodes() -> None:
    made = new_scheduler(factories.LEVELS, placement="spread")
    pods = [factories.part(f"g-{i}", 30, gang="g") for i in range(3)]
    schedule_once(made, [*machines("a", "b", "c"), factories.gang("g", 3), *pods], 0.0)
    check_invariants(made)
    assert {pod.node for pod in made.state.pods.values()} == {"a", "b", "c"}


def test_servers_with_parts_are_apart_and_workers_beside_them() -> None:
    made = new_scheduler(factories.LEVELS)
    roles = Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))
    pods = [
        factories.part(f"g-{i}", 40, gang="g", task="ps" if i < 2 else "worker") for i in range(6)
    ]
    schedule_once(made, [*machines("a", "b", "c"), factories.gang("g", 6, roles=roles), *pods], 0.0)
    check_invariants(made)
    seats = Counter((pod.node, pod.seen.task) for pod in made.state.pods.values())
    assert sorted(seats.values()) == [1, 1, 2, 2]
    assert len({node for node, _ in seats}) == 2


def test_unlike_parts_that_find_no_way_are_told_that_there_may_be_one() -> None:
    made = new_scheduler(factories.LEVELS)
    what = factories.topology(2, PAIRS[:1], shares=True)
    node: list[Fact] = [factories.node("a", gpus=2, shares=True), factories.report("a", what)]
    gang = factories.gang("g", 6, topology_required="island")
    parts = [factories.part(f"g-{i}", n, gang="g") for i, n in enumerate((60, 50, 50, 40, 30, 10))]
    schedule_once(made, [*node, gang, *parts], 0.0)
    reason = made.state.gangs["ns", "g", True].attempt.reason
    assert "search limit reached; a placement may exist" in reason


def test_rings_of_parts_get_an_island_each() -> None:
    made = new_scheduler(factories.LEVELS)
    rings = SubGroups("tp", 3, keys=("ring",), required="island")
    pods = [
        factories.part(f"g-{i}", 60, gang="g", labels=(("ring", str(i % 2)),)) for i in range(6)
    ]
    decisions = schedule_once(
        made, [*machines("a"), factories.gang("g", 6, subgroups=(rings,)), *pods], 0.0
    )
    assert not [d for d in decisions if isinstance(d, Bind)]  # an island has room for two
    assert "needs 2 subgroups of 3 pods x 60 hundredths of a GPU, each in one island" in (
        made.state.gangs["ns", "g", True].attempt.reason
    )
    pods = [
        factories.part(f"h-{i}", 50, gang="h", labels=(("ring", str(i % 2)),)) for i in range(6)
    ]
    schedule_once(made, [factories.gang("h", 6, subgroups=(rings,)), *pods], 1.0)
    check_invariants(made)
    islands = {
        (ring, gpu // 2)
        for ring in "01"
        for pod in made.state.pods.values()
        if pod.seen.gang == "h" and pod.seen.labels == (("ring", ring),)
        for gpu in indices_of(pod.gpus)
    }
    assert len(islands) == 2
