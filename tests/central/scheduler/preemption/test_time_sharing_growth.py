"""Gangs that share time cost a cycle work in proportion to those that change. Calls of functions are counted, not
seconds."""

from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.decisions import Bind, Decision, Evict
from central.model.facts import Fact, PodSeen, QueueSeen
from central.scheduler import cycle
from tests.central import factories
from tests.central.scheduler.small_cluster import job
from tests.counted_calls import calls

RUNNING, PENDING = 20, 102
LATE_S = 40_000.0


def trains(name: str, hours: float, at_s: float) -> list[Fact]:
    return job(name, 1, 8, 3600 * hours, suspension_s=10.0, created=at_s)


def calls_of(running: int, pending: int) -> tuple[int, int]:
    """In a cycle with one event, and in the one where all pending gangs have become late: as many of them as run have
    somebody suspended."""
    scheduler = new_scheduler(factories.LEVELS)
    nodes = [factories.node(f"n{index}") for index in range(running)]
    old = [fact for index in range(running) for fact in trains(f"old-{index}", 20.0 + index, 0.0)]
    facts = [QueueSeen("default", quantum_s=600.0), *nodes, *old]
    binds = cycle.schedule_once(scheduler, facts, 0.0)
    node = {each.pod: each.node for each in binds if isinstance(each, Bind)}
    runs = [
        replace(each, node=node[each.uid], phase="Running")
        for each in old
        if isinstance(each, PodSeen)
    ]
    cycle.schedule_once(scheduler, runs, 1.0)
    new = [fact for index in range(pending) for fact in trains(f"p{index:04}", 0.1, 60.0)]
    cycle.schedule_once(scheduler, new, 60.0)
    event = replace(runs[0], labels=(("seen", "again"),))
    for now in (61.0, 62.0):
        cycle.schedule_once(scheduler, [], now)
    settled = calls(lambda: cycle.schedule_once(scheduler, [event], 63.0))
    decisions: list[Decision] = []
    late = calls(lambda: decisions.extend(cycle.schedule_once(scheduler, [], LATE_S)))
    assert sum(isinstance(each, Evict) for each in decisions) == running
    return settled, late


@pytest.mark.long
def test_work_is_in_proportion_to_the_gangs_that_change() -> None:
    few, many = calls_of(RUNNING, PENDING), calls_of(2 * RUNNING, 2 * PENDING)
    assert many[0] < 1.1 * few[0], f"settled: {few[0]} calls, {many[0]} with twice as many gangs"
    assert many[1] < 2.5 * few[1], f"late: {few[1]} calls, {many[1]} with twice as many gangs"
