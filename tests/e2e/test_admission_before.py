"""Rules, and objects that were there before them, on a real API server: labels, status, deletion and changes of other
fields pass, whatever the object says; a change of what a rule reads must obey it. etcd and kube-apiserver alone."""

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson
import pytest

from central.kube.resource_paths import BY_GROUP_KIND, ResourcePath
from central.kube.transport.http_client import MERGE, Client, Reply
from tests.benchmarks import plane
from tests.e2e.admission_cases import (
    ANY,
    BATCH,
    BY_POLICIES,
    BY_THE_CRDS,
    FAILED,
    MOUNT,
    SCHEDULING,
    TOPOLOGY,
    Case,
    Json,
    asking,
    flow,
    hypernode,
    job,
    of,
    policy,
    queue,
    queue_at,
    task,
)
from tests.e2e.world import until
from tests.manifests.manifests import shipped, with_components

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
APPLY = "application/apply-patch+yaml"
POLICIES = "admissionregistration.k8s.io"
INSTALLED = {
    "CustomResourceDefinition": ("apiextensions.k8s.io", "customresourcedefinitions"),
    "ValidatingAdmissionPolicy": (POLICIES, "validatingadmissionpolicies"),
    "ValidatingAdmissionPolicyBinding": (POLICIES, "validatingadmissionpolicybindings"),
}


def bare(version: str, kind: str) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "a"}}


# What the definitions of an older version, or of Volcano, let through besides.
BY_THE_SCHEMA: list[Case] = [
    *(
        (f"{kind} without a spec", bare(version, kind), "spec is missing")
        for version, kind in (
            *((BATCH, "Job"), (BATCH, "CronJob"), (TOPOLOGY, "HyperNode")),
            *(("flow.volcano.sh/v1alpha1", kind) for kind in ("JobFlow", "JobTemplate")),
        )
    ),
    ("no tasks", of(BATCH, "Job", "a", {}), "spec.tasks: Required value"),
    ("a Queue's weight", queue("a", weight=0), "spec.weight"),
    ("a Queue's amount", queue("a", capability={"cpu": "lots"}), "spec.capability.cpu"),
    ("a code that is none", job("a", policies=[policy(exitCode=0)]), "exitCode"),
    ("a code and an event", job("a", policies=[policy(exitCode=3, **FAILED)]), "(oneOf)"),
    (
        "two tiers",
        job("a", networkTopology={"highestTierAllowed": 1, "highestTierName": "b"}),
        "must not validate the schema (not)",
    ),
    (
        "a member without a selector",
        of(TOPOLOGY, "HyperNode", "a", {"tier": 1, "members": [{"type": "Node"}]}),
        "spec.members[0].selector",
    ),
]
BY_TWO_OBJECTS: list[Case] = [
    ("a queue's parent", queue("a", parent="a-below"), "which is below"),
    ("an inner queue", of(SCHEDULING, "PodGroup", "a", {"queue": "a"}), "has queues below it"),
]
BY_TENANTS: list[Case] = [
    (
        "a class of the system",
        of(SCHEDULING, "PodGroup", "a", {"priorityClassName": "lockstep-critical"}),
        "is for the namespace lockstep-system only",
    )
]
CASES = {
    case[0]: case
    for case in BY_THE_CRDS + BY_POLICIES + BY_THE_SCHEMA + BY_TWO_OBJECTS + BY_TENANTS
}
BESIDE = {
    "a queue's parent": [queue("a-below", parent="a"), queue("a-below-too", parent="a")],
    "an inner queue": [
        *(queue("a"), queue("a-below", parent="a")),
        *(queue("a-below-too"), queue("a-below-that", parent="a-below-too")),
    ],
}
# Rules that any change of the spec brings into force: sizes, and what no schema allows.
WHOLE_SPEC = {"minimum", "task minimum", "of a CronJob", *(case[0] for case in BY_THE_SCHEMA)}
UNREAD = {  # a field that no rule reads
    "Job": {"priorityClassName": "other"},
    "Queue": {"weight": 2},
    "HyperNode": {"tier": 2},
    "JobFlow": {"jobRetainPolicy": "delete"},
    "PodGroup": {"minMember": 2},
}


def spec(raw: Json) -> Json:
    """A patch to the spec and the annotations of this object."""
    found = {"spec": raw["spec"]}
    notes = raw["metadata"]["annotations"]
    return {**found, "metadata": {"annotations": notes}} if notes else found


STILL_WRONG: dict[str, Json] = {
    "plugin": {"spec": {"plugins": {"another": []}}},
    "events": {"spec": {"policies": [policy(**FAILED)] * 3}},
    "guarantee": {"spec": {"guarantee": {"resource": {"pods": 1}}}},
    "mounts": {"spec": {"volumes": [MOUNT] * 3}},
    "events of a task": spec(job("a", task("w", policies=[policy(**FAILED)] * 3))),
    "codes of a task": spec(job("a", task("w", policies=[policy(exitCode=4)] * 2))),
    "every event of a task": spec(
        job("a", task("w", policies=[policy(**FAILED), policy(**ANY), policy(exitCode=3)]))
    ),
    "depends on nothing": spec(job("a", task("w", dependsOn={"name": ["y"]}))),
    "depends on itself": spec(job("a", task("w", dependsOn={"name": ["w", "w"]}))),
    "quantity": spec(job("a", {**task("w"), **asking(cpu="many")})),
    "below zero": spec(job("a", {**task("w"), **asking(cpu="-2")})),
    "guarantee alone": {"spec": {"guarantee": {"resource": {"cpu": 2}}}},
    "deserved below": {"spec": {"deserved": {"cpu": "1400m"}}},
    "capability below": {"spec": {"capability": {"memory": "1Mi"}}},
    "pattern": spec(hypernode("a", "Node", regexMatch={"pattern": "b("})),
    "name": spec(hypernode("a", "Node", exactMatch={"name": "B_1"})),
    "labels": spec(hypernode("a", "HyperNode", labelMatch={"matchLabels": {"b": "c"}})),
    "no such flow": spec(flow("a", {"name": "x", "dependsOn": {"targets": ["z"]}})),
    "own flow": spec(flow("a", {"name": "x", "dependsOn": {"targets": ["x", "x"]}})),
    "hierarchy": spec(queue_at("a//c")),
    "weights": spec(queue_at("root/a", "1/2/3/4")),
    "weight": spec(queue_at("root/a", "1/y")),
    "a queue's parent": {"spec": {"parent": "a-below-too"}},
    "an inner queue": {"spec": {"queue": "a-below-too"}},
}


@dataclass
class Before:
    """An API server with objects that were there before the rules."""

    client: Client
    names: dict[str, str] = field(default_factory=dict)  # of the objects, by case

    def send(self, method: str, path: str, body: Json | None = None, kind: str = MERGE) -> Reply:
        content = None if body is None else orjson.dumps(body)
        return self.client.request(method, path, content, kind)

    def path(self, case: str) -> str:
        return f"{folder(CASES[case.partition(',')[0]][1])}/{self.names[case]}"

    def change(self, case: str, patch: Json, part: str = "") -> str:
        """What was said of a patch that was refused; empty: it was not."""
        return said(self.send("PATCH", self.path(case) + part, named(patch, self.names[case])))

    def is_refused(self, case: str) -> bool:
        """Whether a new object like this is refused for what its case says."""
        _, raw, told = CASES[case]
        path = f"{folder(raw)}?dryRun=All"
        return told in said(
            self.send("POST", path, named(raw, self.names[case]), "application/json")
        )

    def is_served(self, path: str) -> bool:
        return self.send("GET", path).ok

    def create(self, raw: Json) -> None:
        reply = self.send("POST", folder(raw), raw, "application/json")
        assert reply.ok, reply.body

    def install(self, raw: Json) -> None:
        group, plural = INSTALLED[raw["kind"]]
        path = f"/apis/{group}/v1/{plural}/{raw['metadata']['name']}"
        reply = self.send("PATCH", f"{path}?fieldManager=test&force=true", raw, APPLY)
        assert reply.ok, reply.body


def said(reply: Reply) -> str:
    return "" if reply.ok else str(reply.json()["message"])


def folder(raw: Json) -> str:
    place: ResourcePath = BY_GROUP_KIND[raw["apiVersion"].rpartition("/")[0], raw["kind"]]
    return place.path("default" if place.namespaced else "")


def named(raw: Json, name: str) -> Json:
    """With another name, also where it names itself and those beside it."""
    made: Json = json.loads(re.sub(r'"a(-below[-a-z]*)?"', rf'"{name}\1"', json.dumps(raw)))
    return made


def without_rules(definition: Json) -> Json:
    """The kind, with any spec and status."""
    made = copy.deepcopy(definition)
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    for version in made["spec"]["versions"]:
        schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
        version["schema"] = {"openAPIV3Schema": schema}
    return made


@pytest.fixture(scope="module")
def before() -> Iterator[Before]:
    definitions = [each for each in shipped() if each["kind"] == "CustomResourceDefinition"]
    chosen = with_components("admission", "tenants")
    policies: list[Any] = [d for d in chosen if d["kind"].startswith("Validating")]
    with plane.running() as api:
        made = Before(api.client)
        for each in definitions:
            made.install(without_rules(each))
        for at in {folder(raw) for _, raw, _ in CASES.values()}:
            until("the kind to be served", partial(made.is_served, at))
        for number, (case, raw, _) in enumerate(CASES.values()):
            for also in ("", ", deleted"):
                name = raw["metadata"]["name"].replace("a", f"n{number}{also[2:]}")
                if name not in made.names.values():  # there is one root
                    for each in (raw, *BESIDE.get(case, ())):
                        made.create(named(with_finalizer(each), name))
                made.names[case + also] = name
        for each in (*definitions, *policies):
            made.install(each)
        for case in CASES:
            until(f"the rule of {case}", partial(made.is_refused, case))
        yield made


def with_finalizer(raw: Json) -> Json:
    return {**raw, "metadata": {**raw["metadata"], "finalizers": ["example.com/kept"]}}


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_does_not_change_is_not_refused(before: Before, case: str) -> None:
    raw = CASES[case][1]
    labels = {"labels": {"team": "b"}, "annotations": {"example.com/note": "b"}}
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "d"}
    for metadata in (labels, {"ownerReferences": [owner]}):
        assert not before.change(case, {"metadata": metadata})
    assert not before.change(case, {"status": {}}, "/status")
    if case not in WHOLE_SPEC and raw["kind"] in UNREAD:
        assert not before.change(case, {"spec": UNREAD[raw["kind"]]})
    listed = raw.get("spec", {}).get("tasks", ())
    if case not in WHOLE_SPEC | {"partitions"} and len(listed) == 1:
        assert not before.change(case, {"spec": {"tasks": [{**listed[0], "replicas": 3}]}})


@pytest.mark.parametrize("case", sorted(STILL_WRONG))
def test_a_change_must_obey_the_rules_that_read_it(before: Before, case: str) -> None:
    assert CASES[case][2] in before.change(case, STILL_WRONG[case])


@pytest.mark.parametrize("case", sorted(CASES))
def test_what_was_there_before_can_be_deleted(before: Before, case: str) -> None:
    """With a finalizer, whose removal is a change, too: it is not Terminating for ever."""
    path = before.path(doomed := f"{case}, deleted")
    assert not said(before.send("DELETE", path))
    assert before.send("GET", path).json()["metadata"]["deletionTimestamp"]
    assert not before.change(doomed, {"metadata": {"finalizers": None}})
    assert before.send("GET", path).status == 404
