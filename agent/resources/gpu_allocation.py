"""Which GPUs a container gets, and what it is told of them. Pure.

The kubelet does not say for whom it asks. But it lists the pod that it is admitting in
pod-resources, before the pod has devices, and admits one pod at a time: the one pod that the
centre has plans for and that is listed without devices is the one asked for.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from protos.closest import closest
from protos.names import DOMAIN
from protos.nearest import beside
from protos.topology import LEVELS, Grant, NodeTopology, Shape, indices_of, mask_of

ContainerKey = tuple[str, str, str]  # namespace, pod, container


@dataclass(frozen=True, slots=True)
class ListedContainer:
    """A container in pod-resources, with what it holds of one resource."""

    namespace: str
    pod: str
    container: str
    device_ids: tuple[str, ...] = ()

    @property
    def key(self) -> ContainerKey:
        return self.namespace, self.pod, self.container


@dataclass(frozen=True, slots=True)
class ContainerDevices:
    """A container in pod-resources, with all that it holds."""

    namespace: str
    pod: str
    container: str
    devices: tuple[tuple[str, tuple[str, ...]], ...] = ()  # resource, sorted ids

    @property
    def key(self) -> ContainerKey:
        return self.namespace, self.pod, self.container

    def ids(self, resource: str) -> tuple[str, ...]:
        return dict(self.devices).get(resource, ())

    def of(self, resource: str) -> ListedContainer:
        return ListedContainer(self.namespace, self.pod, self.container, self.ids(resource))


@dataclass(frozen=True, slots=True)
class Choice:
    device_ids: tuple[str, ...]
    why: str  # a clause for the log
    asked: frozenset[ContainerKey] = frozenset()  # who could have been meant


@dataclass(frozen=True, slots=True)
class ContainerResponse:
    envs: Mapping[str, str]
    device_nodes: tuple[str, ...] = ()
    mounts: tuple[tuple[str, str, bool], ...] = ()  # host path, container path, read only
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """What the kubelet asks: `size` of the available devices, the must-haves among them."""

    available: tuple[str, ...]
    must: tuple[str, ...]
    size: int


def next_in_admission(
    listed: Iterable[ContainerKey], waiting: Container[ContainerKey]
) -> frozenset[ContainerKey]:
    """Of each pod the first container that waits: the kubelet goes in order."""
    first: dict[tuple[str, str], ContainerKey] = {}
    for key in listed:
        if key in waiting:
            first.setdefault(key[:2], key)
    return frozenset(first.values())


def preferred(
    question: DeviceRequest,
    topology: NodeTopology,
    intents: Iterable[Grant],
    listed: Iterable[ListedContainer] | None,
    asked_before: frozenset[ContainerKey] = frozenset(),
) -> Choice:
    """listed is None where pod-resources did not answer. asked_before: who was meant in earlier
    calls; one of those that still has nothing was not admitted, and is not meant now."""
    rows = tuple(listed or ())
    case = _MaskedRequest.of(question, topology, intents, rows)
    candidates = case.candidates(rows)
    meant = candidates if len(candidates) == 1 else candidates - asked_before
    if len(meant) == 1:
        chosen, why = _for_one(case, next(iter(meant)))
    else:
        chosen, why = _for_someone(case, candidates)
    ids = tuple(gpu.uuid for gpu in topology.gpus if chosen >> gpu.index & 1)
    if len(ids) < question.size:  # devices that the survey has lost since: the kubelet may pick
        ids += tuple(sorted(set(question.available) - set(ids)))[: question.size - len(ids)]
    return Choice(ids, why, candidates)


@dataclass(frozen=True, slots=True)
class _MaskedRequest:
    """The question and all there is to know for it, in masks."""

    shape: Shape
    free: int
    needed: int
    size: int
    plans: Mapping[ContainerKey, int]  # still to be carried out; 0: its GPUs are not here
    sizes: Mapping[ContainerKey, int]

    @classmethod
    def of(
        cls,
        question: DeviceRequest,
        topology: NodeTopology,
        intents: Iterable[Grant],
        listed: Iterable[ListedContainer],
    ) -> "_MaskedRequest":
        index = {gpu.uuid: gpu.index for gpu in topology.gpus}

        def mask(ids: Iterable[str]) -> int:
            return mask_of(index[i] for i in ids if i in index)

        served = {row.key for row in listed if row.device_ids}
        grants = {(plan.namespace, plan.pod, plan.container): plan for plan in intents}
        waiting = {key: plan.device_ids for key, plan in grants.items() if key not in served}
        return cls(
            topology.shape(),
            mask(question.available),
            mask(question.must),
            question.size,
            {k: mask(ids) if index.keys() >= set(ids) else 0 for k, ids in waiting.items()},
            {k: len(ids) for k, ids in waiting.items()},
        )

    def candidates(self, listed: Iterable[ListedContainer]) -> frozenset[ContainerKey]:
        return next_in_admission((row.key for row in listed), self.plans.keys())

    def suits(self, wanted: int) -> bool:
        return (
            wanted.bit_count() == self.size
            and not wanted & ~self.free
            and not self.needed & ~wanted
        )

    def around(self, pool: int) -> int:
        """The closest set of the pool that includes the needed ones; 0: there is none."""
        pool = pool & self.free | self.needed
        chosen = closest(self.shape, pool, self.size)
        if not chosen or not self.needed & ~chosen:
            return chosen
        chosen = self.needed
        while chosen.bit_count() < self.size:
            chosen |= 1 << min(
                indices_of(pool & ~chosen), key=lambda gpu: (_far(self.shape, gpu, chosen), gpu)
            )
        return chosen


def _for_one(case: _MaskedRequest, key: ContainerKey) -> tuple[int, str]:
    name = f"{key[0]}/{key[1]}, container {key[2]}"
    wanted = case.plans[key]
    if case.suits(wanted):
        return wanted, f"{name}: as planned"
    own, others = 0, 0
    for other, mask in case.plans.items():
        if other[:2] == key[:2]:
            own |= mask
        else:
            others |= mask
    # Of another size: an init container, whose devices the pod's containers use again.
    if case.sizes[key] != case.size and (chosen := case.around(own)):
        return chosen, f"{name}: of its pod's plan"
    for pool in (case.free & ~others, case.free):
        if chosen := case.around(pool):
            return chosen, f"{name}: its plan {_words(wanted)} can't be had"
    return 0, f"{name}: not enough GPUs"


def _for_someone(case: _MaskedRequest, candidates: frozenset[ContainerKey]) -> tuple[int, str]:
    if candidates:
        why = f"one of {len(candidates)} pods with a plan"
    else:
        why = "a pod without a plan" if case.plans else "no plans here"
    promised = 0
    for mask in case.plans.values():
        promised |= mask
    if chosen := case.around(case.free & ~promised):
        return chosen, why
    # Taking all of one plan spoils fewer than a bit of several.
    for key in sorted(candidates or case.plans):
        if case.suits(case.plans[key]):
            return case.plans[key], f"{why}; all other GPUs are promised"
    return case.around(case.free), f"{why}; all other GPUs are promised"


def _far(shape: Shape, gpu: int, chosen: int) -> int:
    words = [shape.links[gpu][other] for other in indices_of(chosen)]
    return sum(-int(word[2:]) if word.startswith("NV") else LEVELS.index(word) for word in words)


def _words(mask: int) -> str:
    return ",".join(str(i) for i in indices_of(mask)) or "(GPUs not here)"


def response(
    device_ids: Iterable[str], topology: NodeTopology, device_nodes: Iterable[str] = ()
) -> ContainerResponse:
    """Raises ValueError for a device that is not here."""
    ids = set(device_ids)
    gpus = [gpu for gpu in topology.gpus if gpu.uuid in ids]
    if len(gpus) < len(ids):
        unknown = sorted(ids - {gpu.uuid for gpu in gpus})
        raise ValueError(f"this node has no GPU {', '.join(unknown)}")
    uuids = ",".join(gpu.uuid for gpu in gpus)
    indices = ",".join(str(gpu.index) for gpu in gpus)
    held = {gpu.index for gpu in gpus}
    islands = [place for place, one in enumerate(topology.islands) if held.intersection(one)]
    cards = beside(topology, mask_of(held))
    return ContainerResponse(
        # The first is for the NVIDIA runtime, which lets exactly these into the container.
        envs={
            "NVIDIA_VISIBLE_DEVICES": uuids,
            "LOCKSTEP_GPUS": indices,
            "LOCKSTEP_GPU_UUIDS": uuids,
            "LOCKSTEP_ISLAND": ",".join(map(str, islands)),
            **({"LOCKSTEP_NEAREST_HCAS": ",".join(cards)} if cards else {}),
        },
        device_nodes=tuple(device_nodes),
        annotations={f"{DOMAIN}/gpus": indices},
    )
