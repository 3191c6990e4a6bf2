"""Nodes that the API server does not have, or no longer: members there have no seat, and nobody starts there."""

from dataclasses import replace

import pytest

from central.model.facts import Fact, NodeGone, PodSeen
from central.model.jobspec import ElasticTask, JobMember
from central.model.speed_table import parse
from central.scheduler.cycle import schedule_once
from central.scheduler.elastic.elastic_gang import ElasticGang
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.cluster_state import ClusterState
from protos.names import RACK
from tests.central import factories
from tests.central.scheduler.elastic.test_failing_resize import TASK, Failing, running
from tests.central.scheduler.filters.test_gpu_model import machine
from tests.central.scheduler.invariants import check_invariants


class Elastic(Failing):
    def __init__(self, task: ElasticTask = TASK) -> None:
        super().__init__()
        self.fails, self.task = False, task

    def elastic_gangs(self, state: ClusterState) -> list[ElasticGang]:
        gang = state.gangs.get(("ns", "a", True))
        return [ElasticGang.of(gang, self.task, range(4), settled=True)] if gang else []


def spread(facts: list[Fact]) -> list[Fact]:
    """Puts the pods on nodes n and m in turn."""
    nodes = {"a-1": "m", "a-3": "m"}
    return [
        replace(fact, node=nodes.get(fact.name, "n")) if isinstance(fact, PodSeen) else fact
        for fact in facts
    ]


@pytest.mark.parametrize("required", ["", RACK])
def test_sizes_are_decided_while_members_are_on_a_deleted_node(required: str) -> None:
    made = Elastic()
    scheduler = Scheduler(made, factories.LEVELS)
    _, *pods = running("a")
    gang = factories.gang("a", 1, topology_required=required)
    nodes = [factories.node(name, rack="r") for name in "nm"]
    schedule_once(scheduler, [*nodes, gang, *spread(pods)], 0.0)
    schedule_once(scheduler, [NodeGone("m")], 50.0)
    wanting = [factories.pod(f"c-{rank}", 1, "c") for rank in range(7)]
    schedule_once(scheduler, [factories.gang("c", 7), *wanting], 60.0)
    check_invariants(scheduler)
    assert not scheduler.quarantine.total
    assert [pod.node for told in made.told for pod in told.leaving] == ["n"]


def test_a_model_that_only_agents_know_of_is_none() -> None:
    task = replace(TASK, speeds=parse("1:1 8:8 A100=1:10 A100=8:80"))
    scheduler = Scheduler(Elastic(task), factories.LEVELS)
    parts = [JobMember("a", "uid-a", "w", index) for index in range(4)]
    pods = [factories.pod(f"a-{part.index}", 1, "a", part=part) for part in parts]
    reports = [machine("n", "A100"), machine("not-listed", "T4")]
    schedule_once(scheduler, [factories.node("n"), *reports, factories.gang("a", 1), *pods], 0.0)
    check_invariants(scheduler)
    assert not scheduler.quarantine.total
    assert {pod.node for pod in scheduler.state.pods.values()} == {"n"}
