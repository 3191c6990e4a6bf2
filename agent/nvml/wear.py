"""Reads a GPU's memory errors, its pending row remappings and page retirements, and the recovery
action that the driver recommends. Values that are not supported keep their defaults."""

from typing import Any

import pynvml

from agent.machine.facts import Wear
from agent.nvml.library import query

UNCORRECTED = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED
RECOVERY_ACTION = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION


def read(handle: Any) -> Wear:
    rows = query(pynvml.nvmlDeviceGetRemappedRows, handle)
    return Wear(
        ecc_volatile=_number(query(_ecc, handle, pynvml.NVML_VOLATILE_ECC)),
        ecc_aggregate=_number(query(_ecc, handle, pynvml.NVML_AGGREGATE_ECC)),
        rows_remapped=rows[1] if rows else 0,
        rows_pending=bool(rows and rows[2]),
        rows_failed=bool(rows and rows[3]),
        pages_pending=bool(query(pynvml.nvmlDeviceGetRetiredPagesPendingStatus, handle)),
        recovery=_number(query(_recovery, handle)),
    )


def _ecc(handle: Any, counter: int) -> int:
    return int(pynvml.nvmlDeviceGetTotalEccErrors(handle, UNCORRECTED, counter))


def _recovery(handle: Any) -> int | None:
    value = pynvml.nvmlDeviceGetFieldValues(handle, [RECOVERY_ACTION])[0]
    return None if value.nvmlReturn else int(value.value.uiVal)


def _number(value: int | None) -> int:
    return -1 if value is None else value
