"""Jobs as users write them today, on real kubelets: what is written for Volcano runs unchanged, and
every example comes to its end."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from protos import names
from tests.e2e import workloads
from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import ROOT, say
from tests.e2e.world import World, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
EXAMPLES = ROOT / "daemonset/examples"
MANIFESTS = Path(__file__).parent / "manifests"
JOBS = "/apis/batch.volcano.sh/v1alpha1/namespaces/{}/jobs"
OWNED = ("pods", "services", "configmaps", "secrets", "networkpolicies", "podgroups")


@pytest.fixture(scope="module")
def _images(cluster: World, tmp_path_factory: pytest.TempPathFactory) -> None:
    archive = workloads.build(tmp_path_factory.mktemp("workloads"))
    verbs.load_images([archive], verbs.nodes_defined())
    say("the workloads' image is loaded")


class Lab:
    """A namespace where jobs are run."""

    def __init__(self, cluster: World, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    def run(self, *paths: Path) -> list[Any]:
        """Applies manifests of one Job each and waits for their end."""
        for path in paths:
            self.cluster.apply_file(self.namespace, path)

        def completed() -> list[Any]:
            jobs: list[Any] = self.cluster.api.get(JOBS.format(self.namespace))["items"]
            assert len(jobs) == len(paths)
            return jobs if all(j["status"]["state"]["phase"] == "Completed" for j in jobs) else []

        return until(f"{', '.join(p.name for p in paths)} to be Completed", completed, 120)

    def pods(self) -> dict[str, Any]:
        return {pod["metadata"]["name"]: pod for pod in self.cluster.pods(self.namespace)}

    def left(self, *wanted: str) -> dict[str, Any]:
        """Waits until these are all the pods that there are."""
        return until(
            f"only {', '.join(wanted)} to be left",
            lambda: pods if (pods := self.pods()).keys() == set(wanted) else {},
        )

    def logs(self, pod: str) -> str:
        return self.cluster.logs(self.namespace, pod)

    def owned(self, job: str) -> list[str]:
        """What there is of a Job's, by kind and name."""
        listed = self.cluster.kubectl("-n", self.namespace, "get", ",".join(OWNED), "-o", "json")
        return sorted(
            f"{one['kind']}/{one['metadata']['name']}"
            for one in json.loads(listed)["items"]
            if any(owner["name"] == job for owner in one["metadata"].get("ownerReferences", ()))
        )

    def group_is_completed(self, name: str) -> None:
        """It is told apart from its Job's status, a moment later."""

        def completed() -> bool:
            status: Any = self.cluster.podgroup(self.namespace, name)["status"]
            return bool(status["phase"] == "Completed")

        until(f"PodGroup {name} to be Completed", completed)

    def listing(self) -> dict[str, str]:
        """The one row of `lockstep job list`, with the user's own kubeconfig."""
        argv = [sys.executable, "-m", "central", "job", "list", "-o", "wide", "-n", self.namespace]
        env = {**os.environ, "KUBECONFIG": str(verbs.kubeconfig())}
        told = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=ROOT, env=env)
        head, row = (re.split(r"\s{2,}", line.strip()) for line in told.stdout.splitlines())
        return dict(zip(head, row, strict=True))


@pytest.fixture
def lab(_images: None, cluster: World, namespace: str) -> Lab:
    return Lab(cluster, namespace)


@pytest.mark.parametrize(
    ("path", "workers"),
    [
        pytest.param(EXAMPLES / "mpi.yaml", 3, id="three-workers", marks=pytest.mark.nightly),
        pytest.param(MANIFESTS / "kubecon-mpi.yaml", 2, id="two-workers"),
    ],
)
def test_mpi_as_it_is_written_for_volcano(lab: Lab, path: Path, workers: int) -> None:
    (job,) = lab.run(path)
    name = "lm-mpi-job"
    (master,) = lab.left(f"{name}-mpimaster-0").values()  # kept for its output
    assert master["status"]["phase"] == "Succeeded"
    told = lab.logs(f"{name}-mpimaster-0")
    for rank in range(workers):
        host = f"{name}-mpiworker-{rank}"
        assert f"Hello world from processor {host}, rank {rank} out of {workers} processors" in told
        assert f"Permanently added '{host}.{name}" in told, "ssh between pods"
    restarts = master["status"]["containerStatuses"][0]["restartCount"]
    say(f"{path.name}: the master was restarted {restarts} times")

    status = job["status"]
    assert (status["succeeded"], status.get("running", 0), status.get("pending", 0)) == (1, 0, 0)
    assert status["minAvailable"] == workers + 1
    row = lab.listing()
    assert (row["NAME"], row["STATE"], row["TYPE"]) == (name, "Completed", "MPI")
    assert (row["PODS"], row["MIN"]) == (f"0/{workers + 1}", str(workers + 1))
    assert (row["PENDING"], row["SUCCEEDED"]) == ("0", "1")
    lab.group_is_completed(f"{name}-{job['metadata']['uid']}")

    lab.cluster.kubectl("-n", lab.namespace, "delete", "vcjob", name, "--wait=false")
    until("nothing to be left", lambda: not lab.owned(name))


def test_tensorflow_as_it_is_written_for_volcano(lab: Lab) -> None:
    lab.run(EXAMPLES / "tensorflow.yaml")
    name = "tensorflow-benchmark"
    workers = [f"{name}-worker-{index}" for index in range(2)]
    for index, worker in enumerate(workers):
        told = lab.logs(worker)
        assert f"worker {index} of 1 servers, 2 workers: {worker}.{name}:2222" in told
        assert "total images/sec" in told
    left = lab.left(*workers)  # the server never ends by itself
    assert {pod["status"]["phase"] for pod in left.values()} == {"Succeeded"}
    row = lab.listing()
    assert (row["STATE"], row["TYPE"], row["PODS"]) == ("Completed", "Tensorflow", "0/3")


def test_examples_come_to_their_end(lab: Lab) -> None:
    """They run beside each other."""
    said = {
        "lm-horovod-job-master-0": "rank 2 of 3 on lm-horovod-job-worker-2",
        "ctr-volcano-trainer-0": "reached 2 servers",
        "ctr-volcano-trainer-1": "reached 2 servers",
        "spark-pi-driver-0": "Pi is roughly 3.",
        "ray-cluster-program-0": "a cluster of 3 nodes",
    }
    lab.run(*(EXAMPLES / f"{name}.yaml" for name in ("horovod", "paddle-ctr", "spark", "ray")))
    for pod, told in said.items():
        assert told in lab.logs(pod)
        assert lab.pods()[pod]["status"]["phase"] == "Succeeded"


def test_a_pod_is_told_its_rank_and_where_it_is(lab: Lab) -> None:
    """As the pod prints them; the rack is that of the node it runs on."""
    lab.run(EXAMPLES / "pytorch.yaml")
    racks = {
        node["metadata"]["name"]: node["metadata"]["labels"][names.RACK]
        for node in lab.cluster.api.get("/api/v1/nodes")["items"]
    }
    for index in range(2):
        pod = f"ddp-worker-{index}"
        node = lab.pods()[pod]["spec"]["nodeName"]
        # Four processes write at once: one may come between another's line and its end.
        assert sorted(re.findall(r"rank \d+ of 8 in [^:]+: 36", lab.logs(pod))) == [
            f"rank {rank} of 8 in {racks[node]}/{node}: 36"
            for rank in range(4 * index, 4 * index + 4)
        ]


def test_a_job_that_grows(lab: Lab) -> None:
    """The new worker is in everybody's hosts, and everybody's keys open it."""
    cluster, space = lab.cluster, lab.namespace
    cluster.apply(space, growing("grows", 2))
    cluster.running(space, 2)
    cluster.kubectl("-n", space, "scale", "vcjob/grows", "--replicas=3")
    cluster.running(space, 3)
    scale = cluster.api.get(f"{JOBS.format(space)}/grows/scale")
    assert scale["spec"]["replicas"] == 3

    def inside(*argv: str) -> str:
        return cluster.kubectl("-n", space, "exec", "grows-worker-0", "--", *argv)

    hosts = [f"grows-worker-{index}.grows" for index in range(3)]
    until(
        "the new host to be in the file of who runs already",
        lambda: inside("cat", "/etc/volcano/worker.host").splitlines() == hosts,
    )
    for name in ("grows-worker-2", hosts[2]):
        assert inside("ssh", "-q", name, "hostname").strip() == "grows-worker-2"
    until("the status to count it", lambda: scaled(lab) == 3)


def growing(name: str, workers: int) -> Any:
    container = {
        "name": "main",
        "image": "volcanosh/example-mpi:0.0.1",
        "command": ["/usr/sbin/sshd", "-D"],
    }
    task = {
        "name": "worker",
        "replicas": workers,
        "template": {"spec": {"terminationGracePeriodSeconds": 0, "containers": [container]}},
    }
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"schedulerName": "lockstep", "plugins": {"ssh": [], "svc": []}, "tasks": [task]},
    }


def scaled(lab: Lab) -> int:
    found = lab.cluster.api.get(f"{JOBS.format(lab.namespace)}/grows/scale")
    return int(found["status"]["replicas"])


def test_a_learning_task_by_labels(cluster: World, namespace: str) -> None:
    cluster.apply_file(namespace, EXAMPLES / "learning-task.yaml")

    def done() -> bool:
        pods = cluster.pods(namespace)
        return len(pods) == 3 and all(p["status"]["phase"] == "Succeeded" for p in pods)

    until("servers and workers to have run", done, 90)
