"""Reads the MIG mode of a GPU and its MIG devices (slices)."""

from collections.abc import Iterator
from typing import Any

import pynvml

from agent.machine.facts import SliceFacts
from agent.nvml.library import query

MIB = 1 << 20
MOST_SLICES = 64  # that are asked, whatever the driver counts


def mode(handle: Any) -> tuple[bool, bool]:
    """Returns whether MIG mode is on, and whether the next reset changes it."""
    now, pending = query(pynvml.nvmlDeviceGetMigMode, handle) or (0, 0)
    return bool(now), bool(now) != bool(pending)


def handles(gpu: Any) -> Iterator[Any]:
    """The handles of the existing slices; their indices may have gaps."""
    most = query(pynvml.nvmlDeviceGetMaxMigDeviceCount, gpu) or 0
    for index in range(min(most, MOST_SLICES)):
        handle = query(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu, index)
        if handle is not None:
            yield handle


def read(gpu: Any) -> tuple[SliceFacts, ...]:
    """The slices, without any that is deleted during the read."""
    found = (_slice(handle) for handle in handles(gpu))
    return tuple(part for part in found if part is not None)


def _slice(handle: Any) -> SliceFacts | None:
    uuid = query(pynvml.nvmlDeviceGetUUID, handle)
    gi = query(pynvml.nvmlDeviceGetGpuInstanceId, handle)
    ci = query(pynvml.nvmlDeviceGetComputeInstanceId, handle)
    if not uuid or gi is None or ci is None:
        return None
    has = query(pynvml.nvmlDeviceGetAttributes_v2, handle)
    return SliceFacts(
        uuid=uuid,
        name=query(pynvml.nvmlDeviceGetName, handle) or "",
        gi=gi,
        ci=ci,
        gi_slices=has.gpuInstanceSliceCount if has else 0,
        ci_slices=has.computeInstanceSliceCount if has else 0,
        memory_bytes=has.memorySizeMB * MIB if has else 0,
    )
