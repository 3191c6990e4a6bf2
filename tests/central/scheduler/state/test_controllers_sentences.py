"""What a user reads of a controller's gang while a node or a pod is missing, and when it runs."""

import pytest

from central.controllers.composite import new_scheduler
from central.kube.decode.decoder import Decoder
from central.model.facts import Fact
from central.scheduler.cycle import schedule_once
from central.server.queries import explain
from protos.names import GPU
from tests.central import factories
from tests.central.kube import controller_fixtures as made

READER = Decoder(("lockstep",), factories.LEVELS)

# By gang: one node too few, enough nodes, the last pod missing.
SENTENCES = {
    "jobset/train": (
        "needs 1 pod and 4 pods x 8 GPUs; the cluster fits 3 of 4 pods x 8 GPUs",
        "5 of 5 pods placed on 4 nodes of rack r1",
        "task workers needs 4 more pods to start, 3 pending",
    ),
    "leaderworkerset/serve/0": (
        "needs 2 pods x 8 GPUs; the cluster fits 1 of 2",
        "2 of 2 pods placed on 2 nodes of rack r1",
        "needs 2 pods to start, 1 exist",
    ),
    "raycluster/tune": (
        "needs 9 pods and 1 pod x 8 GPUs; the cluster has no nodes",
        "10 of 10 pods placed on node n0",
        "task gpu needs 1 more pod to start, 0 pending",
    ),
    "pytorchjob/bert": (
        "needs 3 pods x 8 GPUs; the cluster fits 2 of 3",
        "3 of 3 pods placed on 3 nodes of rack r1",
        "task worker needs 2 more pods to start, 1 pending",
    ),
    "mpijob/pi": (
        "needs 1 pod and 2 pods x 8 GPUs; the cluster fits 1 of 2 pods x 8 GPUs",
        "3 of 3 pods placed on 2 nodes of rack r1",
        "task worker needs 2 more pods to start, 1 pending",
    ),
}


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
    found = (
        sentence(played, nodes - 1, pods),
        sentence(played, nodes, pods),
        sentence(played, 8, pods - 1),
    )
    assert found == SENTENCES[played.gang]
