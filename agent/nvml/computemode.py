"""The compute mode of a GPU: any number of processes (default), or one, which is then the MPS
server."""

from pathlib import Path

import pynvml

from agent.nvml.library import NvmlError, opened

DEFAULT, EXCLUSIVE = pynvml.NVML_COMPUTEMODE_DEFAULT, pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS


def read(driver_root: Path | None, uuid: str) -> int:
    """Raises NvmlError."""
    with opened(driver_root):
        return int(pynvml.nvmlDeviceGetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid)))


def write(driver_root: Path | None, uuid: str, mode: int) -> None:
    """Raises NvmlError."""
    with opened(driver_root):
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        try:
            pynvml.nvmlDeviceSetComputeMode(handle, mode)
        except pynvml.NVMLError as error:
            lacks = error.value == pynvml.NVML_ERROR_NO_PERMISSION
            fix = ": capability SYS_ADMIN is missing" if lacks else f": {error}"
            raise NvmlError(f"could not set the compute mode of GPU {uuid}{fix}") from error
