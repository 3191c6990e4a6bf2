"""What the offers of GPUs have in common, whole or in parts: how devices get into a container."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from agent.node_state import NodeState
from agent.resources.cdi import Injection
from agent.resources.gpu_allocation import ContainerKey, ContainerResponse

RECENT_S = 1.0  # a pod's resources are allocated one right after the other

Files = Callable[[Sequence[str]], tuple[str, ...]]  # device files, by the names of devices


class RecentAllocation:
    """What was given a moment ago: to the pod that is being admitted, most likely."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last: tuple[float, tuple[str, ...]] = (float("-inf"), ())

    def put(self, ids: Sequence[str]) -> None:
        with self._lock:
            self._last = (time.monotonic(), tuple(sorted(ids)))

    def now(self) -> tuple[str, ...]:
        """Nothing, where it was longer ago."""
        with self._lock:
            at, ids = self._last
        return ids if time.monotonic() - at < RECENT_S else ()


class GpuResource(ABC):
    """An DeviceResource but for which devices there are and which of them are preferred."""

    def __init__(
        self, files: Files, injection: Injection, given: RecentAllocation | None = None
    ) -> None:
        self._files, self._injection = files, injection
        self._given = given

    def response(self, ids: Sequence[str], state: NodeState) -> ContainerResponse:
        names = self.runtime_ids(ids)
        files = () if self._injection.mode == "cdi" else self._files(names)
        given = self._injection.apply(names, self.container_response(ids, state, files))
        if self._given:
            self._given.put(ids)
        return given

    @abstractmethod
    def runtime_ids(self, ids: Sequence[str]) -> list[str]:
        """Of what the runtime lets into the container: GPUs or slices, by uuid."""

    @abstractmethod
    def container_response(
        self, ids: Sequence[str], state: NodeState, files: tuple[str, ...]
    ) -> ContainerResponse:
        """What the container is told. Raises ValueError for a device that is not here."""

    def pre_start(self, ids: Sequence[str], holder: ContainerKey | None) -> None:
        """Nothing is to be done before its first process."""
        return
