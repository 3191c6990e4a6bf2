"""The MIG profile of each slice. Pure.

The name that the driver gives to a slice ends with its profile: 1g.5gb, 1c.3g.20gb, 1g.10gb+me. If
the name has no profile, it is derived from the sizes of the slice. Example: on a GPU of 40,536 MiB,
20,096 MiB round up to 4 eighths of 40 GiB, so 3 compute slices with that memory are 3g.20gb."""

import math
import re

from agent.machine.facts import GpuFacts, SliceFacts
from protos.topology import Slice

NAMED = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z0-9.]+)?)$")
PARTS = 8  # MIG divides memory into eighths of the GPU's
GIB = 1 << 30


def slices(gpu: GpuFacts) -> tuple[Slice, ...]:
    """Returns the GPU's slices, sorted by GPU instance and compute instance."""
    found = [
        Slice(part.uuid, profile(gpu, part), part.gi, part.ci, part.memory_bytes)
        for part in gpu.slices
    ]
    return tuple(sorted(found, key=lambda part: (part.gi, part.ci)))


def profile(gpu: GpuFacts, part: SliceFacts) -> str:
    named = NAMED.search(part.name)
    if named:
        return named[1]
    own = f"{part.ci_slices}c." if part.ci_slices != part.gi_slices else ""
    return f"{own}{part.gi_slices}g.{_gigabytes(gpu, part)}gb"


def _gigabytes(gpu: GpuFacts, part: SliceFacts) -> int:
    """Rounded as NVIDIA does: whole eighths of the GPU's memory in whole GiB."""
    if not gpu.memory_bytes:
        return round(part.memory_bytes / GIB)
    eighths = math.ceil(part.memory_bytes / gpu.memory_bytes * PARTS)
    return math.floor(eighths * math.ceil(gpu.memory_bytes / GIB) / PARTS + 0.5)
