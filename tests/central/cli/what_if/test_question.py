"""One question about a cluster, with and without the hardware that its agents reported."""

import argparse
import copy
import json
from typing import Any

import pytest

from central.cli.what_if import question, what_if_command
from central.cli.what_if.comparison import GangDifference, GangOutcome
from central.cli.what_if.live_cluster import LiveCluster
from central.cli.what_if.question import Answer, Change
from central.server import settings
from central.simulator import documents
from protos.topology_json import to_json
from tests.central.cli.what_if.test_what_if import node, pod
from tests.central.scheduler_process import topology

Json = dict[str, Any]
V1, GROUP = "v1", "scheduling.volcano.sh/v1beta1"


def flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    settings.add_scheduling_flags(parser)
    return parser.parse_args([])


def cluster() -> LiveCluster:
    """Two nodes; on the first one `old` runs."""
    objects: list[Json] = [
        {"apiVersion": V1, "kind": "Node", **node(name, "r1")} for name in ("n1", "n2")
    ]
    group = {"metadata": {"name": "old", "namespace": "default"}, "spec": {"minMember": 1}}
    objects.append({"apiVersion": GROUP, "kind": "PodGroup", **copy.deepcopy(group)})
    made = pod("old-0", "old", on="n1")
    made["metadata"]["namespace"] = "default"
    objects.append({"apiVersion": V1, "kind": "Pod", **made})
    return LiveCluster(objects, ("a note",))


def asked(change: Change, hardware: dict[str, Json]) -> Answer:
    return question.answer(cluster(), hardware, change, flags(), 60.0)


def test_the_hardware_counts_where_it_is_known() -> None:
    change = Change(drain=["n1"])
    without = asked(change, {})
    assert without.notes == ["a note", question.NO_HARDWARE]
    assert [(each.name, each.after.nodes) for each in without.gangs] == [("old", ("n2",))]
    assert without.running == {("default", "old")}
    few = {name: json.loads(json.dumps(to_json(name, topology(2)))) for name in ("n1", "n2")}
    known = asked(change, few)
    assert known.notes == ["a note"]
    [old] = known.gangs
    assert old.after.state == "waits", "each node has 2 GPUs, where 8 are needed"


def test_claims_of_volumes_keep_no_pod_from_its_place() -> None:
    """Claims are not read."""
    volumes = [{"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
               {"name": "b", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
               {"name": "c", "emptyDir": {}}]  # fmt: skip
    there = cluster()
    there.objects[-1]["spec"]["volumes"] = copy.deepcopy(volumes)
    inside = copy.deepcopy(there.objects[-1]["spec"])
    template = {"spec": {key: inside[key] for key in ("containers", "volumes")}}
    template["spec"]["containers"][0].pop("resources", None)
    job: Json = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job |= {"metadata": {"name": "new", "namespace": "default"}, "spec": {
        "schedulerName": "lockstep",
        "volumes": [{"mountPath": "/data", "volumeClaimName": "data"}],
        "tasks": [{"name": "w", "replicas": 1, "template": copy.deepcopy(template)}],
    }}  # fmt: skip
    replicas: Json = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    template["spec"]["schedulerName"] = "lockstep"
    replicas |= {"metadata": {"name": "set"}, "spec": {"replicas": 1, "template": template}}
    submit = [(documents.SourceLocation("f", at), each) for at, each in enumerate((job, replicas))]
    found = question.answer(there, {}, Change(drain=["n1"], submit=submit), flags(), 60.0)
    states = {each.name: (each.after.state, each.after.reason) for each in found.gangs}
    assert len(states) == 3
    assert {*states.values()} == {("starts", "")}, states
    assert [each["name"] for each in there.objects[-1]["spec"]["volumes"]] == ["c"]


@pytest.mark.parametrize("tasks", [5, "w", {"a": 1}, [5]])
def test_a_submitted_job_with_tasks_of_a_wrong_type_is_refused_in_words(tasks: Any) -> None:
    job: Json = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Job"}
    job |= {"metadata": {"name": "new", "namespace": "default"}, "spec": {"tasks": tasks}}
    submit = [(documents.SourceLocation("f", 0), job)]
    with pytest.raises(documents.BadInput, match=r"is not a list|wrong type"):
        question.answer(cluster(), {}, Change(submit=submit), flags(), 60.0)


@pytest.mark.parametrize("part", ["cordon", "drain", "queues", "without", "submit"])
def test_a_change_of_one_part_is_one(part: str) -> None:
    assert Change(**{part: ["x"]})  # type: ignore[arg-type]  # one of its sequences
    assert not Change()
    assert not Change(namespace="x")


def test_many_rows_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    most = what_if_command.MOST_ROWS
    rows = [GangDifference("ns", f"g{at}", GangOutcome(), GangOutcome()) for at in range(most + 3)]
    text = "\n".join(what_if_command._text(Answer(rows, [("x", 1, 2)], 60.0, set())))
    assert text.count("\n  now:") == most
    assert "\n... and 3 more; -o json prints all\n" in text
    whole = "\n".join(what_if_command._text(Answer(rows[:most], [("x", 1, 2)], 60.0, set())))
    assert "more" not in whole
    none = "\n".join(what_if_command._text(Answer([], [("x", 1, 2)], 60.0, set())))
    assert none.startswith("No gang starts, waits or is evicted differently within 60 s.")
