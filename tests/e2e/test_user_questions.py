"""What somebody asks who has rights in one namespace alone, on a cluster that another tenant uses too: each question has
an answer, and none names the other tenant."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from protos import names
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT
from tests.e2e.world import World, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RBAC = "rbac.authorization.k8s.io"
POD = "-i busybox:1.36 -R cpu=10m"
STEPS = (f"job run mine -g 8 {POD} --runs-for 1h -- sleep 3600", f"job run small {POD} -- true")
LATER = (
    f"job run next -g 8 {POD} -- sleep 3600",
    f"job run giant -r 3 -g 8 {POD} -- sleep 3600",
    f"job run typo -q defualt -g 1 {POD} -- sleep 3600",
)
QUESTIONS = (
    ("Where are my jobs?", "job list", r"mine +default +Running +8 +1/1"),
    ("Which of them wait, and why?", "job list --state pending", r"next +default +Pending .*needs"),
    ("Why does this one wait?", "explain next", r"needs 1 pod x 8 GPUs; the cluster fits 0 of 1"),
    ("When does it start?", "explain next", r"expected to start 20\d\d-"),
    ("Which place has it?", "job view next", r"Queue: +default, place \d of \d"),
    ("Can it ever start?", "explain giant", r"can never start"),
    ("Is the queue right?", "explain typo", r"queue defualt does not exist"),
    ("Where does it run?", "explain mine", r"mine-worker-0 +Running +node-\d +0,1,2,3,4,5,6,7"),
    ("What happened to it?", "job history mine", r"running +- +-"),
    ("When did it start?", "job history mine", r"Started: +20\d\d-"),
    ("How long did it wait, for what?", "job history next", r"Waited: +\w"),
    ("What happened to my jobs?", "job history", r"job/small +completed"),
    ("Did it end well?", "job view small", r"1 of 1 pods succeeded, 0 failed"),
    ("How long did it run?", "job list --state ended", r"small +default +Completed"),
    ("Where is its output?", "job logs mine", r""),
    ("What would be submitted?", "job run x -g 1 --dry-run", r"kind: Job"),
    ("As a program reads it?", "explain next -o json", r'"place": \d'),
    ("What is its gang called?", "group list", r"mine-[0-9a-f-]{36} +Running"),
    ("What has my queue?", "queue list", r"default +1 +Open"),
    ("What does it use?", "queue tree", r"default +1?\d +-"),
    ("What waits in it?", "queue view default", r"next"),
    ("All of it, live?", "top", r"next"),
    ("Can I stop it and keep it?", "job suspend mine", r"suspend requested"),
    ("Can I cancel it?", "job delete giant", r"deleted"),
)
# They need rights on objects without a namespace: one sentence, and no traceback.
REFUSED = ("topology", "topology --by rack", "report")


class Tenant:
    """Jane, with the role edit in one namespace, and the scheduler's address."""

    def __init__(self, cluster: World, namespace: str, folder: Path) -> None:
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "jane"}}
        subject = {"kind": "ServiceAccount", "name": "jane", "namespace": namespace}
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "jane"},
            "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "edit"},
            "subjects": [subject],
        }
        cluster.apply(namespace, account, binding)
        admin = json.loads(cluster.kubectl("config", "view", "--raw", "-o", "json"))
        token = cluster.kubectl("-n", namespace, "create", "token", "jane").strip()
        admin["users"] = [{"name": "jane", "user": {"token": token}}]
        for each in admin["contexts"]:
            each["context"] |= {"user": "jane", "namespace": namespace}
        service = f"/api/v1/namespaces/{names.NAMESPACE}/services/lockstep-central"
        files = {
            "KUBECONFIG": json.dumps(admin),
            "LOCKSTEP_CA": cluster.centre_ca().decode(),
            "LOCKSTEP_TOKEN_FILE": cluster.token("jane", namespace=namespace),
        }
        for name, text in files.items():
            (folder / name).write_text(text)
        self.environment = {
            **os.environ,
            **{name: str(folder / name) for name in files},
            "LOCKSTEP_SERVER": f"{cluster.api.get(service)['spec']['clusterIP']}:9443",
            "LOCKSTEP_SERVER_NAME": "lockstep-central",
        }

    def typed(self, command: str) -> tuple[int, str]:
        ran = subprocess.run(
            [sys.executable, "-m", "central", *shlex.split(command)],
            env=self.environment,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        return ran.returncode, ran.stdout + ran.stderr


@pytest.fixture
def jane(cluster: World, namespace: str, tmp_path: Path) -> Iterator[Tenant]:
    other = f"{namespace}-other"
    cluster.api.create("/api/v1/namespaces", {"metadata": {"name": other}})
    until("the namespace's account", lambda: verbs.account_ready(cluster.api, other))
    cluster.apply(other, podgroup("theirs", 1), pod("theirs-0", 8, gang="theirs"))
    cluster.running(other, 1)
    yield Tenant(cluster, namespace, tmp_path)
    cluster.kubectl("delete", "namespace", other, "--wait=false")


def test_each_question_of_a_tenant_is_answered_without_the_other_tenant(jane: Tenant) -> None:
    def wait(command: str, answer: str) -> None:
        shown = [""]

        def there() -> bool:
            shown[0] = jane.typed(command)[1]
            return bool(re.search(answer, shown[0]))

        try:
            until(command, there, 60)
        except AssertionError as error:
            raise AssertionError(f"{error}: {answer}\n{shown[0]}") from error

    for step in STEPS:
        assert jane.typed(step)[0] == 0, jane.typed(step)
    wait("job list", r"mine .*Running(.*\n)+small .*Completed")
    for step in LATER:
        jane.typed(step)
    wait("explain next", "expected to start")
    wait("explain giant", "never")
    wait("explain typo", "does not exist")
    wrong, told = [], []
    for question, command, answer in QUESTIONS:
        code, shown = jane.typed(command)
        if code or not re.search(answer, shown):
            wrong.append(f"{question}\n$ lockstep {command}\n{shown}")
        told.append(shown)
    for command in REFUSED:
        code, shown = jane.typed(command)
        print(f"$ lockstep {command}\n{shown}")
        told.append(shown)
    assert not wrong, "\n".join(wrong)
    assert not [shown for shown in told if "internal error" in shown]
    assert not [shown for shown in told if "theirs" in shown or "-other" in shown]
