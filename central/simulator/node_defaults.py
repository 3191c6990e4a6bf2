"""What a kubelet and the machine's agent would tell of a Node, where the manifest does not."""

from collections import Counter
from typing import Any

from central.model.facts import NodeSeen
from central.simulator import machines
from central.simulator.document_object import ManifestObject
from protos import slicing
from protos.gpu_sharing import REQUESTABLE, WHOLE
from protos.names import (
    DOMAIN,
    GPU,
    GPU_MEMORY_LEVEL,
    GPU_SHARE,
    RDMA,
    RDMA_HANDLES,
    RDMA_OBJECTS,
)
from protos.nearest import SHARES, rails
from protos.topology import NodeTopology, RdmaLimit

CAPTURE = f"{DOMAIN}/capture"
PODS_PER_NODE = 110  # the kubelet's own default
_READY = [{"type": "Ready", "status": "True"}]


def node(found: ManifestObject) -> NodeTopology | None:
    """Completes its status. The hardware, where a capture is named."""
    status = found.part("status")
    status.setdefault("conditions", _READY)
    if "allocatable" not in status:
        status["allocatable"] = dict(status.get("capacity") or {})
    allocatable = status["allocatable"]
    if not isinstance(allocatable, dict):
        raise found.wrong("status.allocatable: it is not a mapping")
    allocatable.setdefault("pods", PODS_PER_NODE)
    capture = found.annotations.get(CAPTURE)
    level = found.annotations.get(GPU_MEMORY_LEVEL, "none")
    if level not in REQUESTABLE:
        why = f'"{level}" is not one of {", ".join(REQUESTABLE)}'
        raise found.wrong(f"metadata.annotations.{GPU_MEMORY_LEVEL}: {why}")
    if capture is None:
        _offer_shares(allocatable)
        gpus = _count(allocatable)
        plain = level == "none" or not 0 < gpus <= machines.MOST_EQUAL
        return None if plain else machines.shared(machines.equal(gpus), level)
    try:
        topology, has = machines.named(capture)
    except machines.Unknown as error:
        raise found.wrong(f"metadata.annotations.{CAPTURE}: {error}") from error
    allocatable.setdefault(GPU, topology.healthy_mask().bit_count())
    for name, count in Counter(
        slicing.resource(part.profile) for _, part in slicing.of(topology)
    ).items():
        allocatable.setdefault(name, count)
    _offer_shares(allocatable)
    if "cpu" in has:
        allocatable.setdefault("cpu", f"{has['cpu']}m")
    if "memory" in has:
        allocatable.setdefault("memory", has["memory"])
    if allocatable.get(GPU_SHARE):
        topology = machines.shared(topology, level)
    return _offer_cards(found, allocatable, topology)


def _offer_cards(
    found: ManifestObject, allocatable: dict[str, Any], topology: NodeTopology
) -> NodeTopology:
    """The network cards beside its GPUs, as agents do; and what all pods may have of each in sum, where
    the Node says so: then its agent sets pods' limits."""
    offered = rails(topology)
    allocatable.setdefault(RDMA, SHARES * len(offered))
    count = str(allocatable[RDMA])
    if not offered or not (count.isascii() and count.isdigit()):
        return topology  # what is no number is refused elsewhere
    limits = RdmaLimit(_limit(found, RDMA_HANDLES), _limit(found, RDMA_OBJECTS))
    return machines.carded(topology, offered, int(count) // len(offered), limits)


def _limit(found: ManifestObject, annotation: str) -> int:
    told = found.annotations.get(annotation, "max")
    if told == "max":
        return -1
    if told.isascii() and told.isdigit():
        return int(told)
    raise found.wrong(
        f'metadata.annotations.{annotation}: "{told}" is neither a whole number nor max'
    )


def equal(seen: NodeSeen) -> NodeTopology | None:
    """Of a node whose GPUs are nothing but a number."""
    gpus = seen.allocatable.get(GPU, 0)
    if not 0 < gpus <= machines.MOST_EQUAL:
        return None
    made = machines.equal(gpus)
    return machines.shared(made) if seen.allocatable.get(GPU_SHARE) else made


def _offer_shares(allocatable: dict[str, Any]) -> None:
    """As agents do where nothing else is said."""
    if gpus := _count(allocatable):
        allocatable.setdefault(GPU_SHARE, gpus * WHOLE)


def _count(allocatable: dict[str, Any]) -> int:
    """Of whole GPUs; what is no number is refused elsewhere."""
    gpus = str(allocatable.get(GPU, 0))
    return int(gpus) if gpus.isascii() and gpus.isdigit() else 0
