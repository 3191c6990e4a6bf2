"""The common part of whole GPUs, GPU shares and MIG slices: passing devices into a container."""

import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence

from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.device_resource import ContainerResponse, DeviceResource

# The kubelet allocates a pod's resources one after the other, in milliseconds if the node is not busy. What it lists as
# held tells whose they are, so more time lets no other pod be taken for this one.
RECENT_S = 10.0

# device files of the devices with these names
FindFiles = Callable[[Sequence[str]], tuple[str, ...]]


class RecentAllocation:
    """The devices of the last Allocate, for RECENT_S: the next Allocate is most likely for the same
    pod."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, tuple[str, ...]] = (float("-inf"), ())

    def record(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._last = (time.monotonic(), tuple(sorted(ids)))

    def ids(self) -> tuple[str, ...]:
        with self._lock:
            at, ids = self._last
        return ids if time.monotonic() - at < RECENT_S else ()


class GpuResource(DeviceResource):
    """A DeviceResource without devices(), preferred() and describe()."""

    def __init__(
        self, files: FindFiles, injection: Injection, recent: RecentAllocation | None = None
    ) -> None:
        self._files, self._injection = files, injection
        self._recent = recent

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        names = self.runtime_ids(ids)
        files = () if self._injection.mode == "cdi" else self._files(names)
        given = self._injection.apply(names, self.container_response(ids, state, files))
        if self._recent:
            self._recent.record(ids)
        return given

    @abstractmethod
    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        """UUIDs of the GPUs or MIG slices that the container runtime makes visible."""

    @abstractmethod
    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        """The answer to Allocate before CDI. Raises ValueError if a device is not on this node."""
