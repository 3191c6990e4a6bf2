"""MIG slices of one profile as a resource."""

from collections.abc import Callable, Iterator, Sequence

from agent.mig import orphans, slice_allocation
from agent.node import State
from agent.offers import allocation
from agent.offers.allocation import Choice, Holding, Key, Question, Response
from agent.offers.cdi import Injection
from agent.offers.gpuoffer import Files, GpuParts, Recent
from agent.offers.offer import Device
from agent.sales import slices_held
from protos import slicing
from protos.names import RDMA
from protos.nearest import card_of
from protos.topology import Gpu, NodeTopology, Slice


class SliceOffer(GpuParts):
    def __init__(
        self,
        resource: str,
        files: Files,
        injection: Injection,
        given: Recent,
        cards_given: Callable[[], tuple[str, ...]],
    ) -> None:
        """cards_given: shares of network cards, a moment ago."""
        super().__init__(files, injection, given)
        self.resource = resource
        self.endpoint = f"lockstep-{resource.rpartition('/')[2]}.sock"
        self._cards_given = cards_given

    def devices(self, state: State) -> tuple[Device, ...]:
        sold = state.sold()
        return tuple(
            Device(part.uuid, part.healthy and not sold.withheld(gpu, part), gpu.numa)
            for gpu, part in self._mine(state.topology)
        )

    def _mine(self, topology: NodeTopology) -> Iterator[tuple[Gpu, Slice]]:
        return (
            (gpu, part)
            for gpu, part in slicing.of(topology)
            if slicing.resource(part.profile) == self.resource
        )

    def preferred(
        self,
        question: Question,
        state: State,
        listed: Sequence[Holding] | None,
        asked: frozenset[Key],
    ) -> Choice:
        held = slices_held((*state.grants, *state.sales, *state.unnamed))
        cards = self._cards(listed)
        why = f"beside {','.join(sorted(cards))}" if cards else "packed"
        return Choice(slice_allocation.preferred(question, state.topology, held, cards), why)

    def _cards(self, listed: Sequence[Holding] | None) -> frozenset[str]:
        """Of whom this is for: the one container that holds just the shares given a moment ago, and
        no slices yet."""
        given = self._cards_given()
        fresh = [row for row in listed or () if given and row.ids(RDMA) == given]
        mine = len(fresh) == 1 and not fresh[0].ids(self.resource)
        return frozenset(map(card_of, given)) if mine else frozenset()

    def names(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def told(self, ids: Sequence[str], state: State, files: tuple[str, ...]) -> Response:
        parts = [(gpu, part) for gpu, part in self._mine(state.topology) if part.uuid in ids]
        if unknown := set(ids) - {part.uuid for _, part in parts}:
            raise ValueError(f"this node has no slice {', '.join(sorted(unknown))}")
        given = allocation.response({gpu.uuid for gpu, _ in parts}, state.topology, files)
        uuids = ",".join(part.uuid for _, part in parts)
        profile = parts[0][1].profile
        return Response(
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

    def words(self, ids: Sequence[str], state: State) -> str:
        parts = [slicing.words(*each) for each in self._mine(state.topology) if each[1].uuid in ids]
        return ", ".join(parts) or f"{len(ids)} slices that are gone"
