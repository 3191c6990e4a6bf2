"""Sizes of Deployments, StatefulSets and batch Jobs in a simulated cluster."""

from typing import Any

import pytest

from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, priority, rigid
from tests.experiments.elastic import Json, Run, simulate, template

KINDS = {"Job": "batch/v1"}


def sized(kind: str, name: str, least: int, most: int, size: int, **more: Any) -> Json:
    """A controller whose pods have 1 CPU each. A change costs a second, so it may come after 60 s."""
    notes = {
        "lockstep.dev/elastic-min": str(least),
        "lockstep.dev/elastic-max": str(most),
        "lockstep.dev/resize-cost": "1s",
        **more.pop("annotations", {}),
    }
    pod = template(1.0, "1Gi", more.pop("grace_s", 2.0))
    pod["metadata"]["labels"] = {"app": name}
    pod["spec"] |= {"schedulerName": "lockstep"}
    if kind == "Job":
        pod["spec"]["restartPolicy"] = "Never"
        spec = {"parallelism": size, "template": pod}
    else:
        spec = {"replicas": size, "selector": {"matchLabels": {"app": name}}, "template": pod}
    if kind == "StatefulSet":
        spec["podManagementPolicy"] = "Parallel"
    return {
        "apiVersion": KINDS.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {**spec, **more},
    }


def indexed(name: str, least: int, most: int, size: int, **more: Any) -> Json:
    return sized("Job", name, least, most, size, completionMode="Indexed", completions=size, **more)


ALL = [
    lambda name, *sizes: sized("Deployment", name, *sizes),
    lambda name, *sizes: sized("ReplicaSet", name, *sizes),
    lambda name, *sizes: sized("StatefulSet", name, *sizes),
    lambda name, *sizes: sized("Job", name, *sizes),
    indexed,
]
WORDS = ["Deployment", "ReplicaSet", "StatefulSet", "Job", "IndexedJob"]


def sizes(run: Run, *names: str, at_s: float = 1e9) -> list[int]:
    return [run.pods(f"default/{name}", at_s) for name in names]


def resizes(run: Run, name: str) -> list[tuple[float, int]]:
    return [(each.at_s, each.members) for each in run.result.resized if each.name == name]


@pytest.mark.parametrize("make", ALL, ids=WORDS)
def test_it_starts_with_what_there_is_and_grows(make: Any) -> None:
    run = simulate([machine(0), make("e", 2, 6, 2)], 1000)
    assert sizes(run, "e", at_s=0) == [2]
    assert sizes(run, "e", at_s=5) == [6]
    assert not run.result.evicted


@pytest.mark.parametrize("make", ALL, ids=WORDS)
def test_it_gives_way_to_a_gang_and_stays_at_its_least(make: Any) -> None:
    run = simulate([machine(0), make("e", 2, 8, 8), rigid("r", 5, 100)], 1000)
    assert sizes(run, "e", "r", at_s=99) == [8, 0]
    assert sizes(run, "e", "r", at_s=110) == [3, 5]
    assert not run.result.evicted
    assert [each.members for each in run.result.resized if each.name == "e"] == [3]


@pytest.mark.parametrize("make", ALL, ids=WORDS)
def test_a_size_outside_the_range_is_brought_into_it(make: Any) -> None:
    run = simulate([machine(0), make("low", 3, 4, 1), make("high", 1, 2, 5)], 1000)
    assert sizes(run, "low", "high") == [4, 2]


def test_kinds_of_controllers_share_evenly() -> None:
    made = [sized("Deployment", "d", 1, 13, 1), indexed("i", 1, 13, 1), elastic("j", 1, 13)]
    run = simulate([machine(0, 12), *made], 2000)
    assert sizes(run, "d", "i", "j") == [4, 4, 4]


def test_a_step_comes_whole() -> None:
    step = {"lockstep.dev/elastic-step": "3"}
    run = simulate([machine(0), sized("Deployment", "e", 2, 11, 2, annotations=step)], 1000)
    assert sizes(run, "e") == [8]
    taken = [sized("Deployment", "e", 2, 11, 8, annotations=step), rigid("r", 1, 100)]
    assert sizes(simulate([machine(0), *taken], 1000), "e", "r") == [5, 1]


def on_first_node(name: str, at_s: float) -> Json:
    """A pod that needs all of the first node."""
    job = rigid(name, 1, at_s)
    pod = template(4.0, "1Gi")
    pod["spec"]["nodeSelector"] = {"lockstep.dev/place": "first"}
    job["spec"]["tasks"][0]["template"] = pod
    return job


def test_of_a_deployment_those_leave_whose_node_is_needed() -> None:
    """Its controller alone would delete pods of the node that has most of them."""
    nodes = [machine(0, 4, place="first"), machine(1, 8)]
    run = simulate([*nodes, sized("Deployment", "e", 2, 12, 12), on_first_node("r", 100)], 600)
    assert sizes(run, "e", "r", at_s=120) == [8, 1]
    assert resizes(run, "e") == [(100, 8)], "its controller has let those go who were chosen"


def test_a_controller_that_lets_others_go_is_asked_again_and_for_no_more() -> None:
    """ReplicaSets delete pods that do not run yet before those with a mark."""
    late = machine(1, 4)
    late["metadata"]["annotations"] = {"lockstep.dev/arrives-at": "100s"}
    made = sized("Deployment", "e", 2, 12, 8)
    made["spec"]["template"]["metadata"]["annotations"]["lockstep.dev/start-takes"] = "60s"
    run = simulate([machine(0, 8, place="first"), late, made, on_first_node("r", 120)], 600)
    assert resizes(run, "e") == [(100, 12), (120, 8), (120, 4), (122, 8)]
    whys = [each.reason for each in run.result.resized]
    assert whys[1:3] == ["room for job r"] * 2, "members that stay have their seats"
    assert sizes(run, "e", "r", at_s=125) == [8, 1]
    assert sizes(run, "e", "r") == [8, 1]


def test_of_an_indexed_job_the_highest_leave() -> None:
    nodes = [machine(0, 4, place="first"), machine(1, 4), machine(2, 4)]
    run = simulate([*nodes, indexed("e", 6, 12, 12), on_first_node("r", 100)], 600)
    assert sizes(run, "e", "r", at_s=120) == [12, 0], "the lowest indices, on that node, must stay"
    assert not run.result.evicted


def test_enough_of_the_highest_leave() -> None:
    nodes = [machine(0, 4), machine(1, 4), machine(2, 4, place="first")]
    run = simulate([*nodes, indexed("e", 2, 12, 12), on_first_node("r", 100)], 600)
    assert sizes(run, "e", "r", at_s=120) == [8, 1]


def test_one_that_does_not_yield_keeps_its_surplus() -> None:
    keeps = sized("Deployment", "e", 2, 8, 8, annotations={"lockstep.dev/yields": "false"})
    assert sizes(simulate([machine(0), keeps, rigid("r", 2, 100)], 600), "e", "r") == [8, 0]


def test_a_service_that_comes_takes_surplus_of_a_lower_priority() -> None:
    service = sized("Deployment", "web", 3, 3, 3)
    service["spec"]["template"]["spec"]["priorityClassName"] = "high"
    service["metadata"]["annotations"] = {"lockstep.dev/arrives-at": "100s"}
    run = simulate([machine(0), priority("high", 9), indexed("e", 2, 8, 8), service], 600)
    assert sizes(run, "e", "web", at_s=110) == [5, 3]


def test_zero_is_left_alone() -> None:
    assert sizes(simulate([machine(0), sized("Deployment", "e", 2, 8, 0)], 600), "e") == [0]


def test_an_index_that_is_lost_is_not_made_up_for_by_a_higher_one() -> None:
    """Its controller creates it again where it was. Nobody gives seats for more until it has one."""
    nodes = [machine(index, 4) for index in range(3)]
    nodes[0]["metadata"]["annotations"] = {"lockstep.dev/leaves-at": "100s"}
    other = elastic("other", 1, 5, 5)
    run = simulate([*nodes, indexed("e", 2, 12, 8), other], 1500)
    assert sizes(run, "e", "other", at_s=99) == [7, 5]
    assert sizes(run, "e", "other") == [3, 5]
    assert not [each for each in run.result.resized if each.at_s > 100]


def test_whoever_else_changes_the_size_is_left_alone_and_nobody_waits_for_that() -> None:
    changes = [sized("Deployment", "e", 2, 4, 6) for _ in range(4)]
    for at_s, each in zip((0, 50, 60, 70), changes, strict=True):
        each["metadata"]["annotations"]["lockstep.dev/arrives-at"] = f"{at_s}s"
    run = simulate([machine(0, 16), *changes, elastic("other", 1, 16, 90)], 1500)
    assert sizes(run, "e", at_s=49) == [4]
    assert sizes(run, "e", "other", at_s=300) == [6, 10]
    assert sizes(run, "e", "other", at_s=1400) == [4, 12]
