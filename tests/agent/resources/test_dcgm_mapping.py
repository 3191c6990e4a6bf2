"""DCGM exporter (4.x, internal/pkg/transformation/kubernetes.go) finds the pods of a GPU by the resources and
device ids in pod-resources. Its rules, written from that file, find every device that this agent serves."""

from dataclasses import replace
from pathlib import Path

from agent.machine.survey import survey
from agent.node_state import NodeState
from agent.resources import table
from agent.resources.device_resource import Device
from agent.resources.gpu_share import GpuShareResource
from agent.resources.whole_gpu import WholeGpuResource
from agent.service import Agent
from agent.settings import Settings
from protos import slicing
from protos.names import GPU_SHARE
from tests.agent.mig.test_slice_discovery import MACHINE
from tests.manifests.manifests import ROOT

TOPOLOGY = survey(MACHINE)


def exporters_key(resource: str, device: str, named: tuple[str, ...]) -> str:
    """The UUID under which the exporter files a pod with this device; empty: it skips the resource."""
    if resource not in ("nvidia.com/gpu", *named) and not resource.startswith("nvidia.com/mig-"):
        return ""
    return device.split("::", maxsplit=1)[0]


def served(tmp_path: Path) -> dict[str, tuple[Device, ...]]:
    agent = Agent(replace(Settings(node="n"), kubelet_dir=tmp_path))
    whole = [replace(gpu, shares=100) for gpu in TOPOLOGY.gpus if not gpu.mig]
    others = [gpu for gpu in TOPOLOGY.gpus if gpu.mig]
    gpus = tuple(sorted((*whole, *others), key=lambda gpu: gpu.index))
    state = NodeState(topology=replace(TOPOLOGY, gpus=gpus))
    plugins = [agent._registration(name)._resource for name in agent_names(state)]
    assert {WholeGpuResource, GpuShareResource} <= set(map(type, plugins))
    return {plugin.name: plugin.devices(state) for plugin in plugins}


def agent_names(state: NodeState) -> list[str]:

    return [name for name in table.names(state) if name != "lockstep.dev/rdma"]


def test_every_gpu_and_slice_and_share_has_its_pod(tmp_path: Path) -> None:
    gpus = {gpu.uuid for gpu in TOPOLOGY.gpus}
    slices = {part.uuid for _, part in slicing.of(TOPOLOGY)}
    assert slices
    for resource, devices in served(tmp_path).items():
        for device in devices:
            key = exporters_key(resource, device.id, (GPU_SHARE,))
            assert key in (slices if slicing.is_slice(resource) else gpus), (resource, device.id)


def test_shares_only_if_the_exporter_is_told_of_them(tmp_path: Path) -> None:
    (first, *_) = served(tmp_path)[GPU_SHARE]
    assert exporters_key(GPU_SHARE, first.id, ()) == ""
    told = (ROOT / "docs/how-to/monitor.md").read_text()
    assert f"{{name: NVIDIA_RESOURCE_NAMES, value: {GPU_SHARE}}}" in told
