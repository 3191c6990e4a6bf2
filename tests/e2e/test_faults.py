"""Kubelets, agents and the centre restart, and nothing that runs or is known is lost."""

import random
import time

import pytest

from tests.e2e.cluster import verbs
from tests.e2e.world import NAMESPACE, World, disjoint, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def start_gang(cluster: World, namespace: str) -> str:
    pods = [pod(f"a-{number}", 2, gang="a") for number in range(2)]
    cluster.apply(namespace, podgroup("a", 2), *pods)
    return str(cluster.running(namespace, 2)[0]["spec"]["nodeName"])


def containers(cluster: World, namespace: str) -> set[str]:
    pods = cluster.pods(namespace)
    return {str(s["containerID"]) for p in pods for s in p["status"]["containerStatuses"]}


def fill(cluster: World, namespace: str, node: str) -> None:
    """The rest of the node's GPUs, to see that none of them is given away twice."""
    cluster.apply(namespace, pod("rest", 4, node=node))
    cluster.running(namespace, 3)
    held = cluster.agreed()
    assert sum(len(one.gpus) for one in held.values() if one.node == node) == 8
    assert disjoint(held.values())


def registrations(cluster: World, node: str) -> int:
    told = cluster.logs(NAMESPACE, cluster.agent_on(node)["metadata"]["name"])
    return told.count("registered nvidia.com/gpu with the kubelet")


def test_a_kubelet_restart_loses_nothing(cluster: World, namespace: str) -> None:
    """A starting kubelet wipes the plugins' folder and forgets who was registered."""
    node = start_gang(cluster, namespace)
    before, running = cluster.agreed(), containers(cluster, namespace)
    registered = registrations(cluster, node)

    verbs.power("restart", node, "kubelet")

    until("the agent to register again", lambda: registrations(cluster, node) > registered)
    until("pod resources again", lambda: cluster.truth() == before)
    until("8 GPUs again", lambda: cluster.allocatable()[node] == 8)
    assert cluster.books() == before
    assert containers(cluster, namespace) == running
    fill(cluster, namespace, node)


def test_an_agent_restart_loses_nothing(cluster: World, namespace: str) -> None:
    node = start_gang(cluster, namespace)
    before, running = cluster.agreed(), containers(cluster, namespace)

    old = cluster.agent_on(node)["metadata"]["name"]
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old)

    def back() -> bool:
        agent = cluster.agent_on(node)
        return bool(agent["metadata"]["name"] != old and agent["status"]["phase"] == "Running")

    until("the agent's successor", back)
    until("its plugin", lambda: registrations(cluster, node))
    assert cluster.agreed() == before
    assert cluster.books() == before
    until("8 GPUs again", lambda: cluster.allocatable()[node] == 8)
    assert containers(cluster, namespace) == running
    fill(cluster, namespace, node)


def test_a_centre_restart_loses_nothing(cluster: World, namespace: str) -> None:
    node = start_gang(cluster, namespace)
    before, running = cluster.agreed(), containers(cluster, namespace)

    old = cluster.leader()
    cluster.kubectl("-n", NAMESPACE, "delete", "pod", old)

    until("the centre's successor", lambda: cluster.leader() != old)
    assert cluster.agreed(60) == before
    assert containers(cluster, namespace) == running
    fill(cluster, namespace, node)


RESTARTS = 8
# A kubelet of 1.20 that is killed between a container's creation and its start takes it for one that
# has exited with 0, and calls the pod Succeeded.
ENDED = ("Failed", "Succeeded")


def refused(status: dict[str, str]) -> bool:
    """By a kubelet that has no plugin, or no GPU of its plugin, yet."""
    reason = status.get("reason", "")
    return reason == "UnexpectedAdmissionError" or reason.startswith("OutOf")


def test_kubelet_restarts_in_random_moments_while_pods_start(
    cluster: World, namespace: str
) -> None:
    """What was bound while no plugin was registered may fail admission, and is made again, as its
    controller would; what ran keeps running with what it had, and nothing is given twice. A hundred such
    restarts on a hollow kubelet are in tests/agent/test_restarts.py."""
    dice, node = random.Random(7), "node-1"
    ran: dict[str, str] = {}  # container by pod

    def again(name: str) -> None:
        cluster.kubectl("-n", namespace, "delete", "pod", name)
        cluster.apply(namespace, pod(name, 1, node=node))

    for turn in range(RESTARTS):
        cluster.apply(namespace, pod(f"r-{turn}", 1, node=node))
        time.sleep(dice.random() * 2)
        verbs.power("restart", node, "kubelet")
        time.sleep(dice.random())
        found = cluster.pods(namespace)
        for one in found:
            name, status = one["metadata"]["name"], one["status"]
            if status["phase"] in ENDED:
                assert status["phase"] == "Succeeded" or refused(status), status
                assert name not in ran, f"{name} ran, and was disturbed"
                again(name)
            for container in status.get("containerStatuses", []):
                if "running" in container["state"]:
                    assert (
                        ran.setdefault(name, container["containerID"]) == container["containerID"]
                    )

    def settled() -> bool:
        for one in cluster.pods(namespace):
            if one["status"]["phase"] in ENDED:
                assert one["metadata"]["name"] not in ran
                again(one["metadata"]["name"])
        phases = [one["status"]["phase"] for one in cluster.pods(namespace)]
        return phases == ["Running"] * RESTARTS

    until("all pods to run", settled, 120)
    until("8 GPUs again", lambda: cluster.allocatable()[node] == 8)
    held = cluster.agreed(60)
    assert disjoint(held.values())
    for one in cluster.pods(namespace):
        name = one["metadata"]["name"]
        now = one["status"]["containerStatuses"][0]["containerID"]
        assert ran.get(name, now) == now, f"{name} was started anew"
