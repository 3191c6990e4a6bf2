"""Caps of memory that the kernel keeps: a limit of the pod's cgroup on its GPU, set before any process of
the pod runs and read back. The kernel forgets it with the cgroup, which goes with the pod."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from agent import cgroups
from agent.backoff import StateLogger
from agent.machine.facts import Unusable
from agent.nvml import memorylimits
from agent.nvml.memorylimits import MemoryLimit
from agent.resources.device_resource import Refused
from agent.timeout_call import TimedOut, WithTimeout

log = logging.getLogger(__name__)

SET_S = 5.0  # of the 30 that a container's start has
PODS = ("kubepods.slice", "kubepods")
DMEM = "dmem"  # the controller that keeps the limits, in kernels that have it
SYS_ADMIN = 1 << 21
T = TypeVar("T")


class Driver(Protocol):
    """Raise Unusable with a sentence."""

    def read(self, uuid: str, cgroup: Path) -> MemoryLimit: ...

    def write(self, uuid: str, cgroup: Path, most: int) -> MemoryLimit: ...


class Nvml:
    def __init__(self, driver_root: Path | None) -> None:
        self._root = driver_root

    def read(self, uuid: str, cgroup: Path) -> MemoryLimit:
        return memorylimits.read(self._root, uuid, cgroup)

    def write(self, uuid: str, cgroup: Path, most: int) -> MemoryLimit:
        return memorylimits.write(self._root, uuid, cgroup, most)


class KernelCaps:
    def __init__(self, driver: Driver, root: Path | None, proc_root: Path) -> None:
        self._driver, self._root, self._proc = driver, root, proc_root
        self._patience = WithTimeout("the NVIDIA driver")
        self._log = StateLogger(log)

    def why_not(self, uuid: str) -> str:
        """Of a GPU that is well; empty: its memory can be limited by cgroup."""
        root = self._root
        if root is None:
            return "the agent may not write cgroups (--cgroup-root)"
        if not (root / "cgroup.controllers").is_file():
            return f"cgroup v2 is not mounted on {root}"
        if not may(self._proc, SYS_ADMIN):
            return "the agent lacks the capability SYS_ADMIN"
        pods = next((root / name for name in PODS if (root / name).is_dir()), root)
        try:
            self._ask(lambda: self._driver.read(uuid, pods))
        except (Unusable, TimedOut) as error:
            return str(error)
        return ""

    def set(self, uuid: str, pod: str, cap: int) -> None:
        """pod: its uid. Raises Refused."""
        folder = self._folder(pod)
        try:
            found = self._ask(lambda: self._driver.write(uuid, folder, cap))
        except (Unusable, TimedOut) as error:
            raise Refused(f"its cap of GPU memory can't be set: {error}") from None
        if found.limit != cap:
            raise Refused(f"its cap of GPU memory was set to {cap} bytes and is {found.limit}")

    def keep(self, uuid: str, pod: str, cap: int) -> int | None:
        """Sets it again where it is lost, as by a reset of the GPU. Bytes in use; None: not told."""
        if self._root is None or cgroups.unified(self._root, pod) is None:
            return None
        try:
            folder = self._folder(pod)
            found = self._ask(lambda: self._driver.read(uuid, folder))
            if found.limit != cap:
                self.set(uuid, pod, cap)
                log.info("pod %s: its cap of GPU memory is set again: %d bytes", pod, cap)
        except (Refused, Unusable, TimedOut) as error:
            self._log.failed(f"pod {pod}: {error}")
            return None
        return found.used

    def _folder(self, pod: str) -> Path:
        root = self._root
        folder = cgroups.unified(root, pod) if root else None
        if root is None or folder is None:
            raise Refused(f"no cgroup of pod {pod} below {root}")
        try:
            cgroups.enable(root, folder, DMEM)
        except OSError as error:
            raise Refused(f"{error.filename or root}: {error.strerror}") from None
        return folder

    def _ask(self, question: Callable[[], T]) -> T:
        return self._patience.call(question, SET_S)


def may(proc_root: Path, capability: int) -> bool:
    """Whether this process has the capability."""
    return bool(int(status(proc_root).get("CapEff", "0"), 16) & capability)


def status(proc_root: Path) -> dict[str, str]:
    """What the kernel says of this process."""
    try:
        text = (proc_root / "self" / "status").read_text(encoding="utf-8")
    except OSError:
        return {}
    rows = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in rows}
