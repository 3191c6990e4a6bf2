"""Objects of controllers whose pods are a gang: well-known ones, and those of a file of declarations."""

from typing import Any

import pytest

from central.kube.decode.decoder import Decoder
from central.kube.decode.fields import FieldError
from central.kube.decode.gang_rules import GangRule, read_declarations
from central.model.facts import GangSeen
from central.model.json_types import Json
from protos import names
from tests.central.kube import controller_fixtures as made
from tests.central.kube.raw_objects import LEVELS


def decoder(*rules: GangRule) -> Decoder:
    return Decoder(("lockstep",), LEVELS, rules=rules)


def seen(raw: Json) -> GangSeen:
    reader = decoder()
    [rule] = [one for one in reader.rules if one.resource.kind == raw["kind"]]
    return reader.controllers_gang(rule, raw)


@pytest.mark.parametrize("kind", made.PLAYED)
def test_pods_and_their_object_name_the_same_gang(kind: str) -> None:
    played = made.PLAYED[kind]
    found, pods = seen(played.object), [decoder().pod(raw) for raw in played.pods]
    assert {pod.gang for pod in pods} == {played.gang}
    assert found.name == played.gang.removesuffix("/0")
    assert (found.min_member, found.error, found.declared) == (played.start, "", True)
    for task, least in found.task_min:
        assert sum(pod.task == task for pod in pods) >= least


@pytest.mark.parametrize(
    ("raw", "tasks"),
    [
        (made.jobset(), {"driver": 1, "workers": 4}),
        (made.jobset(spec={"startupPolicy": {"startupPolicyOrder": "InOrder"}}), {"driver": 1}),
        (made.raycluster(), {"headgroup": 1, "cpu": 8, "gpu": 1}),
        (made.raycluster(enableInTreeAutoscaling=True), {"headgroup": 1, "cpu": 2, "gpu": 1}),
        (
            made.raycluster(workerGroupSpecs=[{"groupName": "a", "replicas": 2, "numOfHosts": 4}]),
            {"headgroup": 1, "a": 8},
        ),
        (made.raycluster(workerGroupSpecs=[{"groupName": "a", "suspend": True}]), {"headgroup": 1}),
        (made.pytorchjob(), {"master": 1, "worker": 2}),
        (made.pytorchjob(elasticPolicy={"minReplicas": 1}), {"master": 1, "worker": 1}),
        (made.mpijob(), {"launcher": 1, "worker": 2}),
        (made.mpijob("WaitForWorkersReady"), {"worker": 2}),
    ],
)
def test_minima_by_role(raw: Json, tasks: dict[str, int]) -> None:
    found = seen(raw)
    assert (dict(found.task_min), found.min_member) == (tasks, sum(tasks.values()))


def test_a_job_that_waits_for_another_is_not_part_of_the_minimum() -> None:
    raw = made.jobset()
    raw["spec"]["replicatedJobs"][1]["dependsOn"] = [{"name": "driver", "status": "Ready"}]
    assert seen(raw).task_min == (("driver", 1),)


def test_the_minimum_of_a_scheduling_policy_is_one_of_all_roles() -> None:
    found = seen(made.pytorchjob(runPolicy={"schedulingPolicy": {"minAvailable": 2}}))
    assert (found.min_member, found.task_min) == (2, ())


@pytest.mark.parametrize(
    "raw",
    [
        made.leaderworkerset(4, "LeaderReady"),
        made.leaderworkerset(
            4, annotations={"leaderworkerset.sigs.k8s.io/exclusive-topology": "example.com/pool"}
        ),
    ],
)
def test_workers_that_are_created_after_their_leader_do_not_hold_it_up(raw: Json) -> None:
    assert seen(raw).min_member == 1
    assert seen(made.leaderworkerset(4)).min_member == 4


def test_annotations_of_the_object() -> None:
    found = seen(
        made.jobset(annotations={names.TOPOLOGY_REQUIRED: names.RACK, names.QUEUE_NAME: "research"})
    )
    assert (found.topology_required, found.queue) == (names.RACK, "research")


@pytest.mark.parametrize(
    ("spec", "error"),
    [
        ({"replicatedJobs": "x"}, "spec.replicatedJobs: 'x' is not a list"),
        (
            {"replicatedJobs": [{"name": "a", "replicas": -1, "template": {}}]},
            "spec.replicatedJobs[0].replicas: -1 is not a whole number from 0",
        ),
        (
            {"replicatedJobs": [{"name": "a", "replicas": 50_000, "template": {"spec": {"parallelism": 3}}}]},
            "JobSet: 150000 pods start together; at most 100000 are accepted",
        ),
        ({"replicatedJobs": [7]}, "spec.replicatedJobs: its value has the wrong type"),
    ],
)  # fmt: skip
def test_errors_name_the_field(spec: Json, error: str) -> None:
    found = seen(made.jobset(spec=spec))
    assert found.error.startswith(error)
    assert found.min_member <= 100_000


def test_labels_alone_do_not_make_a_pod_a_member() -> None:
    stranger = made.pytorch_pods()[0]
    stranger["metadata"]["ownerReferences"][0]["kind"] = "ReplicaSet"
    assert decoder().pod(stranger).gang == ""
    del stranger["metadata"]["ownerReferences"]
    assert decoder().pod(stranger).gang == ""


def test_a_minimum_on_the_pod_goes_first() -> None:
    one = made.ray_pods()[0]
    one["metadata"]["annotations"][names.GANG_MIN] = "2"
    found = decoder().pod(one)
    assert (found.gang, found.gang_min, found.owner_name) == ("", 2, "raycluster/tune")


# --- declarations ------------------------------------------------------------

DECLARED: Json = {
    "apiVersion": "example.com/v1",
    "kind": "TrainRun",
    "labels": ["example.com/run"],
    "role": "example.com/role",
    "roles": {"path": "spec.groups", "name": "name", "count": "size"},
}


def rule(**changes: Any) -> GangRule:
    wanted = {key: value for key, value in {**DECLARED, **changes}.items() if value is not None}
    [found] = read_declarations({"podGroups": [wanted]})
    return found


def declared(one: GangRule, spec: Json) -> GangSeen:
    meta = {"namespace": "ml", "name": "run-1", "uid": "u"}
    return decoder(one).controllers_gang(one, {"metadata": meta, "spec": spec})


def test_a_declaration_with_a_list_of_roles() -> None:
    one = rule()
    assert one.resource.path("ml") == "/apis/example.com/v1/namespaces/ml/trainruns"
    found = declared(one, {"groups": [{"name": "a", "size": 3}, {"name": "b"}]})
    assert (found.name, found.min_member) == ("trainrun/run-1", 4)
    assert found.task_min == (("a", 3), ("b", 1))
    labels = {"example.com/run": "run-1", "example.com/role": "a"}
    member = decoder(one).pod(made.pod("x", ("TrainRun", "run-1"), labels))
    assert (member.gang, member.task) == ("trainrun/run-1", "a")


def test_a_declaration_with_a_map_of_roles() -> None:
    one = rule(roles={"path": "spec.parts", "count": "n"})
    assert declared(one, {"parts": {"ps": {"n": 2}, "w": {"n": 4}}}).task_min == (
        ("ps", 2),
        ("w", 4),
    )
    assert declared(one, {}).min_member == 1
    assert declared(one, {"parts": [1]}).error.startswith("spec.parts: not a map")


@pytest.mark.parametrize(
    ("minimum", "spec", "least"),
    [(3, {}, 3), ("spec.gang.least", {"gang": {"least": 5}}, 5), ("spec.least", {}, 1)],
)
def test_a_declaration_with_one_minimum(minimum: object, spec: Json, least: int) -> None:
    found = declared(rule(roles=None, minimum=minimum), spec)
    assert (found.min_member, found.task_min, found.error) == (least, (), "")


def test_a_declaration_of_replicas() -> None:
    one = rule(labels=["example.com/run", "example.com/copy"], plural="runs", roles=None, minimum=2)
    assert declared(one, {}).each_replica
    labels = {"example.com/run": "run-1", "example.com/copy": "7"}
    member = decoder(one).pod(made.pod("x", ("Anything", "y"), labels))
    assert member.gang == "trainrun/run-1/7"
    assert one.resource.plural == "runs"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"kind": None}, "podGroups[0].kind: missing"),
        ({"labels": []}, "podGroups[0].labels: one or two label keys"),
        ({"labels": ["a", "b", "c"]}, "podGroups[0].labels: 3 entries; at most 2"),
        ({"minimum": 2}, "podGroups[0]: exactly one of minimum and roles"),
        ({"roles": None}, "podGroups[0]: exactly one of minimum and roles"),
        ({"roles": None, "minimum": 0}, "podGroups[0].minimum: 0 is not a whole number from 1"),
        ({"roles": None, "minimum": [1]}, "podGroups[0].minimum: [1 entries] is neither"),
        ({"roles": {"path": "spec.x"}}, "podGroups[0].roles.count: missing"),
        ({"roles": {"path": "a", "count": "b", "sum": 1}}, "podGroups[0].roles: unknown field sum"),
        ({"labels": "x"}, "podGroups[0].labels: 'x' is not a list"),
        ({"minimums": 2}, "podGroups[0]: unknown field minimums; known: apiVersion,"),
    ],
)
def test_a_wrong_declaration(changes: Json, error: str) -> None:
    with pytest.raises(FieldError) as raised:
        rule(**changes)
    assert str(raised.value).startswith(error)


@pytest.mark.parametrize("raw", [None, [], "x", {"podgroups": []}, {"podGroups": [1]}])
def test_a_file_that_declares_nothing(raw: object) -> None:
    with pytest.raises(FieldError, match=r"podGroups|podgroups"):
        read_declarations(raw)


def test_values_at_a_path_that_are_of_another_kind() -> None:
    one = rule(roles=None, minimum="spec.gang.least")
    assert declared(one, {"gang": 3}).error == "spec.gang: 3 is not an object"
    assert declared(one, {"gang": {"least": "x"}}).error.startswith("spec.gang.least: 'x'")
