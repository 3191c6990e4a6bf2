"""Groups inside a gang, each with its own closeness: against trying every way on small clusters, and as
a story from PodGroup to bindings."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, PodGone, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import (
    PlacementRequest,
    SubgroupRequest,
    explain,
    fit,
    subgroup_search,
)
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, ISLAND, NUMA, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds

RING = "ring"  # a label: pods of one ring are a group


def domains(snapshot: Snapshot, level: str) -> list[tuple[list[int], int]]:
    """Each domain of the level: its rows, and the GPUs of the one row that count."""
    rows = sorted(snapshot.columns.row.values())
    if level == "island":
        return [
            ([row], island)
            for row in rows
            if (shape := snapshot.columns.gpus.shape[row]) is not None
            for island in shape.islands
        ]
    if level == "node":
        return [([row], -1) for row in rows]
    if level == "":
        return [(rows, -1)]
    of = snapshot.columns.domains.of[snapshot.columns.domains.levels.index(level)]
    return [([r for r in rows if of[r] == d], -1) for d in sorted(set(of[rows].tolist())) if d >= 0]


def ways(room: Sequence[int], gpus: int, pods: int) -> Iterator[tuple[int, ...]]:
    """How many pods on each row, in every way."""
    if not room:
        if not pods:
            yield ()
        return
    for here in range(min(pods, room[0] // gpus) + 1):
        for rest in ways(room[1:], gpus, pods - here):
            yield (here, *rest)


def possible(snapshot: Snapshot, parts: Sequence[tuple[int, int, str]], required: str) -> bool:
    """Whether the parts (GPUs of a pod, pods, level) have a place, inside one domain of the required
    level: by trying everything. An island's free GPUs are counted apart from its node's others."""

    def place(free: dict[tuple[int, int], int], left: Sequence[tuple[int, int, str]]) -> bool:
        if not left:
            return True
        gpus, pods, level = left[0]
        for whole, mask in domains(snapshot, level):
            rows = [row for row in whole if row in outer]
            cells = [cell for cell in free if cell[0] in rows and (mask < 0 or cell[1] == mask)]
            for taken in spreads(free, cells, rows, gpus, pods):
                if place({c: n - taken.get(c, 0) for c, n in free.items()}, left[1:]):
                    return True
        return False

    def spreads(
        free: dict[tuple[int, int], int],
        cells: Sequence[tuple[int, int]],
        rows: Sequence[int],
        gpus: int,
        pods: int,
    ) -> Iterator[dict[tuple[int, int], int]]:
        """The GPUs taken of each cell; a pod may take from several cells of its row."""
        room = [sum(free[c] for c in cells if c[0] == row) for row in rows]
        for here in ways(room, gpus, pods):
            yield from draws(
                free, [(row, n * gpus) for row, n in zip(rows, here, strict=True)], cells
            )

    def draws(
        free: dict[tuple[int, int], int],
        needs: Sequence[tuple[int, int]],
        cells: Sequence[tuple[int, int]],
    ) -> Iterator[dict[tuple[int, int], int]]:
        if not needs:
            yield {}
            return
        row, gpus = needs[0]
        own = [cell for cell in cells if cell[0] == row]
        for split in ways([free[cell] for cell in own], 1, gpus):
            for rest in draws(free, needs[1:], cells):
                yield {**dict(zip(own, split, strict=True)), **rest}

    cells: dict[tuple[int, int], int] = {}
    for row in snapshot.columns.row.values():
        shape = snapshot.columns.gpus.shape[row]
        if shape is None:
            cells[row, -1] = int(snapshot.columns.gpus.count[row])
        for island in shape.islands if shape is not None else ():
            cells[row, island] = (island & snapshot.columns.gpus.free_mask[row]).bit_count()
    for rows, _ in domains(snapshot, required):
        outer = set(rows)
        if place({cell: n for cell, n in cells.items() if cell[0] in outer}, parts):
            return True
    return False


def small(dice: random.Random, islands: bool) -> Snapshot:
    """Up to 2 blocks of 2 racks of 2 nodes with 4 GPUs in pairs, some in use."""
    snapshot = Snapshot((BLOCK, RACK))
    for block in range(dice.randint(1, 2)):
        for rack in range(dice.randint(1, 2)):
            for place in range(dice.randint(1, 2)):
                name = f"{block}{rack}{place}"
                node = factories.node(name, block=f"b{block}", rack=f"r{rack}", gpus=4)
                row = snapshot.put_node(node)
                taken = dice.sample(range(4), dice.randint(0, 3))
                if islands:
                    shape = factories.topology(4, ((0, 1), (2, 3))).shape()
                    free = sum(1 << i for i in range(4) if i not in taken)
                    snapshot.put_gpus(row, shape, free)
                if taken:
                    snapshot.take(row, factories.spec(len(taken)), 1, 0)
    return snapshot


def holds(snapshot: Snapshot, seats: Sequence[Assignment], level: str) -> bool:
    """Whether the seats are in one domain of the level."""
    rows, mask = {seat.row for seat in seats}, 0
    for seat in seats:
        mask |= seat.gpus
    return any(
        rows <= set(inside) and (gpus < 0 or not mask & ~gpus)
        for inside, gpus in domains(snapshot, level)
    )


def cut(seats: list[Assignment], sizes: Sequence[int]) -> Iterator[list[Assignment]]:
    """The seats of each part, one after the other."""
    rest = list(seats)
    for size in sizes:
        mine: list[Assignment] = []
        while sum(seat.pods for seat in mine) < size:
            mine.append(rest.pop(0))
        assert sum(seat.pods for seat in mine) == size
        yield mine
    assert not rest


@pytest.mark.long
def test_equal_groups_fit_wherever_there_is_a_way() -> None:
    answers = Counter[bool]()
    for seed in seeds(400):
        dice = random.Random(seed)
        snapshot = small(dice, islands=dice.random() < 0.5)
        gpus, size, times = dice.choice((1, 1, 2)), dice.randint(1, 3), dice.randint(1, 3)
        inner = dice.choice(("island", "node", RACK, BLOCK, ""))
        required = dice.choice(("", BLOCK, RACK))
        part = SubgroupRequest(((factories.spec(gpus), size),), inner, copies=times)
        want = PlacementRequest(
            ((factories.spec(gpus), size * times),), required, subgroups=(part,)
        )
        expected = possible(snapshot, [(gpus, size, inner)] * times, required)
        answers[expected] += 1
        free = snapshot.columns.free.copy()
        draft = Draft(snapshot)
        if not expected:
            with pytest.raises(DoesNotFit):
                fit(draft, want)
            assert (snapshot.columns.free == free).all()
            continue
        seats = list(fit(draft, want))
        assert holds(snapshot, seats, required)
        for mine in cut(seats, [size] * times):
            assert holds(snapshot, mine, inner), f"seed {seed}"
        draft.undo()
        assert (snapshot.columns.free == free).all()
    assert not ALL_SEEDS or min(answers.values()) > 10


def test_unlike_groups_fit_wherever_there_is_a_way() -> None:
    answers = Counter[bool]()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot = small(dice, islands=dice.random() < 0.5)
        kinds = [
            (dice.choice((1, 2)), dice.randint(1, 2), dice.choice(("island", "node", RACK)))
            for _ in range(dice.randint(2, 3))
        ]
        required = dice.choice(("", BLOCK))
        parts = tuple(SubgroupRequest(((factories.spec(g), n),), level) for g, n, level in kinds)
        groups = Counter[int]()
        for gpus, count, _ in kinds:
            groups[gpus] += count
        want = PlacementRequest(
            tuple((factories.spec(g), n) for g, n in groups.items()), required, subgroups=parts
        )
        expected = possible(snapshot, kinds, required)
        answers[expected] += 1
        draft = Draft(snapshot)
        if not expected:
            with pytest.raises(DoesNotFit):
                fit(draft, want)
            continue
        seats = list(fit(draft, want))
        for mine, (_, _, level) in zip(cut(seats, [n for _, n, _ in kinds]), kinds, strict=True):
            assert holds(snapshot, mine, level), f"seed {seed}"
    assert not ALL_SEEDS or min(answers.values()) > 10


class CountingDraft(Draft):
    """Counts the tentative placements."""

    placements = 0

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        self.placements += 1
        with super().all_or_nothing():
            yield


@pytest.mark.long
def test_equal_subgroups_that_swap_their_nodes_are_not_searched_again() -> None:
    """Seven subgroups of 6 GPUs on six nodes of 8: each order of the nodes fails alike."""
    snapshot = Snapshot()
    for name in "abcdef":
        snapshot.put_node(factories.node(name))
    small, large = factories.spec(1), factories.spec(2)
    subgroup = SubgroupRequest(((small, 2), (large, 2)), "node", copies=7)
    draft = CountingDraft(snapshot)
    with pytest.raises(DoesNotFit, match=explain.SEARCH_LIMIT):
        fit(draft, PlacementRequest(((small, 14), (large, 14)), subgroups=(subgroup,)))
    assert draft.placements < subgroup_search.ATTEMPTS / 4
    assert not draft.assignments


# --- from PodGroup to bindings -------------------------------------------------------


def member(rank: int, ring: int, gpus: int = 2) -> Fact:
    return factories.pod(f"g-{rank}", gpus, "g", labels=((RING, str(ring)),))


def policy(size: int, least: int = 0, required: str = "node") -> SubGroups:
    return SubGroups("tp", size, least, keys=(RING,), required=required)


def told(decisions: list[Decision]) -> str:
    return next(
        d.reason for d in reversed(decisions) if isinstance(d, UpdateGangStatus) and d.gang == "g"
    )


def nodes_of(scheduler: Scheduler, ring: int) -> set[str]:
    return {
        pod.node
        for pod in scheduler.state.pods.values()
        if pod.seen.labels == ((RING, str(ring)),) and pod.node
    }


def test_each_ring_gets_a_node_and_all_get_one_rack() -> None:
    """Three rings of two pods with four GPUs of a node each; ranks of one ring do not follow each
    other."""
    scheduler = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [
        *(factories.node(f"a{i}", rack="ra", gpus=6) for i in range(2)),
        *(factories.node(f"b{i}", rack="rb", gpus=6) for i in range(3)),
    ]
    gang = factories.gang("g", 6, topology_required=RACK, subgroups=(policy(2),))
    decisions = schedule_once(scheduler, [*nodes, gang, *(member(i, i % 3) for i in range(6))], 0.0)
    assert sum(isinstance(d, Bind) for d in decisions) == 6
    used = [nodes_of(scheduler, ring) for ring in range(3)]
    assert all(len(nodes) == 1 for nodes in used)
    assert set.union(*used) == {"b0", "b1", "b2"}


def gpus_of(scheduler: Scheduler) -> set[int]:
    pods = [pod for pod in scheduler.state.pods.values() if pod.seen.name.startswith("g-")]
    return {gpu for pod in pods for gpu in range(8) if pod.gpus >> gpu & 1}


@pytest.mark.parametrize("required", ["node", ISLAND, ""])
def test_groups_of_a_gang_that_needs_one_island_share_it(required: str) -> None:
    """Two pairs on a node whose first island has three free GPUs, and whose second one has four."""
    scheduler = new_scheduler(factories.LEVELS)
    report = factories.report("a", factories.topology(8, islands=((0, 1, 2, 3), (4, 5, 6, 7))))
    schedule_once(scheduler, [factories.node("a"), report, factories.pod("other", 1)], 0.0)
    gang = factories.gang(
        "g", 4, topology_required=ISLAND, subgroups=(policy(2, required=required),)
    )
    schedule_once(scheduler, [gang, *(member(rank, rank // 2, 1) for rank in range(4))], 1.0)
    assert gpus_of(scheduler) in ({0, 1, 2, 3}, {4, 5, 6, 7})
    check_invariants(scheduler)


def test_a_later_group_joins_the_island_of_its_gang_or_waits() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    report = factories.report("a", factories.topology(8, islands=((0, 1, 2, 3), (4, 5, 6, 7))))
    gang = factories.gang("g", 2, topology_required=ISLAND, subgroups=(policy(2, least=1),))
    first = [member(rank, 0, 1) for rank in range(2)]
    schedule_once(scheduler, [factories.node("a"), report, gang, *first], 0.0)
    island = {gpu // 4 for gpu in gpus_of(scheduler)}
    assert len(island) == 1
    schedule_once(scheduler, [member(rank, 1, 1) for rank in (2, 3)], 1.0)
    assert len(gpus_of(scheduler)) == 4
    assert {gpu // 4 for gpu in gpus_of(scheduler)} == island
    schedule_once(scheduler, [member(rank, 2, 1) for rank in (4, 5)], 2.0)
    assert len(gpus_of(scheduler)) == 4


def test_a_group_that_lacks_pods_waits_and_the_others_start() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(f"a{i}", rack="ra", gpus=4) for i in range(3)]
    gang = factories.gang("g", 1, subgroups=(policy(2, least=1),))
    first = schedule_once(scheduler, [*nodes, gang, member(0, 0), member(1, 1)], 0.0)
    assert told(first) == (
        "subGroupPolicy tp needs 1 subgroup of 2 pods to start, the existing pods complete 0"
    )
    schedule_once(scheduler, [member(2, 1)], 1.0)
    assert (nodes_of(scheduler, 0), len(nodes_of(scheduler, 1))) == (set(), 1)
    assert told(schedule_once(scheduler, [], 2.0) or first)
    assert scheduler.state.gangs["ns", "g", True].attempt.reason == "subgroup tp-0 has 1 of 2 pods"
    schedule_once(scheduler, [member(3, 0)], 3.0)
    assert len(nodes_of(scheduler, 0)) == 1


def test_a_lost_member_comes_back_to_its_group() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(f"a{i}", rack="ra", gpus=8) for i in range(3)]
    gang = factories.gang("g", 4, subgroups=(policy(2),))
    schedule_once(scheduler, [*nodes, gang, *(member(i, i // 2, 4) for i in range(4))], 0.0)
    homes = [nodes_of(scheduler, ring) for ring in range(2)]
    assert len(homes[0]) == len(homes[1]) == 1
    lost = scheduler.state.pods["uid-g-3"].seen
    schedule_once(scheduler, [PodGone("uid-g-3")], 1.0)
    schedule_once(scheduler, [replace(lost, uid="uid-again")], 2.0)
    assert nodes_of(scheduler, 1) == homes[1]
    check_invariants(scheduler)


def test_the_sentence_counts_groups() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node("a0", rack="ra", gpus=6), factories.node("a1", rack="ra", gpus=2)]
    gang = factories.gang("g", 4, subgroups=(policy(2),), topology_required=RACK)
    decisions = schedule_once(
        scheduler, [*nodes, gang, *(member(i, i // 2) for i in range(4))], 0.0
    )
    assert told(decisions) == (
        "needs 2 subgroups of 2 pods x 2 GPUs, each in one node, all in one rack; "
        "best candidate ra fits 1 of 2 subgroups (8 of 8 GPUs free on 2 nodes); can never start: "
        "even if empty, no rack fits more than 1 subgroup"
    )


@pytest.mark.parametrize(
    ("gpus", "said"),
    [
        (
            6,
            "the best node fits 0 of 2 (6 of 6 GPUs free on 1 node; 1 node: islands unknown); "
            "can never start: even if empty, no island fits more than 1",
        ),
        (None, "the cluster has no nodes"),
    ],
)
def test_the_sentence_names_a_node_only_where_there_is_room(gpus: int | None, said: str) -> None:
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node("a0", gpus=gpus)] if gpus else []
    gang = factories.gang("g", 2, subgroups=(policy(2),), topology_required="island")
    decisions = schedule_once(scheduler, [*nodes, gang, *(member(i, 0, 4) for i in range(2))], 0.0)
    assert told(decisions) == f"needs 2 pods x 4 GPUs in one island; {said}"


def test_a_gang_in_one_numa_node_whose_only_group_needs_a_node() -> None:
    """Islands cross the NUMA nodes here: three GPUs of one island are close, but of two NUMA nodes."""
    snapshot = Snapshot()
    row = snapshot.put_node(factories.node("a"))
    shape = factories.topology(8, ((0, 1, 4, 5), (2, 3, 6, 7))).shape()
    snapshot.put_gpus(row, replace(shape, numa=(0, 0, 0, 0, 1, 1, 1, 1)), 0b00011011)
    snapshot.take(row, factories.spec(4), 1, 0)
    pods = ((factories.spec(1), 3),)
    request = PlacementRequest(pods, NUMA, subgroups=(SubgroupRequest(pods, "node"),))
    used = 0
    for seat in fit(Draft(snapshot), request):
        used |= seat.gpus
    assert used == 0b1011


def test_the_minimum_starts_in_whole_groups() -> None:
    """Three pods must start, groups have two: four start, and the third group follows alone."""
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(f"a{i}", rack="ra", gpus=4) for i in range(2)]
    gang = factories.gang("g", 3, subgroups=(policy(2),))
    decisions = schedule_once(
        scheduler, [*nodes, gang, *(member(i, i // 2) for i in range(6))], 0.0
    )
    assert sorted(d.name for d in decisions if isinstance(d, Bind)) == ["g-0", "g-1", "g-2", "g-3"]
    more = schedule_once(scheduler, [factories.node("a2", rack="ra", gpus=4)], 1.0)
    assert sorted(d.name for d in more if isinstance(d, Bind)) == ["g-4", "g-5"]
