"""What a real API server refuses at `kubectl apply`, with a sentence that names the field, and what it writes into
new objects: the rules of the CRDs, and the components admission and defaults. etcd and kube-apiserver alone."""

import json
import os
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.benchmarks import plane
from tests.benchmarks.plane import Plane
from tests.e2e.admission_cases import (
    BATCH,
    BY_POLICIES,
    BY_THE_CRDS,
    JDB,
    SCHEDULING,
    TEMPLATE,
    Json,
    asking,
    flow,
    job,
    of,
    queue,
    task,
)
from tests.e2e.cluster.settings import KUBE, ROOT, program
from tests.e2e.world import until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


SERVES_MUTATION = KUBE != "1.35"  # MutatingAdmissionPolicy is of Kubernetes 1.36


class Kubectl:
    def __init__(self, api: Plane) -> None:
        self._base = [str(program("kubectl")), f"--kubeconfig={api.kubeconfig}"]

    def __call__(self, *argv: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        home = {"PATH": os.environ["PATH"], "HOME": "/tmp"}
        return subprocess.run(
            [*self._base, *argv], input=stdin, capture_output=True, text=True, env=home
        )

    def apply(self, *objects: Json, dry: bool = True) -> str:
        """What was said of what was refused; empty: nothing was."""
        listing = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        flags = ["--dry-run=server"] if dry else []
        done = self("apply", *flags, "-f", "-", stdin=json.dumps(listing))
        return done.stderr if done.returncode else ""

    def read(self, kind: str, name: str, namespace: str = "default") -> Any:
        return json.loads(self("get", kind, name, "-n", namespace, "-o", "json").stdout)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with plane.running() as api:
        found = Kubectl(api)
        until("the namespace", lambda: not found("get", "namespace", "default").returncode)
        _install(found, tmp_path_factory.mktemp("manifests"))
        yield found


def _install(kubectl: Kubectl, folder: Path) -> None:
    """As people do. Policies take a moment to come into force."""
    chosen = ["admission", *(["defaults"] if SERVES_MUTATION else [])]
    path = Path(os.path.relpath(ROOT / "daemonset", folder))
    components = [str(path / "components" / name) for name in chosen]
    content = {"resources": [str(path)], "components": components}
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))
    done = kubectl("apply", "-k", str(folder))
    assert not done.returncode, done.stderr
    assert "warning" not in done.stderr.lower()
    listed = kubectl("get", "crds", "-o", "jsonpath={.items[*].metadata.name}")
    # A new kind is refused for seconds, for longer on a busy machine; and what MutatingAdmissionPolicies change
    # is refused until their own, later reading of the kinds.
    for kind in listed.stdout.split():
        until(f"the kind {kind}", partial(_served, kubectl, kind), 120)
    group = of(SCHEDULING, "PodGroup", "g", {"minMember": 1})
    for one in (job("a"), group):
        until(f"a {one['kind']} to be accepted", partial(_accepted, kubectl, one), 120)
    bad = flow("a", {"name": "x", "dependsOn": {"targets": ["y"]}})
    until("the policies", lambda: "does not exist" in kubectl.apply(bad), 120)


def _served(kubectl: Kubectl, kind: str) -> bool:
    return not kubectl("get", kind, "-A").returncode


def _accepted(kubectl: Kubectl, one: Json) -> bool:
    return not kubectl.apply(one)


@pytest.mark.parametrize(("raw", "told"), [case[1:] for case in BY_THE_CRDS])
def test_the_crds_refuse(kubectl: Kubectl, raw: Json, told: str) -> None:
    assert told in kubectl.apply(raw)


@pytest.mark.parametrize(("raw", "told"), [case[1:] for case in BY_POLICIES])
def test_policies_refuse(kubectl: Kubectl, raw: Json, told: str) -> None:
    assert told in kubectl.apply(raw)


def test_what_changes_later_is_refused(kubectl: Kubectl) -> None:
    one = job("later", task("a"), task("b"))
    assert not kubectl.apply(one, dry=False)
    moved = job("later", task("a"), task("b"), queue="other")
    assert "spec.queue cannot be changed" in kubectl.apply(moved)
    for tasks in ([task("a")], [task("a"), task("b"), task("c")], [task("a"), task("c")]):
        assert "spec.tasks cannot be added, removed or renamed" in kubectl.apply(
            job("later", *tasks)
        )
    assert not kubectl.apply(job("later", task("a", replicas=3), task("b")))


def test_what_is_guaranteed_stays_deserved(kubectl: Kubectl) -> None:
    guarantee = {"resource": {"cpu": 1}}
    both = queue("kept", guarantee=guarantee, deserved={"cpu": 1, "memory": 1})
    assert not kubectl.apply(both, dry=False)
    less = kubectl.apply(queue("kept", guarantee=guarantee, deserved={"memory": 1}))
    assert "is invalid: spec: Invalid value" in less  # by the CRD, not by the policy
    assert "spec.guarantee.resource has a resource that spec.deserved lacks" in less


def test_nothing_else_is_refused(kubectl: Kubectl) -> None:
    """What people and the examples write."""
    policies = [
        {"action": "RestartJob", "event": "PodEvicted"},
        {"action": "AbortJob", "exitCode": 3},
    ]
    many = [task(f"t{index}", policies=policies) for index in range(100)]
    limits = {"deserved": {"cpu": 2, "nvidia.com/gpu": "8"}, "capability": {"cpu": "2000m"}}
    guarantee = {"resource": {"cpu": "2", "nvidia.com/gpu": 8}}
    assert not kubectl.apply(
        job("many", *many, policies=policies),
        queue("good", **limits, guarantee=guarantee),
        of("v1", "Pod", "calm", {"containers": [{"name": "c", "image": "i"}]}),
        flow("f", {"name": "x"}, {"name": "y", "dependsOn": {"targets": ["x"]}}),
    )
    theirs = {**TEMPLATE["spec"], "schedulerName": "default-scheduler"}
    zero = {**task("v"), **asking("limits", cpu=0, memory="-0")}
    assert not kubectl.apply(
        of("v1", "Pod", "theirs", theirs, JDB),
        of(BATCH, "Job", "theirs", {"tasks": [task("w")], "schedulerName": "theirs"}, JDB),
        flow("twice", {"name": "x"}, {"name": "y"}, {"name": "x", "dependsOn": {"targets": ["y"]}}),
        job("zero", task("w"), zero),
    )
    for path in sorted((ROOT / "daemonset/examples").glob("*.yaml")):
        done = kubectl("apply", "--dry-run=server", "-f", str(path))
        assert not done.returncode, done.stderr


def test_defaults_are_read_back(kubectl: Kubectl) -> None:
    if not SERVES_MUTATION:
        pytest.skip("no MutatingAdmissionPolicy")
    space: Json = {"apiVersion": "v1", "kind": "Namespace"}
    notes = {"scheduling.volcano.sh/queue-name": "research"}
    assert not kubectl.apply({**space, "metadata": {"name": "t", "annotations": notes}}, dry=False)

    def inside(raw: Json) -> Json:
        return {**raw, "metadata": {**raw["metadata"], "namespace": "t"}}

    def written() -> Json:
        plugins: Json = {"mpi": [], "env": []}
        raw = inside(
            job("plain", task("master", minAvailable=1), task("w", replicas=3), plugins=plugins)
        )
        kubectl("-n", "t", "delete", "jobs.batch.volcano.sh", "plain")
        assert not kubectl.apply(raw, dry=False)
        spec: Json = kubectl.read("jobs.batch.volcano.sh", "plain", "t")["spec"]
        return spec if "schedulerName" in spec else {}

    spec = until("the policies", written)
    assert spec["schedulerName"] == "lockstep"
    assert spec["minAvailable"] == 4
    assert spec["queue"] == "research"
    assert sorted(spec["plugins"]) == ["env", "mpi", "ssh", "svc"]
    group = inside(of(SCHEDULING, "PodGroup", "g", {"minMember": 2}))
    chosen = inside(of(SCHEDULING, "PodGroup", "h", {"minMember": 2, "queue": "mine"}))
    assert not kubectl.apply(group, chosen, dry=False)
    groups = "podgroups.scheduling.volcano.sh"
    assert kubectl.read(groups, "g", "t")["spec"]["queue"] == "research"
    assert kubectl.read(groups, "h", "t")["spec"]["queue"] == "mine"


def test_a_queue_says_that_it_may_be_reclaimed(kubectl: Kubectl) -> None:
    assert not kubectl.apply(queue("plain"), dry=False)
    assert kubectl.read("queues.scheduling.volcano.sh", "plain")["spec"]["reclaimable"] is True


def test_manifests_are_applied_on_the_server_too(kubectl: Kubectl) -> None:
    """Without conflicts, after kubectl wrote them from its own side."""
    done = kubectl("apply", "--server-side", "-k", str(ROOT / "daemonset"))
    assert not done.returncode, done.stderr
    assert "warning" not in done.stderr.lower()
