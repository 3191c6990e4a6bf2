"""Receives XIDs and other events from the driver, in a thread of its own, because a call of NVML
may hang."""

import ctypes
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from agent.backoff import Backoff, StateLogger
from agent.nvml.library import NvmlError, device_count, opened, try_query

log = logging.getLogger(__name__)

WAIT_MS = 5000
XID = pynvml.nvmlEventTypeXidCriticalError
EVENTS = (  # registered as far as the GPU supports them; each starts a survey at once
    XID
    | pynvml.nvmlEventTypeDoubleBitEccError
    | pynvml.nvmlEventMigConfigChange
    | 0x0400  # DRAM retirement, its failure, poison, GPU unavailable, recovery action
    | 0x0800
    | 0x1000
    | 0x2000
    | 0x4000
    | 0x8000
)

# Arguments: uuid (empty: no known GPU), XID (0: another event), GPU instance and compute instance
# (-1: unknown).
OnEvent = Callable[[str, int, int, int], None]
NO_INSTANCE = 0xFFFFFFFF


class EventListener:
    def __init__(self, driver_root: Path | None, on_event: OnEvent) -> None:
        self._root, self._on_event = driver_root, on_event
        self._log = StateLogger(log)
        self._renew = threading.Event()
        self.listening = 0  # GPUs whose events are registered

    def renew(self) -> None:
        """Registers again, because the set of reachable GPUs has changed."""
        self._renew.set()

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(first_s=1.0, most_s=60.0)
        while not stop.is_set():
            self._renew.clear()
            try:
                with opened(self._root):
                    self._listen(stop, backoff)
            except NvmlError as error:
                self._log.failed(f"no driver events: {error}")
            self.listening = 0
            if not self._renew.is_set():
                stop.wait(backoff.pause_s())

    def _listen(self, stop: threading.Event, backoff: Backoff) -> None:
        """Returns after renew() or stop. Raises pynvml.NVMLError."""
        events = pynvml.nvmlEventSetCreate()
        try:
            names = _register(events)
            self.listening = len(names)
            self._log.ok(f"listening for the events of {len(names)} GPUs")
            if not names:
                self._renew.wait(60.0)
            while names and not stop.is_set() and not self._renew.is_set():
                try:
                    event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
                except pynvml.NVMLError as error:
                    if error.value == pynvml.NVML_ERROR_TIMEOUT:
                        backoff.reset()
                        continue
                    raise
                xid = int(event.eventData) if event.eventType == XID else 0
                # A GPU that was reset since the registration may have another handle.
                uuid = names.get(_address(event.device)) or try_query(
                    pynvml.nvmlDeviceGetUUID, event.device
                )
                self._on_event(
                    uuid or "",
                    xid,
                    _instance(event.gpuInstanceId),
                    _instance(event.computeInstanceId),
                )
        finally:
            try_query(pynvml.nvmlEventSetFree, events)


def _register(events: Any) -> dict[int, str]:
    """The uuid of each GPU that supports XID events, by handle."""
    names: dict[int, str] = {}
    for index in range(device_count()):
        handle = try_query(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue  # lost; renew() is called when it is back
        types = EVENTS & (try_query(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0)
        uuid = try_query(pynvml.nvmlDeviceGetUUID, handle)
        if not types & XID or not uuid:
            continue
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, types, events)
        except pynvml.NVMLError as error:
            log.info("GPU %d (%s) does not support NVML events: %s", index, uuid, error)
            continue
        names[_address(handle)] = uuid
    return names


def _instance(number: int) -> int:
    return -1 if number == NO_INSTANCE else int(number)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
