"""Gangs of one priority claim in their order, whatever keeps the first of them from its victims for a while."""

from dataclasses import replace

import pytest

from central.model.facts import Fact
from tests.central import factories
from tests.central.scheduler.small_cluster import World, job

CLAIM_ENDS = 7.0


def behind_a_claim(*claimants: Fact) -> World:
    """The node's other half cannot be claimed while a claim to certain GPUs waits for the victims of the first half."""
    world = World(factories.node("n"), factories.report("n"))
    world.step(1.0, *job("one", 1, 4), *job("two", 1, 4))
    world.step(2.0, *job("first", 1, 4, created=2.0, priority=5, topology_required="island"))
    world.step(6.0, *claimants)
    assert world.evicted == ["one-0"]
    return world


@pytest.mark.parametrize("gpus", [4, 2])
@pytest.mark.parametrize("later_s", [0.0, 0.5, 0.9])
def test_after_another_claim_the_older_gang_claims_first(gpus: int, later_s: float) -> None:
    world = behind_a_claim(*job("older", 1, 4, created=6.0, priority=5))
    younger = job("younger", 1, gpus, created=6.0 + later_s, priority=5)
    world.step(6.0 + later_s, *younger)
    world.step(CLAIM_ENDS)
    assert "first" in world.began
    assert world.evicted == ["one-0", "two-0"], "at once, not when it would have searched again"
    for now in (7.1, 8.0, 9.0, 12.5, 13.0):
        world.step(now)
    assert "older" in world.began
    assert "younger" not in world.began


def young_behind_a_budget() -> World:
    """Two equal gangs, of which the older one has searched victims and the younger one was refused with it."""
    world = World(factories.node("n"))
    kept = job("kept", 1, 8, labels=(("app", "kept"),))
    world.step(1.0, *kept, factories.budget("kept", 0))
    claimants = [
        *job("younger", 1, 8, created=2.5, priority=5),
        *job("older", 1, 8, created=2.0, priority=5),
    ]
    world.step(3.0, *claimants)
    assert "preemption blocked by" in world.told["older"]
    return world


def test_the_younger_of_two_equal_gangs_does_not_search_before_the_older_one() -> None:
    world = young_behind_a_budget()
    world.step(4.0, factories.budget("kept", 1))
    for now in (5.0, 5.1, 10.0, 10.2, 11.0):
        world.step(now)
    assert "older" in world.began
    assert "younger" not in world.began


def test_the_younger_one_searches_once_the_older_one_is_gone() -> None:
    world = young_behind_a_budget()
    (older,) = (pod for pod in world.running.values() if pod.gang == "older")
    world.step(4.0, factories.budget("kept", 1), replace(older, phase="Failed"))
    world.step(4.1)  # the budget agrees
    assert world.evicted == ["kept-0"], "at once: it has searched nothing itself"
