"""Limits of GPU memory for all processes of a cgroup, enforced by the driver (615 and newer, cgroup
v2)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from agent.nvml.library import NvmlError, opened

UNSUPPORTED = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class MemoryLimit:
    """A limit of memory and its use, in bytes."""

    limit: int
    used: int


def read(driver_root: Path | None, uuid: str, cgroup: Path) -> MemoryLimit:
    """Raises NvmlError."""
    with opened(driver_root):
        return _read(_handle(uuid), cgroup)


def write(driver_root: Path | None, uuid: str, cgroup: Path, limit: int) -> MemoryLimit:
    """Sets the limit, in bytes, and reads it back. Raises NvmlError.

    The soft limit is equal to the hard one, so that memory below it is guaranteed even on a full
    GPU."""
    with opened(driver_root):
        handle = _handle(uuid)
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace, limits.softLimit, limits.hardLimit = str(cgroup).encode(), limit, limit
        try:
            pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)
        except pynvml.NVMLError as error:
            raise NvmlError(_message(error, "set")) from error
        return _read(handle, cgroup)


def _read(handle: Any, cgroup: Path) -> MemoryLimit:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = str(cgroup).encode()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError as error:
        raise NvmlError(_message(error, "read")) from error
    return MemoryLimit(int(limits.hardLimit), int(limits.currentUsed))


def _handle(uuid: str) -> Any:
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def _message(error: Any, verb: str) -> str:
    if error.value in UNSUPPORTED:
        return "this driver does not limit GPU memory by cgroup (615 and newer do, with cgroup v2)"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return f"could not {verb} the GPU memory limit: the agent lacks the capability SYS_ADMIN"
    return f"could not {verb} the GPU memory limit: {error}"
