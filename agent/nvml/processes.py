"""Which processes have how much of each GPU's memory."""

from collections.abc import Sequence
from pathlib import Path

import pynvml

from agent.nvml.library import opened, quiet

CALLS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)
Used = dict[int, int]  # bytes, by the process's number on the host


def read(driver_root: Path | None, uuids: Sequence[str]) -> dict[str, Used | None]:
    """By GPU; None: this driver does not tell. Raises NvmlError."""
    with opened(driver_root):
        return {uuid: _of(uuid) for uuid in uuids}


def _of(uuid: str) -> Used | None:
    handle = quiet(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    told = [quiet(call, handle) for call in CALLS] if handle is not None else []
    if not told or told[0] is None:
        return None
    found: Used = {}
    for process in [process for processes in told for process in processes or ()]:
        # A process that computes and draws is in two lists, with the same number.
        found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
    return found
