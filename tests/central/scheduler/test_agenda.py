"""A round in slices tries each gang once, those that are refused alike many at a time included."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision
from central.model.facts import Fact, PodGone, QueueSeen
from central.scheduler.agenda import ROUND_S
from central.scheduler.cycle import due, schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import job

NEVER_S = 1e9


def attempts(most: int) -> Callable[[], bool]:
    """A budget for so many attempts."""
    left = [False] * (most - 1)
    return lambda: not left or left.pop()


def full(*facts: Fact) -> Scheduler:
    """One node whose 8 GPUs are used by a pod each, and the gangs, tried and refused."""
    made = new_scheduler(factories.LEVELS, reserve_after_s=NEVER_S)
    running = [factories.pod(f"r{i}", 1, node="n0", phase="Running") for i in range(8)]
    schedule_once(made, [factories.node("n0"), *running, *facts], 1.0)
    return made


def bound(decisions: list[Decision]) -> list[str]:
    return [each.name for each in decisions if isinstance(each, Bind)]


@pytest.mark.parametrize("seed", range(12))
def test_every_due_gang_is_either_left_or_tried(seed: int) -> None:
    """Also gangs that come or change between two slices: these are tried again, the others are not."""
    dice = random.Random(seed)
    queues = [QueueSeen(name, weight=dice.randint(1, 3)) for name in "ab"[: seed % 3]]
    facts: list[Fact] = [*queues]
    for number in range(16):
        queue = dice.choice([each.name for each in queues] or ["default"])
        gpus, lasts = dice.choice((2, 2, 3, 4)), dice.choice((None, None, 60.0))
        facts += job(f"g{number}", 1, gpus, lasts, created=float(number), queue=queue)
    made = full(*facts)
    expected = {gang.name for gang in made.state.pending.waiting.values()}
    assert len(expected) == 16
    facts, now, slices = [PodGone("uid-r0")], 2.0, 0
    before, again, came = set[str](), set[str](), set[str]()  # tried; changed; new
    while facts or made.state.pending.round is not None:
        schedule_once(made, facts, now, attempts(dice.randint(1, 3)))
        check_invariants(made)
        facts, this, slices = [], made.state.pending.round, slices + 1
        if this is None:
            break
        columns = made.state.pending.columns
        rows = columns.in_rank_order()
        left = {gang.name for gang in columns.of(columns.due())}
        assert left | {gang.name for gang in columns.of(rows[columns.were_tried(rows)])} == expected
        assert not (left & before) - again - came, "was tried already"
        before, again = expected - left, again & left  # until they are tried
        if dice.random() < 0.3:
            name = f"new{slices}"
            facts = job(name, 1, gpus=dice.choice((2, 3, 9)), created=dice.uniform(0, 20))
            expected.add(name)
            came = {name}
        elif dice.random() < 0.3:
            gang = dice.choice([*made.state.pending.waiting.values()])
            facts = [factories.pod(f"{gang.name}-0", 5, gang.name, labels=(("x", "y"),))]
            again.add(gang.name)
    assert slices >= 3
    assert {gang.name for gang in made.state.pending.waiting.values()} == expected


@pytest.mark.parametrize(
    ("age_s", "changed", "first"),
    [(ROUND_S / 2, "", "g0"), (ROUND_S, "", "new"), (ROUND_S, "g0", "g0"), (ROUND_S, "g2", "g2")],
)
def test_what_is_freed_during_an_old_round_waits_for_its_end(
    age_s: float, changed: str, first: str
) -> None:
    """In a young round, gangs that were refused before come before those that are left; in an old one after them.
    That holds for a gang that was tried, and for those that were refused like it without being tried; not for one that
    changed meanwhile."""
    alike = [f"g{number}" for number in range(4)]  # the first one has a reservation
    facts = job("huge", 20, 2, created=0.0)
    for number, name in enumerate(alike):
        facts += job(name, 1, 2, created=1.0 + number)
    facts += job("left", 1, 3, created=5.0) + job("last", 1, 4, created=6.0)
    made = full(*facts)
    assert not bound(schedule_once(made, [PodGone("uid-r0")], 2.0, attempts(3)))
    columns = made.state.pending.columns
    assert [gang.name for gang in columns.of(columns.due())] == ["left", "last"]
    now = 2.0 + age_s
    freed: list[Fact] = [PodGone("uid-r1"), *job("new", 1, 2, created=4.5)]
    if changed:
        freed.append(factories.pod(f"{changed}-0", 2, changed, labels=(("x", "y"),)))
    decided = [schedule_once(made, freed, now, attempts(2))]
    while made.state.pending.round is not None:
        decided.append(schedule_once(made, [], now, attempts(2)))
    assert [name for each in decided for name in bound(each)] == [f"{first}-0"]
    check_invariants(made)


def test_gangs_that_waited_for_the_end_of_an_old_round_are_due_at_once() -> None:
    facts = job("huge", 20, 2, created=0.0) + job("small", 1, 2, created=1.0)
    made = full(*facts, *job("left", 1, 4, created=2.0))
    schedule_once(made, [PodGone("uid-r0")], 2.0, attempts(2))
    now = 2.0 + ROUND_S
    assert not bound(schedule_once(made, [PodGone("uid-r1")], now, attempts(1)))
    assert made.state.pending.round is None
    assert due(made, now) == now
    assert bound(schedule_once(made, [], now)) == ["small-0"]
    assert due(made, now) is None


def test_what_a_reservation_leaves_is_tried_in_the_same_cycle() -> None:
    """Once it is strict, its gang loses a member. Its queue is served behind that of a gang that was refused for it."""
    made = new_scheduler(factories.LEVELS, half_life_s=0.0, reserve_after_s=0.0)
    of: dict[str, Any] = {"runs_for_s": 5000.0, "started": 0.0, "preemptable": False}
    ends = factories.pod("r", 4, node="n0", phase="Running", queue="a", **of)
    facts: list[Fact] = [QueueSeen("a"), QueueSeen("b"), factories.node("n0"), ends]
    facts += job("head", 2, 4, created=1.0, queue="a")
    schedule_once(made, facts, 1.0)
    assert made.reservations["ns", "head", True].start == 5000.0
    first = job("first", 1, 4, created=2.0, queue="b")
    assert not bound(schedule_once(made, first, 1000.0))
    lost: list[Fact] = [
        PodGone("uid-head-1"),
        PodGone("uid-first-0"),
        *job("next", 1, 4, created=3.0, queue="b"),
    ]
    assert bound(schedule_once(made, lost, 1001.0)) == ["next-0"]
    check_invariants(made)
