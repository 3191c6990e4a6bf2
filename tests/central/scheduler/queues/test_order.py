"""Minima go before surplus, and the surplus is shared evenly."""

from collections import Counter
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from central.model.decisions import Bind
from central.model.facts import Fact, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.queues import order
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job
from tests.effort import examples

SIZES = st.tuples(st.integers(1, 4), st.integers(0, 6))  # minimum and surplus


def shared(nodes: int, gangs: list[tuple[int, int]]) -> list[int]:
    """Pods of each gang: all minima in order, then one by one to the one with the least surplus."""
    got = [0] * len(gangs)
    for number, (least, _) in enumerate(gangs):
        if sum(got) + least <= nodes:
            got[number] = least
    while sum(got) < nodes:
        more = [
            (got[number] - least, number)
            for number, (least, surplus) in enumerate(gangs)
            if got[number] and got[number] - least < surplus
        ]
        if not more:
            break
        got[min(more)[1]] += 1
    return got


def placed(world: World, gangs: int) -> list[int]:
    counts = Counter(d.name.partition("-")[0] for d in world.decisions if isinstance(d, Bind))
    return [counts[f"g{number}"] for number in range(gangs)]


@pytest.mark.long
@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 20), st.lists(SIZES, min_size=1, max_size=5))
def test_minima_then_an_even_share_of_what_is_left(
    nodes: int, gangs: list[tuple[int, int]]
) -> None:
    """Nodes of one GPU, so that counts decide. A gang that is refused reserves what is free for its
    minimum, so minima beyond the cluster are made impossible."""
    fitting, sizes = 0, list[tuple[int, int]]()
    for least, surplus in gangs:
        fits = fitting + least <= nodes
        fitting += least if fits else 0
        sizes.append((least if fits else nodes + least, surplus))
    world = World(*(factories.node(f"n{i}", gpus=1) for i in range(nodes)))
    facts: list[Fact] = []
    for number, (least, surplus) in enumerate(sizes):
        facts += job(f"g{number}", least + surplus, gpus=1, least=least, created=float(number))
    world.step(1.0, *facts)
    assert placed(world, len(sizes)) == shared(nodes, sizes)


@pytest.mark.long
@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 12), st.lists(SIZES, min_size=2, max_size=4))
def test_a_slice_for_each_gang_decides_the_same(nodes: int, gangs: list[tuple[int, int]]) -> None:
    facts: list[Fact] = [factories.node(f"n{i}", gpus=1) for i in range(nodes)]
    for number, (least, surplus) in enumerate(gangs):
        facts += job(f"g{number}", least + surplus, gpus=1, least=least, created=float(number))
    whole, sliced = World(*facts), World()
    decided = schedule_once(sliced.cluster, facts, 1.0, budget=lambda: True)
    while sliced.cluster.state.pending.round is not None:
        decided += schedule_once(sliced.cluster, [], 1.0, budget=lambda: True)
    sliced.decisions = decided
    assert placed(sliced, len(gangs)) == placed(whole, len(gangs))


def test_between_queues_the_share_decides_about_each_pod_of_the_surplus() -> None:
    world = World(*(factories.node(f"n{i}", gpus=1) for i in range(8)))
    queues = [QueueSeen("a", weight=3), QueueSeen("b", weight=1)]
    first = job("g0", 8, gpus=1, least=1, queue="b", created=0.0)
    world.step(1.0, *queues, *first, *job("g1", 8, gpus=1, least=1, queue="a", created=1.0))
    assert placed(world, 2) == [2, 6]


def test_members_of_a_gang_with_min_resources_are_not_surplus() -> None:
    """A driver's executors go before the next driver, as by age."""
    world = World(*(factories.node(f"n{i}", gpus=1) for i in range(2)))
    least = (("cpu", 1),)
    groups = [factories.gang(name, 1, min_resources=least) for name in ("g0", "g1")]
    world.step(0.0, *groups, factories.pod("g0-driver", gang="g0", gpus=1, created=0.0))
    executor = factories.pod("g0-executor", gang="g0", gpus=1, created=2.0)
    world.step(1.0, executor, factories.pod("g1-driver", gang="g1", gpus=1, created=1.0))
    assert placed(world, 2) == [2, 0]


def test_the_rank_and_the_run_time_of_gangs_that_run_in_part() -> None:
    """Below its minimum a gang has no surplus, above it one more for each member; its pending pods run as long as the
    longest of them, and for an unknown time if one says nothing."""
    made = World(factories.node("n0", gpus=8)).cluster
    facts: list[Fact] = []
    for name, least, lasts in (
        ("short", 3, (9.0, 60.0)),
        ("long", 1, (60.0, 9.0)),
        ("open", 2, (9.0, None)),
    ):
        facts += [
            factories.gang(name, least),
            factories.pod(f"{name}-0", 1, name, node="n0", phase="Running"),
        ]
        facts += [
            factories.pod(f"{name}-{number}", 9, name, runs_for_s=each)
            for number, each in enumerate(lasts, 1)
        ]
    schedule_once(made, facts, 1.0)
    gangs = {gang.name: gang for gang in made.state.pending.waiting.values()}
    assert {name: order.rank(gang)[1] for name, gang in gangs.items()} == {
        "short": 0,
        "long": 1,
        "open": 0,
    }
    assert {name: order.run_time_s(gang) for name, gang in gangs.items()} == {
        "short": 60.0,
        "long": 60.0,
        "open": inf,
    }
