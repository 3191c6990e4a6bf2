"""Shares of network cards as a resource."""

from collections.abc import Callable, Sequence

from agent.nics import nic_allocation
from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_resource import Device
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
)
from agent.resources.gpu_resource import RecentAllocation
from protos.names import RDMA
from protos.nearest import card_of, share
from protos.topology import Hca


class HcaOffer:
    name = RDMA
    endpoint = "lockstep-rdma.sock"

    def __init__(
        self,
        device_nodes: Callable[[Sequence[Hca]], tuple[str, ...]],
        just_given: Callable[[], Sequence[str]],
        injection: Injection,
        pre_start: Callable[[tuple[str, ...], ContainerKey | None], None],
        given: RecentAllocation,
    ) -> None:
        self._device_nodes, self._just_given = device_nodes, just_given
        self._injection, self._pre_start, self._given = injection, pre_start, given

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        return tuple(
            Device(share(hca.name, number), not hca.why, hca.numa)
            for hca in state.topology.hcas
            for number in range(hca.shares)
        )

    def preferred(
        self,
        question: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        return nic_allocation.preferred(
            question,
            state.topology,
            state.intents,
            listed,
            just_given=self._just_given(),
            asked_before=asked,
        )

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        names = set(map(card_of, ids))
        cards = [hca for hca in state.topology.hcas if hca.name in names]
        files = () if self._injection.mode == "cdi" else self._device_nodes(cards)
        told = nic_allocation.response(ids, state.topology, files)
        given = self._injection.apply([hca.name for hca in cards], told)
        self._given.put(ids)
        return given

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        names = set(map(card_of, ids))
        return "HCAs " + ",".join(hca.name for hca in state.topology.hcas if hca.name in names)

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        self._pre_start(tuple(ids), holder)
