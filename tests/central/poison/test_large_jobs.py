"""A Job of the largest accepted size: its pods are created bit by bit, and no cycle does all of the work."""

from typing import Any

from central.model import limits
from central.model.decisions import Create, Decision, SetStatus
from central.model.facts import Answered, Fact
from tests.central.poison import corpus
from tests.central.poison.world import World, read

CYCLES = 8


def answers(decisions: list[Decision]) -> list[Fact]:
    """The API server does at once what it is asked to."""
    facts: list[Fact] = []
    for each in decisions:
        if isinstance(each, Create):
            uid = f"u-{each.name}"
            raw: dict[str, Any] = {**each.body, "metadata": {**each.body["metadata"], "uid": uid}}
            facts.append(Answered("Create", each.kind, each.namespace, each.name, uid))
            kind = "pods" if each.kind == "Pod" else corpus.GROUPS
            found = read(kind, raw).fact
            assert found is not None
            facts.append(found)
        elif isinstance(each, SetStatus):
            facts.append(Answered("SetStatus", each.kind, each.namespace, each.name, each.uid))
    return facts


def test_the_pods_of_a_large_job_are_created_bit_by_bit() -> None:
    world = World()
    job = read(corpus.JOBS, corpus.job(corpus.task(replicas=limits.REPLICAS))).fact
    assert job is not None
    decisions, _ = world.cycle(job)
    created = []
    for _ in range(CYCLES):
        decisions, spent_s = world.cycle(*answers(decisions))
        pods = [each for each in decisions if isinstance(each, Create) and each.kind == "Pod"]
        created.append(len(pods))
        assert spent_s < 2.0
    assert max(created) == limits.CREATES
    assert sum(created) > 4 * limits.CREATES  # it goes on as the answers come
