"""Gangs of unlike subgroups of unlike pods: a placement wherever there is one, against trying every node for every
pod; and a refusal that says it is certain is certain."""

import random
from collections import Counter
from types import ModuleType

import numpy as np
import pytest

from central.scheduler.placement import (
    PlacementRequest,
    SubgroupRequest,
    fit,
    joint_packing,
    packing,
)
from central.scheduler.placement.explain import SEARCH_LIMIT
from central.scheduler.placement.joint_packing import JointPacker
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from central.scheduler.snapshot.snapshot import Snapshot
from protos.names import BLOCK, ISLAND, RACK
from tests.central import factories

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


@pytest.mark.parametrize("base", range(0, 1000, 250))
def test_unlike_subgroups_of_unlike_pods_fit_wherever_there_is_a_way(base: int) -> None:
    answers = Counter[bool]()
    for seed in range(base, base + 250):
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
    assert min(answers.values()) > 50


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
    packer = JointPacker(Draft(two_nodes()), (LARGE, SMALL), counted=True)
    assert not packer.assign(ANY)
    assert packer.exact
    packer = JointPacker(Draft(two_nodes()), (LARGE, TINY), counted=True)
    assert packer.assign(ANY)


@pytest.mark.parametrize(
    ("module", "limit"),
    [(packing, "STEPS"), (joint_packing, "DIVISIONS"), (joint_packing, "PLACES")],
)
def test_no_refusal_at_a_limit_is_certain(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, limit: str
) -> None:
    monkeypatch.setattr(module, limit, 1)
    packer = JointPacker(Draft(two_nodes()), (LARGE, SMALL), counted=True)
    assert not packer.assign(ANY)
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
    packer = JointPacker(Draft(two_nodes()), (LARGE, others), counted=counted)
    assert not packer.assign(ANY)
    assert not packer.exact
