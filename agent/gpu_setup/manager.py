"""Applies the requested setup to each GPU, maintains it, and restores the former setup when the
request is gone. The former setup is on disk, so that a restarted process can restore it.

Design: docs/design/gpu-sharing.md
"""

import contextlib
import json
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agent.backoff import Backoff, StateLogger
from agent.bounded_files import MOST_BYTES, read_json, replace_text
from agent.gpu_setup.mps_server import MpsServer
from agent.gpu_setup.nvidia_tools import CONTROL, SMI, Tool, ToolError, find
from agent.kubelet.directory_watch import DirectoryWatch
from agent.machine.facts import Unusable
from agent.nvml import computemode
from agent.sharing.setup_requests import DesiredSetup, SetupCapabilities, SetupRequests
from agent.sharing.sharing_mode import TIME_SLICES
from agent.timeout_call import TimedOut, WithTimeout

log = logging.getLogger(__name__)

CHECK_S = 10.0  # between checks of the daemons, while there are any
BEFORE = "before.json"
MODES = 4  # of NVML's compute modes, from 0
DRIVER_S = 5.0
RETRY_S = 60.0  # longest pause after a failure


@dataclass(slots=True)
class _GpuSetup:
    """A GPU with a requested setup."""

    server: MpsServer | None = None
    served: bool = False
    slice: str = ""  # as set
    backoff: Backoff | None = None  # after a failure
    retry_at: float = 0.0


class GpuSetupManager:
    def __init__(
        self, requests: SetupRequests, driver_root: Path | None, *, multi_user: bool = True
    ) -> None:
        self._requests, self._root, self._multi_user = requests, driver_root, multi_user
        self._changed = threading.Event()
        self._setups: dict[str, _GpuSetup] = {}
        self._log = StateLogger(log)
        self._driver = WithTimeout("the NVIDIA driver")
        self._folder = DirectoryWatch(requests.desired_folder, self._changed.set)

    def run(self, stop: threading.Event) -> None:
        """Runs until stop; call wake() after setting it. Raises OSError if the directory is
        unusable."""
        with self._requests.exclusive() as exclusive:
            if exclusive:
                self._requests.publish(self._capabilities())
                threading.Thread(target=self._folder.run, args=(stop,), daemon=True).start()
                while not stop.is_set():
                    self._changed.clear()
                    self.reconcile(time.monotonic())
                    self._changed.wait(self._pause_s(time.monotonic()))
                return
        self._log.failed(
            f"another gpu-setup process uses {self._requests.folder}; waiting until it ends"
        )

    def wake(self) -> None:
        self._changed.set()
        self._folder.stop()

    def _capabilities(self) -> SetupCapabilities:
        whys = []
        for name in (CONTROL, SMI):
            try:
                find(name, self._root)
                whys.append("")
            except ToolError as error:
                log.warning("%s", error)
                whys.append(str(error))
        return SetupCapabilities(*whys)

    def _pause_s(self, now: float) -> float:
        due = [setup.retry_at - now for setup in self._setups.values() if setup.retry_at]
        return max(0.05, min([CHECK_S if self._known() else 3600.0, *due]))

    def reconcile(self, now: float) -> None:
        wanted = self._requests.all_desired()
        try:
            for uuid in sorted(self._known() - wanted.keys()):
                self._release(uuid)
            for uuid, each in wanted.items():
                setup = self._setups.setdefault(uuid, _GpuSetup())
                if now >= setup.retry_at:
                    self._apply(uuid, each, setup, now)
        except OSError as error:  # cannot write the state; the daemons keep running
            self._log.failed(f"{error.filename}: {error.strerror}")

    def _known(self) -> set[str]:
        """GPUs whose setup has, or may have, been changed."""
        found = {file.parent.name for file in self._requests.folder.glob(f"*/{BEFORE}")}
        return found | self._setups.keys()

    def _apply(self, uuid: str, wanted: DesiredSetup, setup: _GpuSetup, now: float) -> None:
        try:
            if wanted.mps:
                self._serve(uuid, wanted, setup)
            elif setup.slice != wanted.slice:
                self._remember(uuid, {"slice": 0})
                self._slice(uuid, _number(wanted.slice))
                setup.slice = wanted.slice
            setup.backoff, setup.retry_at, why = None, 0.0, ""
        except (ToolError, Unusable, TimedOut, OSError) as error:
            setup.backoff = setup.backoff or Backoff(0.5, RETRY_S)
            setup.retry_at, why = now + setup.backoff.pause_s(), str(error)
            log.warning("GPU %s: %s", uuid, why)
        self._requests.set_state(uuid, wanted, why)

    # MPS

    def _serve(self, uuid: str, wanted: DesiredSetup, setup: _GpuSetup) -> None:
        """Exclusive compute mode admits one process, the MPS server, so that no process bypasses
        its limits."""
        mode = self._driver.call(lambda: computemode.read(self._root, uuid), DRIVER_S)
        if mode != computemode.EXCLUSIVE:
            self._remember(uuid, {"mode": mode})
            self._set_mode(uuid, computemode.EXCLUSIVE)
        server = setup.server = setup.server or self._server(uuid)
        if not server.serves():
            if setup.served:
                # The agent allocates no shares of the GPU until the daemon runs again.
                self._requests.set_state(
                    uuid, wanted, "its MPS daemon ended and is being restarted"
                )
                log.warning("GPU %s: the MPS daemon ended", uuid)
            server.start(multi_user=self._multi_user)
            log.info("GPU %s: the MPS daemon runs", uuid)
        setup.served = True
        if wanted.limit_mib:
            server.limit(wanted.limit_mib)

    def _set_mode(self, uuid: str, mode: int) -> None:
        self._driver.call(lambda: computemode.write(self._root, uuid, mode), DRIVER_S)

    def _server(self, uuid: str) -> MpsServer:
        tool: Tool = find(CONTROL, self._root)
        requests = self._requests
        return MpsServer(tool, uuid, requests.pipe(uuid), requests.logs(uuid), self._changed.set)

    def _slice(self, uuid: str, number: int) -> None:
        tool = find(SMI, self._root)
        tool.run("compute-policy", "-i", uuid, "--set-timeslice", str(number))
        log.info("GPU %s: time slice set to %s", uuid, TIME_SLICES[number])

    # Restoring

    def _release(self, uuid: str) -> None:
        setup = self._setups.pop(uuid, _GpuSetup())
        file = self._requests.folder / uuid / BEFORE
        before = _read(file)
        try:
            if "mode" in before:
                (setup.server or self._server(uuid)).stop()
                self._set_mode(uuid, before["mode"])
            if "slice" in before:
                self._slice(uuid, before["slice"])
        except (ToolError, Unusable, TimedOut) as error:
            self._log.failed(f"cannot restore the setup of GPU {uuid}: {error}")
            return
        file.unlink(missing_ok=True)
        self._requests.drop_state(uuid)
        log.info("GPU %s: compute mode and time slice restored", uuid)

    def _remember(self, uuid: str, before: dict[str, int]) -> None:
        """Saves the former setup; the first one saved counts."""
        file = self._requests.folder / uuid / BEFORE
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_text(file, json.dumps(before | _read(file)))


def _read(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError):
        found = read_json(file, MOST_BYTES)
        if isinstance(found, dict):
            return {
                key: found[key]
                for key, most in (("mode", MODES), ("slice", len(TIME_SLICES)))
                if type(found.get(key)) is int and 0 <= found[key] < most
            }
    return {}


def _number(time_slice: str) -> int:
    """Raises ToolError."""
    if time_slice not in TIME_SLICES:
        raise ToolError(f'the requested time slice "{time_slice:.20}" is none of {TIME_SLICES}')
    return TIME_SLICES.index(time_slice)
