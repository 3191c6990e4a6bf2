"""The component `tenants`: who names a queue needs the verb `use` on it. By every object that may name one, on a real
API server. etcd and kube-apiserver alone."""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest

from protos.names import QUEUE_NAME
from tests.benchmarks import plane
from tests.central.custom_resources import definition
from tests.e2e.cluster.settings import ROOT, program
from tests.e2e.world import until
from tests.manifests import queue_policy
from tests.manifests.queue_places import MADE_FROM, READ

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
Json = dict[str, Any]
USER = ("--as=alice", "--as-group=team-e2e")
RULES = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["create", "get", "patch", "update"]},
    {
        "apiGroups": ["scheduling.volcano.sh"],
        "resources": ["queues"],
        "resourceNames": ["mine"],
        "verbs": ["use"],
    },
]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "team-e2e"},
    "rules": RULES,
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "team-e2e"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "team-e2e"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-e2e"}],
}
# Of other projects, whose definitions are not installed.
OTHERS = {
    "jobsets.jobset.x-k8s.io": ("v1alpha2", "JobSet"),
    "leaderworkersets.leaderworkerset.x-k8s.io": ("v1", "LeaderWorkerSet"),
    "rayclusters.ray.io": ("v1", "RayCluster"),
    "rayjobs.ray.io": ("v1", "RayJob"),
    "rayservices.ray.io": ("v1", "RayService"),
    "trainjobs.trainer.kubeflow.org": ("v1alpha1", "TrainJob"),
    "mpijobs.kubeflow.org": ("v2beta1", "MPIJob"),
    "pytorchjobs.kubeflow.org": ("v1", "PyTorchJob"),
    "tfjobs.kubeflow.org": ("v1", "TFJob"),
    "xgboostjobs.kubeflow.org": ("v1", "XGBoostJob"),
    "paddlejobs.kubeflow.org": ("v1", "PaddleJob"),
    "jaxjobs.kubeflow.org": ("v1", "JAXJob"),
}


def _template(restart: str = "Always") -> Json:
    containers = [{"name": "main", "image": "busybox:1.36"}]
    spec = {"restartPolicy": restart, "containers": containers}
    return {"metadata": {"labels": {"app": "asks"}}, "spec": spec}


_DEPLOYED: Json = {"selector": {"matchLabels": {"app": "asks"}}, "template": _template()}
_JOB: Json = {"tasks": [{"name": "w", "replicas": 1, "template": _template("Never")}]}
_CRON = {"schedule": "0 0 * * *"}
_BATCH, _FLOW = "batch.volcano.sh/v1alpha1", "flow.volcano.sh/v1alpha1"
VALID: dict[str, tuple[str, str, Json]] = {
    "pods": ("v1", "Pod", _template()["spec"]),
    "namespaces": ("v1", "Namespace", {}),
    "replicationcontrollers": ("v1", "ReplicationController", {"template": _template(), "selector": {"app": "asks"}}),
    "deployments.apps": ("apps/v1", "Deployment", _DEPLOYED),
    "daemonsets.apps": ("apps/v1", "DaemonSet", _DEPLOYED),
    "replicasets.apps": ("apps/v1", "ReplicaSet", _DEPLOYED),
    "statefulsets.apps": ("apps/v1", "StatefulSet", {**_DEPLOYED, "serviceName": "asks"}),
    "jobs.batch": ("batch/v1", "Job", {"template": _template("Never")}),
    "cronjobs.batch": ("batch/v1", "CronJob", {**_CRON, "jobTemplate": {"spec": {"template": _template("Never")}}}),
    "podgroups.scheduling.volcano.sh": ("scheduling.volcano.sh/v1beta1", "PodGroup", {"minMember": 1}),
    "podgroups.scheduling.k8s.io": ("", "PodGroup", {"schedulingPolicy": {"gang": {"minCount": 1}}}),
    "jobs.batch.volcano.sh": (_BATCH, "Job", _JOB),
    "cronjobs.batch.volcano.sh": (_BATCH, "CronJob", {**_CRON, "jobTemplate": {"spec": _JOB}}),
    "jobtemplates.flow.volcano.sh": (_FLOW, "JobTemplate", _JOB),
    "jobflows.flow.volcano.sh": (_FLOW, "JobFlow", {"flows": [{"name": "a", "patch": {"jobSpec": _JOB}}]}),
    **{
        kind: (f"{kind.partition('.')[2]}/{version}", word, {})
        for kind, (version, word) in OTHERS.items()
    },
}  # fmt: skip
WAYS = sorted(
    {(kind, place) for each in (READ, MADE_FROM) for kind in each for place in each[kind]}
)


def naming(queue: str, native: str) -> list[Json]:
    """An object for each way. native: the version of Kubernetes' own PodGroup."""
    found = []
    for number, (kind, place) in enumerate(WAYS):
        version, word, spec = VALID[kind]
        raw = {
            "apiVersion": version or native,
            "kind": word,
            "metadata": {},
            "spec": deepcopy(spec),
        }
        raw["metadata"] = {"name": f"asks-{number}", "labels": {"app": "asks"}}
        _put(raw, place, queue)
        found.append(raw)
    return found


def _put(raw: Any, place: str, queue: str) -> None:
    *steps, last = place.split(".")
    for step in steps:
        name = step.rstrip("[]{}")
        empty: Any = [{}] if step.endswith("[]") else {"Worker": {}} if step.endswith("{}") else {}
        raw = raw.setdefault(name, empty)
        raw = raw[0] if step.endswith("[]") else raw["Worker"] if step.endswith("{}") else raw
    if last != "queue":
        raw.setdefault(last, {}).setdefault("annotations", {})[QUEUE_NAME] = queue
    else:
        raw[last] = queue


class Policed:
    def __init__(self, api: plane.Plane) -> None:
        self._base = [str(program("kubectl")), f"--kubeconfig={api.kubeconfig}"]
        group = api.client.get("/apis/scheduling.k8s.io")["versions"]
        served = [each["groupVersion"] for each in group]
        self.native = next(each for each in served if self._has_groups(api, each))

    @staticmethod
    def _has_groups(api: plane.Plane, version: str) -> bool:
        found = api.client.get(f"/apis/{version}")["resources"]
        return any(each["name"] == "podgroups" for each in found)

    def __call__(self, *argv: str, stdin: Any = None) -> subprocess.CompletedProcess[str]:
        home = {"PATH": os.environ["PATH"], "HOME": "/tmp"}
        text = json.dumps(stdin) if stdin is not None else ""
        return subprocess.run(
            [*self._base, *argv], input=text, capture_output=True, text=True, env=home
        )

    def done(self, *argv: str, stdin: Any = None) -> str:
        found = self(*argv, stdin=stdin)
        assert not found.returncode, found.stderr
        return found.stdout

    def refused(self, objects: list[Json], *more: str) -> set[str]:
        """The names of those that alice may not create, because of their queues."""
        listing = {"apiVersion": "v1", "kind": "List", "items": objects}
        said = self("create", "--dry-run=server", "-f", "-", *USER, *more, stdin=listing).stderr
        errors = [line for line in said.splitlines() if line]
        assert all("you need the verb use on queues" in line for line in errors), said
        return {name for line in errors for name in re.findall(r'"(asks-\d+)" is', line)}

    def ways(self, queue: str) -> list[Json]:
        return naming(queue, self.native)


@pytest.fixture(scope="module")
def policed() -> Iterator[Policed]:
    flags = ("--runtime-config=api/all=true", "--feature-gates=GenericWorkload=true")
    with plane.running("--authorization-mode=RBAC", *flags) as api:
        found = Policed(api)
        found.done("apply", "-f", str(ROOT / "daemonset/crds"))
        items: list[Json] = [ROLE, BINDING]
        for kind, (version, word) in OTHERS.items():
            items.append(definition(kind.partition(".")[2], version, word))
        found.done("apply", "-f", "-", stdin={"apiVersion": "v1", "kind": "List", "items": items})
        found.done("wait", "--for=condition=Established", "crd", "--all")
        found.done("create", "namespace", "given")
        found.done("annotate", "namespace", "given", f"{QUEUE_NAME}=theirs")
        found.done("apply", "-f", str(queue_policy.FILE))
        pod = next(raw for raw in found.ways("theirs") if raw["kind"] == "Pod")
        until("the policy to be in force", lambda: bool(found.refused([pod])))
        yield found


def test_naming_a_queue_needs_the_verb_use(policed: Policed) -> None:
    every = {raw["metadata"]["name"]: way for raw, way in zip(policed.ways(""), WAYS, strict=True)}
    refused = policed.refused(policed.ways("theirs"))
    assert not [way for name, way in every.items() if name not in refused]


@pytest.mark.parametrize("queue", ["mine", "default"])
def test_other_queues_may_be_named(policed: Policed, queue: str) -> None:
    assert policed.refused(policed.ways(queue)) == set()


def test_the_queue_of_the_namespace_is_everybodys_there(policed: Policed) -> None:
    inside = [raw for raw in policed.ways("theirs") if raw["kind"] != "Namespace"]
    assert policed.refused(inside, "-n", "given") == set()
    others = [raw for raw in policed.ways("other") if raw["kind"] != "Namespace"]
    assert len(policed.refused(others, "-n", "given")) == len(others)


def test_who_changes_an_object_keeps_its_queue(policed: Policed) -> None:
    names = []
    for raw, (kind, place) in zip(policed.ways("theirs"), WAYS, strict=True):
        if kind in ("deployments.apps", "jobsets.jobset.x-k8s.io", "namespaces"):
            policed.done("create", "-f", "-", stdin=raw)
            names.append((kind, raw["metadata"]["name"], place))
    for kind, name, _ in names:
        policed.done("label", kind, name, "a=b", *USER)
        policed.done("annotate", kind, name, f"{QUEUE_NAME}=mine", "--overwrite", *USER)
        said = policed("annotate", kind, name, f"{QUEUE_NAME}=other", "--overwrite", *USER).stderr
        assert "you need the verb use" in said


def test_a_status_is_no_way_around(policed: Policed) -> None:
    raw = next(raw for raw in policed.ways("") if raw["kind"] == "Pod")
    policed.done("create", "-f", "-", stdin=raw)
    change = json.dumps({"metadata": {"annotations": {QUEUE_NAME: "theirs"}}})
    name = raw["metadata"]["name"]
    patch = ("patch", "pod", name, "--subresource=status", "--type=merge", "-p", change)
    assert "you need the verb use" in policed(*patch, *USER).stderr
    policed.done(*patch, "--as=system:node:n", "--as-group=system:nodes", "--as-group=team-e2e")


def test_many_templates_cost_no_more_than_one(policed: Policed) -> None:
    """Each question to the authorizer takes a part of the policy's budget."""
    raw = next(
        raw for raw, way in zip(policed.ways("mine"), WAYS, strict=True)
        if way == ("jobs.batch.volcano.sh", "spec.tasks[].template.metadata")
    )  # fmt: skip
    [task] = raw["spec"]["tasks"]
    raw["spec"]["tasks"] = [{**task, "name": f"w{number}"} for number in range(60)]
    assert policed.refused([raw]) == set()
