"""Gangs that are refused many at a time are refused as one after the other would be."""

import random
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodGone, QueueSeen
from central.scheduler import gang_attempt, refused_alike
from central.scheduler.cycle import schedule_once
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.attempt import Outcome
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import MAX_FACTOR
from tests.central import factories
from tests.central.scheduler import recounts
from tests.central.scheduler.invariants import check_invariants
from tests.central.scheduler.small_cluster import World
from tests.counted_calls import calls

KINDS = refused_alike.TRIED_MOST + 20
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
    recounts.check_refusals(given.scheduler.refused)
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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("refused", ["first", "none"])
def test_nothing_is_left_to_refuse(refused: str) -> None:
    given = case(2, "none")
    rest = given.rest[:0] if refused == "first" else given.rest
    first_refused = given.first_refused if refused == "first" else {}
    assert together(given._replace(rest=rest, first_refused=first_refused)) == 0


def unlike(
    kinds: int,
    *first: Fact,
    priority: int = 1,
    gpus: Sequence[int] = (1, 2, 3, 4),
    queues: Sequence[str] = ("",),
) -> Scheduler:
    """A full node, and as many gangs of two pods with so many GPUs each, in turn, with as many unlike requests. queues:
    of the gangs, in turn; the last one is that of the pods on the node"""
    made = new_scheduler(factories.LEVELS)
    stays: dict[str, Any] = {"node": "n0", "phase": "Running", "priority": 1, "preemptable": False}
    stays["queue"] = queues[-1]
    running = [factories.pod(f"r{number}", 1, **stays) for number in range(8)]
    facts: list[Fact] = [factories.node("n0"), *first, *running]
    for number in range(kinds):
        name, each = f"g{number}", gpus[number % len(gpus)]
        queue = queues[number % len(queues)]
        facts.append(factories.gang(name, 2, created=float(number), priority=priority, queue=queue))
        facts += [factories.pod(f"{name}-{rank}", each, name, cpu=100 + number) for rank in "01"]
    schedule_once(made, facts, 1.0)
    return made


def attempts(made: Scheduler, *facts: Fact) -> int:
    count = calls(lambda: schedule_once(made, facts, 2.0), gang_attempt.schedule.__code__)
    check_invariants(made)
    return count


@pytest.mark.long
def test_gangs_of_unlike_requests_that_need_more_gpus_than_are_free_are_not_tried() -> None:
    """The one with the reservation is, and once it is bound the next one."""
    few, many = unlike(KINDS), unlike(2 * KINDS)
    for pod in ("uid-r0", "uid-r1"):
        tried = attempts(many, PodGone(pod))
        assert tried == attempts(few, PodGone(pod))
        assert tried <= 3
    placed = [gang.name for gang in many.state.gangs.values() if len(gang.counts.placed) == 2]
    assert placed == ["g0"]


@pytest.mark.long
def test_gangs_that_changed_or_came_are_tried_whatever_is_free() -> None:
    made = unlike(KINDS)
    changed, new = factories.pod("g7-0", 3, "g7", cpu=555), factories.pod("new", 5)
    few = attempts(unlike(KINDS), PodGone("uid-r0"))
    assert attempts(made, PodGone("uid-r0"), changed, new) == few + 2


@pytest.mark.long
def test_a_gang_that_needs_exactly_what_is_free_is_bound() -> None:
    made = unlike(KINDS, gpus=(4, 3, 2, 1))
    assert attempts(made, PodGone("uid-r0"), PodGone("uid-r1")) >= 2
    placed = [gang.name for gang in made.state.gangs.values() if len(gang.counts.placed) == 2]
    assert placed == ["g3"]


CASES = ("pods of lower priority", "pods that may move", "a queue above its share")


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_gangs_that_may_evict_others_are_tried_whatever_is_free(case: str) -> None:
    first: list[Fact] = []
    queues, tried = [""], KINDS - 1
    if case == "a queue above its share":
        first, queues, tried = [QueueSeen("a"), QueueSeen("b")], ["a", "b"], KINDS // 2
    elif case == "pods that may move":
        first.append(
            factories.pod("moves", 0, node="n0", phase="Running", priority=1, movable=True)
        )
    priority = 2 if case == "pods of lower priority" else 1
    made = unlike(KINDS, *first, priority=priority, gpus=(1,), queues=queues)
    assert attempts(made, PodGone("uid-r0")) >= tried


def many_queues(count: int) -> tuple[list[str], list[Fact]]:
    """So many queues, and full nodes for as many reservations as there may be."""
    queues = [f"q{number}" for number in range(count)]
    full: list[Fact] = [*map(QueueSeen, queues)]
    for name in (f"m{number}" for number in range(8)):
        running = factories.pod(name, 8, node=name, phase="Running", priority=1)
        full += [factories.node(name), running]
    return queues, full


@pytest.mark.long
def test_gangs_of_queues_below_their_shares_are_tried_whatever_is_free() -> None:
    queues, full = many_queues(12)
    made = unlike(KINDS, *full, gpus=(1,), queues=queues)
    assert attempts(made, PodGone("uid-r0")) > KINDS // 2


@pytest.mark.long
@pytest.mark.parametrize("freed", [1, 2, 4])
def test_of_many_queues_those_are_tried_whose_gangs_may_fit(
    freed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same gangs start as if all were tried."""
    (queues, full), tried, placed = many_queues(40), [], []
    for few in (refused_alike.TRIED_MOST, 10 * KINDS):
        monkeypatch.setattr(refused_alike, "TRIED_MOST", few)
        made = unlike(KINDS, *full, queues=queues)
        tried.append(attempts(made, *(PodGone(f"uid-r{number}") for number in range(freed))))
        started = [gang.name for gang in made.state.gangs.values() if len(gang.counts.placed) == 2]
        placed.append(started)
        assert all(gang.attempt.refused_at >= 0 for gang in made.state.pending.waiting.values())
    assert placed[0] == placed[1]
    assert bool(placed[0]) == (freed > 1)
    assert tried[0] < tried[1] // 4


@pytest.mark.long
def test_where_refusing_without_an_attempt_ends() -> None:
    made = unlike(KINDS, *gang_without_gpus(9.5))
    pending = made.state.pending
    columns, head = pending.columns, next(iter(made.reservations.values()))
    rows = columns.in_rank_order()[1:]
    others = [gang.name for gang in columns.of(rows)]
    assert head.gang.name == "g0"
    assert others[9:11] == ["no-gpus", "g10"]

    def refused() -> int:
        return refused_alike.refuse_next(
            made, rows, {}, left_out=(), barred=(), goes_on=lambda _: True
        )

    pending.capacity_freed("a test")
    columns.outcome[head.gang.attempt.row] = Outcome.DUE
    assert refused() == 0, "the head of the queue was not tried yet"
    columns.outcome[head.gang.attempt.row] = Outcome.REFUSED
    assert refused() == 9, "up to the gang that requests no GPUs"
    pending.try_later(columns.at(rows.item(5)), 2.0)
    assert refused() == 5, "that one was not refused"
    made.elastic._donors.append(next(iter(pending.waiting.values())))  # type: ignore[arg-type]  # any
    assert refused() == 0, "elastic gangs might give members"
    made.elastic._donors.clear()
    made.reservations[head.gang.key] = Reservation.by_evictions(
        head.gang, head.request, head.place, 1.0
    )
    assert refused() == 0, "a claim is no place at the head"


def gang_without_gpus(created: float) -> list[Fact]:
    """It lacks CPU."""
    pod = factories.pod("no-gpus-0", 0, "no-gpus", cpu=90_000, created=created, priority=1)
    return [factories.gang("no-gpus", 1, created=created, priority=1), pod]
