"""A GPU that makes errors while a gang runs on it: out of the allocatable ones at once, its owner told,
and back when it has been well for long enough."""

import json
from typing import Any

import pytest

from tests.e2e.cluster.settings import STATE
from tests.e2e.world import World, pod, podgroup, until
from tests.fakes.nvml.build import CONTROL
from tests.fakes.nvml.control import Control

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_gpu_with_an_error_is_left_alone_and_comes_back(cluster: World, namespace: str) -> None:
    members = [pod(f"train-{i}", 4, gang="train", node="node-1") for i in range(2)]
    cluster.apply(namespace, podgroup("train", 2), *members)
    cluster.running(namespace, 2)
    held = until("the truth", cluster.agreed)
    uuid = held[namespace, "train-1"].gpus[0]
    index = next(g.index for g in cluster.topologies()["node-1"].gpus if g.uuid == uuid)

    control = Control(STATE / "hardware/node-1/driver" / CONTROL)
    control.passing_xid(index)
    until("7 allocatable GPUs", lambda: cluster.allocatable()["node-1"] == 7, 20)
    words = "XID 94: contained memory error"
    shown = json.loads(cluster.lockstep("topology", "node-1", "-o", "json"))["gpus"][index]
    assert not shown["healthy"]
    assert shown["why"].startswith(words)
    assert f"GPU{index}: {words}" in cluster.lockstep("topology", "node-1")
    told = f"GPU {index} of node node-1, held by train-1, is unhealthy: {words}"
    assert told in cluster.lockstep("explain", f"{namespace}/train")

    def warned() -> set[Any]:
        events = cluster.api.get(f"/api/v1/namespaces/{namespace}/events")["items"]
        kinds = {e["involvedObject"]["kind"] for e in events if e["message"].startswith(told)}
        return kinds if kinds == {"Pod", "PodGroup"} else set()

    until("the owner to be told", warned, 60)
    cluster.running(namespace, 2)
    until("8 allocatable GPUs", lambda: cluster.allocatable()["node-1"] == 8, 60)
    control.forget("recovery")
    assert "unhealthy" not in cluster.lockstep("explain", f"{namespace}/train")
