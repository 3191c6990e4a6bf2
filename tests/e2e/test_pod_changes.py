"""What Kubernetes of today does to running pods: it resizes them in place, shows the health of their devices, and says
why they were disrupted. And what it does with devices of init containers and sidecars."""

import json
from typing import Any

import pytest

from protos import names
from tests.e2e.cluster.settings import STATE
from tests.e2e.rollout import no_agent
from tests.e2e.world import NAMESPACE, World, disjoint, pod, podgroup, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = "node-1"  # of 64 processors


def asking(name: str, cpu: int, gpus: int = 0) -> dict[str, Any]:
    made = pod(name, gpus, node=NODE)
    limits = {names.GPU: gpus} if gpus else {}
    made["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(cpu)}, "limits": limits}
    return made


def resize(cluster: World, namespace: str, name: str, cpu: int) -> None:
    container = {"name": "main", "resources": {"requests": {"cpu": str(cpu)}}}
    patch = json.dumps({"spec": {"containers": [container]}})
    argv = ("patch", "pod", name, "--subresource=resize", "-p", patch)
    cluster.kubectl("-n", namespace, *argv)


def granted(cluster: World, namespace: str, name: str) -> str:
    (found,) = (p for p in cluster.pods(namespace) if p["metadata"]["name"] == name)
    status = found["status"]["containerStatuses"][0]
    return str(status["resources"]["requests"]["cpu"])


def test_a_resize_keeps_the_books_right(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, asking("a", 10, 2), asking("b", 50))
    cluster.running(namespace, 2)
    held = cluster.agreed()
    cluster.apply(namespace, asking("c", 8))
    until("c's reason", lambda: "cpu" in cluster.lockstep("explain", f"{namespace}/c"))

    resize(cluster, namespace, "a", 5)  # 5 + 50 + 8 of 64
    cluster.running(namespace, 3)
    assert granted(cluster, namespace, "a") == "5"

    resize(cluster, namespace, "a", 13)  # more than is there: the kubelet waits, and so do others
    cluster.kubectl("-n", namespace, "delete", "pod", "c")
    until("the larger size", lambda: granted(cluster, namespace, "a") == "13")
    cluster.apply(namespace, asking("d", 2))  # 13 + 50 + 2
    until("d's reason", lambda: "cpu" in cluster.lockstep("explain", f"{namespace}/d"))
    resize(cluster, namespace, "a", 11)
    cluster.running(namespace, 3)
    assert cluster.agreed() == held, "a has the GPUs that it had"


def test_requests_of_the_pod_as_a_whole_count(cluster: World, namespace: str) -> None:
    """Pod-level resources, which the containers share."""
    wide = asking("wide", 1, 2)
    wide["spec"]["resources"] = {"requests": {"cpu": "60"}}
    cluster.apply(namespace, wide)
    cluster.running(namespace, 1)
    cluster.apply(namespace, asking("late", 8))
    until("late's reason", lambda: "cpu" in cluster.lockstep("explain", f"{namespace}/late"))
    cluster.kubectl("-n", namespace, "delete", "pod", "wide")
    cluster.running(namespace, 1)


def test_a_gang_waits_for_its_scheduling_gates(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, podgroup("train", 2))
    members = [pod(f"train-{i}", 4, gang="train") for i in range(2)]
    members[1]["spec"]["schedulingGates"] = [{"name": "example.com/quota"}]
    cluster.apply(namespace, *members)
    why = "1 of 2 pods are held by scheduling gates"
    until("the reason", lambda: why in cluster.lockstep("explain", f"{namespace}/train"))
    assert not any(each["spec"].get("nodeName") for each in cluster.pods(namespace))
    patch = json.dumps({"spec": {"schedulingGates": None}})
    cluster.kubectl("-n", namespace, "patch", "pod", "train-1", "-p", patch)
    cluster.running(namespace, 2)


def test_the_status_of_a_pod_shows_the_health_of_its_gpus(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, pod("train", 2, node=NODE))
    cluster.running(namespace, 1)
    (held,) = until("the truth", cluster.agreed).values()
    index = {gpu.uuid: gpu.index for gpu in cluster.topologies()[NODE].gpus}

    def health() -> dict[str, str]:
        (found,) = cluster.pods(namespace)
        (status,) = found["status"]["containerStatuses"]
        return {
            each["resourceID"]: each["health"]
            for row in status["allocatedResourcesStatus"]
            if row["name"] == names.GPU
            for each in row["resources"]
        }

    until("both healthy", lambda: health() == dict.fromkeys(held.gpus, "Healthy"), 60)
    control = Control(STATE / "hardware" / NODE / "driver" / CONTROL)
    control.passing_xid(index[held.gpus[0]])
    bad = {held.gpus[0]: "Unhealthy", held.gpus[1]: "Healthy"}
    until("one unhealthy", lambda: health() == bad, 60)
    until("both healthy again", lambda: "Unhealthy" not in health().values(), 120)
    control.forget("recovery")


def test_a_preempted_pod_says_that_it_was_disrupted(cluster: World, namespace: str) -> None:
    meta = {"name": f"urgent-{namespace}"}
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    victim = pod("low", 8, node=NODE)
    victim["metadata"]["finalizers"] = ["lockstep.dev/kept-by-a-test"]  # to look at it afterwards
    cluster.apply(namespace, {**kind, "metadata": meta, "value": 100}, victim)
    cluster.running(namespace, 1)
    try:
        urgent = pod("high", 8, node=NODE)
        urgent["spec"]["priorityClassName"] = meta["name"]
        cluster.apply(namespace, urgent)

        def disrupted() -> list[str]:
            (found,) = (p for p in cluster.pods(namespace) if p["metadata"]["name"] == "low")
            conditions = {c["type"]: c for c in found["status"]["conditions"]}
            target = conditions["DisruptionTarget"]
            return [target["status"], target["reason"]]

        assert until("the condition", disrupted) == ["True", "EvictionByEvictionAPI"]
    finally:
        cluster.kubectl(
            *("-n", namespace, "patch", "pod", "low", "--type=merge", "-p"),
            '{"metadata": {"finalizers": null}}',
        )
    cluster.running(namespace, 1)
    cluster.kubectl("delete", "priorityclass", meta["name"])


def shaped(name: str, init: list[int], sidecars: list[int], main: list[int]) -> dict[str, Any]:
    """A pod of the gang g; the numbers are GPUs of each container, in order."""
    made = pod(name, main[0], gang="g", node=NODE)
    (first,) = made["spec"]["containers"]

    def container(kind: str, number: int, gpus: int, script: str, **more: str) -> dict[str, Any]:
        limits = {"limits": {names.GPU: gpus}}
        command = ["sh", "-c", script]
        return {
            **first,
            "name": f"{kind}-{number}",
            "command": command,
            "resources": limits,
            **more,
        }

    forever = "trap exit TERM; sleep 3600 & wait"
    made["spec"]["restartPolicy"] = "Always"
    made["spec"]["initContainers"] = [
        container("init", number, gpus, "true") for number, gpus in enumerate(init)
    ] + [
        container("sidecar", number, gpus, forever, restartPolicy="Always")
        for number, gpus in enumerate(sidecars)
    ]
    made["spec"]["containers"] = [
        container("main", number, gpus, forever) for number, gpus in enumerate(main)
    ]
    return made


@pytest.mark.parametrize(
    "shapes",
    [
        ([1, 2], [1], [3]),
        pytest.param(([1], [], [2]), marks=pytest.mark.nightly),
        pytest.param(([2], [], [2, 1]), marks=pytest.mark.nightly),
        pytest.param(([], [2], [1, 2]), marks=pytest.mark.nightly),
    ],
)
def test_init_containers_and_sidecars_keep_the_plan(
    cluster: World, namespace: str, shapes: tuple[list[int], list[int], list[int]]
) -> None:
    """Two such pods beside each other, planned on other GPUs than the kubelet would take."""
    agent = cluster.agent_on(NODE)["metadata"]["name"]
    cluster.apply(namespace, pod("first", 1, node=NODE))
    cluster.running(namespace, 1)
    cluster.apply(namespace, podgroup("g", 1), shaped("g-0", *shapes))
    cluster.running(namespace, 2)
    held = cluster.agreed()
    assert disjoint(held.values())
    assert len(held[namespace, "g-0"].gpus) == sum(shapes[1]) + sum(shapes[2])
    lines = cluster.logs(NAMESPACE, agent).splitlines()
    mine = [line for line in lines if "prefer" in line and f"({namespace}/g-0, container" in line]
    assert any("as planned" in line for line in mine)
    assert not [line for line in mine if "not available" in line]


def test_containers_restart_while_the_agent_is_away(cluster: World, namespace: str) -> None:
    cluster.apply(namespace, podgroup("g", 1), shaped("g-0", [1], [1], [2]))
    cluster.running(namespace, 1)
    held = cluster.agreed()

    def restarted(count: int) -> bool:
        (found,) = cluster.pods(namespace)
        status = found["status"]["containerStatuses"][0]
        return bool(status["restartCount"] >= count and "running" in status["state"])

    with no_agent(cluster, NODE):
        exec_argv = ("-n", namespace, "exec", "g-0", "-c", "main-0", "--")
        cluster.kubectl(*exec_argv, "sh", "-c", "(sleep 1; kill 1) >/dev/null 2>&1 &")
        until("another container", lambda: restarted(1), 60)
        assert cluster.truth() == held
    until("8 allocatable GPUs", lambda: cluster.allocatable()[NODE] == 8, 60)
    assert cluster.agreed() == held
