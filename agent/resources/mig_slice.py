"""MIG slices: one resource per profile, such as nvidia.com/mig-1g.5gb. Profiles come and go while
the agent runs.

Design: docs/design/gpu-sharing.md
"""

from collections.abc import Iterator, Sequence

from agent.mig import orphans
from agent.node_state import NodeState
from agent.resources import gpu_allocation, slice_allocation
from agent.resources.cdi import Injection
from agent.resources.device_resource import Choice, ContainerResponse, Device, DeviceRequest
from agent.resources.gpu_resource import FindFiles, GpuResource, RecentAllocation
from protos import slicing
from protos.names import RDMA
from protos.nearest import device_of
from protos.topology import Gpu, NodeTopology, Slice


def names(state: NodeState) -> set[str]:
    """Resource names of the profiles that the node has slices of."""
    return {slicing.resource(part.profile) for _, part in slicing.of(state.topology)}


class MigSliceResource(GpuResource):
    def __init__(
        self,
        name: str,
        files: FindFiles,
        injection: Injection,
        recent: RecentAllocation,
        recent_nics: RecentAllocation,
    ) -> None:
        super().__init__(files, injection, recent)
        self.name = name
        self.endpoint = f"lockstep-{name.rpartition('/')[2]}"
        self._recent_nics = recent_nics

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        allocated = state.allocated()
        return tuple(
            Device(part.uuid, part.healthy and not allocated.withheld(gpu, part), gpu.numa)
            for gpu, part in self._slices(state.topology)
        )

    def _slices(self, topology: NodeTopology) -> Iterator[tuple[Gpu, Slice]]:
        return (
            (gpu, part)
            for gpu, part in slicing.of(topology)
            if slicing.resource(part.profile) == self.name
        )

    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        holders = state.allocated().holders.values()
        held = {uuid for each in holders for _, uuid in each}
        nics = self._nics(request)
        why = f"near {','.join(sorted(nics))}" if nics else "packed"
        return Choice(slice_allocation.preferred(request, state.topology, held, nics), why)

    def _nics(self, request: DeviceRequest) -> frozenset[str]:
        """NICs of the container in admission: the only one that holds exactly the NIC shares of the
        last Allocate, if it has no slices yet."""
        given = self._recent_nics.ids()
        fresh = [row for row in request.listed or () if given and row.ids(RDMA) == given]
        mine = len(fresh) == 1 and not fresh[0].ids(self.name)
        return frozenset(map(device_of, given)) if mine else frozenset()

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        parts = [(gpu, part) for gpu, part in self._slices(state.topology) if part.uuid in ids]
        if unknown := set(ids) - {part.uuid for _, part in parts}:
            raise ValueError(f"this node has no MIG slice {', '.join(sorted(unknown))}")
        given = gpu_allocation.response({gpu.uuid for gpu, _ in parts}, state.topology, files)
        uuids = ",".join(part.uuid for _, part in parts)
        profile = parts[0][1].profile
        return ContainerResponse(
            envs={
                **given.envs,
                "NVIDIA_VISIBLE_DEVICES": uuids,
                "LOCKSTEP_SLICES": uuids,
                "LOCKSTEP_SLICE_PROFILE": profile,
                "LOCKSTEP_GPU_ENFORCEMENT": slicing.enforcement(profile),
            },
            device_nodes=files,
            annotations={**given.annotations, orphans.ANNOTATION: orphans.annotation(parts)},
        )

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        mine = self._slices(state.topology)
        parts = [slicing.words(gpu, part) for gpu, part in mine if part.uuid in ids]
        return ", ".join(parts) or f"{len(ids)} MIG slices that no longer exist"
