"""The component `tenants`: who names a queue needs the verb `use` on it. By every object that may name one."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import KUBE, ROOT
from tests.e2e.world import World, until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(300),
    pytest.mark.skipif(KUBE == "1.20", reason="ValidatingAdmissionPolicy is of Kubernetes 1.30"),
]
Json = dict[str, Any]
POLICY = ROOT / "daemonset/components/tenants/queue-use.yaml"
QUEUE = "scheduling.volcano.sh/queue-name"
USER = ("--as=alice", "--as-group=team-e2e")
GROUPS = ["", "apps", "batch", "scheduling.volcano.sh", "batch.volcano.sh", "flow.volcano.sh"]
ROLE = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "team-e2e"},
    "rules": [
        {"apiGroups": GROUPS, "resources": ["*"], "verbs": ["create", "get", "patch"]},
        {
            "apiGroups": ["scheduling.volcano.sh"],
            "resources": ["queues"],
            "resourceNames": ["mine"],
            "verbs": ["use"],
        },
    ],
}
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "team-e2e"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "team-e2e"},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "team-e2e"}],
}


def template(queue: str = "", restart: str = "Never") -> Json:
    annotations = {QUEUE: queue} if queue else {}
    containers = [{"name": "main", "image": "busybox:1.36"}]
    return {
        "metadata": {"annotations": annotations, "labels": {"app": "asks"}},
        "spec": {"restartPolicy": restart, "containers": containers},
    }


def job(queue: str = "", of_task: str = "") -> Json:
    tasks = [
        {"name": "plain", "replicas": 1, "template": template()},
        {"name": "named", "replicas": 1, "template": template(of_task)},
    ]
    return {"tasks": tasks, **({"queue": queue} if queue else {})}


def cron(spec: Json) -> Json:
    return {"schedule": "0 0 * * *", "jobTemplate": {"spec": spec}}


def naming(queue: str) -> dict[str, Json]:
    """Every way to name a queue: API version, kind, and the rest of the object."""
    batch, flow, group = (
        "batch.volcano.sh/v1alpha1",
        "flow.volcano.sh/v1alpha1",
        "scheduling.volcano.sh/v1beta1",
    )
    deployed = {"selector": {"matchLabels": {"app": "asks"}}}
    annotated = {"annotations": {QUEUE: queue}}
    ways = {
        "pod": ("v1", "Pod", {"spec": template()["spec"], "metadata": annotated}),
        "PodGroup": (group, "PodGroup", {"spec": {"minMember": 1, "queue": queue}}),
        "Job": (batch, "Job", {"spec": job(queue)}),
        "task": (batch, "Job", {"spec": job(of_task=queue)}),
        "CronJob": (batch, "CronJob", {"spec": cron(job(queue))}),
        "task of a CronJob": (batch, "CronJob", {"spec": cron(job(of_task=queue))}),
        "JobTemplate": (flow, "JobTemplate", {"spec": job(queue)}),
        "JobFlow": (flow, "JobFlow", {"spec": {"flows": [{"name": "a", "patch": {"jobSpec": {"queue": queue}}}]}}),
        "Deployment": ("apps/v1", "Deployment", {"spec": {**deployed, "template": template("", "Always")}, "metadata": annotated}),
        "pods of a Deployment": ("apps/v1", "Deployment", {"spec": {**deployed, "template": template(queue, "Always")}}),
        "batch Job": ("batch/v1", "Job", {"spec": {"template": template(queue)}}),
        "batch CronJob": ("batch/v1", "CronJob", {"spec": cron({"template": template(queue)})}),
    }  # fmt: skip
    return {
        way: {"apiVersion": version, "kind": kind, **rest, "metadata": {"name": "asks", **rest.get("metadata", {})}}
        for way, (version, kind, rest) in ways.items()
    }  # fmt: skip


@pytest.fixture(scope="module")
def policed(cluster: World) -> Iterator[World]:
    role = json.dumps({"apiVersion": "v1", "kind": "List", "items": [ROLE, BINDING]})
    cluster.kubectl("apply", "-f", "-", stdin=role)
    cluster.kubectl("apply", "-f", str(POLICY))
    until("the policy to be in force", lambda: not may(cluster, naming("theirs")["pod"]))
    yield cluster
    cluster.kubectl("delete", "-f", str(POLICY))
    cluster.kubectl("delete", "-f", "-", stdin=role)


def may(cluster: World, body: Json) -> bool:
    dry = ("create", "--dry-run=server", "-n", "default", "-f", "-")
    done = verbs.kubectl(*dry, *USER, stdin=json.dumps(body))
    assert not done.returncode or "you need the verb use on queues" in done.stderr, done.stderr
    return not done.returncode


@pytest.mark.parametrize("way", naming("mine"))
def test_naming_a_queue_needs_the_verb_use(policed: World, way: str) -> None:
    assert may(policed, naming("mine")[way])
    assert may(policed, naming("default")[way])
    assert not may(policed, naming("theirs")[way])
