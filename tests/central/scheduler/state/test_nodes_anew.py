"""What is kept of nodes between facts equals what the last facts alone give."""

import random
from dataclasses import replace

import pytest

from central.controllers.composite import new_scheduler
from central.model.facts import Fact, NodeGone, NodeReported, NodeSeen
from central.scheduler.apply import apply
from central.scheduler.cycle import schedule_once
from central.scheduler.scheduler import Scheduler
from central.scheduler.state import handlers
from protos.names import BLOCK, CLIQUE, RACK
from tests.central import factories
from tests.central.scheduler import recounts

NODES, STEPS = 4, 300
LEVELS = (BLOCK, RACK, CLIQUE)
Row = tuple[object, ...]


class Story:
    """Nodes that come, change, report and go."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.made = new_scheduler(LEVELS)
        self.nodes: dict[str, NodeSeen] = {}
        self.reports: dict[str, NodeReported] = {}
        self.failed: set[str] = set()

    def step(self, generation: int) -> None:
        name, dice = f"n{self.dice.randrange(NODES)}", self.dice
        match dice.randrange(5):
            case 0 | 1:
                gpus, fpgas = dice.choice((4, 8)), dice.choice((0, 2))
                rack, block = dice.choice(("", "r0", "r1")), dice.choice(("", "b0"))
                node = factories.node(name, gpus=gpus, rack=rack, block=block)
                node = replace(node, allocatable={**node.allocatable, "x.io/fpga": fpgas})
                self.nodes[name] = node
                apply(self.made, node)
            case 2 if name in self.nodes:
                apply(self.made, NodeGone(name))
                del self.nodes[name]
                self.reports.pop(name, None)
                self.failed.discard(name)
            case 3 if name in self.nodes:
                handlers.lose_report(self.made.state, name)
                self.failed.add(name)
            case _ if name in self.nodes:
                model, level = dice.choice(("a", "b")), dice.choice(("none", "hard"))
                topology = factories.topology(dice.choice((4, 8)), model=model, level=level)
                self.reports[name] = factories.report(name, topology, generation)
                apply(self.made, self.reports[name])
                self.failed.discard(name)
            case _:
                pass  # there is no such node

    def anew(self) -> Scheduler:
        made = new_scheduler(LEVELS)
        facts: list[Fact] = [*self.nodes.values(), *self.reports.values()]
        schedule_once(made, facts, 0.0)
        for name in self.failed:
            handlers.lose_report(made.state, name)
        return made


def rows(made: Scheduler) -> dict[str, Row]:
    columns, free = made.state.snapshot.columns, made.state.snapshot.pod_counts.volumes.free
    recounts.check_reach(free.reach)
    found: dict[str, Row] = {}
    for name, row in columns.row.items():
        amounts = {each: columns.free.item(row, column) for each, column in columns.column.items()}
        found[name] = (
            columns.nodes[row],
            {each: amount for each, amount in amounts.items() if amount},
            columns.gpus.count.item(row),
            columns.gpus.shape[row],
            columns.domains.path(row),
            columns.domains.annotations(row),
        )
    return found


@pytest.mark.long
def test_rows_are_those_of_a_scheduler_that_starts_now() -> None:
    seen = set[str]()
    for seed in range(4):
        story = Story(seed)
        for step in range(STEPS // 4):
            story.step(step + 1)
            if step % 3 == 0:
                schedule_once(story.made, [], float(step))
            assert rows(story.made) == rows(story.anew())
        seen |= {repr(row) for row in rows(story.made).values()}
    assert len(seen) > NODES
