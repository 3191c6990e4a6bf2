"""What a round remembers of refusals holds until something is freed, also where the round is cut into slices: the gangs
that are left, and those refused before, are tried with what is free now."""

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind
from central.model.facts import Fact, PodGone, QueueSeen
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from tests.central import factories
from tests.central.scheduler.small_cluster import job

COUNT = 6


def full_cluster(*queues: QueueSeen) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    facts: list[Fact] = [*queues]
    for number in range(COUNT):
        facts.append(factories.node(f"n{number}"))
        facts.append(factories.pod(f"r{number}", 8, node=f"n{number}", phase="Running"))
    schedule_once(made, facts, 0.0)
    return made


@pytest.mark.parametrize("more", range(COUNT - 1))
@pytest.mark.parametrize("queues", [(), (QueueSeen("default"),)], ids=["no queues", "a queue"])
@pytest.mark.parametrize("alike", [True, False], ids=["alike", "of unlike standing"])
def test_gangs_refused_in_an_earlier_slice_start_with_what_is_freed_since(
    more: int, queues: tuple[QueueSeen, ...], *, alike: bool
) -> None:
    """First one that never fits, then so many of equal requests are tried; then all pods end."""
    made = full_cluster(*queues)
    facts = job("huge", COUNT + 1, created=0.5)
    for number in range(COUNT):
        facts += job(f"g{number}", 1, runs_for_s=None if alike else 9.0 + number, created=1.0)
    left = [True] * more
    schedule_once(made, facts, 1.0, lambda: not (left and left.pop()))
    assert made.state.pending.round is not None
    gone: list[Fact] = [PodGone(f"uid-r{number}") for number in range(COUNT)]
    bound: set[str] = set()
    for number in range(3):
        decided = schedule_once(made, [] if number else gone, 1.0 + number / 10)
        bound |= {each.name for each in decided if isinstance(each, Bind)}
    assert bound == {f"g{number}-0" for number in range(COUNT)}


def test_as_many_start_as_were_freed_and_the_first_ones() -> None:
    made = full_cluster()
    facts = [fact for i in range(COUNT) for fact in job(f"g{i}", 1, created=float(i))]
    left = [True] * 3
    schedule_once(made, facts, 9.0, lambda: not (left and left.pop()))
    decided = schedule_once(made, [PodGone("uid-r4"), PodGone("uid-r1")], 9.0)
    bound = {each.name: each.node for each in decided if isinstance(each, Bind)}
    assert bound.keys() == {"g0-0", "g1-0"}
    assert set(bound.values()) == {"n1", "n4"}
