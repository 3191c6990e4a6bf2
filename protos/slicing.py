"""MIG slices as resources: one for each profile, called as NVIDIA's device plugin calls them. Pure."""

from collections.abc import Iterator

from protos.names import MIG
from protos.topology import Gpu, NodeTopology, Slice


def resource(profile: str) -> str:
    """1g.10gb+me -> nvidia.com/mig-1g.10gb.me: a resource's name may have no plus."""
    return MIG + profile.replace("+", ".")


def is_slice(resource: str) -> bool:
    return resource.startswith(MIG)


def of(topology: NodeTopology) -> Iterator[tuple[Gpu, Slice]]:
    """Every slice, with the GPU that it is a part of."""
    return ((gpu, part) for gpu in topology.gpus for part in gpu.slices)


def enforcement(profile: str) -> str:
    """What keeps others off its memory: a word of sharing. Slices that divide a GPU instance
    (1c.3g.20gb) have its memory together."""
    return "none" if "c." in profile else "mig"


def words(gpu: Gpu, part: Slice) -> str:
    """GPU 3's 1g.10gb"""
    return f"GPU {gpu.index}'s {part.profile} (gi {part.gi}, ci {part.ci})"
