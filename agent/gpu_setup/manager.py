"""Brings GPUs into the state that is wanted, keeps them there, and brings them back when it is not wanted
any more. What a GPU was before is on disk, so that any keeper can bring it back."""

import contextlib
import json
import logging
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from agent.backoff import Backoff, StateLogger
from agent.gpu_setup.mps_server import MpsServer
from agent.gpu_setup.nvidia_tools import CONTROL, SMI, Tool, ToolError, find
from agent.kubelet.directory_watch import DirectoryWatch
from agent.machine.facts import Unusable
from agent.nvml import computemode
from agent.sharing.setup_requests import DesiredSetup, SetupCapabilities, SetupRequests
from agent.sharing.sharing_mode import TIME_SLICES
from agent.timeout_call import TimedOut, WithTimeout

log = logging.getLogger(__name__)

LOOK_S = 10.0  # between looks at servers, while there are any
BEFORE = "before.json"
DRIVER_S = 5.0
AGAIN_S = 60.0  # at most, after a failure


@dataclass(slots=True)
class _Case:
    """A GPU that is wanted in some state."""

    server: MpsServer | None = None
    served: bool = False
    slice: str = ""  # that is set
    backoff: Backoff | None = None  # after a failure
    again_at: float = 0.0


class GpuSetupManager:
    def __init__(
        self, requests: SetupRequests, driver_root: Path | None, *, multi_user: bool = True
    ) -> None:
        self._requests, self._root, self._multi_user = requests, driver_root, multi_user
        self._news = threading.Event()
        self._cases: dict[str, _Case] = {}
        self._log = StateLogger(log)
        self._driver = WithTimeout("the NVIDIA driver")
        self._folder = DirectoryWatch(requests.desired_folder, self._news.set)

    def run(self, stop: threading.Event) -> None:
        """Until stop; wake() after it was set. Raises OSError where the folder can't be used."""
        with self._requests.exclusive() as ours:
            if ours:
                self._requests.publish(self._able())
                threading.Thread(target=self._folder.run, args=(stop,), daemon=True).start()
                while not stop.is_set():
                    self._news.clear()
                    self.look(time.monotonic())
                    self._news.wait(self._pause_s(time.monotonic()))
                return
        self._log.failed(f"another keeper works on {self._requests.folder}: waiting for its end")

    def wake(self) -> None:
        self._news.set()
        self._folder.stop()

    def _able(self) -> SetupCapabilities:
        whys = []
        for name in (CONTROL, SMI):
            try:
                find(name, self._root)
                whys.append("")
            except ToolError as trouble:
                log.warning("%s", trouble)
                whys.append(str(trouble))
        return SetupCapabilities(*whys)

    def _pause_s(self, now: float) -> float:
        due = [case.again_at - now for case in self._cases.values() if case.again_at]
        return max(0.05, min([LOOK_S if self._cases else 3600.0, *due]))

    def look(self, now: float) -> None:
        wanted = self._requests.all_desired()
        try:
            for uuid in sorted(self._known() - wanted.keys()):
                self._release(uuid)
            for uuid, each in wanted.items():
                case = self._cases.setdefault(uuid, _Case())
                if now >= case.again_at:
                    self._bring(uuid, each, case, now)
        except OSError as error:  # no room to say it: servers go on
            self._log.failed(f"{error.filename}: {error.strerror}")

    def _known(self) -> set[str]:
        """GPUs that are, or may be, in another state than they were."""
        found = {file.parent.name for file in self._requests.folder.glob(f"*/{BEFORE}")}
        return found | self._cases.keys()

    def _bring(self, uuid: str, wanted: DesiredSetup, case: _Case, now: float) -> None:
        try:
            if wanted.mps:
                self._serve(uuid, wanted, case)
            elif case.slice != wanted.slice:
                self._note(uuid, {"slice": 0})
                self._slice(uuid, TIME_SLICES.index(wanted.slice))
                case.slice = wanted.slice
            case.backoff, case.again_at, why = None, 0.0, ""
        except (ToolError, Unusable, TimedOut, OSError) as error:
            case.backoff = case.backoff or Backoff(0.5, AGAIN_S)
            case.again_at, why = now + case.backoff.pause_s(), str(error)
            log.warning("GPU %s: %s", uuid, why)
        self._requests.set_state(uuid, wanted, why)

    # MPS

    def _serve(self, uuid: str, wanted: DesiredSetup, case: _Case) -> None:
        """One process may compute on the GPU: the server. So nobody gets past it, and past its limits."""
        mode = self._driver.call(lambda: computemode.read(self._root, uuid), DRIVER_S)
        if mode != computemode.EXCLUSIVE:
            self._note(uuid, {"mode": mode})
            self._set_mode(uuid, computemode.EXCLUSIVE)
        server = case.server = case.server or self._server(uuid)
        if not server.serves():
            if case.served:
                # Whoever asks meanwhile is told, and gets no share of it.
                self._requests.set_state(uuid, wanted, "its MPS has ended, and is started again")
                log.warning("GPU %s: MPS has ended", uuid)
            server.start(multi_user=self._multi_user)
            log.info("GPU %s: MPS serves", uuid)
        case.served = True
        if wanted.limit_mib:
            server.limit(wanted.limit_mib)

    def _set_mode(self, uuid: str, mode: int) -> None:
        self._driver.call(lambda: computemode.write(self._root, uuid, mode), DRIVER_S)

    def _server(self, uuid: str) -> MpsServer:
        tool: Tool = find(CONTROL, self._root)
        requests = self._requests
        return MpsServer(tool, uuid, requests.pipe(uuid), requests.logs(uuid), self._news.set)

    def _slice(self, uuid: str, number: int) -> None:
        tool = find(SMI, self._root)
        tool.run("compute-policy", "-i", uuid, "--set-timeslice", str(number))
        log.info("GPU %s: time slices are %s", uuid, TIME_SLICES[number])

    # Back to what it was

    def _release(self, uuid: str) -> None:
        case = self._cases.pop(uuid, _Case())
        file = self._requests.folder / uuid / BEFORE
        before = _read(file)
        try:
            if "mode" in before:
                (case.server or self._server(uuid)).stop()
                self._set_mode(uuid, before["mode"])
            if "slice" in before:
                self._slice(uuid, before["slice"])
        except (ToolError, Unusable, TimedOut) as error:
            self._log.failed(f"GPU {uuid} can't be brought back: {error}")
            return
        file.unlink(missing_ok=True)
        self._requests.drop_state(uuid)
        log.info("GPU %s is as it was", uuid)

    def _note(self, uuid: str, before: dict[str, int]) -> None:
        """What it was first counts."""
        file = self._requests.folder / uuid / BEFORE
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(before | _read(file)), encoding="utf-8")


def _read(file: Path) -> dict[str, int]:
    with contextlib.suppress(OSError, ValueError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return {str(key): int(value) for key, value in found.items()}
    return {}
