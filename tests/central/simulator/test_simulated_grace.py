"""Pods that take time to start and to leave."""

import pytest

from central.model.decisions import Delete
from central.model.facts import Answered
from central.simulator import scenario
from central.simulator.documents import SourceLocation
from central.simulator.simulation_result import SimulationResult
from central.simulator.world import World
from tests.experiments.elastic import Json, template
from tests.experiments.elastic import simulate as play


def machine() -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n"},
        "status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str, priority: str, at_s: float, **annotations: str) -> Json:
    made = template(4.0, "1Gi")
    times = {f"lockstep.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "annotations": {"lockstep.dev/arrives-at": f"{at_s:g}s", **times},
        },
        "spec": {**made["spec"], "schedulerName": "lockstep", "priorityClassName": priority},
    }


def classes() -> list[Json]:
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": name},
            "value": value,
        }
        for name, value in (("low", 1), ("high", 9))
    ]


def story(*pods: Json) -> SimulationResult:
    return play([*classes(), machine(), *pods], 1000).result


def test_an_evicted_pod_keeps_its_room_for_its_grace_period() -> None:
    result = story(pod("old", "low", 0, grace="7s"), pod("new", "high", 100))
    assert [(each.pod, each.at_s) for each in result.placed] == [("old", 0.0), ("new", 107.0)]
    assert [(each.pod, each.at_s) for each in result.evicted] == [("old", 100.0)]


def test_without_one_the_room_is_free_at_once() -> None:
    result = story(pod("old", "low", 0), pod("new", "high", 100))
    assert [each.at_s for each in result.placed] == [0.0, 100.0]


def test_a_run_time_counts_from_the_start() -> None:
    result = story(pod("a", "low", 0, start_takes="3s", runs_for="10s"))
    assert [each.at_s for each in result.ended] == [13.0]


def test_a_pod_that_leaves_does_not_complete() -> None:
    old = pod("old", "low", 0, grace="60s", runs_for="110s")
    result = story(old, pod("new", "high", 100))
    assert [each.name for each in result.ended if each.kind == "Pod"] == []
    assert [each.at_s for each in result.placed] == [0.0, 160.0]


TEN_YEARS = 315_360_000


@pytest.mark.parametrize(("grace_s", "placed_s"), [(TEN_YEARS, 700.0), (40, 140.0)])
def test_a_member_that_leaves_for_others_ends_as_a_victim_does(
    grace_s: int, placed_s: float
) -> None:
    """An elastic Job's members say how long they take to end; --max-eviction-grace is 600 s."""
    made = template(1.0, "1Gi")
    made["metadata"]["annotations"]["lockstep.dev/grace"] = f"{grace_s}s"
    made["spec"]["terminationGracePeriodSeconds"] = grace_s
    job = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {
            "schedulerName": "lockstep",
            "priorityClassName": "low",
            "plugins": {"elastic": []},
            "tasks": [{"name": "w", "replicas": 4, "minAvailable": 1, "template": made}],
        },
    }
    new = pod("new", "high", 100)
    new["spec"]["containers"][0]["resources"] = template(1.0, "1Gi")["spec"]["containers"][0]["resources"]  # fmt: skip
    result = story(job, new)
    assert [each.at_s for each in result.placed if each.pod == "new"] == [placed_s]
    assert not result.evicted


def test_the_deletion_of_a_pod_that_is_gone_is_answered_with_a_grace_period_too() -> None:
    read = scenario.read([(SourceLocation("story", 0), machine())], ("lockstep",), ())
    world = World(read, SimulationResult())
    delete = Delete("Pod", "default", "old", "no such uid", "why", grace_s=3)
    assert [*world.apply_decision(delete, 0.0)] == [Answered("Delete", "Pod", "default", "old")]
