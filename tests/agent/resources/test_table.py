"""Every kind of device is served through the table."""

from dataclasses import replace
from pathlib import Path

import pytest

from agent.machine.survey import survey
from agent.node import AgentNode
from agent.node_state import NodeState
from agent.resources import table
from agent.resources.cdi import Injection
from agent.resources.device_files import DeviceFiles
from agent.resources.device_info import DeviceInfoFiles
from agent.resources.device_resource import DeviceResource
from agent.resources.gpu_resource import RecentAllocation
from agent.service import Agent
from agent.settings import Settings
from protos.names import GPU, GPU_SHARE, RDMA
from tests.agent.mig.test_slice_discovery import MACHINE

STATE = NodeState(topology=survey(MACHINE))


def test_names_grow_with_the_profiles_of_the_node() -> None:
    assert table.names(NodeState()) == (GPU, GPU_SHARE, RDMA)
    assert "nvidia.com/mig-3g.20gb" in table.names(STATE)
    assert all(map(table.served, table.names(STATE)))
    assert not table.served("nvidia.com/other")
    assert not table.served("cpu")


def test_each_name_has_its_own_resource_and_socket(tmp_path: Path) -> None:
    agent = Agent(replace(Settings(node="n"), kubelet_dir=tmp_path))
    node = AgentNode("n")
    files = DeviceFiles(node, {}, "never", tmp_path, tmp_path)
    injection = Injection("env", GPU, "X", None, dict)
    sharing = agent._monitor.sharing
    recent = RecentAllocation()
    services = table.Services(
        *(files, injection, injection, sharing, DeviceInfoFiles(None)),
        *(lambda ids, holder: None, recent, recent),
    )
    made: list[DeviceResource] = [table.make(name, services) for name in table.names(STATE)]
    assert [resource.name for resource in made] == list(table.names(STATE))
    assert len({resource.endpoint for resource in made}) == len(made)
    for resource in made:
        ids = [device.id for device in resource.devices(STATE)][:1]
        if ids:
            assert resource.describe(ids, STATE)
    with pytest.raises(StopIteration):
        table.make("cpu", services)
