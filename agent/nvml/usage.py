"""How much each GPU, and each MIG slice, does at this moment: for metrics only, and asked only when they are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml

from agent.nvml import mig_devices
from agent.nvml.library import opened, quiet

LINK_ERRORS = (
    pynvml.NVML_NVLINK_ERROR_DL_REPLAY,
    pynvml.NVML_NVLINK_ERROR_DL_RECOVERY,
    pynvml.NVML_NVLINK_ERROR_DL_CRC_FLIT,
)


@dataclass(frozen=True, slots=True)
class Usage:
    """None: not told."""

    uuid: str
    memory_used: int | None = None
    utilization: float | None = None  # 0 to 1
    celsius: int | None = None
    watts: float | None = None
    link_errors: int | None = None  # replays, recoveries and checksum errors of all links


def read(driver_root: Path | None, links: dict[str, tuple[int, ...]]) -> tuple[Usage, ...]:
    """links: the NVLinks to ask of each GPU. Raises NvmlError."""
    with opened(driver_root):
        found = []
        for index in range(pynvml.nvmlDeviceGetCount()):
            handle = quiet(pynvml.nvmlDeviceGetHandleByIndex, index)
            uuid = quiet(pynvml.nvmlDeviceGetUUID, handle) if handle is not None else None
            if uuid:
                found.append(_usage(handle, uuid, links.get(uuid, ())))
                found += quiet(_of_slices, handle) or ()
        return tuple(found)


def _of_slices(gpu: Any) -> list[Usage]:
    """Their memory is all that is told."""
    if not mig_devices.mode(gpu)[0]:
        return []
    handles = {
        quiet(pynvml.nvmlDeviceGetUUID, handle): handle for handle in mig_devices.handles(gpu)
    }
    return [
        Usage(uuid, int(memory.used))
        for uuid, handle in handles.items()
        if uuid and (memory := quiet(pynvml.nvmlDeviceGetMemoryInfo, handle))
    ]


def _usage(handle: Any, uuid: str, links: tuple[int, ...]) -> Usage:
    memory = quiet(pynvml.nvmlDeviceGetMemoryInfo, handle)
    rates = quiet(pynvml.nvmlDeviceGetUtilizationRates, handle)
    milliwatts = quiet(pynvml.nvmlDeviceGetPowerUsage, handle)
    errors = [
        quiet(pynvml.nvmlDeviceGetNvLinkErrorCounter, handle, link, kind)
        for link in links
        for kind in LINK_ERRORS
    ]
    told = [count for count in errors if count is not None]
    return Usage(
        uuid,
        memory_used=int(memory.used) if memory else None,
        utilization=rates.gpu / 100 if rates else None,
        celsius=quiet(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
        watts=milliwatts / 1000 if milliwatts is not None else None,
        link_errors=sum(told) if told else None,
    )
