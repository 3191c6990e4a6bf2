"""Shares of GPUs on real kubelets: unequal ones side by side, and one GPU never both ways."""

import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from protos import names
from protos.nearest import device_of
from tests.e2e.cluster.settings import STATE, Trouble
from tests.e2e.world import World, pod, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = "node-1"


def part(name: str, share: int, **other: Any) -> dict[str, Any]:
    made = pod(name, 1, **other)
    made["spec"]["containers"][0]["resources"] = {"limits": {names.GPU_SHARE: share}}
    return made


def direct(made: dict[str, Any]) -> dict[str, Any]:
    """As if another scheduler had bound it."""
    made["spec"]["nodeName"] = NODE
    made["spec"]["schedulerName"] = "somebody"
    return made


def shares(cluster: World) -> Counter[str]:
    """Hundredths in use of each GPU, as the kubelet says."""
    listed = cluster.listed(NODE, names.GPU_SHARE).values()
    return Counter(device_of(each) for ids in listed for each in ids)


def test_unequal_shares_on_one_gpu_and_back(cluster: World, namespace: str) -> None:
    until("shares of all GPUs", lambda: cluster.allocatable(names.GPU_SHARE)[NODE] == 800)
    for name, share in (("a", 30), ("b", 50), ("c", 20)):
        cluster.apply(namespace, part(name, share, node=NODE))
        cluster.running(namespace, "abc".index(name) + 1)
    told = {name: cluster.environment(namespace, name) for name in "abc"}
    assert len({env["NVIDIA_VISIBLE_DEVICES"] for env in told.values()}) == 1
    assert [told[name]["LOCKSTEP_GPU_SHARE"] for name in "abc"] == ["30", "50", "20"]
    assert list(shares(cluster).values()) == [100]

    until("the GPU to leave the whole ones", lambda: cluster.allocatable()[NODE] == 7)
    table = until("the command line", lambda: cluster.lockstep("topology"), 60)
    assert "1 (100/100)" in table
    assert "(30/100)" in cluster.lockstep("explain", f"{namespace}/a")

    cluster.apply(namespace, pod("whole", 8, node=NODE))

    def waits() -> str:
        said = cluster.lockstep("explain", f"{namespace}/whole")
        return said if "7 of 7 GPUs free" in said else ""

    until("the sentence", waits)
    cluster.kubectl("-n", namespace, "delete", "pod", "a", "b", "c")
    cluster.running(namespace, 1, 60)
    assert cluster.truth(NODE).keys() == {(namespace, "whole")}
    until("no shares to be left", lambda: cluster.allocatable(names.GPU_SHARE)[NODE] == 0)


def test_no_gpu_is_sold_both_ways_when_all_come_at_once(cluster: World, namespace: str) -> None:
    """Pods of both kinds, bound by somebody who counts them apart: more than there is room for."""
    pods = [direct(pod(f"w-{number}", 2)) for number in range(4)]
    pods += [direct(part(f"p-{number}", 40)) for number in range(12)]
    pods = [pods[place * 7 % 16] for place in range(16)]  # the kinds mixed
    cluster.apply(namespace, *pods)

    def settled() -> list[Any]:
        found = cluster.pods(namespace)
        phases = [each["status"]["phase"] for each in found]
        if len(phases) < len(pods) or "Pending" in phases:
            raise Trouble(f"phases are {phases}")
        return found

    found = until("every pod to run or to have failed", settled, 120)
    whole = [gpu for ids in cluster.listed(NODE).values() for gpu in ids]
    used = shares(cluster)
    assert len(whole) == len(set(whole))
    assert not set(whole) & used.keys()
    assert max(used.values(), default=0) <= 100
    running = {each["metadata"]["name"] for each in found if each["status"]["phase"] == "Running"}
    assert {name for _, name in cluster.listed(NODE)} <= running
    assert len(running) >= 4
    agent = cluster.agent_on(NODE)["metadata"]["name"]
    cluster.kubectl("-n", "lockstep-system", "delete", "pod", agent)
    until("the agent to be back", lambda: cluster.agent_on(NODE)["metadata"]["name"] != agent)
    free = 8 - len(set(whole)) - len(used)
    until("what is free, again", lambda: cluster.allocatable()[NODE] == free + len(set(whole)), 90)
    assert shares(cluster) == used


def test_who_exceeds_its_memory_is_told_and_evicted(cluster: World, namespace: str) -> None:
    """A process in the pod's cgroup, as the driver tells of it."""
    made = part("greedy", 30, node=NODE)
    made["metadata"]["annotations"] |= {names.GPU_MEMORY: "4Gi", names.GPU_MEMORY_LEVEL: "watch"}
    modest = part("modest", 30, node=NODE)
    modest["metadata"]["annotations"] |= {names.GPU_MEMORY: "4Gi"}
    sure = part("sure", 30, node=NODE)
    sure["metadata"]["annotations"] |= {names.GPU_MEMORY: "4Gi", names.GPU_MEMORY_LEVEL: "kernel"}
    cluster.apply(namespace, made, modest, sure)

    def running() -> set[str]:
        found = {
            each["metadata"]["name"]: each["status"]["phase"] for each in cluster.pods(namespace)
        }
        names_ = {name for name, phase in found.items() if phase == "Running"}
        return names_ if names_ == {"greedy", "modest"} else set()

    until("two of three to run", running)
    assert "GPU memory enforcement is watch" in cluster.lockstep("explain", f"{namespace}/sure")
    told = cluster.environment(namespace, "greedy")
    assert told["LOCKSTEP_GPU_ENFORCEMENT"] == "watch"
    control = Control(STATE / "hardware" / NODE / "driver" / CONTROL)
    for pod_, mib in (("greedy", 5000), ("modest", 3000)):
        control.set("process", int(told["LOCKSTEP_GPUS"]), process(cluster, namespace, pod_), mib)

    def evicted() -> set[str]:
        events = cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        reasons = {
            each["reason"]
            for each in events
            if each["involvedObject"]["name"] == "greedy" and "limit 4Gi" in each.get("message", "")
        }
        left = {each["metadata"]["name"] for each in cluster.pods(namespace)}
        return (
            reasons
            if reasons >= {"GpuMemoryExceeded", "Evicted"} and "greedy" not in left
            else set()
        )

    until("the greedy one to be told and evicted", evicted, 60)
    assert running() or {each["metadata"]["name"] for each in cluster.pods(namespace)} >= {"modest"}
    control.forget("process")


def process(cluster: World, namespace: str, name: str) -> int:
    """The number, on its machine, of a process in the pod's cgroup: a container has numbers of its own."""
    found = [each for each in cluster.pods(namespace) if each["metadata"]["name"] == name]
    uid = found[0]["metadata"]["uid"]
    for file in Path("/proc").glob("[0-9]*/cgroup"):
        with contextlib.suppress(OSError):
            if re.search(f"pod{uid}|pod{uid.replace('-', '_')}", file.read_text()):
                told = re.search(
                    r"^NSpid:\s+(.*)$", (file.parent / "status").read_text(), re.MULTILINE
                )
                return int(told.group(1).split()[-2]) if told else int(file.parent.name)
    raise Trouble(f"no process of {namespace}/{name}")
