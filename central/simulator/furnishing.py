"""What a kubelet and the machine's agent would tell of a Node, where the manifest does not."""

from typing import Any

from central.core.facts import NodeSeen
from central.simulator import machines
from central.simulator.objects import Object
from protos.names import DOMAIN, GPU, GPU_MEMORY_LEVEL, GPU_SHARE
from protos.sharing import WHOLE, WISHES
from protos.topology import NodeTopology

CAPTURE = f"{DOMAIN}/capture"
PODS_PER_NODE = 110  # the kubelet's own default
_READY = [{"type": "Ready", "status": "True"}]


def node(found: Object) -> NodeTopology | None:
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
    if level not in WISHES:
        why = f'"{level}" is not one of {", ".join(WISHES)}'
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
    _offer_shares(allocatable)
    if "cpu" in has:
        allocatable.setdefault("cpu", f"{has['cpu']}m")
    if "memory" in has:
        allocatable.setdefault("memory", has["memory"])
    return machines.shared(topology, level) if allocatable.get(GPU_SHARE) else topology


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
