"""What nodes can offer at most is kept until a node changes, and is then counted again."""

import random
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import NodeGone
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.capacity import PodClassCapacity
from tests.central import factories
from tests.central.scheduler.small_cluster import job

NODES, STEPS = 5, 150


def change(made: Scheduler, dice: random.Random, generation: int) -> None:
    """Something that happens to one of the nodes."""
    name = f"n{dice.randrange(NODES)}"
    match dice.randrange(4):
        case 0:
            labels = {"pool": dice.choice("ab")}
            gpus, cpu = dice.choice((0, 4, 8)), dice.choice((2_000, 64_000))
            away = dice.random() < 0.3
            fact = factories.node(name, gpus=gpus, cpu=cpu, labels=labels, unschedulable=away)
            apply(made, fact)
        case 1:
            apply(made, NodeGone(name))
        case 2:
            topology = factories.topology(dice.choice((2, 8, 16)))
            apply(made, factories.report(name, topology, generation))
        case _:
            apply(made, factories.pod(f"p{generation}", 1, node=name, phase="Running"))


def bounds(view: PodClassCapacity) -> tuple[object, ...]:
    found = view.refresh().lasting()
    empty = view.capacity_when_empty().tolist()
    able, capacity = found.able.tolist(), found.capacity.tolist()
    most = found.of_row.tolist()
    return (found.rows.tolist(), found.refused, found.refusals, most, capacity, able, empty)


@pytest.mark.long
def test_kept_bounds_are_those_counted_anew() -> None:
    dice, made = random.Random(5), new_scheduler(factories.LEVELS)
    plain = factories.pod("x", 8, cpu=4_000).spec
    chosen = replace(factories.pod("y", 1).spec, node_selector=(("pool", "a"),))
    seen = set[str]()
    for step in range(STEPS):
        change(made, dice, step + 1)
        for spec in (plain, chosen):
            kept = bounds(made.state.snapshot.view(spec))
            made.state.snapshot.forget_view(spec)
            assert kept == bounds(made.state.snapshot.view(spec))
            seen.add(repr(kept))
        columns = made.state.snapshot.columns
        gone = [row for row, node in enumerate(columns.nodes) if node is None]
        assert not columns.gpus.installed[gone].any()
    assert len(seen) > STEPS / 10, "the bounds hardly changed"


def test_a_gang_that_can_never_start_is_told_when_a_node_changes_that() -> None:
    made = new_scheduler(factories.LEVELS)
    schedule_once(made, [factories.node("n0"), *job("g", 1, 16)], 1.0)
    gang = made.state.gangs["ns", "g", True]
    assert "can never start: no node has 16 GPUs, the most is 8" in gang.attempt.reason
    schedule_once(made, [factories.report("n0", factories.topology(12))], 2.0)
    assert "can never start: no node has 16 GPUs, the most is 12" in gang.attempt.reason
    schedule_once(made, [factories.node("n1", gpus=16, ready=False)], 3.0)
    assert "never" not in gang.attempt.reason
    schedule_once(made, [NodeGone("n1")], 4.0)
    assert "can never start" in gang.attempt.reason
