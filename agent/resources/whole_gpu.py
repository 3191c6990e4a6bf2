"""Whole GPUs: nvidia.com/gpu."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.allocations import Allocated
from agent.node_state import NodeState
from agent.resources import gpu_allocation
from agent.resources.cdi import Injection
from agent.resources.device_resource import Choice, ContainerResponse, Device, DeviceRequest
from agent.resources.gpu_resource import FindFiles, GpuResource, RecentAllocation
from protos.names import GPU, GPU_SHARE


class WholeGpuResource(GpuResource):
    name = GPU
    endpoint = "lockstep-gpu"

    def __init__(
        self,
        files: FindFiles,
        injection: Injection,
        recent: RecentAllocation | None = None,
        imex: Callable[[], tuple[int, tuple[str, ...]]] = lambda: (-1, ()),
    ) -> None:
        """imex: the IMEX channel for containers (-1: none) and its device files."""
        super().__init__(files, injection, recent)
        self._imex = imex

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        given = super().response(ids, state)
        channel, files = self._imex()
        if channel < 0:
            return given
        # NVIDIA's container runtime reads the variable, as that of the GPUs.
        envs = {**given.envs, "NVIDIA_IMEX_CHANNELS": str(channel)}
        return replace(given, envs=envs, device_nodes=(*given.device_nodes, *files))

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        allocated = state.allocated()
        taken = _in_parts(allocated) | allocated.claimed.keys()
        return tuple(
            Device(gpu.uuid, gpu.healthy and gpu.uuid not in taken, gpu.numa)
            for gpu in state.topology.gpus
            if not gpu.mig
        )

    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        plans = tuple(plan for plan in state.intents if plan.resource == GPU)
        taken = _in_parts(state.allocated())
        planned = {uuid for p in state.intents if p.resource == GPU_SHARE for uuid in p.device_ids}
        for excluded in (taken | planned, taken):
            free = tuple(uuid for uuid in request.available if uuid not in excluded)
            if len(free) >= request.size:
                request = replace(request, available=free)
                break
        return gpu_allocation.preferred(request, state.topology, plans)

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        given = gpu_allocation.response(ids, state.topology, files)
        return replace(given, envs={**given.envs, "LOCKSTEP_GPU_ENFORCEMENT": "whole"})

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        return "GPUs " + ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in ids)


def _in_parts(allocated: Allocated) -> frozenset[str]:
    """UUIDs of the GPUs of which shares or MIG slices are in use."""
    return allocated.sliced.union(allocated.shared)
