"""The sentences of docs/results/controllers.md are those of the scheduler."""

from pathlib import Path

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.server.queries import explain
from protos.names import GPU
from tests.central import factories
from tests.central.kube import controller_fixtures as made

PAGE = Path(__file__).parents[2] / "docs/results/controllers.md"
READER = Decoder(("lockstep",), factories.LEVELS)


def sentence(played: made.Played, nodes: int, pods: int) -> str:
    [rule] = [r for r in READER.rules if r.resource.kind == played.object["kind"]]
    scheduler = new_scheduler(factories.LEVELS)
    there = [factories.node(f"n{i}", rack="r1") for i in range(nodes)]
    members = [READER.pod(raw) for raw in played.pods[:pods]]
    facts: list[Fact] = [*there, READER.controllers_gang(rule, played.object), *members]
    schedule_once(scheduler, facts, 0.0)
    found = explain(scheduler, made.SPACE, played.gang)
    assert found is not None
    return found.reason.partition(" (")[0]


@pytest.mark.parametrize("kind", made.PLAYED)
def test_sentences(kind: str) -> None:
    played = made.PLAYED[kind]
    limits = [raw["spec"]["containers"][0]["resources"]["limits"] for raw in played.pods]
    nodes, pods = sum(GPU in each for each in limits), len(played.pods)
    [row] = [line for line in PAGE.read_text().splitlines() if f"`{played.gang}`" in line]
    cells = [cell.strip() for cell in row.split("|")]
    assert cells[4] == f"`{played.gang}` Pending: {sentence(played, nodes - 1, pods)}"
    assert cells[5] == sentence(played, nodes, pods)
    assert cells[6] == sentence(played, 8, pods - 1)
