"""RDMA NICs, in shares: lockstep.dev/rdma, or those of one rail: lockstep.dev/rail-1."""

from collections.abc import Callable, Sequence

from agent.node_state import NodeState
from agent.resources import nic_allocation
from agent.resources.cdi import Injection
from agent.resources.device_info import DeviceInfoFiles
from agent.resources.device_resource import (
    Choice,
    ContainerKey,
    ContainerResponse,
    Device,
    DeviceRequest,
    DeviceResource,
)
from agent.resources.gpu_resource import RecentAllocation
from protos import nic_ids
from protos.names import RDMA
from protos.topology import Hca


class RdmaNicResource(DeviceResource):
    pre_start_required = True

    def __init__(
        self,
        name: str,
        files: Callable[[Sequence[Hca]], tuple[str, ...]],
        injection: Injection,
        limit: Callable[[tuple[str, ...], ContainerKey | None], None],
        *,
        recent_gpus: RecentAllocation,
        recent: RecentAllocation,
        info: DeviceInfoFiles,
    ) -> None:
        """limit: writes the pod's RDMA limits; raises Refused."""
        self.name = name
        self.endpoint = f"lockstep-{name.partition('/')[2]}"
        self._files, self._injection, self._limit = files, injection, limit
        self._info = info
        self._recent_gpus, self._recent = recent_gpus, recent

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        other = nic_ids.held_otherwise(state.topology, state.grants)
        taken = other | state.held_back().keys()
        return tuple(
            Device(each, not hca.why and taken.isdisjoint((hca.name, each)), hca.numa)
            for hca in state.topology.hcas
            if nic_ids.resource_of(hca) == self.name
            for each in nic_ids.ids(hca, state.topology)
        )

    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        given = self._recent_gpus.ids()
        return nic_allocation.preferred(
            request, state.topology, state.intents, just_given=given, resource=self.name
        )

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        nics = _nics(ids, state)
        files = () if self._injection.mode == "cdi" else self._files(nics)
        plain = nic_allocation.response(ids, state.topology, files, resource=self.name)
        given = self._injection.apply([hca.name for hca in nics], plain)
        self._info.write(ids, state.topology, self.name)
        if self.name == RDMA:
            self._recent.record(ids)
        return given

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        return "RDMA NICs " + ",".join(hca.name for hca in _nics(ids, state))

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        self._limit(tuple(ids), holder)


def rails(state: NodeState) -> frozenset[str]:
    """The resources of the node's rails."""
    return frozenset(hca.rail for hca in state.topology.hcas if hca.shares and hca.rail)


def _nics(ids: Sequence[str], state: NodeState) -> list[Hca]:
    names = set(map(nic_ids.names(state.topology), ids))
    return [hca for hca in state.topology.hcas if hca.name in names]
