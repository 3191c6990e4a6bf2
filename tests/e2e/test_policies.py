"""Jobs on real kubelets: pods are killed and fail, each policy does what it says, and a Job that is
deleted, whatever it is doing, leaves nothing."""

import random
from typing import Any

import pytest

from tests.e2e.world import World, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
Json = dict[str, Any]
KINDS = ("pods", "podgroups", "services", "configmaps", "secrets", "networkpolicies", "pvc")


def task(name: str, replicas: int, script: str, **more: Any) -> Json:
    turn = {"fieldPath": "metadata.annotations['lockstep.dev/pod-restarts']"}
    container = {
        "name": "main",
        "image": "busybox:1.36",
        "command": ["sh", "-c", script],
        "env": [{"name": "TURN", "valueFrom": {"fieldRef": turn}}],
        "resources": {"requests": {"cpu": "10m"}},
    }
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 0, "containers": [container]}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}, **more}


def job(name: str, *tasks: Json, **spec: Any) -> Json:
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"schedulerName": "volcano", "tasks": list(tasks), **spec},
    }


def policy(event: str, action: str) -> list[Json]:
    return [{"event": event, "action": action}]


class Jobs:
    def __init__(self, cluster: World, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace
        self.path = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"

    def apply(self, *jobs: Json) -> None:
        self.cluster.apply(self.namespace, *jobs)

    def status(self, name: str) -> Json:
        found: Json = self.cluster.api.get(f"{self.path}/{name}").get("status") or {}
        return found

    def phase(self, name: str) -> str:
        return str((self.status(name).get("state") or {}).get("phase"))

    def until(self, name: str, phase: str, seconds: float = 60) -> Json:
        until(f"{name} to be {phase}", lambda: self.phase(name) == phase, seconds)
        return self.status(name)

    def pods(self, name: str) -> dict[str, Json]:
        found = self.cluster.pods(self.namespace, f"volcano.sh/job-name={name}")
        return {pod["metadata"]["name"]: pod for pod in found}

    def uids(self, name: str) -> dict[str, str]:
        return {pod: raw["metadata"]["uid"] for pod, raw in self.pods(name).items()}

    def running(self, name: str, count: int) -> dict[str, str]:
        def all_there() -> dict[str, str]:
            pods = self.pods(name).values()
            up = [
                pod
                for pod in pods
                if pod["status"]["phase"] == "Running"
                and "deletionTimestamp" not in pod["metadata"]
            ]
            return self.uids(name) if len(up) == count == len(pods) else {}

        return until(f"{count} running pods of {name}", all_there, 60)

    def kill(self, pod: str) -> None:
        self.cluster.kubectl("-n", self.namespace, "delete", "pod", pod, "--wait=false")


@pytest.fixture
def jobs(cluster: World, namespace: str) -> Jobs:
    return Jobs(cluster, namespace)


def test_pods_are_killed_and_each_policy_does_what_it_says(jobs: Jobs) -> None:
    dice = random.Random(7)
    wait = "sleep 3600"
    actions = ("RestartJob", "RestartTask", "RestartPod", "AbortJob", "TerminateJob", "CompleteJob")
    for action in actions:
        name = action.lower()
        tasks = (task("a", 1, wait), task("b", 2, wait))
        jobs.apply(job(name, *tasks, policies=policy("PodEvicted", action)))
    jobs.apply(job("none", task("a", 1, wait), task("b", 2, wait)))
    before = {name: jobs.running(name, 3) for name in [*map(str.lower, actions), "none"]}
    for name, uids in before.items():
        jobs.until(name, "Running")
        jobs.kill(dice.choice([pod for pod in sorted(uids) if "-b-" in pod]))

    jobs.until("abortjob", "Aborted")
    jobs.until("terminatejob", "Terminated")
    jobs.until("completejob", "Completed")
    for name in ("abortjob", "terminatejob", "completejob"):
        assert not jobs.pods(name), "what still ran is gone"

    def anew(name: str) -> set[str]:
        """Pods that were made anew, once all run."""
        until(f"{name} to lose a pod", lambda: jobs.uids(name) != before[name], 30)
        after = jobs.running(name, 3)
        return {pod for pod, uid in after.items() if before[name][pod] != uid}

    every = set(before["none"])
    assert anew("restartjob") == {pod.replace("none", "restartjob") for pod in every}
    assert anew("restarttask") == {"restarttask-b-0", "restarttask-b-1"}
    assert len(anew("restartpod")) == 1
    assert len(anew("none")) == 1, "without a policy the pod is replaced"
    assert (jobs.status("restartjob")["version"], jobs.status("restartjob")["retryCount"]) == (1, 1)
    assert jobs.status("restartpod")["version"] == 0
    assert set(jobs.status("restartpod")["podRestarts"].values()) == {1}
    assert "was evicted or deleted" in jobs.status("abortjob")["state"]["message"]


def test_a_pod_that_fails_is_made_anew_by_its_exit_code(jobs: Jobs) -> None:
    """Its neighbours don't notice; then it has done its work, and so has the Job."""
    once = 'sleep 1; [ -n "$TURN" ] || exit 3; sleep 1'
    policies = [
        {"exitCode": 3, "action": "RestartPod"},
        {"event": "PodFailed", "action": "AbortJob"},
    ]
    jobs.apply(job("codes", task("odd", 1, once), task("calm", 1, "sleep 8"), policies=policies))
    first = jobs.running("codes", 2)
    status = jobs.until("codes", "Completed")
    after = jobs.uids("codes")
    assert after["codes-calm-0"] == first["codes-calm-0"]
    assert after["codes-odd-0"] != first["codes-odd-0"]
    assert status["podRestarts"] == {"codes-odd-0": 1}
    assert (status["succeeded"], status["failed"], status["retryCount"]) == (2, 0, 0)
    [group] = jobs.cluster.api.get(
        f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{jobs.namespace}/podgroups"
    )["items"]
    until("its gang to be Completed", lambda: group_phase(jobs, group) == "Completed")


def group_phase(jobs: Jobs, group: Json) -> str:
    found = jobs.cluster.podgroup(jobs.namespace, group["metadata"]["name"])["status"]
    assert [one["type"] for one in found["conditions"]] == ["Scheduled"] or (
        found["phase"] != "Completed"
    )
    return str(found["phase"])


def test_a_job_that_fails_again_and_again_fails(jobs: Jobs) -> None:
    policies = policy("PodFailed", "RestartJob")
    jobs.apply(job("fails", task("w", 1, "sleep 1; exit 1"), policies=policies, maxRetry=2))
    status = jobs.until("fails", "Failed")
    assert (status["retryCount"], status["failed"]) == (2, 1)
    assert [pod["status"]["phase"] for pod in jobs.pods("fails").values()] == ["Failed"]
    assert "exit code 1" in status["state"]["message"]


def test_tasks_that_wait_for_others_start_after_them(jobs: Jobs) -> None:
    """With the minimum that goes without saying, which is all pods."""
    serve, ask = "sleep 3600", "sleep 1"
    after = {"dependsOn": {"name": ["ps"]}}
    done = {"policies": policy("TaskCompleted", "CompleteJob")}
    jobs.apply(job("chain", task("ps", 2, serve), task("worker", 1, ask, **after, **done)))
    jobs.until("chain", "Completed")
    pods = jobs.pods("chain")
    assert list(pods) == ["chain-worker-0"], "its output stays, and what still ran is gone"


def left(jobs: Jobs) -> list[str]:
    found = jobs.cluster.kubectl(
        "-n", jobs.namespace, "get", ",".join(KINDS), "-o", "name", "--ignore-not-found"
    )
    usual = ("configmap/kube-root-ca.crt", "secret/default-token")
    return [line for line in found.split() if not line.startswith(usual)]


def test_a_job_that_is_deleted_leaves_nothing(jobs: Jobs) -> None:
    """In every phase; with all that its plugins made."""
    wait = "sleep 3600"
    slow = task("w", 2, "trap '' TERM; while :; do sleep 1; done")
    slow["template"]["spec"]["terminationGracePeriodSeconds"] = 600
    plugins: Json = {"svc": [], "ssh": [], "env": []}
    huge = task("w", 2, wait)
    huge["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10000"}}
    evicted = ("AbortJob", "TerminateJob", "CompleteJob", "RestartJob")
    volumes = [{"mountPath": "/data", "volumeClaim": _claim()}]
    jobs.apply(
        job("pending", huge, plugins=plugins),
        job("unbound", task("w", 1, wait), plugins=plugins, volumes=volumes),
        job("runs", task("w", 2, wait), plugins=plugins),
        job("completed", task("w", 2, "true"), plugins=plugins),
        job("failed", task("w", 2, "false"), plugins=plugins),
        *(
            job(action.lower(), slow, plugins=plugins, policies=policy("PodEvicted", action))
            for action in evicted
        ),
        job("aborted", task("w", 2, wait), policies=policy("PodEvicted", "AbortJob")),
        job("terminated", task("w", 2, wait), policies=policy("PodEvicted", "TerminateJob")),
    )
    stopping = ["abortjob", "terminatejob", "completejob", "restartjob", "aborted", "terminated"]
    for name in stopping:
        jobs.running(name, 2)
        jobs.kill(f"{name}-w-0")
    phases = {
        "pending": "Pending",
        "unbound": "Pending",
        "runs": "Running",
        "completed": "Completed",
        "failed": "Failed",
        "abortjob": "Aborting",
        "terminatejob": "Terminating",
        "completejob": "Completing",
        "restartjob": "Restarting",
        "aborted": "Aborted",
        "terminated": "Terminated",
    }
    for name, phase in phases.items():
        jobs.until(name, phase)
    until("what they own", lambda: len(left(jobs)) >= len(phases))
    for name in phases:
        jobs.cluster.kubectl("-n", jobs.namespace, "delete", "vcjob", name, "--wait=false")
    # Nobody waits ten minutes for a deaf pod here.
    jobs.cluster.kubectl(
        "-n", jobs.namespace, "delete", "pods", "--all", "--grace-period=0", "--force"
    )
    until("nothing to be left", lambda: not left(jobs), 90)


def _claim() -> Json:
    return {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "none",
        "resources": {"requests": {"storage": "1Gi"}},
    }
