"""What processes of one cgroup may have of a GPU's memory, all together: the driver's own limits, set by
NVML (driver 615 and newer, cgroup v2)."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from agent.nvml.library import NvmlError, opened

MISSING = (pynvml.NVML_ERROR_FUNCTION_NOT_FOUND, pynvml.NVML_ERROR_NOT_SUPPORTED)


@dataclass(frozen=True, slots=True)
class Limit:
    most: int  # bytes
    used: int


def read(driver_root: Path | None, uuid: str, cgroup: Path) -> Limit:
    """Raises NvmlError with a sentence."""
    with opened(driver_root):
        return _read(_handle(uuid), cgroup)


def write(driver_root: Path | None, uuid: str, cgroup: Path, most: int) -> Limit:
    """What holds afterwards, read back. What is below the limit is guaranteed, too: else a GPU that is
    full could take it away again."""
    with opened(driver_root):
        handle = _handle(uuid)
        limits = pynvml.c_nvmlSetMemoryLimits_v1_t()
        limits.nameSpace, limits.softLimit, limits.hardLimit = str(cgroup).encode(), most, most
        try:
            pynvml.nvmlDeviceSetMemoryLimits_v1(handle, limits)
        except pynvml.NVMLError as error:
            raise NvmlError(_sentence(error, "set")) from error
        return _read(handle, cgroup)


def _read(handle: Any, cgroup: Path) -> Limit:
    limits = pynvml.c_nvmlGetMemoryLimits_v1_t()
    limits.nameSpace = str(cgroup).encode()
    try:
        pynvml.nvmlDeviceGetMemoryLimits_v1(handle, limits)
    except pynvml.NVMLError as error:
        raise NvmlError(_sentence(error, "read")) from error
    return Limit(int(limits.hardLimit), int(limits.currentUsed))


def _handle(uuid: str) -> Any:
    return pynvml.nvmlDeviceGetHandleByUUID(uuid)


def _sentence(error: Any, verb: str) -> str:
    if error.value in MISSING:
        return "this driver limits no memory by cgroup (615 and newer do, with cgroup v2)"
    if error.value == pynvml.NVML_ERROR_NO_PERMISSION:
        return f"limits of memory can't be {verb}: the agent lacks the capability SYS_ADMIN"
    return f"limits of memory can't be {verb}: {error}"
