"""Shares of GPUs: lockstep.dev/gpu-share. A device is a hundredth of one GPU; containers with
different numbers of them run side by side on a GPU."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_resource import (
    Choice,
    ContainerDevices,
    ContainerKey,
    ContainerResponse,
    Device,
    DeviceRequest,
)
from agent.resources.gpu_allocation import response
from agent.resources.gpu_resource import FindFiles, GpuResource
from protos.gpu_sharing import LEAST, RANKS, WHOLE, choose_gpu, hundredths, key_of
from protos.names import DOMAIN, GPU, GPU_SHARE
from protos.nearest import device_of, share_id
from protos.topology import Grant, NodeTopology


class ShareTerms(Protocol):
    """The terms on which containers share a GPU; see agent.sharing.sharing.Sharing."""

    def response(
        self, ids: tuple[str, ...], state: NodeState, meant: Collection[ContainerKey]
    ) -> tuple[dict[str, str], tuple[tuple[str, str, bool], ...]]: ...

    def pre_start(self, ids: tuple[str, ...], holder: ContainerKey | None) -> None: ...


class GpuShareResource(GpuResource):
    name = GPU_SHARE
    endpoint = "lockstep-gpu-share"
    pre_start_required = True

    def __init__(self, files: FindFiles, injection: Injection, terms: ShareTerms) -> None:
        super().__init__(files, injection)
        self._terms = terms
        self._meant: tuple[tuple[str, ...], frozenset[ContainerKey]] = ((), frozenset())

    def devices(self, state: NodeState) -> tuple[Device, ...]:
        allocated = state.allocated()
        taken = allocated.whole | allocated.sliced | state.held_back().keys()
        return tuple(
            Device(
                each,
                bool(gpu.shares) and gpu.healthy and taken.isdisjoint((gpu.uuid, each)),
                gpu.numa,
            )
            for gpu in state.topology.gpus
            if gpu.shares or gpu.uuid in allocated.shared
            for each in _ids(gpu.uuid)
        )

    def preferred(self, request: DeviceRequest, state: NodeState) -> Choice:
        allocated = state.allocated()
        taken = allocated.whole | allocated.sliced
        free = tuple(each for each in request.available if device_of(each) not in taken)
        request = replace(request, available=free)
        choice = preferred(request, state.topology, state.intents)
        # Allocate comes next and does not name the container either.
        meant = choice.asked - request.asked_before
        if choice.key or len(choice.asked) == 1:
            meant = frozenset((choice.key,)) if choice.key else choice.asked
        self._meant = tuple(sorted(choice.device_ids)), meant
        return choice

    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        return sorted(set(map(device_of, ids)))

    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        shares = tuple(sorted(set(ids)))
        chosen, meant = self._meant
        given = response(self.runtime_ids(ids), state.topology, files)
        envs, mounts = self._terms.response(shares, state, meant if chosen == shares else ())
        count = str(len(shares))
        return ContainerResponse(
            {**given.envs, "LOCKSTEP_GPU_SHARE": count, **envs},
            given.device_nodes,
            mounts,
            {**given.annotations, f"{DOMAIN}/gpu-share": count},
        )

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        self._terms.pre_start(tuple(ids), holder)

    def describe(self, ids: Sequence[str], state: NodeState) -> str:
        gpus = set(map(device_of, ids))
        indices = ",".join(str(gpu.index) for gpu in state.topology.gpus if gpu.uuid in gpus)
        return f"{len(ids)} % of GPU {indices}"


@lru_cache(maxsize=256)
def _ids(uuid: str) -> tuple[str, ...]:
    return tuple(share_id(uuid, number) for number in range(WHOLE))


def preferred(request: DeviceRequest, topology: NodeTopology, plans: Sequence[Grant]) -> Choice:
    """All shares come from one GPU: that of the required shares, else the planned one, else the one
    that the pod's other containers share, else the best for a pod without a plan. The choice is
    empty if no GPU has enough left; Allocate then refuses what the kubelet picks."""
    rows = request.listed or ()
    served = {row.key for row in rows if row.ids(GPU_SHARE)}
    ours = {
        key_of(plan): plan
        for plan in plans
        if plan.resource == GPU_SHARE and key_of(plan) not in served
    }
    candidates, key = request.candidates(ours.keys())
    free: dict[str, list[str]] = {gpu.uuid: [] for gpu in topology.gpus}
    for each in sorted(set(request.available) - set(request.must)):
        free.setdefault(device_of(each), []).append(each)
    missing = request.size - len(request.must)
    favoured = [*map(device_of, request.must[:1])]
    if key is not None and not favoured:
        favoured = [*ours[key].device_ids, *_shared_by_pod(key, rows)]
    least = dict(ours[key].limits).get(LEAST, 0) if key is not None else 0
    index = {gpu.uuid: gpu.index for gpu in topology.gpus if RANKS[gpu.enforcement] >= least}
    pod = (key or ())[:2]  # its init containers may have what is planned for its others
    others = [p for p in plans if key_of(p)[:2] != pod and key_of(p) not in served]
    for planned in (_planned(others), {}):
        left = {
            index[uuid]: len(ids) - planned.get(uuid, 0)
            for uuid, ids in free.items()
            if uuid in index
        }
        named = [uuid for uuid in favoured if uuid in index and left[index[uuid]] >= missing]
        chosen = index[named[0]] if named else -1
        if chosen < 0 and not request.must:
            chosen = choose_gpu(topology.shape(), left, missing)
        if chosen >= 0:
            ids = (*request.must, *free[topology.gpus[chosen].uuid][:missing])
            return Choice(ids, _why(key, chosen, ours, topology), candidates, key)
    return Choice((), f"no GPU has {request.size} % left", candidates, key)


def _shared_by_pod(key: ContainerKey, rows: Sequence[ContainerDevices]) -> list[str]:
    """The GPUs that the pod's other containers share."""
    return [
        device_of(each) for row in rows if row.key[:2] == key[:2] for each in row.ids(GPU_SHARE)[:1]
    ]


def _planned(plans: Sequence[Grant]) -> Mapping[str, int]:
    """Hundredths by the GPU's UUID."""
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
    return f"{name}: as planned" if planned else f"{name}: the planned GPU has too little left"
