"""The component `users`: the API server writes who creates a pod or a Job, and nobody changes that."""

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
    pytest.mark.skipif(KUBE == "1.35", reason="MutatingAdmissionPolicy is of Kubernetes 1.36"),
]
Json = dict[str, Any]
POLICY = ROOT / "daemonset/chart/files/users/users.yaml"
USER = "lockstep.dev/user"
CENTRAL = "system:serviceaccount:lockstep-system:lockstep-central"
ROLE = "cluster-admin"  # of everybody here: what a user may do is not what this is about
PEOPLE = ("alice", "bob")
BINDING = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRoleBinding",
    "metadata": {"name": "users-e2e"},
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": ROLE},
    "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "users-e2e"}],
}


def body(kind: str, forged: str = "") -> Json:
    meta: Json = {"name": "whose", **({"annotations": {USER: forged}} if forged else {})}
    containers = [{"name": "main", "image": "busybox:1.36"}]
    pod = {"schedulerName": "nobody", "restartPolicy": "Never", "containers": containers}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": kind, "metadata": meta, "spec": pod}
    tasks = [{"name": "w", "replicas": 1, "template": {"spec": pod}}]
    version = "batch.volcano.sh/v1alpha1"
    spec = {"schedulerName": "nobody", "minAvailable": 1, "tasks": tasks}
    return {"apiVersion": version, "kind": kind, "metadata": meta, "spec": spec}


def as_user(*words: str, user: str, stdin: Json | None = None) -> tuple[int, str, str]:
    who = (f"--as={user}", "--as-group=users-e2e")
    text = json.dumps(stdin) if stdin is not None else ""
    done = verbs.kubectl(*words, "-n", "default", *who, stdin=text)
    return done.returncode, done.stdout, done.stderr


def created(kind: str, user: str, forged: str = "") -> str:
    """The user of what is created, without creating it."""
    dry = ("create", "--dry-run=server", "-o", "json", "-f", "-")
    code, text, errors = as_user(*dry, user=user, stdin=body(kind, forged))
    assert not code, errors
    return str((json.loads(text)["metadata"].get("annotations") or {}).get(USER, ""))


def _in_force() -> bool:
    """The one that refuses may be there before the one that writes, and then refuses everything."""
    try:
        return [created(kind, "alice", "bob") for kind in ("Pod", "Job")] == ["alice", "alice"]
    except AssertionError:
        return False


def _gone() -> bool:
    """The policy that refuses may outlive the one that writes, and then refuses the pods of other tests."""
    try:
        return not any(created(kind, "alice") for kind in ("Pod", "Job"))
    except AssertionError:
        return False


@pytest.fixture(scope="module")
def policed(cluster: World) -> Iterator[World]:
    role = json.dumps(BINDING)
    cluster.kubectl("apply", "-f", "-", stdin=role)
    cluster.kubectl("apply", "-f", str(POLICY))
    until("both policies to be in force", _in_force)
    yield cluster
    cluster.kubectl("delete", "-f", str(POLICY))
    until("both policies to be gone", _gone)
    cluster.kubectl("delete", "-f", "-", stdin=role)


@pytest.mark.parametrize("forged", ["", "bob"])
@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_people_are_named_whatever_they_write(policed: World, kind: str, forged: str) -> None:
    assert [created(kind, user, forged) for user in PEOPLE] == list(PEOPLE)


@pytest.mark.parametrize("forged", ["", "bob"])
def test_service_accounts_name_nobody(policed: World, forged: str) -> None:
    account = "system:serviceaccount:default:trainer"
    assert [created(kind, account, forged) for kind in ("Pod", "Job")] == ["", ""]


def test_the_job_controller_names_the_users_of_jobs_for_their_pods_only(policed: World) -> None:
    assert created("Pod", CENTRAL, "alice") == "alice"
    assert created("Job", CENTRAL, "alice") == ""


@pytest.mark.parametrize("kind", ["pod", "jobs.batch.volcano.sh"])
def test_nobody_changes_it(policed: World, kind: str) -> None:
    shape = body("Pod" if kind == "pod" else "Job")
    code, _, errors = as_user("create", "-f", "-", user="alice", stdin=shape)
    assert not code, errors
    try:
        for change in (f"{USER}=bob", f"{USER}-"):
            for user in (*PEOPLE, CENTRAL):
                words = ("annotate", "--overwrite", kind, "whose", change)
                code, _, errors = as_user(*words, user=user)
                assert code, f"{user} changes it by {change}"
                assert "is written by the API server" in errors
        code, _, errors = as_user("annotate", kind, "whose", "other=x", user="bob")
        assert not code, errors
    finally:
        policed.kubectl("delete", "--wait=false", kind, "whose", "-n", "default")
