"""The present usage of each GPU and MIG slice. Read only when metrics are scraped."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from agent.nvml import mig_devices
from agent.nvml.library import device_count, opened, try_query

LINK_ERRORS = (
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
)


@dataclass(frozen=True, slots=True)
class Usage:
    """The GPU's counters. None: not reported."""

    uuid: str
    memory_used: int | None = None
    utilization: float | None = None  # 0 to 1
    celsius: int | None = None
    watts: float | None = None
    link_errors: int | None = None  # replays, recoveries and checksum errors of all links


def read(driver_root: Path | None, links: dict[str, tuple[int, ...]]) -> tuple[Usage, ...]:
    """links: the active NVLinks of each GPU, by uuid. Raises NvmlError."""
    with opened(driver_root):
        found = []
        for index in range(device_count()):
            handle = try_query(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = try_query(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
            if uuid:
                found.append(_usage(handle, uuid, links.get(uuid, ())))
                found += try_query(_slices, handle) or ()
        return tuple(found)


def _slices(gpu: Any) -> list[Usage]:
    """NVML reports only the memory of slices."""
    if not mig_devices.mode(gpu)[0]:
        return []
    handles = {
        try_query(pynvml.nvmlDeviceGetUUID, handle): handle for handle in mig_devices.handles(gpu)
    }
    return [
        Usage(uuid, int(memory.used))
        for uuid, handle in handles.items()
        if uuid and (memory := try_query(pynvml.nvmlDeviceGetMemoryInfo, handle))
    ]


def _usage(handle: Any, uuid: str, links: tuple[int, ...]) -> Usage:
    memory = try_query(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = try_query(pynvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = try_query(pynvml.nvmlDeviceGetPowerUsage, handle)
    errors = [
        try_query(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, kind)
        for link in links
        for kind in LINK_ERRORS
    ]
    counts = [count for count in errors if count is not None]
    return Usage(
        uuid,
        memory_used=int(memory.used) if memory else None,
        utilization=rates.gpu / 100 if rates else None,
        celsius=try_query(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        watts=milliwatts / 1000 if milliwatts is not None else None,
        link_errors=sum(counts) if counts else None,
    )
