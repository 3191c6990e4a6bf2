"""XIDs as the driver sends them. A thread of its own waits in NVML; it may hang there, and nobody
else notices."""

import ctypes
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml

from agent.backoff import Backoff, Voice
from agent.nvml.library import NvmlError, opened, quiet

log = logging.getLogger(__name__)

WAIT_MS = 5000
XID = pynvml.nvmlEventTypeXidCriticalError
ANYTHING = (  # whatever of these the GPU knows: each means "look at once"
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

# uuid, empty: of no known GPU; the XID, 0: only look; GPU and compute instance, -1: not told
Heard = Callable[[str, int, int, int], None]
NO_INSTANCE = 0xFFFFFFFF


class Events:
    def __init__(self, driver_root: Path | None, heard: Heard) -> None:
        self._root, self._heard = driver_root, heard
        self._voice = Voice(log)
        self._anew = threading.Event()
        self.listening = 0  # GPUs that tell events

    def renew(self) -> None:
        """The GPUs are others than before, or one is back: register again."""
        self._anew.set()

    def run(self, stop: threading.Event) -> None:
        backoff = Backoff(first_s=1.0, most_s=60.0)
        while not stop.is_set():
            self._anew.clear()
            try:
                with opened(self._root):
                    self._listen(stop, backoff)
            except NvmlError as error:
                self._voice.bad(f"no events of the driver: {error}")
            self.listening = 0
            if not self._anew.is_set():
                stop.wait(backoff.pause_s())

    def _listen(self, stop: threading.Event, backoff: Backoff) -> None:
        """Until renew(), stop, or trouble, which is raised."""
        events = pynvml.nvmlEventSetCreate()
        try:
            names = _register(events)
            self.listening = len(names)
            self._voice.good(f"{len(names)} GPUs tell their errors as they happen")
            if not names:
                self._anew.wait(60.0)
            while names and not stop.is_set() and not self._anew.is_set():
                try:
                    event = pynvml.nvmlEventSetWait_v2(events, WAIT_MS)
                except pynvml.NVMLError as error:
                    if error.value == pynvml.NVML_ERROR_TIMEOUT:
                        backoff.reset()
                        continue
                    raise
                xid = int(event.eventData) if event.eventType == XID else 0
                # A GPU that was reset meanwhile may have another handle.
                uuid = names.get(_address(event.device)) or quiet(
                    pynvml.nvmlDeviceGetUUID, event.device
                )
                self._heard(
                    uuid or "",
                    xid,
                    _instance(event.gpuInstanceId),
                    _instance(event.computeInstanceId),
                )
        finally:
            quiet(pynvml.nvmlEventSetFree, events)


def _register(events: Any) -> dict[int, str]:
    """uuid by handle, of the GPUs that can tell events."""
    names: dict[int, str] = {}
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = quiet(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:
            continue  # lost: registered when it is back
        wanted = ANYTHING & (quiet(pynvml.nvmlDeviceGetSupportedEventTypes, handle) or 0)
        uuid = quiet(pynvml.nvmlDeviceGetUUID, handle)
        if not wanted & XID or not uuid:
            continue
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, wanted, events)
        except pynvml.NVMLError as error:
            log.info("GPU %d (%s) tells no events: %s", index, uuid, error)
            continue
        names[_address(handle)] = uuid
    return names


def _instance(number: int) -> int:
    return -1 if number == NO_INSTANCE else int(number)


def _address(handle: Any) -> int:
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
