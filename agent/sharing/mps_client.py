"""GPUs that are set up for sharing by the keeper (agent/gpu_setup): those shared by MPS, and those whose time
slices are not the driver's own. Here is what the agent asks for, and what containers are given of it."""

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

READY_S = 20.0  # of the 30 that a container's start has
LOOK_S = 0.05
CLIENTS = 48  # that one server has room for, from Volta on
VOLTA = 7.0
MIB = 2**20
PIPE = "/tmp/nvidia-mps"
NONE = "the agent has no --sharing-dir"


class GpuSetupClient:
    """folder: None: nobody is there to set GPUs up."""

    def __init__(self, folder: Path | None) -> None:
        self._requests = SetupRequests(folder) if folder else None
        self._log = StateLogger(log)
        if self._requests:
            try:
                self._requests.make()  # so that there is something to watch
            except OSError as error:
                self._log.failed(f"{error.filename}: {error.strerror}")

    def why_not(self) -> str:
        return self._requests.capabilities().mps if self._requests else NONE

    def troubles(self, capabilities: Mapping[str, str]) -> dict[str, str]:
        """Why MPS does not serve on GPUs, by uuid. capabilities: CUDA's, by uuid."""
        if self._requests is None:
            return {}
        found = {
            uuid: why
            for uuid, wanted in self._requests.all_desired().items()
            if wanted.mps and (why := self._requests.failure(uuid))
        }
        old = {
            u: "MPS has no limits on GPUs before Volta"
            for u, c in capabilities.items()
            if c and float(c) < VOLTA
        }
        return found | old

    def request(self, uuid: str, said: Sequence[ShareSettings], memory: int) -> None:
        """For all who have shares of the GPU. What it was wanted for first stays until they have ended; but for
        MPS the largest cap is that of clients who do not say theirs. memory: the GPU's, in bytes."""
        if self._requests is None:
            return
        if any(each.level == MPS for each in said):
            most = max(each.cap or memory for each in said)
            wanted = DesiredSetup(mps=True, limit_mib=most // MIB)
        else:
            slices = [each.time_slice for each in said if each.time_slice]
            if not slices or self._requests.desired(uuid):
                return
            wanted = DesiredSetup(slice=slices[0])
        try:
            self._requests.request(uuid, wanted)
        except OSError as error:
            self._log.failed(f"{error.filename}: {error.strerror}")

    def release_others(self, shared: Iterable[str]) -> None:
        """All GPUs but these are as they were before."""
        if self._requests is not None:
            for uuid in self._requests.all_desired().keys() - set(shared):
                self._requests.forget(uuid)

    def client_access(
        self, uuid: str, part: int, said: ShareSettings
    ) -> tuple[dict[str, str], tuple[tuple[str, str, bool], ...]]:
        """Variables and mounts of a client of MPS."""
        assert self._requests is not None
        envs = {
            "CUDA_MPS_PIPE_DIRECTORY": PIPE,
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": str(part),
            **({"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={said.cap // MIB}M"} if said.cap else {}),
        }
        mounts = (
            (str(self._requests.pipe(uuid)), PIPE, False),
            (str(self._requests.shm), "/dev/shm", False),  # in a container
        )
        return envs, mounts

    def wait(self, uuid: str, at_most_s: float = READY_S) -> None:
        """Until the GPU's server of MPS takes clients. Raises Refused."""
        assert self._requests is not None
        if why := _until(lambda: self._requests.ready(uuid) if self._requests else "", at_most_s):
            raise Refused(f"MPS does not serve on its GPU: {why}")


def _until(trouble: Callable[[], str], at_most_s: float) -> str:
    deadline = time.monotonic() + at_most_s
    while (why := trouble()) and time.monotonic() < deadline:
        time.sleep(LOOK_S)
    return why
