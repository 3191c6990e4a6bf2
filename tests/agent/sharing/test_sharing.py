"""The memory cap of a share: set by Allocate, checked by PreStartContainer."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest

from agent.allocations import Forgotten
from agent.machine.survey import survey
from agent.node import AgentNode
from agent.resources.device_resource import ContainerKey, Refused
from agent.settings import Settings
from agent.sharing.sharing import Sharing
from protos.gpu_sharing import LEAST, MEMORY, RANKS, SHARE
from protos.names import GPU_SHARE
from protos.nearest import share_id
from protos.stubs import deviceplugin_pb2 as pb
from protos.topology import Grant
from tests.fakes import machines

GIB = 2**30


class Box:
    """A node of one GPU, without a survey of its capabilities."""

    def __init__(self, folder: Path, level: str) -> None:
        self.node = AgentNode("n")
        topology = survey(machines.machine(1))
        gpus = tuple(replace(gpu, shares=100, enforcement=level) for gpu in topology.gpus)
        self.node.set_topology(replace(topology, gpus=gpus))
        settings = Settings(node="n", kubelet_dir=folder, sharing_dir=folder / "s")
        self.sharing = Sharing(settings, self.node, lambda uuids: {})

    def plan(self, name: str, cap: int, least: str = "none") -> Grant:
        limits = tuple(sorted({SHARE: 2, MEMORY: cap, LEAST: RANKS[least]}.items()))
        plan = Grant("team", name, "c", GPU_SHARE, (machines.uuid(0),), limits)
        intents = (*self.node.state.intents, plan)
        self.node.set_intents(intents, self.node.state.intents_version + 1)
        return plan

    def ask(self, first: int, *meant: ContainerKey) -> dict[str, str]:
        ids = tuple(sorted(share_id(machines.uuid(0), number) for number in (first, first + 1)))
        self.node.record_allocation(GPU_SHARE, ids, 0.0)
        return self.sharing.response(ids, self.node.state, meant)[0]


def test_pods_with_unlike_caps_are_not_mixed_up(tmp_path: Path) -> None:
    """If the request may be for several pods, a pod could get the MPS variables of another."""
    box = Box(tmp_path, "mps")
    box.plan("a", GIB)
    assert box.ask(0)["LOCKSTEP_GPU_MEMORY"] == str(GIB)
    box.plan("b", 2 * GIB)
    with pytest.raises(ValueError, match="2 pods with different GPU memory caps"):
        box.ask(2)
    assert box.ask(4, ("team", "b", "c"))["LOCKSTEP_GPU_MEMORY"] == str(2 * GIB)


def test_less_than_what_is_demanded_is_refused_twice(tmp_path: Path) -> None:
    box = Box(tmp_path, "watch")
    plan = box.plan("a", GIB, "mps")
    with pytest.raises(ValueError, match="enforces memory caps by watch, which is weaker"):
        box.ask(0)
    box.node.set_intents((), 2)
    ids = tuple(sorted(share_id(machines.uuid(0), number) for number in (2, 3)))
    box.ask(2)
    box.node.set_intents((plan,), 3)  # the plan came after the pod
    with pytest.raises(Refused, match="enforces memory caps by watch, which is weaker"):
        box.sharing.pre_start(ids, ("team", "a", "c"))
    box.sharing.pre_start(ids, ("team", "another", "c"))


def test_mps_has_no_room_for_a_49th_client(tmp_path: Path) -> None:
    box = Box(tmp_path, "mps")
    for number in range(48):
        box.ask(2 * number)
    with pytest.raises(ValueError, match="an MPS server has at most 48 clients"):
        box.ask(96)


def test_what_was_told_is_known_after_a_restart(tmp_path: Path) -> None:
    """The kubelet's checkpoint has the agent's answers; entries that cannot be decoded are
    ignored."""
    envs = {"LOCKSTEP_GPU_ENFORCEMENT": "none", "LOCKSTEP_GPU_MEMORY": "7"}
    answer = pb.ContainerAllocateResponse(envs=envs).SerializeToString()
    ids = [share_id(machines.uuid(0), number) for number in (0, 1)]
    entries = [
        {
            "PodUID": f"u{place}",
            "ContainerName": "c",
            "ResourceName": GPU_SHARE,
            "DeviceIDs": {"0": [each]},
            "AllocResp": said,
        }
        for place, (each, said) in enumerate(
            zip(ids, (base64.b64encode(answer).decode(), "nonsense"), strict=True)
        )
    ]
    plugins = tmp_path / "device-plugins"
    plugins.mkdir()
    data = {"Data": {"PodDeviceEntries": entries}, "Checksum": 0}
    (plugins / "kubelet_internal_checkpoint").write_text(json.dumps(data))
    sharing = Box(tmp_path, "watch").sharing
    assert not sharing.watched((ids[0],))
    assert sharing.watched((ids[1],))


def test_mps_stays_under_a_pod_that_the_kubelet_has_forgotten(tmp_path: Path) -> None:
    box = Box(tmp_path, "mps")
    box.ask(0)
    ids = box.node.state.allocations[0].device_ids
    grant = Grant("team", "a", "c", GPU_SHARE, ids)
    box.node.set_grants((grant,))
    box.sharing.keep()
    (asked,) = (tmp_path / "s" / "wanted").iterdir()
    box.node.set_grants((), forgotten=(Forgotten(GPU_SHARE, ids, "it runs", grant),))
    box.sharing.keep()
    assert asked.exists()
    assert box.sharing.settings()[ids].level == "mps"
