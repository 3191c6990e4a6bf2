"""Gangs of unlike subgroups of unlike pods: a placement wherever there is one, against trying every node for every
pod; and a refusal that says it is certain is certain."""

import random
from collections import Counter

import numpy as np
import pytest

from central.scheduler.placement import Bundle, PlacementRequest, SubgroupRequest, fit, packing
from central.scheduler.placement.explain import SEARCH_LIMIT
from central.scheduler.placement.packing import Packer
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, ISLAND, NODE, RACK
from tests.central import factories
from tests.effort import ALL_SEEDS, seeds

Amounts = tuple[int, int]  # GPUs, CPU
Node = tuple[str, str, Amounts]  # block, rack
Group = tuple[str, list[Amounts]]  # required level, pods


def domain(nodes: list[Node], level: str, node: int) -> object:
    block, rack, _ = nodes[node]
    return {"": "", BLOCK: block, RACK: rack, "node": node}[level]


def possible(nodes: list[Node], groups: list[Group], required: str) -> bool:
    pods = [(number, pod) for number, (_, pods) in enumerate(groups) for pod in pods]
    free = [list(amounts) for _, _, amounts in nodes]

    def place(index: int, whole: tuple[object, ...], inside: dict[int, object]) -> bool:
        if index == len(pods):
            return True
        number, (gpus, cpu) = pods[index]
        for node, left in enumerate(free):
            here = domain(nodes, groups[number][0], node)
            around = (domain(nodes, required, node),)
            if left[0] < gpus or left[1] < cpu or whole not in {(), around}:
                continue
            if inside.get(number, here) != here:
                continue
            left[0], left[1] = left[0] - gpus, left[1] - cpu
            found = place(index + 1, around, {**inside, number: here})
            left[0], left[1] = left[0] + gpus, left[1] + cpu
            if found:
                return True
        return False

    return place(0, (), {})


def case(dice: random.Random) -> tuple[list[Node], list[Group], str]:
    nodes = [
        (f"b{block}", f"r{block}{rack}", (dice.choice((2, 3, 4, 6, 8)), dice.choice((4, 8, 12))))
        for block in range(dice.randint(1, 2))
        for rack in range(dice.randint(1, 2))
        for _ in range(dice.randint(1, 3))
    ]
    groups = []
    for _ in range(dice.randint(1, 3)):
        kinds = [(dice.randint(0, 4), dice.choice((1, 2, 4, 6))) for _ in range(2)]
        pods = [dice.choice(kinds) for _ in range(dice.randint(1, 4))]
        groups.append((dice.choice(("", RACK, "node", RACK)), sorted(pods)))
    return nodes, groups, dice.choice(("", "", BLOCK, RACK))


def request_for(groups: list[Group], required: str) -> PlacementRequest:
    def counted(pods: list[Amounts]) -> tuple[tuple[object, int], ...]:
        return tuple(Counter(factories.spec(gpus, cpu * 1000) for gpus, cpu in pods).items())

    equal = Counter((level, counted(pods)) for level, pods in groups)
    subgroups = tuple(
        SubgroupRequest(pods, level, copies=copies)  # type: ignore[arg-type]  # specs and counts
        for (level, pods), copies in equal.items()
    )
    every = counted([pod for _, pods in groups for pod in pods])
    return PlacementRequest(every, required, subgroups=subgroups)  # type: ignore[arg-type]  # as above


@pytest.mark.long
def test_unlike_subgroups_of_unlike_pods_fit_wherever_there_is_a_way() -> None:
    answers = Counter[bool]()
    for seed in seeds(1000):
        nodes, groups, required = case(random.Random(seed))
        snapshot = Snapshot((BLOCK, RACK))
        for number, (block, rack, (gpus, cpu)) in enumerate(nodes):
            snapshot.put_node(
                factories.node(f"n{number}", block=block, rack=rack, gpus=gpus, cpu=cpu * 1000)
            )
        expected = possible(nodes, groups, required)
        answers[expected] += 1
        request = request_for(groups, required)
        if not expected:
            with pytest.raises(DoesNotFit):
                fit(Draft(snapshot), request)
            continue
        taken = fit(Draft(snapshot), request)
        wanted = [
            spec
            for subgroup in request.subgroups
            for _ in range(subgroup.copies)
            for spec, count in subgroup.groups
            for _ in range(count)
        ]
        placed = [
            (each.spec, int(snapshot.columns.names[each.row][1:]))
            for each in taken
            for _ in range(each.pods)
        ]
        assert [spec for spec, _ in placed] == wanted, f"seed {seed}"
        assert len({domain(nodes, required, node) for _, node in placed}) == 1
        start = 0
        for subgroup in request.subgroups:
            size = sum(count for _, count in subgroup.groups)
            for _ in range(subgroup.copies):
                mine = [node for _, node in placed[start : start + size]]
                assert len({domain(nodes, subgroup.required, node) for node in mine}) == 1
                start += size
        assert (snapshot.columns.free >= 0).all()
    assert not ALL_SEEDS or min(answers.values()) > 50


def test_a_search_that_is_too_large_does_not_say_no() -> None:
    """Forty nodes of 7 GPUs, each for a pod of 4 and one of 2, and one pod of 2 too many."""
    snapshot = Snapshot((RACK,))
    for number in range(40):
        snapshot.put_node(factories.node(f"n{number:02}", rack="r", gpus=7, cpu=1000 + number))
    four, two = (factories.spec(4), 40), (factories.spec(2), 41)
    subgroups = (
        SubgroupRequest((four,), RACK),
        SubgroupRequest((two, (factories.spec(1), 20)), RACK),
    )
    groups = (four, two, (factories.spec(1), 20))
    with pytest.raises(DoesNotFit, match=SEARCH_LIMIT):
        fit(Draft(snapshot), PlacementRequest(groups, subgroups=subgroups))


def two_nodes() -> Snapshot:
    """Of 4 free GPUs each."""
    snapshot = Snapshot((BLOCK, RACK))
    for name in ("a", "b"):
        snapshot.put_node(factories.node(name, gpus=4, shares=True))
    return snapshot


ANY = np.arange(2)
LARGE = SubgroupRequest(((factories.spec(3), 2),))
SMALL = SubgroupRequest(((factories.spec(2), 1),))  # fits, but not beside those
TINY = SubgroupRequest(((factories.spec(1), 1),))


def test_a_refusal_is_certain_if_no_limit_was_reached() -> None:
    packer = Packer(Draft(two_nodes()), (LARGE, SMALL), counted=True)
    assert not packer.assign(ANY)
    assert packer.exact
    packer = Packer(Draft(two_nodes()), (LARGE, TINY), counted=True)
    assert packer.assign(ANY)


@pytest.mark.parametrize(
    ("limit", "value"), [("STEPS", 1), ("DIVISIONS", 0), ("PLACES", 1), ("CLASSES", 1)]
)
def test_no_refusal_at_a_limit_is_certain(
    monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(packing, limit, value)
    packer = Packer(Draft(two_nodes()), (LARGE, SMALL), counted=True)
    assert not packer.assign(ANY)
    assert not packer.exact
    assert not packer.assign(ANY[:0])  # what follows in other domains, too
    assert not packer.exact


@pytest.mark.parametrize(
    ("others", "counted"),
    [
        (TINY, False),
        (SubgroupRequest(TINY.groups, ISLAND), True),
        (SubgroupRequest(((factories.part("p", 50).spec, 1),)), True),
    ],
    ids=["rules between pods", "islands", "parts of GPUs"],
)
def test_what_amounts_do_not_tell_is_not_packed(others: SubgroupRequest, counted: bool) -> None:
    """Nor is a refusal certain then, even if only some of the subgroups are such."""
    packer = Packer(Draft(two_nodes()), (LARGE, others), counted=counted)
    assert not packer.assign(ANY)
    assert not packer.exact


def in_racks(*racks: str) -> Snapshot:
    """Nodes of 4 free GPUs."""
    snapshot = Snapshot((BLOCK, RACK))
    for number, rack in enumerate(racks):
        snapshot.put_node(factories.node(f"n{number}", gpus=4, rack=rack))
    return snapshot


def packed(snapshot: Snapshot, *subgroups: SubgroupRequest) -> list[set[int]]:
    """The rows of each subgroup; empty if they were not placed."""
    draft = Draft(snapshot)
    packer = Packer(draft, subgroups, counted=True)
    placed = packer.assign(np.arange(len(snapshot.columns.names)))
    assert packer.exact
    if not placed:
        return []
    rows = [each.row for each in draft.assignments for _ in range(each.pods)]
    draft.undo()
    sizes = [sum(count for _, count in subgroup.groups) for subgroup in subgroups]
    return [set(rows[sum(sizes[:i]) : sum(sizes[: i + 1])]) for i in range(len(sizes))]


@pytest.mark.parametrize("bundled", [False, True], ids=["subgroup", "bundle of subgroups"])
def test_the_rest_of_a_subgroup_joins_its_members_or_waits(bundled: bool) -> None:
    """Two racks of two nodes, and a node in none."""
    pods = ((factories.spec(3), 1), (factories.spec(2), 1))

    def rest(required: str, *there: int) -> list[set[int]]:
        if bundled:
            one = SubgroupRequest(pods, bundles=(Bundle(0, required, there),))
        else:
            one = SubgroupRequest(pods, required, there)
        return packed(in_racks("a", "a", "b", "b", ""), one)

    assert rest(RACK) in ([{0, 1}], [{2, 3}])
    for racks in ((0, 1), (2, 3)):
        assert rest(RACK, racks[0]) == rest(RACK, *racks) == [{*racks}]
    assert rest(RACK, 0, 2) == rest(RACK, 4) == rest(RACK, 0, 4) == []
    assert rest(NODE) == rest(NODE, 0) == []
    assert len(rest("", 0)[0]) == 2

    pods = ((factories.spec(3), 1), (factories.spec(1), 1))
    assert rest(NODE, 1) == [{1}]
    assert rest(NODE, 3, 3) == [{3}]
    assert rest(NODE, 1, 3) == []


def test_subgroups_are_divided_among_racks_in_every_way() -> None:
    """Three racks of two nodes. Three subgroups fill one each; the one unlike them may be anywhere else."""
    full = SubgroupRequest(((factories.spec(3), 1), (factories.spec(4), 1)), RACK)
    pair, one = (SubgroupRequest(((factories.spec(1), n),), RACK) for n in (2, 1))
    snapshot = in_racks("a", "a", "b", "b", "c", "c")
    assert sorted(map(sorted, packed(snapshot, full, full, full))) == [[0, 1], [2, 3], [4, 5]]
    assert not packed(snapshot, full, full, full, full)
    mixed = packed(snapshot, full, pair, full)
    assert len(mixed[0] | mixed[2]) == 4
    assert not mixed[1] & (mixed[0] | mixed[2])
    assert packed(snapshot, full, full, full, one)

    half = SubgroupRequest(((factories.spec(1), 1), (factories.spec(2), 1)), RACK)
    assert packed(in_racks("a", "a"), half, half)
    snapshot.take(0, factories.spec(3), 1, 0)
    snapshot.take(4, factories.spec(1), 1, 0)
    rows, rest = packed(snapshot, full, half)
    assert rows == {2, 3}
    assert rest <= {0, 1} or rest <= {4, 5}
    assert packed(in_racks("a", "b", "b"), full, one) == [{1, 2}, {0}]
    assert not packed(in_racks("", ""), half)  # these are in no rack


def test_orders_of_equal_subgroups_are_divided_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of four in three racks there are 15 divisions, and 81 with their order."""
    monkeypatch.setattr(packing, "DIVISIONS", 15)
    full = SubgroupRequest(((factories.spec(3), 1), (factories.spec(4), 1)), RACK)
    assert not packed(in_racks("a", "a", "b", "b", "c", "c"), *[full] * 4)


def test_no_division_is_made_that_a_rack_has_no_capacity_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(packing, "DIVISIONS", 1)
    monkeypatch.setattr(packing, "PLACES", 5)
    full = SubgroupRequest(((factories.spec(3), 1), (factories.spec(4), 2)), RACK)
    assert packed(in_racks("a", "b", "c", "c", "c"), full) == [{2, 3, 4}]
