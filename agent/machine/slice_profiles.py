"""What a slice is called. Pure.

The driver's name of a slice ends with its profile, as people write it to make one (1g.5gb, 1c.3g.20gb,
1g.10gb+me). A driver that names it in no such way says at least how large it is."""

import math
import re

from agent.machine.facts import GpuFacts, SliceFacts
from protos.topology import Slice

NAMED = re.compile(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb(?:[+-][a-z0-9.]+)?)$")
PARTS = 8  # memory is handed out in eighths of the GPU's
GIB = 1 << 30


def slices(gpu: GpuFacts) -> tuple[Slice, ...]:
    """By their place on the GPU."""
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
    """As NVIDIA rounds: whole eighths of a memory of whole gigabytes."""
    if not gpu.memory_bytes:
        return round(part.memory_bytes / GIB)
    eighths = math.ceil(part.memory_bytes / gpu.memory_bytes * PARTS)
    return math.floor(eighths * math.ceil(gpu.memory_bytes / GIB) / PARTS + 0.5)
