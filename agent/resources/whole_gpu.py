"""Whole GPUs as a resource."""

from collections.abc import Sequence
from dataclasses import replace

from agent.node_state import NodeState
from agent.resources import gpu_allocation
from agent.resources.device_resource import Device
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
)
from agent.resources.gpu_resource import GpuResource
from protos.names import GPU, GPU_SHARE


class WholeGpuResource(GpuResource):
    name = GPU
    endpoint = "lockstep-gpu.sock"

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        taken = _otherwise(state)
        return tuple(
            Device(gpu.uuid, gpu.healthy and gpu.uuid not in taken, gpu.numa)
            for gpu in state.topology.gpus
            if not gpu.mig
        )

    def preferred(
        self,
        question: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        plans = tuple(plan for plan in state.intents if plan.resource == GPU)
        rows = None if listed is None else tuple(row.of(GPU) for row in listed)
        taken = _otherwise(state)
        promised = {uuid for p in state.intents if p.resource == GPU_SHARE for uuid in p.device_ids}
        for spoken_for in (taken | promised, taken):
            free = tuple(uuid for uuid in question.available if uuid not in spoken_for)
            if len(free) >= question.size:
                question = replace(question, available=free)
                break
        return gpu_allocation.preferred(question, state.topology, plans, rows, asked)

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        given = gpu_allocation.response(ids, state.topology, files)
        return replace(given, envs={**given.envs, "LOCKSTEP_GPU_ENFORCEMENT": "whole"})

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        return "GPUs " + ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in ids)


def _otherwise(state: NodeState) -> frozenset[str]:
    """The GPUs that are in use in another way."""
    allocated = state.allocated()
    return allocated.sliced.union(allocated.shared)
