"""Two Jobs that each need all GPUs of the cluster take turns on a real API server with real kubelets, and the leader
goes in the middle. Each pod counts seconds in a file of its node, and goes on from there when it is made again."""

import re
import shutil
import uuid
from typing import Any

import pytest

from tests.e2e.cluster import verbs
from tests.e2e.cluster.settings import Trouble
from tests.e2e.world import NAMESPACE, World, pod, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
RUNS_S = 20
COUNT = """
trap 'exit 143' TERM
file=/progress/$(hostname)
touch $file
while [ $(wc -l < $file) -lt {most} ]; do
    sleep 1 & wait $!
    echo $(($(wc -l < $file) + 1)) >> $file
done
cat $file
"""


def job(name: str, queue: str, folder: str, nodes: list[str]) -> dict[str, Any]:
    """One task for each node, with all its GPUs."""
    tasks = []
    for index, node in enumerate(nodes):
        made = pod("any", 8, script=COUNT.format(most=RUNS_S), node=node)
        spec = made["spec"]
        del spec["schedulerName"]
        spec["terminationGracePeriodSeconds"] = 5
        spec["volumes"] = [
            {"name": "work", "hostPath": {"path": folder, "type": "DirectoryOrCreate"}}
        ]
        spec["containers"][0]["volumeMounts"] = [{"name": "work", "mountPath": "/progress"}]
        tasks.append({"name": f"t{index}", "replicas": 1, "template": {"spec": spec}})
    notes = {"lockstep.dev/suspendable": "200ms", "lockstep.dev/runs-for": f"{RUNS_S}s"}
    return {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"name": name, "annotations": notes},
        "spec": {"schedulerName": "lockstep", "queue": queue, "tasks": tasks},
    }


class Turns:
    def __init__(self, cluster: World, namespace: str) -> None:
        self._cluster, self._namespace = cluster, namespace
        self._jobs = f"/apis/batch.volcano.sh/v1alpha1/namespaces/{namespace}/jobs"
        self._groups = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{namespace}/podgroups"

    def group(self, name: str) -> Any:
        found = self._cluster.api.get(self._groups)["items"]
        owners = [each["metadata"]["ownerReferences"][0]["name"] for each in found]
        if name not in owners:
            raise Trouble(f"no PodGroup of {name}")
        return found[owners.index(name)]["status"]

    def wait_for(self, name: str, phase: str, running: int) -> None:
        def reached() -> bool:
            status = self.group(name)
            return (status["phase"], status.get("running", 0)) == (phase, running)

        until(f"{name} to be {phase}", reached, 60)

    def ran_s(self, name: str) -> int:
        """What it had run before its present run, as its PodGroup says; 0: nothing."""
        found = [c["message"] for c in self.group(name)["conditions"] if c["type"] == "TimeShared"]
        said = re.fullmatch(
            r"ran (\d+) s until \S+Z(?: and runs since)?; contention (?:1|2)\.00",
            found[0] if found else "",
        )
        return int(said[1]) if said else 0

    def phase(self, name: str) -> str:
        return str(self._cluster.api.get(f"{self._jobs}/{name}")["status"]["state"]["phase"])


def test_two_jobs_take_turns_and_a_new_leader_knows_what_they_have_run(
    cluster: World, namespace: str
) -> None:
    queue, folder = f"turns-{namespace}", f"/var/tmp/lockstep-turns-{uuid.uuid4()}"
    turns = Turns(cluster, namespace)
    try:
        cluster.apply(
            namespace,
            {
                "apiVersion": "scheduling.volcano.sh/v1beta1",
                "kind": "Queue",
                "metadata": {"name": queue},
                "spec": {"weight": 1, "quantum": "5s"},
            },
        )
        cluster.apply(namespace, job("a", queue, folder, cluster.nodes))
        turns.wait_for("a", "Running", len(cluster.nodes))
        cluster.apply(namespace, job("b", queue, folder, cluster.nodes))
        until(
            "why b waits", lambda: "it shares time" in turns.group("b")["conditions"][-1]["message"]
        )
        turns.wait_for("b", "Running", len(cluster.nodes))  # it has become late
        ran_s = until("what a has run", lambda: turns.ran_s("a"))
        assert 5 <= ran_s < RUNS_S + 5
        old = until("a leader", cluster.leader)
        cluster.kubectl("-n", NAMESPACE, "delete", "pod", old, "--wait=false")
        for name in ("a", "b"):
            until(f"{name} to complete", lambda name=name: turns.phase(name) == "Completed", 90)  # type: ignore[misc]  # bound now
            whole = f"both turns of {name}, of which a leader that had begun anew would know the last one"
            until(whole, lambda name=name: turns.ran_s(name) >= RUNS_S - 1, 60)  # type: ignore[misc]  # bound now
        assert cluster.leader() != old
        _check(cluster, namespace)
    finally:
        verbs.kubectl("-n", namespace, "delete", "jobs.batch.volcano.sh", "--all", "--wait=false")
        shutil.rmtree(folder, ignore_errors=True)
        verbs.kubectl("delete", "queue", queue, "--ignore-not-found", "--wait=false")


def _check(cluster: World, namespace: str) -> None:
    """Each second was counted once, and Events say who went for whom."""
    for made in cluster.pods(namespace):
        numbers = cluster.logs(namespace, made["metadata"]["name"]).split()
        assert numbers == [str(number) for number in range(1, RUNS_S + 1)], made["metadata"]["name"]
    events = cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
    evicted = {
        (each["involvedObject"]["name"].split("-")[0], each["message"].rpartition("/")[2])
        for each in events
        if each["reason"] == "Evicted" and "suspended after its quantum" in each["message"]
    }
    assert {(victim, claimant.split("-")[0]) for victim, claimant in evicted} == {
        ("a", "b"),
        ("b", "a"),
    }
