"""Roles and spreading together with groups: groups keep their closeness, wishes choose inside and between."""

import random
from collections import Counter
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodSeen, PodSpec, Roles, SubGroups
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest, RolePreferences, SubgroupRequest, fit
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.draft import DoesNotFit, Draft
from protos.names import BLOCK, RACK
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.placement.test_subgroups import cut, holds, small
from tests.effort import ALL_SEEDS, seeds

RING = "ring"
REQUESTABLE = Roles(near=(("ps", "worker"),), apart=(("ps", "ps"),))


def member(rank: int, task: str, ring: str = "", gpus: int = 4) -> PodSeen:
    labels = ((RING, ring),) if ring else ()
    return factories.pod(f"g-{rank}", gpus, "g", labels=labels, task=task)


def policy(size: int, required: str) -> SubGroups:
    return SubGroups("tp", size, keys=(RING,), required=required)


def seats(made: Scheduler) -> dict[str, str]:
    return {pod.seen.name: pod.node for pod in made.state.pods.values()}


def test_servers_that_are_in_no_group_sit_beside_the_groups_of_workers() -> None:
    """Two rings on a node each; a server beside each of them, though one node would take both."""
    made = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [factories.node(name, rack="r") for name in "abcd"]
    workers = [member(i, "worker", ring=str(i % 2), gpus=3) for i in range(4)]
    servers = [member(4, "ps", gpus=0), member(5, "ps", gpus=0)]
    gang = factories.gang("g", 6, subgroups=(policy(2, "node"),), roles=REQUESTABLE)
    schedule_once(made, [*nodes, gang, *servers, *workers], 0.0)
    check_invariants(made)
    found = seats(made)
    assert found["g-0"] == found["g-2"] != found["g-1"] == found["g-3"]
    assert {found["g-4"], found["g-5"]} == {found["g-0"], found["g-1"]}


def test_groups_with_a_server_each_keep_them_apart() -> None:
    """Each group is a server and a worker on one node; two groups would fit on one."""
    made = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [factories.node(name, rack="r") for name in "abc"]
    pods = [member(i, "worker" if i % 2 else "ps", ring=str(i // 2), gpus=2) for i in range(6)]
    gang = factories.gang("g", 6, subgroups=(policy(2, "node"),), roles=REQUESTABLE)
    schedule_once(made, [*nodes, gang, *pods], 0.0)
    check_invariants(made)
    found = seats(made)
    assert all(found[f"g-{i}"] == found[f"g-{i + 1}"] for i in (0, 2, 4))
    assert len({found["g-0"], found["g-2"], found["g-4"]}) == 3


def test_a_group_spreads_inside_its_rack() -> None:
    made = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [
        factories.node(f"{rack}{i}", rack=rack) for rack in ("q", "r") for i in range(3)
    ]
    pods = [member(i, "worker", ring=str(i // 3), gpus=2) for i in range(6)]
    gang = factories.gang("g", 6, subgroups=(policy(3, RACK),), placement="spread")
    schedule_once(made, [*nodes, gang, *pods], 0.0)
    check_invariants(made)
    found = seats(made)
    for ring in ((0, 1, 2), (3, 4, 5)):
        assert len({found[f"g-{i}"] for i in ring}) == 3
        assert len({found[f"g-{i}"][0] for i in ring}) == 1


def test_a_lost_server_comes_back_beside_its_workers() -> None:
    made = new_scheduler(factories.LEVELS)
    nodes: list[Fact] = [factories.node(name, rack="r") for name in "abcd"]
    workers = [member(i, "worker", ring=str(i % 2), gpus=3) for i in range(4)]
    gang = factories.gang("g", 4, subgroups=(policy(2, "node"),), roles=REQUESTABLE)
    schedule_once(made, [*nodes, gang, *workers], 0.0)
    schedule_once(made, [member(4, "ps", gpus=0)], 1.0)
    check_invariants(made)
    found = seats(made)
    assert found["g-4"] in {found["g-0"], found["g-1"]}


@pytest.mark.slow
def test_wishes_make_no_gang_wait_and_break_no_group() -> None:
    """Random small clusters and parts: with wishes as without, and each part in its domain."""
    answers: Counter[bool] = Counter()
    for seed in seeds(250):
        dice = random.Random(seed)
        snapshot = small(dice, islands=dice.random() < 0.5)
        kinds: list[tuple[PodSpec, int]] = [
            (factories.spec(dice.choice((1, 2)), cpu=100 + n), dice.randint(1, 3)) for n in range(2)
        ]
        near, apart = (
            ((0, 1),),
            dice.choice((((0, 0),), tuple(combinations_with_replacement((0, 1), 2)))),
        )
        plain = [SubgroupRequest((kind,), dice.choice(("node", RACK, BLOCK, ""))) for kind in kinds]
        wished = [
            replace(
                part,
                roles=RolePreferences(
                    tuple(
                        (spec, count * (place == own)) for place, (spec, count) in enumerate(kinds)
                    ),
                    near,
                    apart,
                ),
            )
            for own, part in enumerate(plain)
        ]
        told, required = list[bool](), dice.choice(("", BLOCK))
        for parts in (plain, wished):
            draft = Draft(snapshot)
            want = PlacementRequest(tuple(kinds), required, subgroups=tuple(parts))
            try:
                taken = list(fit(draft, want))
            except DoesNotFit:
                told.append(False)
                continue
            told.append(True)
            for mine, part in zip(cut(taken, [count for _, count in kinds]), parts, strict=True):
                assert holds(snapshot, mine, part.required), f"seed {seed}"
            draft.undo()
        assert told[0] == told[1], f"seed {seed}"
        answers[told[0]] += 1
    assert not ALL_SEEDS or min(answers.values()) > 20
