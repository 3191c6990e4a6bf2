"""MIG slices on real kubelets: GPUs are divided and put together again while pods run; a gang of slices is
placed whole, and whoever holds a slice that fails is told."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from agent.machine import capture
from protos import names
from tests.captures.mig import sliced
from tests.e2e.cluster.settings import STATE
from tests.e2e.hardware import CAPTURES
from tests.e2e.world import World, pod, podgroup, until
from tests.fakes.nvml import build
from tests.fakes.nvml.control import Control

PODGROUPS = "podgroups.scheduling.volcano.sh"  # "podgroup" alone may be Kubernetes' own
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

NODE = "node-1"
DRIVER = STATE / "hardware" / NODE / "driver"
ONE, TWO, THREE = (f"nvidia.com/mig-{name}" for name in ("1g.10gb", "2g.20gb", "3g.40gb"))
UNEQUAL = {1: "3g.40gb", 5: "2g.20gb", 11: "1g.10gb", 12: "1g.10gb"}  # by GPU instance
EQUAL = dict.fromkeys(range(7, 14), "1g.10gb")


class Divider:
    """Divides the node's GPUs, as nvidia-smi would."""

    def __init__(self, cluster: World) -> None:
        self._cluster = cluster
        self._machine = capture.load(CAPTURES / "dgx-a100-8.json")
        self.control = Control(DRIVER / build.CONTROL)

    def into(self, profiles: dict[int, dict[int, str]], **counts: int) -> None:
        """profiles: by GPU instance, by GPU. The driver says that something is otherwise."""
        gpus = self._machine.nvml.gpus
        parts = tuple(sliced(g, profiles[g.index]) if g.index in profiles else g for g in gpus)
        machine = replace(self._machine, nvml=replace(self._machine.nvml, gpus=parts))
        fresh = DRIVER / f".{build.PROFILE}"
        fresh.write_text(build.profile(machine))
        fresh.replace(DRIVER / build.PROFILE)
        self.control.xid(0, 31)  # a program's own error: only a look

    def counted(self, expected: dict[str, int]) -> None:
        def now() -> bool:
            return {name: self._cluster.allocatable(name)[NODE] for name in expected} == expected

        until(f"{expected} on {NODE}", now, 90)


@pytest.fixture
def divider(cluster: World, namespace: str) -> Iterator[Divider]:
    made = Divider(cluster)
    yield made
    made.into({})
    for each in cluster.pods(namespace):
        cluster.kubectl("-n", namespace, "delete", "pod", each["metadata"]["name"], "--wait=false")
    made.counted({names.GPU: 8, ONE: 0, TWO: 0, THREE: 0})


def part(name: str, resource: str, gang: str = "", count: int = 1) -> dict[str, Any]:
    made = pod(name, 1, gang=gang, node=NODE)
    made["spec"]["containers"][0]["resources"] = {"limits": {resource: count}}
    return made


def test_a_gang_of_slices_and_a_gpu_that_is_divided_anew(
    cluster: World, namespace: str, divider: Divider
) -> None:
    divider.into({6: UNEQUAL, 7: EQUAL})
    divider.counted({names.GPU: 6, ONE: 9, TWO: 1, THREE: 1})

    members = [part(f"infer-{i}", ONE, "infer") for i in range(7)]
    cluster.apply(namespace, podgroup("infer", 7), *members)
    cluster.running(namespace, 7)
    told = {i: cluster.environment(namespace, f"infer-{i}") for i in range(7)}
    mine = {env["NVIDIA_VISIBLE_DEVICES"] for env in told.values()}
    held = {each for ids in cluster.listed(NODE, ONE).values() for each in ids}
    assert mine == held
    assert len(held) == 7
    assert {env["LOCKSTEP_GPU_ENFORCEMENT"] for env in told.values()} == {"mig"}

    # What there is, and who has it; a gang that is too large reads why.
    def shown() -> dict[str, str]:
        view = json.loads(cluster.lockstep("topology", NODE, "-o", "json"))
        found = {
            part["uuid"]: f"{holder['namespace']}/{holder['pod']}"
            for holder in view["holders"]
            for part in holder.get("slices", [])
        }
        return found if found.keys() == held else {}

    holders = until("the slices' holders", shown)
    table = cluster.lockstep("topology", NODE)
    assert "7/11" in table
    for uuid, who in holders.items():
        assert any(line.endswith(f"{uuid}  {who}") for line in table.splitlines()), uuid
    assert "(1g.10gb)" in cluster.lockstep("explain", f"{namespace}/infer")
    cluster.apply(namespace, podgroup("big", 3), *(part(f"big-{i}", ONE, "big") for i in range(3)))
    words = "2 of 9 1g.10gb slices free on 1 node"
    until("the sentence", lambda: words in cluster.lockstep("explain", f"{namespace}/big"))
    cluster.kubectl(
        "-n", namespace, "delete", f"{PODGROUPS}/big", "pod/big-0", "pod/big-1", "pod/big-2"
    )

    # One GPU instance fails: that slice alone, and its gang is told.
    gpu = int(told[0]["LOCKSTEP_GPUS"])
    uuid = told[0]["NVIDIA_VISIBLE_DEVICES"]
    (failed,) = (p for p in cluster.topologies()[NODE].gpus[gpu].slices if p.uuid == uuid)
    divider.control.xid(gpu, 94, failed.gi, 0)
    divider.counted({names.GPU: 6, ONE: 8})
    words = (
        f"GPU {gpu}'s 1g.10gb (gi {failed.gi}, ci 0) of node {NODE}, held by infer-0, is unhealthy"
    )
    until("the gang to be told", lambda: words in cluster.lockstep("explain", f"{namespace}/infer"))
    divider.counted({ONE: 9})

    # The GPU that nobody uses is put together again; who runs on the other one runs on.
    other = 13 - gpu
    left = {gpu: EQUAL if gpu == 7 else UNEQUAL}
    assert {env["LOCKSTEP_GPUS"] for env in told.values()} == {str(gpu)} == {"7"}
    divider.into(left)
    divider.counted({names.GPU: 7, ONE: 7, TWO: 0, THREE: 0})
    cluster.apply(namespace, pod("whole", 7, node=NODE))
    cluster.running(namespace, 8)
    assert str(other) in cluster.environment(namespace, "whole")["LOCKSTEP_GPUS"].split(",")
    assert str(gpu) not in cluster.environment(namespace, "whole")["LOCKSTEP_GPUS"].split(",")
    assert {each for ids in cluster.listed(NODE, ONE).values() for each in ids} == held

    # And its own GPU, by force: it is nobody else's until they have gone. Agents may start anew.
    divider.into({})
    divider.counted({names.GPU: 7, ONE: 0})
    agent = cluster.agent_on(NODE)["metadata"]["name"]
    cluster.kubectl("-n", "lockstep-system", "delete", "pod", agent)
    until("the agent to be back", lambda: cluster.agent_on(NODE)["metadata"]["name"] != agent)
    divider.counted({names.GPU: 7})
    gone = "is unhealthy: it is gone: its GPU was repartitioned"
    until("the gang to be told", lambda: gone in cluster.lockstep("explain", f"{namespace}/infer"))
    cluster.kubectl(
        "-n", namespace, "delete", f"{PODGROUPS}/infer", *(f"pod/infer-{i}" for i in range(7))
    )
    divider.counted({names.GPU: 8})
