"""Which whole GPUs a container gets, and its environment. Pure.

GetPreferredAllocation does not name the container. But the kubelet admits one pod at a time, and
pod-resources lists that pod before it has devices: the one pod that the scheduler has a plan for
and that is listed without devices is the one in admission. It gets the planned GPUs. In all other
cases the choice avoids the GPUs planned for others, and takes the closest set of the rest
(protos/closest.py)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from agent.resources.device_resource import Choice, ContainerKey, ContainerResponse, DeviceRequest
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
    return Choice(ids, why, candidates)


@dataclass(frozen=True, slots=True)
class _MaskedRequest:
    """The request and the open plans, with GPUs as bit masks of their indices."""

    shape: Shape
    free: int
    needed: int
    size: int
    plans: Mapping[ContainerKey, int]  # not carried out yet; 0: its GPUs are not on this node
    sizes: Mapping[ContainerKey, int]

    @classmethod
    def of(
        cls, request: DeviceRequest, topology: NodeTopology, intents: Iterable[Grant]
    ) -> "_MaskedRequest":
        index = {gpu.uuid: gpu.index for gpu in topology.gpus}

        def mask(ids: Iterable[str]) -> int:
            return mask_of(index[i] for i in ids if i in index)

        served = {row.key for row in request.listed or () if row.ids(GPU)}
        grants = {key_of(plan): plan for plan in intents}
        waiting = {key: plan.device_ids for key, plan in grants.items() if key not in served}
        return cls(
            topology.shape(),
            mask(request.available),
            mask(request.must),
            request.size,
            {k: mask(ids) if index.keys() >= set(ids) else 0 for k, ids in waiting.items()},
            {k: len(ids) for k, ids in waiting.items()},
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
        chosen = self.needed
        while chosen.bit_count() < self.size:
            chosen |= 1 << min(
                indices_of(pool & ~chosen),
                key=lambda gpu: (_distance(self.shape, gpu, chosen), gpu),
            )
        return chosen


def _for_container(masked: _MaskedRequest, key: ContainerKey) -> tuple[int, str]:
    name = f"{key[0]}/{key[1]}, container {key[2]}"
    wanted = masked.plans[key]
    if masked.fits(wanted):
        return wanted, f"{name}: as planned"
    own, others = 0, 0
    for other, mask in masked.plans.items():
        if other[:2] == key[:2]:
            own |= mask
        else:
            others |= mask
    # A size other than planned: an init container, whose devices the pod's containers reuse.
    if masked.sizes[key] != masked.size and (chosen := masked.closest_in(own)):
        return chosen, f"{name}: from the GPUs planned for its pod"
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
