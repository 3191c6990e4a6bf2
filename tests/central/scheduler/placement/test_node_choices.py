"""Which node the next pod of a gang gets, by the rule as it is written, and what the choice costs."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from central.controllers.composite import new_scheduler
from central.model.arrays import Ints
from central.model.facts import Fact, PodSpec
from central.model.pod_rules import Nearer, Rules
from central.scheduler.cycle import schedule_once
from central.scheduler.placement.node_choices import CHOICE_UNITS, best_row, next_row
from central.scheduler.scheduler import Scheduler
from protos.names import BLOCK, RACK
from tests.central import factories

NODES = 9
APP = (("app", "x"),)
KINDS = {
    "plain": None,
    "even": factories.even("x", RACK, 9),
    "near": factories.near("x", RACK),
    "near others": factories.near("y", RACK),
    "prefers": Rules(nearer=(Nearer(factories.mates("y"), factories.HOST, 10),)),
    "even and near": replace(factories.even("x", RACK, 9), near=factories.near("x", BLOCK).near),
}


def cluster(
    dice: random.Random, *more: Fact, labels: tuple[tuple[str, str], ...] = APP, **fields: Any
) -> tuple[Scheduler, PodSpec]:
    """Nodes in racks of three with pods of both apps, and the class of pods that are pending there."""
    facts: list[Fact] = [
        factories.node(f"n{n}", gpus=dice.choice((4, 8)), rack=f"r{n // 3}", block=f"b{n // 6}")
        for n in range(NODES)
    ]
    for number in range(dice.randrange(4, 12)):
        of: dict[str, Any] = {
            "node": f"n{dice.randrange(NODES)}",
            "phase": "Running",
            "labels": (("app", dice.choice("xyz")),),
        }
        facts.append(factories.pod(f"old-{number}", dice.randrange(3), **of))
    made = new_scheduler(factories.LEVELS)
    waits = factories.pod("wait-0", 1, "wait", labels=labels, **fields)
    schedule_once(made, [*facts, *more, factories.gang("wait", 99), waits], 0.0)
    return made, made.state.pods["uid-wait-0"].spec


def by_rule(made: Scheduler, kind: str, left: int, rows: list[int], used: set[int]) -> int | None:
    """As best_row() says it."""
    snapshot, nodes = made.state.snapshot, made.state.nodes
    names = snapshot.columns.names
    spec = made.state.pods["uid-wait-0"].spec
    fits = snapshot.view(spec).refresh().by_row
    rows = [row for row in rows if fits[row] > 0]
    rack, block = [n // 3 for n in range(NODES)], [n // 6 for n in range(NODES)]
    apps = Counter(
        (int(pod.node[1:]), dict(pod.seen.labels)["app"])
        for pod in made.state.pods.values()
        if pod.node
    )
    number = {row: int(names[row][1:]) for row in rows}
    short_of = {"near": rack, "even and near": block}.get(kind)

    def key(row: int) -> tuple[float, ...]:
        mine = number[row]
        peers = (
            sum(apps[n, "x"] for n in range(NODES) if rack[n] == rack[mine])
            if "even" in kind
            else 0
        )
        short = 0
        if short_of is not None:
            there = sum(
                int(fits[other]) for other in rows if short_of[number[other]] == short_of[mine]
            )
            short = max(0, left - there)
        likes = apps[mine, "y"] if kind == "prefers" else 0
        return peers, short, row not in used, -likes, snapshot.columns.gpus.count[row], mine

    assert len(nodes) == NODES
    return min(rows, key=key, default=None)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_pod_goes_where_the_rule_says(kind: str) -> None:
    chosen = Counter[int | None]()
    for seed in range(12):
        dice = random.Random(seed)
        made, spec = cluster(dice, rules=KINDS[kind])
        snapshot = made.state.snapshot
        for _ in range(8):
            rows = sorted(dice.sample(range(NODES), dice.randrange(1, NODES + 1)))
            used = {*dice.sample(range(NODES), dice.randrange(4))}
            mask = np.array([row in used for row in range(NODES)], dtype=np.bool_)
            left = dice.randrange(1, 20)
            found = best_row(snapshot, spec, left, np.array(rows, dtype=np.int64), mask)
            assert found == by_rule(made, kind, left, rows, used)
            chosen[found] += 1
    assert len(chosen) > 3


@pytest.mark.parametrize("rows", [1, 15, 16, 160])
def test_a_choice_costs_work_by_the_rows_that_it_reads(rows: int) -> None:
    made, spec = cluster(random.Random(1), rules=factories.even("x", RACK))
    snapshot, used = made.state.snapshot, np.zeros(NODES, dtype=np.bool_)
    some: Ints = np.arange(rows) % NODES
    before = snapshot.meter.used
    assert next_row(snapshot, spec, 1, some, used) == best_row(snapshot, spec, 1, some, used)
    assert snapshot.meter.used - before == CHOICE_UNITS + rows // 16
