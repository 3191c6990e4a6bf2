"""What the agents do beside other software: the GPU operator's drain label, nodes without GPUs, marks on nodes for
repair tools, and checks before a gang starts."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.cluster.settings import STATE
from tests.e2e.rollout import components, on
from tests.e2e.world import World, pod, podgroup, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE, OTHER = "node-1", "node-2"
DEPLOY = "nvidia.com/gpu.deploy.device-plugin"
TAINT = "lockstep.dev/gpu-unhealthy"
# Agents that have the driver's library open; the DaemonSet of components/mps is not the operator's to stop.
OPEN = (
    "for maps in $(grep -l libnvidia-ml /proc/[0-9]*/maps 2>/dev/null); do"
    " tr '\\0' ' ' < ${maps%maps}cmdline; echo; done | grep -v gpu-setup | grep -c lockstep-agent || true"
)


def control() -> Control:
    return Control(STATE / "hardware" / NODE / "driver" / CONTROL)


@contextmanager
def failing(gpu: int) -> Iterator[None]:
    """XID 94 every two seconds: a GPU that nobody uses is well again soon after one."""
    stop, driver = threading.Event(), control()

    def errors() -> None:
        while not stop.wait(2.0):
            driver.passing_xid(gpu)

    thread = threading.Thread(target=errors)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
        driver.forget("recovery")


@contextmanager
def labelled(
    cluster: World, node: str, label: str, value: str, before: str = "-"
) -> Iterator[None]:
    """before: how the label was, such as =true; -: it was not there."""
    cluster.kubectl("label", "node", node, f"{label}={value}", "--overwrite")
    try:
        yield
    finally:
        cluster.kubectl("label", "node", node, f"{label}{before}", "--overwrite")


def agents(cluster: World, node: str, name: str = "lockstep-agent") -> list[Any]:
    return [p for p in cluster.system_pods(name) if p["spec"].get("nodeName") == node]


def test_the_operators_label_makes_the_agent_close_the_driver(
    cluster: World, namespace: str
) -> None:
    """As its driver manager does before it unloads the module: the agent leaves, what runs goes on."""

    def runtime(items: list[Any]) -> None:
        meta = {"name": "nvidia"}
        kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass"}
        items.insert(0, {**kind, "metadata": meta, "handler": "runc"})

    with (
        labelled(cluster, OTHER, DEPLOY, "true"),
        labelled(cluster, NODE, DEPLOY, "true"),
        components(cluster, "gpu-operator", edit=runtime),
    ):
        assert cluster.agent_on(NODE)["spec"]["runtimeClassName"] == "nvidia"
        until("8 allocatable GPUs", lambda: cluster.allocatable()[NODE] == 8, 60)
        cluster.apply(namespace, pod("runs", 2, node=NODE))
        uid = cluster.running(namespace, 1)[0]["metadata"]["uid"]
        held = cluster.agreed()
        assert int(on(NODE, "sh", "-c", OPEN)) > 0

        cluster.kubectl(
            *("label", "node", NODE, f"{DEPLOY}=paused-for-driver-upgrade", "--overwrite")
        )
        until("the agent to leave", lambda: not agents(cluster, NODE), 60)
        until("no open driver", lambda: int(on(NODE, "sh", "-c", OPEN)) == 0, 30)
        until("no GPUs to give", lambda: cluster.allocatable()[NODE] == 0, 60)
        cluster.apply(namespace, pod("late", 1, node=NODE))

        cluster.kubectl("label", "node", NODE, f"{DEPLOY}=true", "--overwrite")
        pods = cluster.running(namespace, 2, 90)
        assert uid in {each["metadata"]["uid"] for each in pods}
        assert held.items() <= cluster.agreed().items()


def test_a_node_without_gpus_has_the_other_agent(cluster: World) -> None:
    with components(cluster, "cpu-nodes"):
        assert not cluster.system_pods("lockstep-agent-cpu"), "both nodes have GPUs"
        with labelled(cluster, OTHER, "nvidia.com/gpu.present", "false", "=true"):
            until("the agent to leave", lambda: not agents(cluster, OTHER), 60)

            def ready() -> bool:
                (found,) = agents(cluster, OTHER, "lockstep-agent-cpu")
                return bool(found["status"]["containerStatuses"][0]["ready"])

            until("the agent without a driver", ready, 60)
            until("a report without GPUs", lambda: not cluster.topologies()[OTHER].gpus, 60)
            assert len(cluster.topologies()[OTHER].hcas) >= 8
            until("no GPUs to give", lambda: cluster.allocatable()[OTHER] == 0, 60)
        until("the agent to be back", lambda: cluster.topologies()[OTHER].gpus, 90)
        until("the other to leave", lambda: not agents(cluster, OTHER, "lockstep-agent-cpu"), 60)
    until("8 allocatable GPUs", lambda: set(cluster.allocatable().values()) == {8}, 60)


def node(cluster: World) -> Any:
    return cluster.api.get(f"/api/v1/nodes/{NODE}")


def condition(cluster: World) -> tuple[str, str]:
    found = {c["type"]: c for c in node(cluster)["status"]["conditions"]}["GpuUnhealthy"]
    return found["status"], found["reason"]


def taints(cluster: World) -> list[str]:
    return [each["key"] for each in node(cluster)["spec"].get("taints", [])]


def test_nodes_are_marked_for_other_tools(cluster: World, namespace: str) -> None:
    with components(cluster, "node-labels", "node-condition", "node-taint"):
        labels = {"nvidia.com/gpu.count": "8", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
        until(
            "the labels", lambda: labels.items() <= node(cluster)["metadata"]["labels"].items(), 60
        )
        until("the condition", lambda: condition(cluster) == ("False", "GpusHealthy"), 30)
        assert TAINT not in taints(cluster)

        with failing(5):
            until("the XID", lambda: condition(cluster) == ("True", "NvidiaXID94Error"), 60)
            until("the taint", lambda: TAINT in taints(cluster), 30)
            cluster.apply(namespace, pod("waits", 1, node=NODE))
            waits = f"{namespace}/waits"
            until("the reason", lambda: TAINT in cluster.lockstep("explain", waits), 30)

        until("no condition", lambda: condition(cluster) == ("False", "GpusHealthy"), 120)
        until("no taint", lambda: TAINT not in taints(cluster), 30)
        cluster.running(namespace, 1)


@pytest.mark.parametrize("mended", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_gpu_that_fails_its_check_is_left_out_before_a_gang_starts(
    cluster: World, namespace: str, mended: bool
) -> None:
    control().set("link", 3, 7, 0)
    try:
        with components(cluster, "preflight"):
            until("7 allocatable GPUs", lambda: cluster.allocatable()[NODE] == 7, 60)
            words = "preflight: 11 of 12 NVLinks to the switches are up"
            shown = json.loads(cluster.lockstep("topology", NODE, "-o", "json"))["gpus"][3]
            assert words in shown["why"]
            members = [pod(f"g-{i}", 4, gang="g", node=NODE) for i in range(2)]
            cluster.apply(namespace, podgroup("g", 2), *members)
            until("the reason", lambda: "GPU" in cluster.lockstep("explain", f"{namespace}/g"))
            assert not cluster.truth()

            if mended:
                control().set("link", 3, 7, 1)
                cluster.running(namespace, 2, 120)  # checked again after a minute
                assert len(cluster.agreed()) == 2
    finally:
        control().set("link", 3, 7, 1)
