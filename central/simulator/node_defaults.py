"""Completes a Node's status with what its kubelet and its agent would report."""

from collections import Counter
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from central.model.facts import NodeSeen
from central.simulator import machines, scenario_kinds
from central.simulator.documents import ManifestObject
from protos import slicing
from protos.gpu_sharing import REQUESTABLE, WHOLE
from protos.names import DOMAIN, GPU, GPU_MEMORY_LEVEL, GPU_SHARE, RDMA, RDMA_HANDLES, RDMA_OBJECTS
from protos.nearest import SHARES, rails
from protos.topology import NodeTopology, RdmaLimit

CAPTURE = f"{DOMAIN}/capture"
COUNT = f"{DOMAIN}/count"
MAX_COPIES = 100_000
PODS_PER_NODE = 110  # the kubelet's own default
_READY = [{"type": "Ready", "status": "True"}]


def node(found: ManifestObject) -> NodeTopology | None:
    """Completes the Node's status. Returns its hardware, if it names a capture."""
    status = found.part("status")
    status.setdefault("conditions", _READY)
    if "allocatable" not in status:
        status["allocatable"] = dict(status.get("capacity") or {})
    allocatable = status["allocatable"]
    if not isinstance(allocatable, dict):
        raise found.wrong("status.allocatable: not a mapping")
    allocatable.setdefault("pods", PODS_PER_NODE)
    capture = found.annotations.get(CAPTURE)
    level = found.annotations.get(GPU_MEMORY_LEVEL, "none")
    if level not in REQUESTABLE:
        why = f'"{level}" is not one of {", ".join(REQUESTABLE)}'
        raise found.wrong(f"metadata.annotations.{GPU_MEMORY_LEVEL}: {why}")
    if capture is None:
        _add_shares(allocatable)
        gpus = _count(allocatable)
        plain = level == "none" or not 0 < gpus <= machines.MAX_UNIFORM
        return None if plain else machines.with_shares(machines.uniform(gpus), level)
    try:
        topology, has = _machine(found, capture)
    except machines.Unknown as error:
        raise found.wrong(f"metadata.annotations.{CAPTURE}: {error}") from error
    allocatable.setdefault(GPU, topology.healthy_mask().bit_count())
    for name, count in Counter(
        slicing.resource(part.profile) for _, part in slicing.of(topology)
    ).items():
        allocatable.setdefault(name, count)
    _add_shares(allocatable)
    if "cpu" in has:
        allocatable.setdefault("cpu", f"{has['cpu']}m")
    if "memory" in has:
        allocatable.setdefault("memory", has["memory"])
    if allocatable.get(GPU_SHARE):
        topology = machines.with_shares(topology, level)
    return _add_nics(found, allocatable, topology)


def copies(found: ManifestObject) -> Iterator[ManifestObject]:
    """The object itself, or the equal Nodes that it stands for: name-0, name-1 and so on."""
    given = found.annotations.get(COUNT) if found.kind == scenario_kinds.NODE else None
    if given is None:
        yield found
        return
    if not (given.isascii() and given.isdigit() and 0 < int(given) <= MAX_COPIES):
        why = f'"{given}" is not a whole number from 1 to {MAX_COPIES}'
        raise found.wrong(f"metadata.annotations.{COUNT}: {why}")
    for index in range(int(given)):
        raw = deepcopy(found.raw)
        raw["metadata"]["name"] = f"{found.name}-{index}"
        yield ManifestObject(found.place, raw)


def _machine(found: ManifestObject, capture: str) -> tuple[NodeTopology, Mapping[str, int]]:
    if not machines.is_file(capture):
        return machines.named(capture)
    return machines.from_file(Path(found.place.file).parent / capture)


def _add_nics(
    found: ManifestObject, allocatable: dict[str, Any], topology: NodeTopology
) -> NodeTopology:
    """Offers the NICs next to the GPUs, as agents do. If the Node has annotations with limits per NIC, its agent
    enforces pods' limits."""
    offered = rails(topology)
    allocatable.setdefault(RDMA, SHARES * len(offered))
    count = str(allocatable[RDMA])
    if not offered or not (count.isascii() and count.isdigit()):
        return topology  # an invalid number is reported when the Node is decoded
    limits = RdmaLimit(_limit(found, RDMA_HANDLES), _limit(found, RDMA_OBJECTS))
    return machines.with_nics(topology, offered, int(count) // len(offered), limits)


def _limit(found: ManifestObject, annotation: str) -> int:
    given = found.annotations.get(annotation, "max")
    if given == "max":
        return -1
    if given.isascii() and given.isdigit():
        return int(given)
    raise found.wrong(
        f'metadata.annotations.{annotation}: "{given}" is neither a whole number nor max'
    )


def uniform(seen: NodeSeen) -> NodeTopology | None:
    """The hardware of a node of which only the number of GPUs is known."""
    gpus = seen.allocatable.get(GPU, 0)
    if not 0 < gpus <= machines.MAX_UNIFORM:
        return None
    made = machines.uniform(gpus)
    return machines.with_shares(made) if seen.allocatable.get(GPU_SHARE) else made


def _add_shares(allocatable: dict[str, Any]) -> None:
    """Offers all GPUs as shares, as agents do by default."""
    if gpus := _count(allocatable):
        allocatable.setdefault(GPU_SHARE, gpus * WHOLE)


def _count(allocatable: dict[str, Any]) -> int:
    """The number of GPUs; an invalid one counts as 0 and is reported when the Node is decoded."""
    gpus = str(allocatable.get(GPU, 0))
    return int(gpus) if gpus.isascii() and gpus.isdigit() else 0
