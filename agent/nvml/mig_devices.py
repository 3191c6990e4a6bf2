"""MIG: whether a GPU is in that mode, and the slices it is in then."""

from collections.abc import Iterator
from typing import Any

import pynvml

from agent.machine.facts import SliceFacts
from agent.nvml.library import told

MIB = 1 << 20


def mode(handle: Any) -> tuple[bool, bool]:
    """Whether it is on, and whether the next reset changes that."""
    now, pending = told(pynvml.nvmlDeviceGetMigMode, handle) or (0, 0)
    return bool(now), bool(now) != bool(pending)


def handles(gpu: Any) -> Iterator[Any]:
    """Of the slices that there are: their indices may have gaps."""
    for index in range(told(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0):
        handle = told(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if handle is not None:
            yield handle


def read(gpu: Any) -> tuple[SliceFacts, ...]:
    """One that goes while it is read is left out."""
    found = (_slice(handle) for handle in handles(gpu))
    return tuple(part for part in found if part is not None)


def _slice(handle: Any) -> SliceFacts | None:
    uuid = told(pynvml.nvmlDeviceGetUUID, handle)
    gi = told(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    ci = told(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    if not uuid or gi is None or ci is None:
        return None
    has = told(pynvml.nvmlDeviceGetAttributes_v2, handle)
    return SliceFacts(
        uuid=uuid,
        name=told(pynvml.nvmlDeviceGetName, handle) or "",
        gi=gi,
        ci=ci,
        gi_slices=has.gpuInstanceSliceCount if has else 0,
        ci_slices=has.computeInstanceSliceCount if has else 0,
        memory_bytes=has.memorySizeMB * MIB if has else 0,
    )
