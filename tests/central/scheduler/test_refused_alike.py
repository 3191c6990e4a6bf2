"""Gangs that are refused many at a time are refused as one after the other would be."""

import random
from typing import NamedTuple

import numpy as np
import pytest

from central.model.facts import Fact, QueueSeen
from central.scheduler import refused_alike
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import MAX_FACTOR
from tests.central import factories
from tests.central.scheduler.small_cluster import World

GANGS = refused_alike.FIRST_WINDOW + 64
LIMITS = ("none", "left out", "barred", "long", "turn", "gone", "kind")  # where refusing ends


class Case(NamedTuple):
    """A full cluster with pending gangs, after something was freed, of which one of each of some kinds was refused."""

    scheduler: Scheduler
    rest: list[Gang]  # in order
    first_refused: dict[int, Gang]
    left_out: list[Gang]
    barred: set[str]
    in_turn: list[dict[str, int]]  # needs with which the queue is still served


def case(seed: int, limit: str) -> Case:
    dice = random.Random(seed)
    world = World(factories.node("n0"))
    facts: list[Fact] = [QueueSeen("q"), factories.pod("r", 8, node="n0", phase="Running")]
    for number in range(GANGS):
        owner = dice.choice(("", "", f"job/g{number}"))
        of = factories.gang(f"g{number}", 1, queue="q", owner=owner, created=float(number))
        gpus = dice.choice((2, 3, 4)) if number < GANGS // 2 else dice.choice((2, 3, 4, 5))
        facts += [of, factories.pod(f"g{number}-0", gpus, f"g{number}")]
    schedule_once(world.cluster, facts, 1.0)
    made, pending = world.cluster, world.cluster.state.pending
    pending.take_unpublished(GANGS, GANGS)
    pending.capacity_freed("a test")
    gangs = pending.columns.of(pending.columns.in_rank_order(pending.columns.waiting))
    gangs = [gang for gang in gangs if gang.key not in made.reservations]
    first: dict[int, Gang] = {}
    for gang in gangs:
        if gang.attempt.equivalence:
            first.setdefault(gang.attempt.equivalence, gang)
    for kind, gang in first.items():
        pending.refuse(gang, dice.choice((f"new reason of {kind}", gang.attempt.reason)))
        if dice.random() < 0.2:
            made.refused.pop(gang.key)
    rest = [gang for gang in gangs if gang not in first.values()]
    for gang in dice.sample(rest, 40):
        made.refused.pop(gang.key)
    last = rest[dice.choice((1, 30, GANGS - 30))]
    given = Case(made, rest, first, [], set(), [gang.attempt.need for gang in rest])
    if limit == "left out":
        given.left_out.append(last)
    elif limit == "barred":
        given.barred.add("elsewhere" if seed % 2 else "ns")
    elif limit == "long":
        last.attempt.work_factor = 2 * MAX_FACTOR
    elif limit == "turn":
        given = given._replace(in_turn=[n for n in given.in_turn if n != last.attempt.need])
    elif limit == "gone":
        pending.update(last, waiting=False, partial=False)
    elif limit == "kind":
        del first[last.attempt.equivalence]
    return given


def one_by_one(given: Case) -> int:
    for count, gang in enumerate(given.rest):
        same, attempt = given.first_refused.get(gang.attempt.equivalence), gang.attempt
        excluded = gang in given.left_out or gang.namespace in given.barred
        waiting = gang.key in given.scheduler.state.pending.waiting
        if same is None or not waiting or excluded or attempt.work_factor > MAX_FACTOR:
            return count
        if attempt.need not in given.in_turn:
            return count
        refused_alike.refuse(given.scheduler, gang, same)
    return len(given.rest)


def together(given: Case) -> int:
    rows = [gang.attempt.row for gang in given.rest]  # also of one that has left
    return refused_alike.refuse_next(
        given.scheduler,
        np.array(rows, dtype=np.int64),
        given.first_refused,
        left_out=given.left_out,
        barred=given.barred,
        goes_on=lambda gang: gang.attempt.need in given.in_turn,
    )


def outcome(given: Case) -> list[object]:
    pending = given.scheduler.state.pending
    attempts = [(gang.name, gang.attempt.reason, gang.attempt.refused_at) for gang in given.rest]
    refused = [(key, entry.gang.name) for key, entry in given.scheduler.refused.items()]
    changed = [*pending.changed_gangs]
    given.scheduler.refused.check()
    due = pending.take_unpublished(0, GANGS)
    assert not any(gang.owner for gang in due), "those count as changed"
    return [attempts, refused, changed, [gang.name for gang in due]]


@pytest.mark.long
@pytest.mark.parametrize("limit", LIMITS)
def test_many_at_a_time_are_refused_as_one_by_one(limit: str) -> None:
    for seed in range(2):
        each, all_together = case(seed, limit), case(seed, limit)
        expected = one_by_one(each)
        assert together(all_together) == expected
        assert outcome(all_together) == outcome(each)
        assert (expected == len(each.rest)) == (limit == "none" or (limit, seed) == ("barred", 1))


def test_gangs_with_reservations_and_refusals_of_earlier_epochs_are_not_copied() -> None:
    given = case(1, "none")
    pending = given.scheduler.state.pending
    held = next(iter(given.scheduler.reservations.values()))
    for place in (0, 5):
        pending.columns.equivalence[held.gang.attempt.row] = given.rest[0].attempt.equivalence
        rest = [*given.rest[:place], held.gang, *given.rest[place:]]
        assert together(given._replace(rest=rest)) <= place
    pending.capacity_freed("a test")
    assert together(given) == 0


@pytest.mark.parametrize("refused", ["first", "none"])
def test_nothing_is_left_to_refuse(refused: str) -> None:
    given = case(2, "none")
    rest = given.rest[:0] if refused == "first" else given.rest
    first_refused = given.first_refused if refused == "first" else {}
    assert together(given._replace(rest=rest, first_refused=first_refused)) == 0
