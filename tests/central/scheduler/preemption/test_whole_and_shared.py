"""Claims for whole GPUs whose victims have shares, and the other way round: counts of resources do not say
that a GPU is whole once its last share is gone."""

import random
from collections import Counter
from itertools import chain

import pytest

from central.model.facts import Fact, PodGone, PodSeen
from tests.central import factories
from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.space import nodes_of, place, pods_of
from tests.central.scheduler.small_cluster import World

WHOLE = 100
GPUS = 2


def cluster(*names: str) -> World:
    hardware = factories.topology(GPUS, shares=True)
    world = World()
    for name in names:
        node = factories.node(name, gpus=GPUS, shares=True)
        world.step(0.0, node, factories.report(name, hardware))
    return world


def pod(name: str, hundredths: int, priority: int = 0, now: float = 0.0) -> list[Fact]:
    """A gang of one pod; hundredths: from 100 on, whole GPUs."""
    what: dict[str, object] = {"gang": name, "created": now}
    if hundredths < WHOLE:
        one: PodSeen = factories.part(name, hundredths, **what)
    else:
        one = factories.pod(name, hundredths // WHOLE, **what)  # type: ignore[arg-type]  # a test's shorthand
    return [factories.gang(name, 1, priority=priority, created=now), one]


def test_a_share_leaves_for_a_whole_gpu() -> None:
    world = cluster("n")
    world.step(0.0, *pod("other", 100))
    world.step(0.0, *pod("half", 50))
    world.step(100.0, *pod("urgent", 100, 9, 100.0))
    assert world.evicted == ["half"]
    assert world.step(110.0) == ["urgent"]


def test_all_shares_of_a_gpu_leave() -> None:
    world = cluster("n")
    world.step(0.0, *pod("precious", 100, 5))
    world.step(0.0, *chain(pod("a", 30), pod("b", 30), pod("c", 40)))
    world.step(100.0, *pod("urgent", 100, 9, 100.0))
    assert sorted(world.evicted) == ["a", "b", "c"]
    assert world.step(110.0) == ["urgent"]


def test_a_whole_gpu_leaves_for_a_share() -> None:
    world = cluster("n")
    world.step(0.0, *pod("precious", 100, 5))
    world.step(0.0, *pod("cheap", 100))
    world.step(100.0, *pod("urgent", 40, 9, 100.0))
    assert world.evicted == ["cheap"]
    assert world.step(110.0) == ["urgent"]


def test_shares_of_one_gpu_leave_for_a_share() -> None:
    """Though two of other GPUs, which hold as much, are less harm."""
    world = cluster("n")
    world.step(0.0, *chain(pod("a", 60), pod("b", 60)))
    world.step(1.0, *chain(pod("c", 40), pod("d", 40)))
    world.step(100.0, *pod("urgent", 80, 9, 100.0))
    assert sorted(world.evicted) in (["a", "c"], ["a", "d"])
    assert world.step(110.0) == ["urgent"]


def test_no_more_shares_leave_where_the_work_limit_ends_the_search() -> None:
    """Counts choose shares of several GPUs. What is added to them is more than is needed, until it is left out again."""
    dice, world = random.Random(1), World()
    world.cluster.state.snapshot.meter.first_limit = 6_000
    for node in ("n0", "n1", "n2", "n3", "n4", "n5"):
        world.step(0.0, factories.node(node, shares=True))
        names = [(f"{node}-{gpu}-{half}", gpu) for gpu in range(8) for half in range(2)]
        running = {"node": node, "phase": "Running"}
        parts = [factories.part(n, 50, started=dice.randrange(900), **running) for n, _ in names]
        grants = tuple(factories.grant_part(name, gpu, 50) for name, gpu in names)
        world.step(0.0, *parts, factories.report(node, factories.topology(shares=True), 1, grants))
    unlike = [factories.part(f"w-{i}", 100, gang="w", priority=9, cpu=100 + i) for i in range(2)]
    world.step(1000.0, factories.gang("w", 2), *unlike)
    assert not world.evicted
    for now in range(1002, 1020, 2):
        world.step(float(now))
    assert len(world.evicted) == 4


def test_the_place_is_kept_until_the_victim_has_gone() -> None:
    world = cluster("n")
    world.step(0.0, *pod("other", 100, 9))
    world.step(0.0, *pod("half", 50))
    world.step(100.0, *pod("urgent", 100, 8, 100.0))
    world.step(101.0, *pod("again", 50, 0, 101.0))
    assert world.step(110.0) == ["urgent"]


@pytest.mark.parametrize("seed", range(60))
def test_who_leaves_is_as_unimportant_as_possible(seed: int) -> None:
    """Judged by an exact solver."""
    dice = random.Random(seed)
    world = cluster("a", "b")
    sizes: dict[str, int] = {}
    priorities: dict[str, int] = {}
    for number in range(dice.randint(3, 7)):
        name = f"p{number}"
        sizes[name] = dice.choice((30, 50, 60, 100, 100, 200))
        priorities[name] = dice.randint(0, 3)
        world.step(0.0, *pod(name, sizes[name], priorities[name]))
    pending = [p.seen.uid for p in world.cluster.state.pods.values() if not p.node]
    world.step(0.0, *map(PodGone, pending))
    world.step(50.0)  # some have made way for others
    running = {p.seen.name: p for p in world.cluster.state.pods.values() if p.node}
    places = {name: (p.node, p.gpus) for name, p in running.items()}
    wanted = dice.choice((40, 100, 200))
    before = len(world.evicted)
    world.step(100.0, *pod("urgent", wanted, 3, 100.0))
    least = least_priority(priorities, places, sizes, wanted)
    evicted = world.evicted[before:]
    if least is None:
        assert not evicted
        return
    assert max((priorities[name] for name in evicted), default=-1) == least
    assert fits(places.keys() - set(evicted), places, sizes, wanted)
    assert "urgent" in world.step(110.0) or not evicted


def least_priority(
    priorities: dict[str, int],
    places: dict[str, tuple[str, int]],
    sizes: dict[str, int],
    wanted: int,
) -> int | None:
    """The highest priority that has to leave; -1 if all may stay."""
    model = Model()
    highest = model.integer(-1, 2)
    gone = {name: model.binary() for name in places}
    for name, leaves in gone.items():
        model.at_most(priorities[name], highest, leaves)
        model.at_most(priorities[name], 2, leaves)
    used = {(node, gpu): Sum() for node in "ab" for gpu in range(GPUS)}
    for name, (node, mask) in places.items():
        for gpu in range(GPUS):
            if mask >> gpu & 1:
                used[node, gpu] += (1 - gone[name]) * min(sizes[name], WHOLE)
    if wanted < WHOLE:
        free = {gpu: WHOLE - amount for gpu, amount in used.items()}
        place(model, nodes_of(free), pods_of([wanted]))
    else:
        whole = {gpu: model.binary() for gpu in used}
        for one, amount in used.items():
            model.at_most(amount, 0, whole[one])
        by_node = {node: total(whole[node, gpu] for gpu in range(GPUS)) for node in "ab"}
        place(model, nodes_of(by_node), pods_of([wanted // WHOLE]))
    least = model.least([highest])
    return None if least is None else least[0]


def fits(
    staying: set[str], places: dict[str, tuple[str, int]], sizes: dict[str, int], wanted: int
) -> bool:
    for node in ("a", "b"):
        used: Counter[int] = Counter()
        for name in staying:
            where, mask = places[name]
            for gpu in range(GPUS):
                if where == node and mask >> gpu & 1:
                    used[gpu] += min(sizes[name], WHOLE)
        if wanted < WHOLE and any(used[gpu] + wanted <= WHOLE for gpu in range(GPUS)):
            return True
        if wanted >= WHOLE and sum(not used[gpu] for gpu in range(GPUS)) * WHOLE >= wanted:
            return True
    return False
