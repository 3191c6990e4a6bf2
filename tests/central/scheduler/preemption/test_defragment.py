"""Defragmentation: somebody is moved so that a gang fits, and only if there is a place for both."""

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Evict
from central.model.facts import Fact, GangSeen, NodeGone, PodSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import defragment
from central.scheduler.preemption.eviction_rules import SETTLED_S
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.scheduler import Scheduler
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.exact.model import Model, Sum
from tests.central.scheduler.exact.space import nodes_of, place, pods_of
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import BY_PRIORITY, World, job

LONG_S = SETTLED_S + 1


def movable(facts: Sequence[Fact]) -> list[Fact]:
    return [replace(f, movable=True) if isinstance(f, PodSeen) else f for f in facts]


def on(node: str, facts: Sequence[Fact]) -> list[Fact]:
    """They run there already."""
    return [replace(f, node=node, phase="Running") if isinstance(f, PodSeen) else f for f in facts]


def halves(*, settled: bool = True, **fields: object) -> World:
    """Two nodes, each half full."""
    world = World(factories.node("a", rack="r1"), factories.node("b", rack="r1"))
    old = [on("a", movable(job("left", 1, 4))), on("b", movable(job("right", 1, 4, created=1.0)))]
    pods = [f for facts in old for f in facts]
    world.step(1.0, *(replace(f, **fields) if isinstance(f, PodSeen) else f for f in pods))  # type: ignore[arg-type]  # a test's shorthand
    if settled:
        world.step(LONG_S)
    return world


def test_a_removed_node_is_not_searched() -> None:
    """The gang requires a level that does not exist, so nothing has filtered the nodes again."""
    world = World(*(factories.node(name, rack="r1") for name in "abc"))
    for name in "abc":
        world.step(1.0, *on(name, movable(job(f"on-{name}", 1, 4))))
    group, *members = job("big", 1, 8)
    assert world.step(2.0, group, *members) == []
    assert isinstance(group, GangSeen)
    world.step(LONG_S + 2, NodeGone("a"), replace(group, topology_required="example.com/row"))
    assert "example.com/row" in world.told["big"]


def test_one_is_moved_so_that_a_whole_node_is_free() -> None:
    world = halves()
    assert world.step(LONG_S + 1, *job("big", 1, 8, created=9.0)) == []
    assert len(world.evicted) == 1
    assert world.whys == ["rescheduled to make room for ns/big; it fits on other nodes"]
    moved = world.evicted[0].partition("-")[0]
    again = [
        replace(f, uid="again", movable=True) for f in job(moved, 1, 4) if isinstance(f, PodSeen)
    ]
    assert world.step(LONG_S + 7, *again) == ["big-0", f"{moved}-0"]
    assert len(world.evicted) == 1


def test_one_is_moved_as_soon_as_its_disruption_budget_allows_it() -> None:
    world = halves(labels=(("app", "x"),))
    world.step(LONG_S + 1, factories.budget("x", 0), *job("big", 1, 8, created=9.0))
    world.step(LONG_S + 10)
    assert world.evicted == []
    world.step(LONG_S + 20, factories.budget("x", 1))
    world.step(LONG_S + 21)  # after a dry run
    assert len(world.evicted) == 1


def test_nobody_is_moved_who_did_not_say_that_it_may_be() -> None:
    world = halves(movable=False)
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert not world.evicted


@pytest.mark.long
def test_nobody_is_moved_who_only_just_began() -> None:
    world = halves(settled=False)
    world.step(10.0, *job("big", 1, 8, created=9.0))
    assert not world.evicted
    for now in range(11, 400, 3):
        world.step(float(now))
    assert len(world.evicted) == 1, "it is thought of again"


def test_nobody_is_moved_who_finds_no_place() -> None:
    world = World(factories.node("a"), factories.node("b", gpus=4))
    world.step(1.0, *on("a", movable(job("left", 1, 4))), *on("b", movable(job("right", 1, 2))))
    world.step(LONG_S)
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert not world.evicted, "4 GPUs are needed elsewhere, and 2 are free there"


def test_who_must_stay_in_its_rack_is_moved_inside_it_or_not_at_all() -> None:
    nodes = [
        factories.node("a", rack="r1"),
        factories.node("b", rack="r1"),
        factories.node("c", rack="r2"),
    ]
    world = World(*nodes)
    pair = movable(job("pair", 2, 4, topology_required=RACK))
    world.step(1.0, pair[0], *on("a", pair[1:2]), *on("b", pair[2:]))
    world.step(1.0, *on("c", job("c", 1, 2)))
    world.step(LONG_S)
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert world.evicted == ["pair-0", "pair-1"], "together, to the other node of their rack"


def test_the_more_urgent_are_not_moved() -> None:
    world = halves(priority=7)
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert not world.evicted


def test_a_budget_keeps_who_may_be_moved() -> None:
    world = halves(labels=(("app", "w"),))
    world.step(LONG_S + 0.5, factories.budget("w", 0))
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert not [each for each in world.decisions if isinstance(each, Evict)]


# --- judged by an exact solver -----------------------------------------------------------------------


def fewest(cluster: Scheduler, wanted: list[int]) -> int | None:
    """How many gangs must move at least so that all fit, the moved included."""
    model, columns = Model(), cluster.state.snapshot.columns
    free = {name: Sum(constant=int(columns.free[row, 0])) for name, row in columns.row.items()}
    groups, moves = pods_of(wanted), Sum()
    for gang in cluster.state.gangs.values():
        if gang.counts.placed:
            moved = model.binary()
            moves += moved
            for pod in gang.counts.placed:
                gpus = pod.spec.request("nvidia.com/gpu")
                free[pod.node] += moved * gpus
                groups.append(({"gpu": gpus}, moved))
    place(model, nodes_of(free), groups)
    least = model.least([moves])
    return None if least is None else least[0]


@pytest.mark.slow
def test_against_all_sets_of_moves() -> None:
    """Never one that leaves somebody without a place; nearly always where there is one, and with as
    few as can be."""
    dice = random.Random(7)
    possible = found = least = 0
    for _ in range(600):
        cluster = new_scheduler(factories.LEVELS)
        schedule_once(
            cluster, [factories.node(f"n{i}", gpus=4) for i in range(dice.randint(2, 4))], 0.0
        )
        for number in range(dice.randint(2, 6)):
            facts = movable(job(f"g{number}", dice.choice((1, 1, 2)), gpus=dice.choice((1, 2, 3))))
            name = dice.choice(sorted(cluster.state.snapshot.columns.row))
            room = cluster.state.snapshot.columns.free[cluster.state.snapshot.columns.row[name], 0]
            asked = sum(f.spec.request("nvidia.com/gpu") for f in facts if isinstance(f, PodSeen))
            schedule_once(cluster, on(name, facts) if asked <= room else [], 1.0)
        pods, gpus = dice.choice((1, 1, 2)), dice.choice((2, 3, 4))
        for fact in job("big", pods, gpus=gpus, created=99.0):
            apply(cluster, fact)
        gang = cluster.state.gangs["ns", "big", True]
        needed = fewest(cluster, [gpus] * pods)
        if needed == 0:
            continue
        want = PlacementRequest(((gang.counts.waiting[0].spec, pods),), "")
        plan = defragment.plan(
            cluster.preemption,
            PreemptionRequest(gang, want, LONG_S, np.zeros(0, dtype=np.int64), BY_PRIORITY),
        )
        check_invariants(cluster)
        assert plan is None or needed is not None, "somebody would be without a place"
        if needed is not None:
            possible += 1
            if plan is not None:
                found += 1
                moved = {pod.seen.gang for pod in plan.victims}
                assert len(moved) >= needed
                least += len(moved) == needed
    assert possible > 30
    assert found >= 0.95 * possible
    assert least >= 0.9 * found


# --- the new place -----------------------------------------------------------------------------


def moved_from_halves() -> tuple[World, str]:
    """Two nodes, each half full, and a gang that takes one of them: the name of the gang that is moved."""
    world = halves()
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    return world, world.evicted[0].partition("-")[0]


def made_again(moved: str) -> list[Fact]:
    return [
        replace(f, uid="again", movable=True) for f in job(moved, 1, 4) if isinstance(f, PodSeen)
    ]


def test_a_moved_gang_keeps_its_new_place_until_its_pods_are_made_again() -> None:
    world, moved = moved_from_halves()
    early = job("early", 1, 4, created=1.0)
    assert world.step(LONG_S + 2, *early) == [], "it is older than those that were moved"
    assert world.step(LONG_S + 20) == ["big-0"]
    assert world.step(LONG_S + 100, *made_again(moved)) == [f"{moved}-0"]
    assert len(world.evicted) == 1


def test_it_keeps_the_place_from_others_of_the_same_cycle() -> None:
    world = halves()
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0), *job("late", 1, 4, created=10.0))
    assert len(world.evicted) == 1
    moved = world.evicted[0].partition("-")[0]
    assert world.step(LONG_S + 20, *made_again(moved)) == ["big-0", f"{moved}-0"]
    assert "late" in world.told
    assert not world.cluster.quarantine.set_asides


def test_the_place_is_not_kept_for_ever() -> None:
    world, _ = moved_from_halves()
    assert world.step(LONG_S + 20, *job("early", 1, 4, created=1.0)) == ["big-0"]
    assert world.step(LONG_S + 1 + defragment.KEPT_S) == ["early-0"]


def test_the_place_is_given_up_if_the_pods_stay() -> None:
    world = halves(labels=(("app", "w"),))
    world.step(LONG_S + 0.5, factories.budget("w", 1))
    world.budgets = {"left-0", "right-0"}
    world.step(LONG_S + 1, *job("big", 1, 8, created=9.0))
    assert any(held.moved for held in world.cluster.reservations.values())
    for after in (2, 3, 4):
        world.step(LONG_S + after)
    assert not world.evicted
    assert not any(held.moved for held in world.cluster.reservations.values())


def test_the_more_urgent_may_take_the_place() -> None:
    world, _ = moved_from_halves()
    assert world.step(LONG_S + 2, *job("first", 1, 4, created=9.0, priority=5)) == ["first-0"]


# --- GPU shares --------------------------------------------------------------------------------


def sharing(*, movable: bool = True, priority: int = 0) -> World:
    """Two nodes with one GPU each; "x" has 20 hundredths of the first, "y" 50 of the second."""
    world = World()
    for number, (name, share) in enumerate((("x", 20), ("y", 50))):
        node = f"n{number}"
        pod = factories.part(
            f"{name}-0", share, gang=name, node=node, phase="Running", movable=movable
        )
        world.step(
            1.0,
            factories.node(node, gpus=1, shares=True),
            factories.report(
                node,
                factories.topology(1, shares=True),
                grants=(factories.grant_part(f"{name}-0", 0, share),),
            ),
            factories.gang(name, 1, created=float(number), priority=priority),
            pod,
        )
    world.step(LONG_S)
    return world


def test_a_share_is_moved_so_that_a_whole_gpu_is_free() -> None:
    world = sharing()
    world.step(LONG_S + 1, *job("big", 1, 1, created=9.0))
    assert world.evicted == ["x-0"], "the smaller one"
    assert world.step(LONG_S + 7) == ["big-0"]


def test_no_share_is_moved_that_fits_nowhere_else() -> None:
    world = sharing()
    world.step(LONG_S + 1, *job("big", 2, 1, created=9.0))
    assert not world.evicted


def test_a_share_is_evicted_for_a_whole_gpu() -> None:
    world = sharing(movable=False)
    world.step(LONG_S + 1, *job("big", 1, 1, created=9.0, priority=5))
    assert world.evicted == ["x-0"]
    assert world.step(LONG_S + 7) == ["big-0"]
