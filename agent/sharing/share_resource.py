"""Shares of GPUs as a resource: hundredths, unequal ones side by side on one GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_resource import Device
from agent.resources.gpu_allocation import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
    next_in_admission,
    response,
)
from agent.resources.gpu_resource import Files, GpuResource
from agent.sharing.sharing import Sharing
from protos.names import DOMAIN, GPU, GPU_SHARE
from protos.nearest import card_of, share
from protos.sharing import LEAST, RANKS, WHOLE, hundredths, key_of, pick
from protos.topology import Grant, NodeTopology


class GpuShareResource(GpuResource):
    name = GPU_SHARE
    endpoint = "lockstep-gpu-share.sock"

    def __init__(self, files: Files, injection: Injection, sharing: Sharing) -> None:
        super().__init__(files, injection)
        self._sharing = sharing
        self._meant: tuple[tuple[str, ...], frozenset[ContainerKey]] = ((), frozenset())

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        allocated = state.allocated()
        taken = allocated.whole | allocated.sliced
        return tuple(
            Device(each, bool(gpu.shares) and gpu.healthy and gpu.uuid not in taken, gpu.numa)
            for gpu in state.topology.gpus
            if gpu.shares or gpu.uuid in allocated.shared
            for each in _names(gpu.uuid)
        )

    def preferred(
        self,
        question: DeviceRequest,
        state: NodeState,
        listed: Sequence[ContainerDevices] | None,
        asked: frozenset[ContainerKey],
    ) -> Choice:
        allocated = state.allocated()
        taken = allocated.whole | allocated.sliced
        free = tuple(each for each in question.available if card_of(each) not in taken)
        question = replace(question, available=free)
        choice = preferred(question, state.topology, state.intents, listed, asked)
        # Allocate comes next, and does not say for whom either.
        meant = choice.asked if len(choice.asked) == 1 else choice.asked - asked
        self._meant = tuple(sorted(choice.device_ids)), meant
        return choice

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(set(map(card_of, ids)))

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        shares = tuple(sorted(set(ids)))
        chosen, meant = self._meant
        given = response(self.runtime_ids(ids), state.topology, files)
        envs, mounts = self._sharing.response(shares, state, meant if chosen == shares else ())
        part = str(len(shares))
        return ContainerResponse(
            {**given.envs, "LOCKSTEP_GPU_SHARE": part, **envs},
            given.device_nodes,
            mounts,
            {**given.annotations, f"{DOMAIN}/gpu-share": part},
        )

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        self._sharing.pre_start(tuple(ids), holder)

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        gpus = set(map(card_of, ids))
        told = ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in gpus)
        return f"{len(ids)} hundredths of GPU {told}"


@lru_cache(maxsize=256)
def _names(uuid: str) -> tuple[str, ...]:
    return tuple(share(uuid, number) for number in range(WHOLE))


def preferred(
    question: DeviceRequest,
    topology: NodeTopology,
    plans: Sequence[Grant],
    listed: Sequence[ContainerDevices] | None,
    asked_before: frozenset[ContainerKey] = frozenset(),
) -> Choice:
    """All from one GPU: that of the must-haves, that of the plan, that of the pod's other containers,
    else the one that a pod without a plan should take. Where no GPU has so much left, nothing: what
    the kubelet then picks is refused."""
    rows = tuple(listed or ())
    served = {row.key for row in rows if row.ids(GPU_SHARE)}
    ours = {
        key_of(plan): plan
        for plan in plans
        if plan.resource == GPU_SHARE and key_of(plan) not in served
    }
    candidates = next_in_admission((row.key for row in rows), ours.keys())
    meant = candidates if len(candidates) == 1 else candidates - asked_before
    key = next(iter(meant)) if len(meant) == 1 else None
    free: dict[str, list[str]] = {gpu.uuid: [] for gpu in topology.gpus}
    for each in sorted(set(question.available) - set(question.must)):
        free.setdefault(card_of(each), []).append(each)
    missing = question.size - len(question.must)
    wishes = [*map(card_of, question.must[:1])]
    if key is not None:
        wishes += [*ours[key].device_ids, *_beside(key, rows)]
    least = dict(ours[key].limits).get(LEAST, 0) if key is not None else 0
    index = {gpu.uuid: gpu.index for gpu in topology.gpus if RANKS[gpu.enforcement] >= least}
    others = [plan for plan in plans if key_of(plan) != key and key_of(plan) not in served]
    for promised in (_promised(others), {}):
        left = {
            index[uuid]: len(ids) - promised.get(uuid, 0)
            for uuid, ids in free.items()
            if uuid in index
        }
        named = [uuid for uuid in wishes if left.get(index.get(uuid, -1), 0) >= missing]
        chosen = index[named[0]] if named else -1
        if chosen < 0 and not question.must:
            chosen = pick(topology.shape(), left, missing)
        if chosen >= 0:
            ids = (*question.must, *free[topology.gpus[chosen].uuid][:missing])
            return Choice(ids, _why(key, chosen, ours, topology), candidates)
    return Choice((), f"no GPU has {question.size} hundredths left", candidates)


def _beside(key: ContainerKey, rows: Sequence[ContainerDevices]) -> list[str]:
    """The GPUs of which the pod's other containers have shares."""
    return [
        card_of(each) for row in rows if row.key[:2] == key[:2] for each in row.ids(GPU_SHARE)[:1]
    ]


def _promised(plans: Sequence[Grant]) -> Mapping[str, int]:
    """Hundredths by GPU."""
    found: dict[str, int] = {}
    for plan in plans:
        for uuid in plan.device_ids:
            if plan.resource == GPU:
                found[uuid] = WHOLE
            elif plan.resource == GPU_SHARE:
                found[uuid] = found.get(uuid, 0) + hundredths(plan)
    return found


def _why(
    key: ContainerKey | None,
    chosen: int,
    ours: Mapping[ContainerKey, Grant],
    topology: NodeTopology,
) -> str:
    if key is None:
        return f"one of {len(ours)} pods with a plan" if ours else "a pod without a plan"
    planned = topology.gpus[chosen].uuid in ours[key].device_ids
    name = f"{key[0]}/{key[1]}, container {key[2]}"
    return f"{name}: as planned" if planned else f"{name}: its plan can't be had"
