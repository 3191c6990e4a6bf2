"""GPU memory in use by process."""

from collections.abc import Sequence
from pathlib import Path

import pynvml

from agent.nvml.library import opened, try_query

CALLS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)
MemoryByPid = dict[int, int]  # bytes, by the process's pid on the host


def read(driver_root: Path | None, uuids: Sequence[str]) -> dict[str, MemoryByPid | None]:
    """By the GPU's uuid; None: this driver does not list processes. Raises NvmlError."""
    with opened(driver_root):
        return {uuid: _of(uuid) for uuid in uuids}


def _of(uuid: str) -> MemoryByPid | None:
    handle = try_query(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    lists = [try_query(call, handle) for call in CALLS] if handle is not None else []
    if not lists or lists[0] is None:
        return None
    found: MemoryByPid = {}
    for process in [process for processes in lists for process in processes or ()]:
        # A process that computes and renders is in two lists, with the same amount.
        found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
    return found
