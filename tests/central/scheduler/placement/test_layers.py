"""Layers around the subgroups of a gang: bundles of subgroups that share a domain. Against trying every way on small
clusters, and as a story from PodGroup to bindings."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, UpdateGangStatus
from central.model.facts import Fact, PodGone, PodSpec, SubGroupLayer, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import Bundle, PlacementRequest, SubgroupRequest, explain, fit
from central.scheduler.placement.equal_subgroups import are_countable
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import Assignment, DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, NODE, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.effort import ALL_SEEDS, seeds

Rows = frozenset[int]
STAGE, RING = "stage", "ring"  # labels of pods


# --- against every way -----------------------------------------------------------------


def small(dice: random.Random) -> tuple[Snapshot, dict[int, int]]:
    """Two blocks of two racks of up to two nodes with 4 GPUs, some in use; and what is free by row."""
    snapshot, free = Snapshot((BLOCK, RACK)), dict[int, int]()
    for block in range(2):
        for rack in range(2):
            for place in range(dice.randint(1, 2)):
                name = f"{block}{rack}{place}"
                node = factories.node(name, block=f"b{block}", rack=f"r{block}{rack}", gpus=4)
                row = snapshot.put_node(node)
                taken = dice.choice((0, 0, 1, 2, 3))
                if taken:
                    snapshot.take(row, factories.spec(taken), 1, 0)
                free[row] = 4 - taken
    return snapshot, free


def domains(snapshot: Snapshot, level: str) -> list[Rows]:
    """The rows of each domain, by the nodes' names."""
    length = {NODE: 3, RACK: 2, BLOCK: 1, "": 0}[level]
    found: dict[str, set[int]] = {}
    for name, row in snapshot.columns.row.items():
        found.setdefault(name[:length], set()).add(row)
    return [frozenset(rows) for rows in found.values()]


def possible(
    snapshot: Snapshot, free: dict[int, int], request: PlacementRequest, gpus: dict[PodSpec, int]
) -> bool:
    """Whether there is a place: every domain of every bundle and subgroup, and every node of every pod."""
    subgroups = [each for each in request.subgroups for _ in range(each.copies)]

    def place(
        left: Sequence[SubgroupRequest], free: dict[int, int], inside: dict[int, Rows], outer: Rows
    ) -> bool:
        if not left:
            return True
        around = outer
        for bundle in left[0].bundles:
            if bundle.number not in inside:
                return any(
                    place(left, free, {**inside, bundle.number: around & rows}, outer)
                    for rows in domains(snapshot, bundle.required)
                    if around & rows
                )
            around = inside[bundle.number]
        return any(
            place(left[1:], after, inside, outer)
            for rows in domains(snapshot, left[0].required)
            for after in pods(list(left[0].groups), sorted(around & rows), free)
        )

    def pods(
        groups: list[tuple[PodSpec, int]], rows: Sequence[int], free: dict[int, int]
    ) -> Iterator[dict[int, int]]:
        if not groups:
            yield free
            return
        (spec, count), *rest = groups
        if not count:
            yield from pods(rest, rows, free)
            return
        seen = set[tuple[tuple[int, int], ...]]()
        for row in rows:
            if free[row] >= gpus[spec]:
                after = {**free, row: free[row] - gpus[spec]}
                if (key := tuple(sorted(after.items()))) not in seen:
                    seen.add(key)
                    yield from pods([(spec, count - 1), *rest], rows, after)

    return any(place(subgroups, free, {}, rows) for rows in domains(snapshot, request.required))


def cut(seats: list[Assignment], subgroups: Sequence[SubgroupRequest]) -> list[list[Assignment]]:
    """The seats of each subgroup, one after the other."""
    rest, found = list(seats), []
    for each in subgroups:
        mine: list[Assignment] = []
        while Counter(seat.spec for seat in mine for _ in range(seat.pods)) != dict(each.groups):
            mine.append(rest.pop(0))
        found.append(mine)
    assert not rest
    return found


def assert_close(snapshot: Snapshot, request: PlacementRequest, seats: list[Assignment]) -> None:
    """Every bundle and every subgroup is in one domain of its level, and so is the gang."""

    def together(used: set[int], level: str) -> bool:
        return any(used <= rows for rows in domains(snapshot, level))

    subgroups = [each for each in request.subgroups for _ in range(each.copies)]
    bundles: dict[Bundle, set[int]] = {}
    for each, mine in zip(subgroups, cut(seats, subgroups), strict=True):
        used = {seat.row for seat in mine}
        assert together(used, each.required)
        for bundle in each.bundles:
            bundles.setdefault(bundle, set()).update(used)
    assert all(together(used, bundle.required) for bundle, used in bundles.items())
    assert together({seat.row for seat in seats}, request.required)


def request_of(subgroups: Sequence[SubgroupRequest], required: str) -> PlacementRequest:
    counts = Counter[PodSpec]()
    for each in subgroups:
        for spec, count in each.groups:
            counts[spec] += count * each.copies
    return PlacementRequest(tuple(counts.items()), required, subgroups=tuple(subgroups))


def check(request: PlacementRequest, snapshot: Snapshot, free: dict[int, int]) -> bool:
    """Compares with trying every way; returns whether there is one."""
    gpus = {spec: snapshot.view(spec).gpus for spec, _ in request.groups}
    expected = possible(snapshot, free, request, gpus)
    before, draft = snapshot.columns.free.copy(), Draft(snapshot)
    if expected:
        assert_close(snapshot, request, list(fit(draft, request)))
        draft.undo()
    else:
        with pytest.raises(DoesNotFit) as refusal:
            fit(draft, request)
        assert explain.SEARCH_LIMIT not in refusal.value.why
    assert (snapshot.columns.free == before).all()
    return expected


def test_equal_bundles_fit_wherever_there_is_a_way() -> None:
    answers = Counter[bool]()
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot, free = small(dice)
        spec, size = factories.spec(dice.choice((1, 1, 2))), dice.randint(1, 2)
        inner, outer = dice.choice((NODE, RACK)), dice.choice((NODE, RACK, BLOCK))
        copies, bundles, widest = dice.randint(1, 3), dice.randint(1, 3), dice.random() < 0.3
        around = (Bundle(100, BLOCK),) if widest else ()
        subgroups = [
            SubgroupRequest(
                ((spec, size),), inner, copies=copies, bundles=(*around, Bundle(number, outer))
            )
            for number in range(bundles)
        ]
        request = request_of(subgroups, dice.choice(("", BLOCK)))
        assert are_countable(request)
        answers[check(request, snapshot, free)] += 1
    assert not ALL_SEEDS or min(answers.values()) > 15


def test_two_layers_of_equal_bundles() -> None:
    """Rows of three numbers: bundles in bundles, in the order in which a request has them."""
    answers = Counter[bool]()
    for seed in seeds(200):
        dice = random.Random(seed)
        snapshot, free = small(dice)
        spec, copies = factories.spec(dice.choice((1, 2))), dice.randint(1, 2)
        subgroups = [
            SubgroupRequest(
                ((spec, 1),),
                NODE,
                copies=copies,
                bundles=(Bundle(outer, BLOCK), Bundle(10 * outer + inner, RACK)),
            )
            for outer in (1, 2)
            for inner in (1, 2)
        ]
        dice.shuffle(subgroups)
        request = request_of(subgroups, "")
        assert are_countable(request)
        answers[check(request, snapshot, free)] += 1
    assert not ALL_SEEDS or min(answers.values()) > 15


@pytest.mark.long
def test_unlike_bundles_fit_wherever_there_is_a_way() -> None:
    answers, counted = Counter[bool](), 0
    for seed in seeds(300):
        dice = random.Random(seed)
        snapshot, free = small(dice)
        subgroups = list[SubgroupRequest]()
        for number in range(dice.randint(1, 2)):
            outer = (Bundle(number, dice.choice((RACK, BLOCK))),) if dice.random() < 0.8 else ()
            for _ in range(dice.randint(1, 2)):
                groups = tuple(
                    (factories.spec(gpus), dice.randint(1, 2))
                    for gpus in dice.sample((1, 2, 3), dice.randint(1, 2))
                )
                subgroups.append(SubgroupRequest(groups, dice.choice((NODE, RACK)), bundles=outer))
        request = request_of(subgroups, dice.choice(("", BLOCK)))
        counted += are_countable(request)
        answers[check(request, snapshot, free)] += 1
    assert not ALL_SEEDS or min(answers.values()) > 15
    assert not ALL_SEEDS or counted < 150


def test_a_bundle_joins_its_members() -> None:
    """Its first subgroup runs in rack r01, where one more fits; elsewhere there is more free."""
    snapshot = Snapshot((BLOCK, RACK))
    for name in ("000", "010", "100"):
        snapshot.put_node(factories.node(name, block=f"b{name[0]}", rack=f"r{name[:2]}", gpus=4))
    spec, there = factories.spec(2), snapshot.columns.row["010"]
    snapshot.take(there, spec, 1, 0)
    part = SubgroupRequest(((spec, 1),), NODE, bundles=(Bundle(0, RACK, (there,)),))
    request = replace(request_of([part], ""), existing_rows=(there, 0))
    assert [seat.row for seat in fit(Draft(snapshot), request)] == [there]
    with pytest.raises(DoesNotFit):
        fit(Draft(snapshot), replace(request, subgroups=(replace(part, copies=2),)))


# --- from PodGroup to bindings -----------------------------------------------------------


def policy(least: int = 0) -> SubGroups:
    """Rings of two pods on one node, those of one stage in one rack, all of them in one block."""
    layers = (SubGroupLayer((), BLOCK), SubGroupLayer((STAGE,), RACK))
    return SubGroups("tp", 2, least, keys=(STAGE, RING), required=NODE, layers=layers)


def member(rank: int, stage: int, ring: int, gpus: int = 2) -> Fact:
    labels = ((STAGE, str(stage)), (RING, str(ring)))
    return factories.pod(f"g-{rank}", gpus, "g", labels=labels)


def nodes(shape: str) -> list[Fact]:
    """For example "2 22;31": block b0 with racks of one node with 2 GPUs, and of two with 2; then b1."""
    return [
        factories.node(f"{b}{r}{n}", block=f"b{b}", rack=f"r{b}{r}", gpus=int(gpus))
        for b, block in enumerate(shape.split(";"))
        for r, rack in enumerate(block.split())
        for n, gpus in enumerate(rack)
    ]


def gang(stages: int, rings: int, gpus: int = 2, least: int | None = None) -> list[Fact]:
    pods = stages * rings * 2
    members = [member(rank, rank // (2 * rings), rank // 2 % rings, gpus) for rank in range(pods)]
    count = pods if least is None else least
    return [factories.gang("g", count, subgroups=(policy(),)), *members]


def bound(decisions: list[Decision]) -> dict[int, str]:
    return {int(each.name.split("-")[1]): each.node for each in decisions if isinstance(each, Bind)}


def told(decisions: list[Decision]) -> str:
    [found] = [each.reason for each in decisions if isinstance(each, UpdateGangStatus)]
    return found


def run(scheduler: Scheduler, *facts: list[Fact]) -> list[Decision]:
    decisions = schedule_once(scheduler, [one for each in facts for one in each], 0.0)
    check_invariants(scheduler)
    return decisions


def test_stages_are_each_in_a_rack_of_one_block() -> None:
    """Block b0 has more GPUs, but no two racks for the two stages."""
    scheduler = new_scheduler((BLOCK, RACK))
    homes = bound(run(scheduler, nodes("44 4 4 4;44 44"), gang(2, 2)))
    assert len(homes) == 8
    assert {home[0] for home in homes.values()} == {"1"}
    assert len({homes[rank][:2] for rank in range(4)}) == 1
    assert len({homes[rank][:2] for rank in range(4, 8)}) == 1


def test_a_replacement_returns_to_the_rack_of_its_stage() -> None:
    scheduler = new_scheduler((BLOCK, RACK))
    homes = bound(run(scheduler, nodes("44 44 4;4"), gang(2, 2)))
    lost = homes[0]
    pods = [pod for pod in scheduler.state.pods.values() if pod.node == lost]
    again = run(scheduler, [PodGone(pod.seen.uid) for pod in pods])
    ring: list[Fact] = [replace(pod.seen, uid=f"{pod.seen.uid}-again", node="") for pod in pods]
    homes_again = bound(again) | bound(run(scheduler, ring))
    assert {home[:2] for home in homes_again.values()} == {lost[:2]}


def test_the_sentence_counts_groups() -> None:
    scheduler = new_scheduler((BLOCK, RACK))
    assert told(run(scheduler, nodes("44 4;44 4"), gang(2, 2))) == (
        "needs 2 groups of 2 subgroups of 2 pods x 2 GPUs, each subgroup in one node, "
        "each group in one rack, all in one block; best candidate b0 fits 1 of 2 groups "
        "(12 of 12 GPUs free on 3 nodes); can never start: even if empty, no block fits more than 6"
    )


def test_what_no_rack_can_ever_hold() -> None:
    scheduler = new_scheduler((BLOCK, RACK))
    assert told(run(scheduler, nodes("44 44"), gang(2, 3))) == (
        "needs 2 groups of 3 subgroups of 2 pods x 2 GPUs, each subgroup in one node, "
        "each group in one rack, all in one block; can never start: even if empty, no rack fits "
        "more than 4"
    )


def test_the_sentence_of_one_group_among_others() -> None:
    """With a driver beside them the groups are searched."""
    scheduler = new_scheduler((BLOCK, RACK))
    driver = factories.pod("g-12", 1, "g")
    reason = told(run(scheduler, nodes("444 44 44 1"), gang(2, 3, least=13), [driver]))
    assert reason.startswith("one group of subgroups needs 2 groups of 3 subgroups of 2 pods x 2")


def test_a_gang_starts_with_its_least_and_grows_stage_by_stage() -> None:
    scheduler = new_scheduler((BLOCK, RACK))
    homes = bound(run(scheduler, nodes("44 4"), gang(2, 2, least=4)))
    assert len(homes) == 6  # a ring of the second stage starts in the other rack
    assert len({homes[rank][:2] for rank in range(4)}) == 1
    assert {home[:2] for rank, home in homes.items() if rank >= 4} == {"01"}
