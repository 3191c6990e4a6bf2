"""Whom a gang of unlike pods evicts, for which trial placements take the place of counts."""

from dataclasses import replace

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, PodSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import preemption_plan
from central.scheduler.preemption.preemption_request import PreemptionRequest
from tests.central import factories
from tests.central.scheduler.small_cluster import BY_PRIORITY, World, job


def unlike(now: float, *gpus: int) -> list[Fact]:
    """An urgent gang of pods that ask for so many GPUs each."""
    group = factories.gang("urgent", len(gpus), priority=9, created=now)
    return [
        group,
        *(factories.pod(f"urgent-{i}", n, "urgent", created=now) for i, n in enumerate(gpus)),
    ]


def covered(name: str, pods: int, gpus: int, **other: object) -> list[Fact]:
    return job(name, pods, gpus, labels=(("app", name),), **other)  # type: ignore[arg-type]  # a test's shorthand


def test_nobody_goes_that_need_not() -> None:
    """The smaller gang is less harm and comes first, but the larger one alone is enough."""
    world = World(factories.node("n"))
    world.step(0.0, *job("small", 1, 1), *job("large", 1, 7))
    world.step(100.0, *unlike(100.0, 5, 2))
    assert world.evicted == ["large-0"]


def test_members_above_the_minimum_go_before_a_gang_is_broken() -> None:
    world = World(factories.node("n"))
    world.step(0.0, *job("elastic", 4, 2, least=2))
    world.step(100.0, *unlike(100.0, 3, 1))
    assert sorted(world.evicted) == ["elastic-2", "elastic-3"]


def test_a_gang_goes_whole_where_its_surplus_is_not_enough() -> None:
    world = World(factories.node("n"))
    world.step(0.0, *job("elastic", 4, 2, least=3))
    world.step(100.0, *unlike(100.0, 3, 1))
    assert len(world.evicted) == 4


def test_each_task_keeps_its_own_minimum() -> None:
    """Two servers may go, and no worker, though the workers have higher ranks."""
    world = World(factories.node("n", gpus=6))
    group = factories.gang("train", 4, task_min=(("server", 1), ("worker", 3)))
    tasks = ("server",) * 3 + ("worker",) * 3
    pods = [
        replace(factories.pod(f"train-{i}", 1, "train", task=task), order=(i, ""))
        for i, task in enumerate(tasks)
    ]
    world.step(0.0, group, *pods)
    world.step(100.0, *unlike(100.0, 2, 0))
    assert sorted(world.evicted) == ["train-1", "train-2"]


def test_a_budget_that_allows_the_whole_gang_counts_each_pod_once() -> None:
    """Its surplus member and the gang as a whole are both candidates."""
    world = World(factories.node("n"))
    world.step(0.0, *covered("elastic", 4, 2, least=3), factories.budget("elastic", 4))
    world.step(100.0, *unlike(100.0, 5, 1))
    world.step(101.0)  # all were asked first, and agreed
    assert len(world.evicted) == 4


def test_a_budget_that_allows_one_gang_of_two_keeps_the_other() -> None:
    world = World(factories.node("n"))
    labels = (("app", "both"),)
    first = job("first", 2, 2, labels=labels)
    world.step(0.0, *first, *job("second", 2, 2, labels=labels), factories.budget("both", 3))
    world.step(100.0, *unlike(100.0, 5, 1))
    assert not world.evicted
    world.step(200.0, factories.budget("both", 4))
    world.step(261.0)
    assert len(world.evicted) == 4


def test_a_member_that_may_not_leave_stays_wherever_it_is_in_the_order() -> None:
    """Without its setting the last member would go."""
    world = World(factories.node("a"), factories.node("b"))
    group, first, second = job("mixed", 2, least=1)
    assert isinstance(second, PodSeen)
    world.step(0.0, group, first, replace(second, preemptable=False))
    world.step(100.0, *job("urgent", 1, created=100.0, priority=9))
    assert world.evicted == ["mixed-0"]


def test_a_refused_eviction_is_asked_again_when_its_backoff_ends() -> None:
    """At that very moment, because a cycle is planned for it."""
    world = World(factories.node("n"))
    world.step(0.0, *job("old", 1))
    world.budgets = {"old-0"}
    world.step(1.0, *job("urgent", 1, created=1.0, priority=3))
    again = world.cluster.state.pods["uid-old-0"].evict_backoff.not_before
    assert again > 1.0
    world.budgets.clear()
    world.step(again)
    world.step(again + 0.5)  # it was asked first, and agreed
    assert world.evicted == ["old-0"]


@pytest.mark.parametrize("kept_for_another", [0, 1])
def test_what_victims_free_on_a_row_that_is_kept_for_another_gang_is_no_room(
    kept_for_another: int,
) -> None:
    made = new_scheduler(factories.LEVELS)
    nodes = [factories.node("a"), factories.node("b")]
    schedule_once(made, [*nodes, *job("both", 2, 8)], 0.0)
    for fact in job("urgent", 1, 8, priority=9):
        apply(made, fact)
    gang = made.state.gangs["ns", "urgent", True]
    want = PlacementRequest(((gang.counts.waiting[0].spec, 1),), "")
    request = PreemptionRequest(gang, want, 100.0, np.array([kept_for_another]), BY_PRIORITY)
    plan = preemption_plan.find_victims(made.preemption, request)
    assert plan is not None
    assert plan.taken.rows.tolist() == [1 - kept_for_another]
