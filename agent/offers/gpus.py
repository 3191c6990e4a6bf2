"""Whole GPUs as a resource."""

from collections.abc import Sequence
from dataclasses import replace

from agent.node import State
from agent.offers import allocation
from agent.offers.allocation import Choice, Holding, Key, Question, Response
from agent.offers.gpuoffer import GpuParts
from agent.offers.offer import Device
from protos.names import GPU, GPU_SHARE


class GpuOffer(GpuParts):
    resource = GPU
    endpoint = "lockstep-gpu.sock"

    def devices(self, state: State) -> tuple[Device, ...]:
        taken = _otherwise(state)
        return tuple(
            Device(gpu.uuid, gpu.healthy and gpu.uuid not in taken, gpu.numa)
            for gpu in state.topology.gpus
            if not gpu.mig
        )

    def preferred(
        self,
        question: Question,
        state: State,
        listed: Sequence[Holding] | None,
        asked: frozenset[Key],
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
        return allocation.preferred(question, state.topology, plans, rows, asked)

    def names(self, ids: Sequence[str]) -> list[str]:
        return sorted(ids)

    def told(self, ids: Sequence[str], state: State, files: tuple[str, ...]) -> Response:
        given = allocation.response(ids, state.topology, files)
        return replace(given, envs={**given.envs, "LOCKSTEP_GPU_ENFORCEMENT": "whole"})

    def words(self, ids: Sequence[str], state: State) -> str:
        return "GPUs " + ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in ids)


def _otherwise(state: State) -> frozenset[str]:
    """The GPUs that are in use in another way."""
    sold = state.sold()
    return sold.sliced.union(sold.shared)
