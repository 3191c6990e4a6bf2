"""Gangs that are refused without an attempt leave the order of all others as it is."""

import random
from collections.abc import Callable
from itertools import takewhile

import pytest

from central.model.arrays import Ints
from central.model.facts import Fact, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.queues import order
from central.scheduler.state.gangs import Gang
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job


def queue_tree(dice: random.Random) -> list[QueueSeen]:
    """Departments with queues whose shares are used up to different degrees."""
    queues = [QueueSeen(f"d{number}", weight=dice.randint(1, 3)) for number in range(2)]
    for number in range(dice.randint(2, 5)):
        parent = dice.choice(("", "d0", "d1"))
        queues.append(QueueSeen(f"q{number}", parent=parent, weight=dice.randint(1, 3)))
    return queues


def crowded(dice: random.Random) -> World:
    """Queues that use some of the cluster, with pending gangs of few different needs, of which one was tried."""
    queues = queue_tree(dice)
    leaves = [queue.name for queue in queues if queue.name.startswith("q")]
    world = World(*(factories.node(f"n{i}") for i in range(6)))
    facts: list[Fact] = [*queues]
    for number in range(dice.randint(0, 40)):
        queue, node = dice.choice(leaves), f"n{number % 6}"
        facts.append(factories.pod(f"r{number}", 1, node=node, phase="Running", queue=queue))
    for number in range(30):
        size, gpus, lasts = dice.randint(1, 3), dice.choice((1, 2, 8)), dice.choice((None, 60.0))
        queue, priority, created = dice.choice(leaves), dice.choice((0, 0, 1)), dice.randint(0, 9)
        of: dict[str, object] = {"queue": queue, "priority": priority, "created": created}
        facts += job(f"g{number}", size, gpus, lasts, **of)
    schedule_once(world.cluster, facts, 1.0, budget=lambda: True)
    return world


def visited(
    world: World, gangs: list[Gang], placed: set[str], alike: set[str]
) -> tuple[list[str], int]:
    """The names in the order in which the gangs are tried, and how many of them are skipped: those alike, as far as
    that is allowed. The others are refused, unless they are placed."""
    seen: list[str] = []
    skipped = 0
    columns = world.cluster.state.pending.columns
    rows = columns.in_rank_order(columns.mask(columns.rows_of(gangs)))

    def skip(rows: Ints, goes_on: Callable[[Gang], bool]) -> int:
        nonlocal skipped
        taken = [*takewhile(lambda gang: gang.name in alike and goes_on(gang), columns.of(rows))]
        seen.extend(gang.name for gang in taken)
        skipped += len(taken)
        return len(taken)

    for gang in order.in_order(world.cluster.queues, columns, rows, [], skip=skip):
        gang.attempt.reason = "" if gang.name in placed else "no"
        seen.append(gang.name)
    return seen, skipped


@pytest.mark.parametrize("seed", range(15))
def test_skipping_leaves_the_order_as_it_is(seed: int) -> None:
    dice = random.Random(seed)
    world = crowded(dice)
    gangs = list(world.cluster.state.pending.waiting.values())
    names = [gang.name for gang in gangs]
    for _ in range(5):
        placed = {name for name in names if dice.random() < 0.3}
        alike = {name for name in names if name not in placed and dice.random() < 0.8}
        every, none = visited(world, gangs, placed, set())
        some, skipped = visited(world, gangs, placed, alike)
        assert every == some
        assert skipped > none == 0


def test_gangs_alike_are_refused_at_once_and_the_first_starts_when_it_fits() -> None:
    world = World(*(factories.node(f"n{i}", gpus=2) for i in range(3)))
    facts: list[Fact] = [QueueSeen("a"), QueueSeen("b")]
    for number in range(3):
        ran = factories.pod(f"r{number}", 2, node=f"n{number}", phase="Running", queue="a")
        facts.append(ran)
    for number in range(12):
        facts += job(f"g{number}", 2, gpus=2, created=float(number), queue="ab"[number % 2])
    world.step(1.0, *facts)
    pending = world.cluster.state.pending
    assert {gang.attempt.refused_at for gang in pending.waiting.values()} == {pending.epoch}
    assert all(gang.attempt.reason for gang in pending.waiting.values())
    assert world.step(2.0, PodGone("uid-r0")) == []
    assert {gang.attempt.refused_at for gang in pending.waiting.values()} == {pending.epoch}
    started = world.step(3.0, PodGone("uid-r1"))
    assert started == ["g1-0", "g1-1"]  # queue b uses nothing yet


def test_a_gang_that_grew_keeps_its_new_rank_when_run_times_decide() -> None:
    """It gets a first part of its surplus; then another one is refused, and the rest goes by run time."""
    world = World(factories.node("n0", gpus=1))
    facts: list[Fact] = [factories.pod("r", 1, node="n0", phase="Running")]
    for number, lasts in enumerate((60.0, 10.0, 30.0, 20.0)):
        facts += job(f"g{number}", 1, 1, lasts, created=float(number))
    schedule_once(world.cluster, facts, 1.0)
    columns, again = world.cluster.state.pending.columns, list[Gang]()
    seen = list[str]()
    rows = columns.in_rank_order(columns.waiting)
    for gang in order.in_order(world.cluster.queues, columns, rows, again):
        seen.append(gang.name)
        gang.attempt.reason = ""
        if seen == ["g0"]:
            gang.counts.placed.extend(gang.counts.waiting)  # a surplus member is left for later
            again.append(gang)
        elif gang.name == "g1":
            gang.attempt.reason = "no"
    assert seen == ["g0", "g1", "g3", "g2", "g0"]
