"""A long search that is cut goes on in the next cycle, finds what an uncut one finds, and keeps nobody waiting."""

import random
from collections.abc import Callable

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.scheduler.invariants import check_invariants
from central.scheduler.scheduler import Scheduler
from central.scheduler.work_meter import FIRST_LIMIT, MAX_FACTOR, MAX_SLICES, SearchProgress
from tests.central import factories
from tests.central.scheduler.state_copy import fingerprint

NOW = 1000.0
NODES = 48  # of more gangs than an exact search takes
LIMIT = 2_500  # units of a first attempt: a long one takes several slices


def full(*, limit: int, spread: bool) -> Scheduler:
    """Nodes full of gangs, spread over several of them or not."""
    made, dice = new_scheduler(factories.LEVELS), random.Random(1)
    made.state.snapshot.meter.first_limit = limit
    facts: list[Fact] = [factories.node(f"n{number:02}") for number in range(NODES)]
    seats = [node for node in range(NODES) for _ in range(8)]
    if spread:
        dice.shuffle(seats)
    for first in range(0, len(seats), 8):
        name = f"g{first:03}"
        facts.append(factories.gang(name, 8))
        facts += [
            factories.pod(
                f"{name}-{rank}",
                1,
                name,
                node=f"n{node:02}",
                phase="Running",
                started=float(dice.randrange(900)),
            )
            for rank, node in enumerate(seats[first : first + 8])
        ]
    schedule_once(made, facts, NOW)
    return made


def equal_pods() -> list[Fact]:
    members = [factories.pod(f"urgent-{rank}", 8, "urgent") for rank in range(8)]
    return [factories.gang("urgent", 8, priority=10), *members]


def unlike_pods() -> list[Fact]:
    members = [factories.pod(f"urgent-{rank}", 4 + rank % 4, "urgent") for rank in range(8)]
    return [factories.gang("urgent", 8, priority=10), *members]


def evicted(decisions: list[Decision]) -> set[str]:
    return {each.name for each in decisions if isinstance(each, Evict)}


def progress(made: Scheduler) -> SearchProgress | None:
    (gang,) = (each for each in made.state.gangs.values() if each.name == "urgent")
    return gang.attempt.progress


def make_long(made: Scheduler, claim: list[Fact], factor: int = 2 * MAX_FACTOR) -> None:
    """Begins with the long attempt."""
    made.state.snapshot.meter.first_limit = 1
    schedule_once(made, claim, NOW)
    (gang,) = (each for each in made.state.gangs.values() if each.name == "urgent")
    gang.attempt.work_factor = factor
    gang.preemption.not_before = 0.0
    made.state.snapshot.meter.first_limit = LIMIT


@pytest.mark.long
@pytest.mark.parametrize(
    ("claim", "spread", "priority"), [(equal_pods, True, 0), (unlike_pods, False, 20)]
)
def test_slices_find_what_an_uncut_search_finds(
    claim: Callable[[], list[Fact]], spread: bool, priority: int
) -> None:
    """And in each cycle a newcomer is bound. priority: theirs; unlike pods start again if there are more victims."""
    uncut = full(limit=FIRST_LIMIT * 100, spread=spread)
    expected = evicted(schedule_once(uncut, claim(), NOW))
    assert expected
    made = full(limit=LIMIT, spread=spread)
    make_long(made, claim())
    found, slices, now = set[str](), 0, NOW + 2.0
    for number in range(200):
        before = fingerprint(made)
        newcomer = factories.pod(f"new-{number}", 0, created=now, priority=priority)
        decided = schedule_once(made, [newcomer], now, lambda: False)
        assert newcomer.name in {each.name for each in decided if isinstance(each, Bind)}
        if found := evicted(decided):
            break
        assert fingerprint(made)[1:] == before[1:]
        if (cut := progress(made)) is not None:
            slices = cut.slices
            assert made.state.pending.round is not None  # the next cycle follows at once
        now += 0.1
    assert found == expected
    assert 3 <= slices < MAX_SLICES
    assert progress(made) is None
    check_invariants(made)
