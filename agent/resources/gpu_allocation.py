"""The choice of whole GPUs for a container, and its environment. Pure.

GetPreferredAllocation does not name the container. But the kubelet admits one pod at a time, and
pod-resources lists that pod before it has devices: the one pod that the scheduler has a plan for
and that is listed without devices is the one in admission. It gets the planned GPUs. In all other
cases the choice avoids the GPUs planned for others, and takes the closest set of the rest
(protos/closest.py).

Init containers are not listed, and the kubelet gives their devices to the pod's next containers
before it asks for others. If they have more than the next container needs, the kubelet picks at
random, so an init container gets GPUs of the plan of the next container first: it takes no more
than those unless it is larger, and then those of the containers after it. So a container gets its
plan exactly unless an init container before it has more GPUs; in that case the pod's containers get
GPUs of the pod's plan, but the kubelet decides which.

Design: docs/design/kubelet.md
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.resources.device_resource import (
    Choice,
    ContainerKey,
    ContainerResponse,
    DeviceRequest,
    PodKey,
)
from protos.closest import closest
from protos.gpu_sharing import key_of
from protos.names import DOMAIN, GPU
from protos.nearest import adjacent_nics
from protos.topology import LEVELS, Grant, NodeTopology, Shape, indices_of, mask_of


def preferred(request: DeviceRequest, topology: NodeTopology, intents: Iterable[Grant]) -> Choice:
    masked = _MaskedRequest.of(request, topology, intents)
    candidates, key = request.candidates(masked.plans.keys())
    if key is not None:
        chosen, why = _for_container(masked, key)
    else:
        chosen, why = _for_unknown(masked, candidates)
    ids = tuple(gpu.uuid for gpu in topology.gpus if chosen >> gpu.index & 1)
    if len(ids) < request.size:  # the newest topology lacks some: let the kubelet have any
        ids += tuple(sorted(set(request.available) - set(ids)))[: request.size - len(ids)]
    return Choice(ids, why, candidates, key)


@dataclass(frozen=True, slots=True)
class _MaskedRequest:
    """The request and the open plans, with GPUs as bit masks of their indices."""

    shape: Shape
    free: int
    needed: int
    size: int
    # In the kubelet's order, not carried out yet; 0: its GPUs are not on this node.
    plans: Mapping[ContainerKey, int]
    sizes: Mapping[ContainerKey, int]
    pods: Mapping[PodKey, int]  # planned for the pod, and not held by one of its containers

    @classmethod
    def of(
        cls, request: DeviceRequest, topology: NodeTopology, intents: Iterable[Grant]
    ) -> "_MaskedRequest":
        index = {gpu.uuid: gpu.index for gpu in topology.gpus}

        def mask(ids: Iterable[str]) -> int:
            return mask_of(index[i] for i in ids if i in index)

        rows = {row.key: row.ids(GPU) for row in request.listed or ()}
        grants = {key_of(plan): plan.device_ids for plan in intents}
        order = [
            *(key for key in rows if key in grants),
            *(key for key in grants if key not in rows),
        ]
        waiting = {key: grants[key] for key in order if not rows.get(key)}
        pods: dict[PodKey, int] = {}
        for key, ids in grants.items():
            pods[key[:2]] = pods.get(key[:2], 0) | mask(ids)
        for key, ids in rows.items():
            pods[key[:2]] = pods.get(key[:2], 0) & ~mask(ids)
        return cls(
            topology.shape(),
            mask(request.available),
            mask(request.must),
            request.size,
            {k: mask(ids) if index.keys() >= set(ids) else 0 for k, ids in waiting.items()},
            {k: len(ids) for k, ids in waiting.items()},
            pods,
        )

    def fits(self, wanted: int) -> bool:
        return (
            wanted.bit_count() == self.size
            and not wanted & ~self.free
            and not self.needed & ~wanted
        )

    def closest_in(self, pool: int) -> int:
        """The closest set of the pool that includes the required GPUs; 0 if there is none."""
        pool = pool & self.free | self.needed
        chosen = closest(self.shape, pool, self.size)
        if not chosen or not self.needed & ~chosen:
            return chosen
        return self._grow(self.needed, pool)

    def _grow(self, chosen: int, pool: int) -> int:
        while chosen.bit_count() < self.size:
            chosen |= 1 << min(
                indices_of(pool & ~chosen),
                key=lambda gpu: (_distance(self.shape, gpu, chosen), gpu),
            )
        return chosen

    def filled_from(self, pools: Iterable[int]) -> int:
        """The required GPUs, then those of one pool after the other, of the last one the closest;
        0 if there are too few."""
        chosen = self.needed
        for pool in pools:
            more = pool & self.free & ~chosen
            if chosen.bit_count() + more.bit_count() >= self.size:
                if not chosen:
                    return closest(self.shape, more, self.size)
                return self._grow(chosen, more)
            chosen |= more
        return 0


def _for_container(masked: _MaskedRequest, key: ContainerKey) -> tuple[int, str]:
    name = f"{key[0]}/{key[1]}, container {key[2]}"
    wanted = masked.plans[key]
    if masked.fits(wanted):
        return wanted, f"{name}: as planned"
    own = [mask for other, mask in masked.plans.items() if other[:2] == key[:2]]
    others = 0
    for other, mask in masked.plans.items():
        others |= mask if other[:2] != key[:2] else 0
    # An init container, or a container that reuses the devices of one.
    if (masked.sizes[key] != masked.size or masked.needed) and (
        chosen := masked.filled_from((wanted, *own, masked.pods[key[:2]], ~others, -1))
    ):
        return chosen, f"{name}: the GPUs planned for its pod first"
    for pool in (masked.free & ~others, masked.free):
        if chosen := masked.closest_in(pool):
            return chosen, f"{name}: the planned GPUs {_indices(wanted)} are not available"
    return 0, f"{name}: not enough GPUs"


def _for_unknown(masked: _MaskedRequest, candidates: frozenset[ContainerKey]) -> tuple[int, str]:
    if candidates:
        why = f"one of {len(candidates)} pods with a plan"
    else:
        why = "a pod without a plan" if masked.plans else "no plans on this node"
    planned = 0
    for mask in masked.plans.values():
        planned |= mask
    if chosen := masked.closest_in(masked.free & ~planned):
        return chosen, why
    why += "; all other GPUs are planned for others"
    # Using up one whole plan spoils fewer plans than taking a part of several.
    for key in sorted(candidates or masked.plans):
        if masked.fits(masked.plans[key]):
            return masked.plans[key], why
    return masked.closest_in(masked.free), why


def _distance(shape: Shape, gpu: int, chosen: int) -> int:
    words = [shape.links[gpu][other] for other in indices_of(chosen)]
    return sum(-int(word[2:]) if word.startswith("NV") else LEVELS.index(word) for word in words)


def _indices(mask: int) -> str:
    return ",".join(str(i) for i in indices_of(mask)) or "(not on this node)"


def response(
    device_ids: Iterable[str], topology: NodeTopology, device_nodes: Iterable[str] = ()
) -> ContainerResponse:
    """Raises ValueError if a GPU is not on this node."""
    ids = set(device_ids)
    gpus = [gpu for gpu in topology.gpus if gpu.uuid in ids]
    if len(gpus) < len(ids):
        unknown = sorted(ids - {gpu.uuid for gpu in gpus})
        raise ValueError(f"this node has no GPU {', '.join(unknown)}")
    uuids = ",".join(gpu.uuid for gpu in gpus)
    indices = ",".join(str(gpu.index) for gpu in gpus)
    held = {gpu.index for gpu in gpus}
    islands = [number for number, one in enumerate(topology.islands) if held.intersection(one)]
    nics = adjacent_nics(topology, mask_of(held))
    return ContainerResponse(
        # NVIDIA's container runtime reads the first one and makes exactly these GPUs visible.
        envs={
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "LOCKSTEP_GPUS": indices,
            "LOCKSTEP_GPU_UUIDS": uuids,
            "LOCKSTEP_ISLAND": ",".join(map(str, islands)),
            **({"LOCKSTEP_NEAREST_HCAS": ",".join(nics)} if nics else {}),
        },
        device_nodes=tuple(device_nodes),
        annotations={f"{DOMAIN}/gpus": indices},
    )
