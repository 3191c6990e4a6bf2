"""Shares of network cards as a resource."""

from collections.abc import Callable, Sequence

from agent.nics import nic_allocation
from agent.node import State
from agent.offers.allocation import Choice, Holding, Key, Question, Response
from agent.offers.cdi import Injection
from agent.offers.gpuoffer import Recent
from agent.offers.offer import Device
from protos.names import RDMA
from protos.nearest import card_of, share
from protos.topology import Hca


class HcaOffer:
    resource = RDMA
    endpoint = "lockstep-rdma.sock"

    def __init__(
        self,
        device_nodes: Callable[[Sequence[Hca]], tuple[str, ...]],
        just_given: Callable[[], Sequence[str]],
        injection: Injection,
        starting: Callable[[tuple[str, ...], Key | None], None],
        given: Recent,
    ) -> None:
        self._device_nodes, self._just_given = device_nodes, just_given
        self._injection, self._starting, self._given = injection, starting, given

    def devices(self, state: State) -> tuple[Device, ...]:
        return tuple(
            Device(share(hca.name, number), not hca.why, hca.numa)
            for hca in state.topology.hcas
            for number in range(hca.shares)
        )

    def preferred(
        self,
        question: Question,
        state: State,
        listed: Sequence[Holding] | None,
        asked: frozenset[Key],
    ) -> Choice:
        return nic_allocation.preferred(
            question,
            state.topology,
            state.intents,
            listed,
            just_given=self._just_given(),
            asked_before=asked,
        )

    def response(self, ids: Sequence[str], state: State) -> Response:
        names = set(map(card_of, ids))
        cards = [hca for hca in state.topology.hcas if hca.name in names]
        files = () if self._injection.mode == "cdi" else self._device_nodes(cards)
        told = nic_allocation.response(ids, state.topology, files)
        given = self._injection.apply([hca.name for hca in cards], told)
        self._given.put(ids)
        return given

    def words(self, ids: Sequence[str], state: State) -> str:
        names = set(map(card_of, ids))
        return "HCAs " + ",".join(hca.name for hca in state.topology.hcas if hca.name in names)

    def starting(self, ids: Sequence[str], holder: Key | None) -> None:
        self._starting(tuple(ids), holder)
