"""GPU memory in use by process, and how busy each keeps the GPU."""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pynvml

from agent.nvml.library import opened, try_query

CALLS = (
    pynvml.nvmlDeviceGetComputeRunningProcesses_v3,
    pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3,
    pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3,
)
MOST_PROCESSES = 65536  # the binding allocates memory for as many as the driver counts
MemoryByPid = dict[int, int]  # bytes, by the process's pid on the host
RateByPid = dict[int, float]  # 0 to 1


def read(driver_root: Path | None, uuids: Sequence[str]) -> dict[str, MemoryByPid | None]:
    """Returns the memory of each process by the GPU's UUID; None if this driver does not list processes. Raises
    NvmlError."""
    with opened(driver_root):
        return {uuid: _of(uuid) for uuid in uuids}


def rates(driver_root: Path | None, uuids: Sequence[str]) -> dict[str, RateByPid]:
    """Returns the part of the driver's last samples in which each process kept the GPU busy. Raises NvmlError."""
    with opened(driver_root):
        return {uuid: _rates(uuid) for uuid in uuids}


def _rates(uuid: str) -> RateByPid:
    handle = try_query(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    name = "nvmlDeviceGetProcessUtilization"
    if handle is None or _samples(name, handle) > MOST_PROCESSES:
        return {}
    found: dict[int, tuple[int, int]] = {}
    for one in try_query(pynvml.nvmlDeviceGetProcessUtilization, handle, 0) or ():
        found[one.pid] = max(found.get(one.pid, (0, 0)), (one.timeStamp, min(one.smUtil, 100)))
    return {pid: rate / 100 for pid, (_, rate) in found.items()}


def _samples(name: str, handle: Any) -> int:
    call = try_query(pynvml._nvmlGetFunctionPointer, name)
    found = ctypes.c_uint(0)
    if call is not None:
        call(handle, None, ctypes.byref(found), ctypes.c_ulonglong(0))
    return found.value


def _of(uuid: str) -> MemoryByPid | None:
    handle = try_query(pynvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None or any(_count(call.__name__, handle) > MOST_PROCESSES for call in CALLS):
        return None
    lists = [try_query(call, handle) for call in CALLS]
    if lists[0] is None:
        return None
    found: MemoryByPid = {}
    for process in [process for processes in lists for process in processes or ()]:
        # A process that computes and renders is in two lists, with the same amount.
        found[process.pid] = max(found.get(process.pid, 0), process.usedGpuMemory or 0)
    return found


def _count(name: str, handle: Any) -> int:
    """Returns how many processes the driver would list; 0 if it lists none."""
    call = try_query(pynvml._nvmlGetFunctionPointer, name)
    found = ctypes.c_uint(0)
    if call is not None:
        call(handle, ctypes.byref(found), None)
    return found.value
