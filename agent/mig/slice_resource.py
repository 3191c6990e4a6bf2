"""MIG slices of one profile as a resource."""

from collections.abc import Callable, Iterator, Sequence

from agent.allocations import slices_held
from agent.mig import orphans, slice_allocation
from agent.node_state import NodeState
from agent.resources import gpu_allocation
from agent.resources.cdi import Injection
from agent.resources.device_resource import Device
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
)
from agent.resources.gpu_resource import Files, GpuResource, RecentAllocation
from protos import slicing
from protos.names import RDMA
from protos.nearest import card_of
from protos.topology import Gpu, NodeTopology, Slice


class SliceOffer(GpuResource):
    def __init__(
        self,
        resource: str,
        files: Files,
        injection: Injection,
        given: RecentAllocation,
        cards_given: Callable[[], tuple[str, ...]],
    ) -> None:
        """cards_given: shares of network cards, a moment ago."""
        super().__init__(files, injection, given)
        self.name = resource
        self.endpoint = f"lockstep-{resource.rpartition('/')[2]}.sock"
        self._cards_given = cards_given

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        allocated = state.allocated()
        return tuple(
            Device(part.uuid, part.healthy and not allocated.withheld(gpu, part), gpu.numa)
            for gpu, part in self._mine(state.topology)
        )

    def _mine(self, topology: NodeTopology) -> Iterator[tuple[Gpu, Slice]]:
        return (
            (gpu, part)
            for gpu, part in slicing.of(topology)
            if slicing.resource(part.profile) == self.name
        )

    def preferred(
        self,
        question: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        held = slices_held((*state.grants, *state.allocations, *state.unlisted))
        cards = self._cards(listed)
        why = f"beside {','.join(sorted(cards))}" if cards else "packed"
        return Choice(slice_allocation.preferred(question, state.topology, held, cards), why)

    def _cards(self, listed: Sequence[ContainerDevices] | None) -> frozenset[str]:
        """Of whom this is for: the one container that holds just the shares given a moment ago, and
        no slices yet."""
        given = self._cards_given()
        fresh = [row for row in listed or () if given and row.ids(RDMA) == given]
        mine = len(fresh) == 1 and not fresh[0].ids(self.name)
        return frozenset(map(card_of, given)) if mine else frozenset()

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        parts = [(gpu, part) for gpu, part in self._mine(state.topology) if part.uuid in ids]
        if unknown := set(ids) - {part.uuid for _, part in parts}:
            raise ValueError(f"this node has no slice {', '.join(sorted(unknown))}")
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
            annotations={**given.annotations, orphans.ANNOTATION: orphans.told(parts)},
        )

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        parts = [slicing.words(*each) for each in self._mine(state.topology) if each[1].uuid in ids]
        return ", ".join(parts) or f"{len(ids)} slices that are gone"
