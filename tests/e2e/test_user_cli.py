"""What people type and write, on real kubelets: `lockstep job` from a user's machine, Commands, CronJobs,
JobFlows, and gangs of a Deployment's pods."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from protos import names
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT, program
from tests.e2e.world import World, pod, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

Json = dict[str, Any]
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"


def lockstep(namespace: str, *argv: str, code: int = 0, stream: str = "out") -> str:
    """On the user's machine, with the user's kubeconfig."""
    kind, verb, *rest = argv
    done = subprocess.run(
        [sys.executable, "-m", "central", kind, verb, "-n", namespace, *rest],
        env={**os.environ, "KUBECONFIG": str(verbs.kubeconfig())},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stderr if stream == "err" else done.stdout


def job(name: str, script: str, **spec: Any) -> Json:
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": "10m"}},
    }
    template = {
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        }
    }
    tasks = [{"name": "master", "replicas": 1}, {"name": "worker", "replicas": 2}]
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {
            "schedulerName": "volcano",
            "tasks": [{**task, "template": template} for task in tasks],
            **spec,
        },
    }


def phase(cluster: World, namespace: str, name: str) -> str:
    found = cluster.api.get(f"{JOBS.format(namespace)}/{name}")
    return str(found["status"]["state"]["phase"])


def test_a_job_is_run_seen_and_deleted(cluster: World, namespace: str, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(job("hello", "echo hello from $HOSTNAME; sleep 2")))
    assert lockstep(namespace, "job", "run", "-f", str(file)) == f"job {namespace}/hello created\n"
    said = lockstep(namespace, "job", "logs", "hello", "-f")
    heads = sorted(line.split("]")[0] for line in said.splitlines() if "hello from" in line)
    assert heads == ["[master-0", "[worker-0", "[worker-1"]
    assert "Completed" in lockstep(namespace, "job", "watch", "hello")
    title, row = lockstep(namespace, "job", "list").splitlines()
    assert title.split()[:4] == ["NAME", "QUEUE", "STATE", "GPUS"]
    assert "Completed" in row
    view = lockstep(namespace, "job", "view", "hello")
    assert "hello-worker-1" in view
    lockstep(namespace, "job", "delete", "hello")
    until("nothing of it to be left", lambda: not cluster.pods(namespace), 60)
    groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"
    until("its group to be gone", lambda: not cluster.api.get(groups)["items"], 60)


def test_the_scheduler_is_found_by_the_kubeconfig(cluster: World, namespace: str) -> None:
    argv = ("-r", "1", "-i", "busybox:1.36", "-R", "cpu=10m", "--", "sleep", "3600")
    lockstep(namespace, "job", "run", "asked", *argv)
    until("it to run", lambda: phase(cluster, namespace, "asked") == "Running")
    env = {name: value for name, value in os.environ.items() if not name.startswith("LOCKSTEP_")}
    env["PATH"] = os.pathsep.join([str(Path(program("kubectl")).parent), env["PATH"]])
    node = cluster.api.get("/api/v1/nodes")["items"][0]["metadata"]["name"]
    for question, expected in (
        (("topology",), node),
        (("explain", f"{namespace}/job/asked"), "Running"),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "central", *question],
            env={**env, "KUBECONFIG": str(verbs.kubeconfig())},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert expected in done.stdout
    lockstep(namespace, "job", "delete", "asked")


def test_a_job_is_suspended_and_resumed(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, job("long", "sleep 3600"))
    until("it to run", lambda: phase(cluster, namespace, "long") == "Running")
    lockstep(namespace, "job", "suspend", "long")
    until("it to stop", lambda: phase(cluster, namespace, "long") == "Aborted")
    until("its pods to be gone", lambda: not cluster.pods(namespace))
    lockstep(namespace, "job", "resume", "long")
    until("it to run again", lambda: phase(cluster, namespace, "long") == "Running")
    commands = f"/apis/bus.volcano.sh/v1alpha1/namespaces/{namespace}/commands"
    assert cluster.api.get(commands)["items"] == []
    lockstep(namespace, "job", "delete", "long")


def test_a_job_that_never_printed_says_what_happened(cluster: World, namespace: str) -> None:
    argv = ("-r", "1", "-i", "busybox:1.36", "-R", "cpu=10m", "--", "nosuchprogram")
    lockstep(namespace, "job", "run", "typo", *argv)
    until("its end", lambda: phase(cluster, namespace, "typo") == "Failed")
    assert "StartError (128)" in lockstep(namespace, "job", "view", "typo")
    assert 'exec: "nosuchprogram"' in lockstep(namespace, "job", "logs", "typo", stream="err")
    lockstep(namespace, "job", "delete", "typo")


def test_a_job_that_waits_says_why(cluster: World, namespace: str) -> None:
    lockstep(namespace, "job", "run", "giant", "-r", "3", "-g", "8", "--", "sleep", "3600")
    view = until(
        "the sentence",
        lambda: (
            said if "pods x 8 GPUs" in (said := lockstep(namespace, "job", "view", "giant")) else ""
        ),
    )
    assert "Pending" in view
    lockstep(namespace, "job", "delete", "giant")


def test_jobs_by_the_clock(cluster: World, namespace: str) -> None:
    spec = job("x", "true")["spec"]
    cron = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "CronJob",
        "metadata": {"name": "often"},
        "spec": {
            "schedule": "@every 5s",
            "concurrencyPolicy": "Forbid",
            "successfulJobsHistoryLimit": 1,
            "jobTemplate": {"spec": spec},
        },
    }
    cluster.apply(namespace, cron)
    where = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/cronjobs/often"
    until(
        "a job to complete",
        lambda: cluster.api.get(where).get("status", {}).get("lastSuccessfulTime"),
    )
    first = cluster.api.get(where)["status"]["lastScheduleTime"]
    until("the next one", lambda: cluster.api.get(where)["status"]["lastScheduleTime"] > first)
    cluster.kubectl("-n", namespace, "delete", "cronjobs.batch.volcano.sh", "often")
    until("all to be gone", lambda: not cluster.api.get(JOBS.format(namespace))["items"])


def test_jobs_one_after_the_other(cluster: World, namespace: str) -> None:
    kinds = {"apiVersion": "flow.volcano.sh/v1alpha1"}
    spec = job("x", "true")["spec"]
    cluster.apply(
        namespace,
        *(
            {**kinds, "kind": "JobTemplate", "metadata": {"name": name}, "spec": spec}
            for name in "ab"
        ),
        {
            **kinds,
            "kind": "JobFlow",
            "metadata": {"name": "f"},
            "spec": {"flows": [{"name": "a"}, {"name": "b", "dependsOn": {"targets": ["a"]}}]},
        },
    )
    where = f"/apis/flow.volcano.sh/v1alpha1/namespaces/{namespace}/jobflows/f"

    def succeeded() -> Json:
        found: Json = cluster.api.get(where).get("status") or {}
        return found if found.get("state", {}).get("phase") == "Succeed" else {}

    status = until("the flow to succeed", succeeded, 90)
    assert status["completedJobs"] == ["f-a", "f-b"]
    ended, began = (cluster.api.get(f"{JOBS.format(namespace)}/{name}") for name in ("f-a", "f-b"))
    assert ended["status"]["state"]["lastTransitionTime"] <= began["metadata"]["creationTimestamp"]


def test_a_job_that_waits_until_another_answers(cluster: World, namespace: str) -> None:
    """A server that needs a while to come up, and serves until its client is done."""
    kinds = {"apiVersion": "flow.volcano.sh/v1alpha1"}
    server = job("x", "sleep 4; mkdir /www; echo up > /www/up; exec httpd -f -p 8080 -h /www")
    task = {**server["spec"]["tasks"][0], "name": "web", "replicas": 1}
    probe = {"httpGetList": [{"taskName": "web", "port": 8080, "path": "/up"}]}
    steps = [
        {"name": "server"},
        {"name": "client", "dependsOn": {"targets": ["server"], "probe": probe}},
    ]
    cluster.apply(
        namespace,
        *(
            {**kinds, "kind": "JobTemplate", "metadata": {"name": name}, "spec": spec}
            for name, spec in (("server", {"tasks": [task]}), ("client", job("x", "true")["spec"]))
        ),
        {**kinds, "kind": "JobFlow", "metadata": {"name": "asks"}, "spec": {"flows": steps}},
    )
    where = f"/apis/flow.volcano.sh/v1alpha1/namespaces/{namespace}/jobflows/asks"

    def status() -> Json:
        found: Json = cluster.api.get(where).get("status") or {}
        return found

    waits = "client: waiting for server: 0 of 1 pods of task web pass http :8080/up"
    until("the sentence", lambda: (status().get("state") or {}).get("message") == waits)
    until("the client to be done", lambda: "asks-client" in status().get("completedJobs", ()), 90)
    pods = {one["metadata"]["name"]: one["status"] for one in cluster.pods(namespace)}
    [ready] = [c for c in pods["asks-server-web-0"]["conditions"] if c["type"] == "Ready"]
    client = cluster.api.get(f"{JOBS.format(namespace)}/asks-client")
    assert ready["lastTransitionTime"] <= client["metadata"]["creationTimestamp"]
    assert pods["asks-server-web-0"]["phase"] == "Running"
    cluster.kubectl("-n", namespace, "delete", "jobflow", "asks")
    until("all to be gone", lambda: not cluster.api.get(JOBS.format(namespace))["items"])


def test_a_deployments_pods_are_a_gang(cluster: World, namespace: str) -> None:
    """Three pods of 8 GPUs do not fit on two nodes: none starts, until two are enough."""
    spec = pod("x", 8)["spec"]
    spec["restartPolicy"] = "Always"
    labels = {"app": "web"}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {names.OWNER_MIN: "3"}},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
    cluster.apply(namespace, deployment)
    until("three pods", lambda: len(cluster.pods(namespace)) == 3)
    until("the reason", lambda: "3 pods x 8 GPUs" in json.dumps(cluster.pods(namespace)))
    assert not [one for one in cluster.pods(namespace) if one["spec"].get("nodeName")]
    told = cluster.lockstep("explain", f"{namespace}/deployment/web")
    assert "3 pods x 8 GPUs" in told
    cluster.kubectl(
        "-n", namespace, "annotate", "deploy/web", "--overwrite", f"{names.OWNER_MIN}=2"
    )
    until(
        "two to be placed",
        lambda: len([p for p in cluster.pods(namespace) if p["spec"].get("nodeName")]) == 2,
    )
    cluster.kubectl("-n", namespace, "delete", "deploy", "web")
