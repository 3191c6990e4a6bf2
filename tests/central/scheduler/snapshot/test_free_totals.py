"""What is free on all nodes together equals a new count, whatever changed, and costs what changed."""

import random

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import NodeGone
from central.scheduler.apply import apply
from central.scheduler.scheduler import Scheduler
from central.scheduler.snapshot.free_totals import FreeTotals
from tests.central import factories

STEPS = 200


def cluster(nodes: int) -> Scheduler:
    made = new_scheduler(factories.LEVELS)
    for number in range(nodes):
        apply(made, factories.node(f"n{number}"))
    return made


def change(made: Scheduler, dice: random.Random, step: int) -> None:
    name = f"n{dice.randrange(70)}"
    match dice.randrange(4):
        case 0:
            slices = 3 if dice.random() < 0.1 else 0  # the first of them add a column
            apply(made, factories.node(name, gpus=dice.choice((0, 4, 8)), slices=slices))
        case 1:
            apply(made, NodeGone(name))
        case 2:
            apply(made, factories.report(name, factories.topology(dice.choice((2, 8))), step))
        case _:
            apply(made, factories.pod(f"p{step}", 1, node=name, phase="Running"))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(4))
def test_kept_totals_equal_new_ones(seed: int) -> None:
    made, dice = cluster(1), random.Random(seed)
    columns, seen = made.state.snapshot.columns, set[tuple[int, ...]]()
    for step in range(STEPS):
        for _ in range(dice.choice((0, 1, 30))):
            change(made, dice, step + 1)
        seen.add(kept := made.state.snapshot.free_totals.now())
        assert kept == FreeTotals(columns).now()
        assert kept == (*columns.free.sum(axis=0).tolist(), columns.gpus.count.sum())
    assert len(seen) > STEPS / 4, "the totals hardly changed"


@pytest.mark.parametrize("nodes", [100, 1000])
def test_a_change_of_one_node_counts_one_node(nodes: int) -> None:
    made = cluster(nodes)
    totals = made.state.snapshot.free_totals
    totals.now()
    before = totals.rows_counted
    apply(made, factories.pod("p", 1, node="n7", phase="Running"))
    totals.now()
    assert totals.rows_counted == before + 1
