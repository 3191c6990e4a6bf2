"""Disruption budgets on the real Eviction API: a claim that a budget would stop evicts nobody, and says
so; once the budget allows it, the room is made."""

import time

import pytest

from tests.e2e.world import World, pod, podgroup, until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def condition(cluster: World, namespace: str, name: str) -> str:
    return str(cluster.podgroup(namespace, name)["status"]["conditions"][-1]["message"])


def test_nobody_is_evicted_for_nothing(cluster: World, namespace: str) -> None:
    versions = cluster.kubectl("api-versions").split()
    policy = "policy/v1" if "policy/v1" in versions else "policy/v1beta1"
    web = pod("web", 4)
    web["metadata"]["labels"] = {"app": "web"}
    budget = {
        "apiVersion": policy,
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    }
    urgent = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": f"urgent-{namespace}"},
        "value": 100,
    }
    cluster.apply(namespace, urgent, budget, web, *(pod(f"low-{i}", 4) for i in range(3)))
    before = {
        one["metadata"]["name"]: one["metadata"]["uid"] for one in cluster.running(namespace, 4)
    }
    path = f"/apis/{policy}/namespaces/{namespace}/poddisruptionbudgets/keep"
    until("the budget's status", lambda: cluster.api.get(path)["status"]["currentHealthy"] == 1)

    big = [pod(f"big-{i}", 6, gang="big") for i in range(2)]
    for one in big:
        one["spec"]["priorityClassName"] = f"urgent-{namespace}"
    cluster.apply(namespace, podgroup("big", 2), *big)
    kept = f"PodDisruptionBudget {namespace}/keep (0 disruptions left)"
    until("the sentence", lambda: kept in condition(cluster, namespace, "big"))
    time.sleep(6)  # it used to ask about once a second
    after = {one["metadata"]["name"]: one["metadata"]["uid"] for one in cluster.pods(namespace)}
    assert {name: uid for name, uid in after.items() if name in before} == before
    assert not any("deletionTimestamp" in one["metadata"] for one in cluster.pods(namespace))

    cluster.kubectl(
        "-n",
        namespace,
        "patch",
        "pdb",
        "keep",
        "--type=merge",
        "-p",
        '{"spec": {"minAvailable": 0}}',
    )
    pods = cluster.running(namespace, 2)
    assert sorted(one["metadata"]["name"] for one in pods) == ["big-0", "big-1"]
    cluster.kubectl("delete", "priorityclass", f"urgent-{namespace}")
