"""MIG slices as resources: one per profile, under the names of NVIDIA's device plugin. Pure."""

from collections.abc import Iterable, Iterator

from protos.names import GPU, GPU_SHARE, MIG
from protos.topology import Gpu, NodeTopology, Slice


def resource(profile: str) -> str:
    """1g.10gb+me -> nvidia.com/mig-1g.10gb.me: resource names may not contain a plus."""
    return MIG + profile.replace("+", ".")


def is_slice(resource: str) -> bool:
    return resource.startswith(MIG)


def requests_devices(requests: Iterable[tuple[str, int]]) -> bool:
    """Returns whether a request is for GPUs, for shares of one, or for MIG slices."""
    return any(amount and (name in (GPU, GPU_SHARE) or is_slice(name)) for name, amount in requests)


def of(topology: NodeTopology) -> Iterator[tuple[Gpu, Slice]]:
    """Every slice with its GPU."""
    return ((gpu, part) for gpu in topology.gpus for part in gpu.slices)


def enforcement(profile: str) -> str:
    """The enforcement of its memory limit, one of gpu_sharing.RANKS. Slices of one GPU instance
    (1c.3g.20gb) share its memory."""
    return "none" if "c." in profile else "mig"


def words(gpu: Gpu, part: Slice) -> str:
    """Names a slice for messages, such as GPU 3's 1g.10gb (gi 7, ci 0)."""
    return f"GPU {gpu.index}'s {part.profile} (gi {part.gi}, ci {part.ci})"
