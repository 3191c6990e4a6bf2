"""RDMA NICs, in shares: lockstep.dev/rdma."""

from collections.abc import Callable, Sequence

from agent.node_state import NodeState
from agent.resources import nic_allocation
from agent.resources.cdi import Injection
from agent.resources.device_resource import (
    Choice,
    ContainerKey,
    ContainerResponse,
    Device,
    DeviceRequest,
    DeviceResource,
)
from agent.resources.gpu_resource import RecentAllocation
from protos.names import RDMA
from protos.nearest import device_of, share_id
from protos.topology import Hca


class RdmaNicResource(DeviceResource):
    name = RDMA
    endpoint = "lockstep-rdma.sock"
    pre_start_required = True

    def __init__(
        self,
        files: Callable[[Sequence[Hca]], tuple[str, ...]],
        injection: Injection,
        limit: Callable[[tuple[str, ...], ContainerKey | None], None],
        recent_gpus: RecentAllocation,
        recent: RecentAllocation,
    ) -> None:
        """limit: writes the pod's RDMA limits; raises Refused."""
        self._files, self._injection, self._limit = files, injection, limit
        self._recent_gpus, self._recent = recent_gpus, recent

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        return tuple(
            Device(share_id(hca.name, number), not hca.why, hca.numa)
            for hca in state.topology.hcas
            for number in range(hca.shares)
        )

    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        given = self._recent_gpus.ids()
        return nic_allocation.preferred(request, state.topology, state.intents, just_given=given)

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        nics = _nics(ids, state)
        files = () if self._injection.mode == "cdi" else self._files(nics)
        plain = nic_allocation.response(ids, state.topology, files)
        given = self._injection.apply([hca.name for hca in nics], plain)
        self._recent.record(ids)
        return given

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        return "RDMA NICs " + ",".join(hca.name for hca in _nics(ids, state))

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        self._limit(tuple(ids), holder)


def _nics(ids: Sequence[str], state: NodeState) -> list[Hca]:
    names = set(map(device_of, ids))
    return [hca for hca in state.topology.hcas if hca.name in names]
