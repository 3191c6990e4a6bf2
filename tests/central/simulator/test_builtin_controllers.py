"""Kubernetes' own controllers: batch Jobs, Deployments, ReplicaSets, StatefulSets make their pods."""

import json
from typing import Any

import pytest

from protos.names import DOMAIN, GPU, OWNER_MIN, RUNS_FOR
from tests.central.simulator.manifests import Json, Simulate, node, pod


def controller(kind: str, name: str, gpus: int = 1, *, runs: str = "", **spec: Any) -> Json:
    container = {"name": "main", "resources": {"limits": {GPU: gpus}}}
    template: Json = {
        "metadata": {"annotations": {RUNS_FOR: runs}} if runs else {},
        "spec": {"schedulerName": "lockstep", "containers": [container]},
    }
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    return {
        "apiVersion": "batch/v1" if kind == "Job" else "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "annotations": {}},
        "spec": {**spec, "template": template},
    }


def noted(obj: Json, **notes: str) -> Json:
    told = {f"{DOMAIN}/{key.replace('_', '-')}": value for key, value in notes.items()}
    annotations = {**obj["metadata"]["annotations"], **told}
    return {**obj, "metadata": {**obj["metadata"], "annotations": annotations}}


def placed(found: Json) -> list[tuple[str, float]]:
    return [(one["pod"], one["at_s"]) for one in found["placements"]]


def ended(found: Json, kind: str = "Job") -> dict[str, float]:
    return {one["name"]: one["at_s"] for one in found["ended"] if one["kind"] == kind}


def test_a_job_goes_on_until_its_completions(simulate: Simulate) -> None:
    found = simulate(node("a"), controller("Job", "j", runs="10s", parallelism=2, completions=5))
    assert placed(found) == [("j-0", 0), ("j-1", 0), ("j-2", 10), ("j-3", 10), ("j-4", 20)]
    assert ended(found) == {"j": 30.0}
    assert simulate.errors == ""


def test_a_job_without_numbers_is_one_pod(simulate: Simulate) -> None:
    found = simulate(node("a"), controller("Job", "j", runs="10s"))
    assert placed(found) == [("j-0", 0)]
    assert ended(found) == {"j": 10.0}


def test_a_job_without_completions_ends_with_the_first_success(simulate: Simulate) -> None:
    found = simulate(node("a", 2), controller("Job", "j", runs="10s", parallelism=2))
    assert placed(found) == [("j-0", 0), ("j-1", 0)], "nobody is made again"
    assert ended(found) == {"j": 10.0}


def test_numbers_of_an_indexed_job_stay(simulate: Simulate) -> None:
    job = controller("Job", "j", runs="10s", parallelism=2, completions=3, completionMode="Indexed")
    gone = noted(node("a", 1), leaves_at="5s")
    found = simulate(gone, node("b", 1), job)
    assert placed(found) == [("j-0", 0), ("j-1", 0), ("j-0", 10), ("j-2", 20)]
    assert ended(found) == {"j": 30.0}


def test_a_job_that_is_suspended_waits_for_nothing(simulate: Simulate) -> None:
    job = controller("Job", "j", runs="10s", suspend=True)
    assert simulate(node("a"), job)["waiting"] == []
    again = noted(controller("Job", "j", runs="10s", suspend=False), arrives_at="1m")
    assert ended(simulate(node("a"), job, again)) == {"j": 70.0}


def test_replicas_come_again_and_never_end(simulate: Simulate) -> None:
    gone = noted(node("a", 2), leaves_at="5s")
    found = simulate(
        gone,
        noted(node("b", 1), arrives_at="1s"),
        controller("ReplicaSet", "web", replicas=2, runs="1s"),
        flags=("--until", "1h"),
    )
    assert placed(found) == [("web-0", 0), ("web-1", 0), ("web-2", 5)]
    assert found["waiting"][0]["name"] == "web-3"
    assert found["ended"] == []


def test_a_deployment_is_a_gang_if_it_says_so(simulate: Simulate) -> None:
    web = controller("Deployment", "web", 4, replicas=3)
    web["metadata"]["annotations"] = {OWNER_MIN: "3"}
    assert placed(simulate(node("a"), web)) == []
    assert len(placed(simulate(node("a"), node("b"), web))) == 3


def test_scaled_and_deleted(simulate: Simulate) -> None:
    web = controller("Deployment", "web", replicas=1)
    more = noted(controller("Deployment", "web", replicas=3), arrives_at="10s")
    less = noted(controller("Deployment", "web", replicas=0), arrives_at="20s", leaves_at="30s")
    late = pod("late", 3, at="15s", runs="10s")
    found = simulate(node("a", 3), web, more, less, late)
    assert placed(found) == [("web-0", 0), ("web-1", 10), ("web-2", 10), ("late", 20)]
    assert found["metrics"]["gpu_hours_used"] == pytest.approx(
        (20 + 2 * 10 + 3 * 10) / 3600, abs=1e-6
    )


def test_a_stateful_set_waits_for_each_of_its_pods(simulate: Simulate) -> None:
    """So a gang of it never comes together, here as there, unless it makes them all at once."""
    db = controller("StatefulSet", "db", replicas=3)
    assert placed(simulate(node("a"), db)) == [("db-0", 0), ("db-1", 0), ("db-2", 0)]
    db["metadata"]["annotations"] = {OWNER_MIN: "3"}
    [waits] = simulate(node("a"), db)["waiting"]
    assert waits["reason"] == "needs 3 pods to start, 1 exist"
    parallel = {**db, "spec": {**db["spec"], "podManagementPolicy": "Parallel"}}
    assert len(placed(simulate(node("a"), parallel))) == 3


def test_a_dump_of_a_cluster_is_taken_as_it_is(simulate: Simulate) -> None:
    """Pods that are there are their controllers'; nothing is made twice."""
    owner: Json = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"}
    web = controller("Deployment", "web", replicas=2)
    web["metadata"]["uid"] = "d"
    replicas = controller("ReplicaSet", "web-7d9", replicas=2)
    replicas["metadata"] |= {"uid": "r", "ownerReferences": [{**owner, "controller": True}]}
    mine = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d9", "uid": "r"}
    running = pod("web-7d9-xkq", 1, on="a")
    running["metadata"]["ownerReferences"] = [{**mine, "controller": True}]
    over = controller("Job", "over", completions=2)
    over["status"] = {"succeeded": 2, "conditions": [{"type": "Complete", "status": "True"}]}
    found = simulate(node("a"), web, replicas, running, over)
    assert placed(found) == [("web-7d9-0", 0)]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"replicas": "3"}, "ReplicaSet default/web: spec.replicas: '3' is not a whole number"),
        ({"template": {}}, "ReplicaSet default/web: spec.template.spec: missing"),
        (
            {"template": {"spec": {"containers": []}}},
            "ReplicaSet default/web: spec.template.spec.containers: not a list",
        ),
        (
            {"template": {"spec": {"containers": [{"name": "m"}], "priorityClassName": "x"}}},
            "ReplicaSet default/web: spec.template.spec.priorityClassName: no PriorityClass x",
        ),
    ],
)
def test_errors_name_the_controller(simulate: Simulate, change: Json, said: str) -> None:
    web = controller("ReplicaSet", "web")
    text = json.dumps({**web, "spec": {**web["spec"], **change}})
    assert simulate.text(text, code=2) == {}
    assert said in simulate.errors
