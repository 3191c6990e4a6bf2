"""The agent's side of gpu_setup: requests MPS and time slices for GPUs, and gives containers access
to the MPS daemon."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from agent.backoff import StateLogger
from agent.resources.device_resource import Refused
from agent.sharing.enforcement import MPS
from agent.sharing.responses import ShareSettings
from agent.sharing.setup_requests import DesiredSetup, SetupRequests

log = logging.getLogger(__name__)

READY_S = 20.0  # wait for the daemon; the kubelet's timeout of PreStartContainer is 30 s
POLL_S = 0.05
CLIENTS = 48  # maximum of one MPS server, from Volta on
VOLTA = 7.0
MIB = 2**20
PIPE = "/tmp/nvidia-mps"
NONE = "--sharing-dir is not set"


class GpuSetupClient:
    """folder: the sharing directory; None if GPUs cannot be set up."""

    def __init__(self, folder: Path | None) -> None:
        self._requests = SetupRequests(folder) if folder else None
        self._log = StateLogger(log)
        if self._requests:
            try:
                self._requests.make()  # so that the directories can be watched
            except OSError as error:
                self._log.failed(f"{error.filename}: {error.strerror}")

    def why_not(self) -> str:
        return self._requests.capabilities().mps if self._requests else NONE

    def troubles(self, capabilities: Mapping[str, str]) -> dict[str, str]:
        """Returns why MPS does not work, by the GPU's UUID. capabilities: CUDA compute capabilities by UUID."""
        if self._requests is None:
            return {}
        found = {
            uuid: why
            for uuid, wanted in self._requests.all_desired().items()
            if wanted.mps and (why := self._requests.failure(uuid))
        }
        old = {
            u: "MPS cannot limit memory on GPUs before Volta"
            for u, c in capabilities.items()
            if c and float(c) < VOLTA
        }
        return found | old

    def request(self, uuid: str, settings: Sequence[ShareSettings], memory: int) -> None:
        """Requests the setup for the allocated shares of a GPU. The first time slice requested
        stays until all of them are released. For MPS, the largest cap is the limit of clients that
        set none. memory: of the GPU, in bytes."""
        if self._requests is None:
            return
        if any(each.level == MPS for each in settings):
            most = max(each.cap or memory for each in settings)
            wanted = DesiredSetup(mps=True, limit_mib=most // MIB)
        else:
            slices = [each.time_slice for each in settings if each.time_slice]
            if not slices or self._requests.desired(uuid):
                return
            wanted = DesiredSetup(slice=slices[0])
        try:
            self._requests.request(uuid, wanted)
        except OSError as error:
            self._log.failed(f"{error.filename}: {error.strerror}")

    def release_others(self, shared: Iterable[str]) -> None:
        """Requests to restore all GPUs but these."""
        if self._requests is not None:
            for uuid in self._requests.all_desired().keys() - set(shared):
                self._requests.forget(uuid)

    def client_access(
        self, uuid: str, percent: int, settings: ShareSettings
    ) -> tuple[dict[str, str], tuple[tuple[str, str, bool], ...]]:
        """Environment variables and mounts of an MPS client. percent: of the GPU's threads."""
        assert self._requests is not None
        envs = {
            "CUDA_MPS_PIPE_DIRECTORY": PIPE,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(percent),
            **(
                {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={settings.cap // MIB}M"}
                if settings.cap
                else {}
            ),
        }
        mounts = (
            (str(self._requests.pipe(uuid)), PIPE, False),
            (str(self._requests.shm), "/dev/shm", False),  # in a container
        )
        return envs, mounts

    def wait(self, uuid: str, timeout_s: float = READY_S) -> None:
        """Waits until the GPU's MPS daemon accepts clients. Raises Refused."""
        assert self._requests is not None
        if why := _until(lambda: self._requests.ready(uuid) if self._requests else "", timeout_s):
            raise Refused(f"MPS does not run on its GPU: {why}")


def _until(trouble: Callable[[], str], timeout_s: float) -> str:
    deadline = time.monotonic() + timeout_s
    while (why := trouble()) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    return why
