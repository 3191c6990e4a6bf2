"""Memory caps that the kernel enforces: a limit of the pod's cgroup on its GPU, written before the
pod's first process and read back. The limit goes with the cgroup when the pod ends."""

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar

from agent import cgroups
from agent.backoff import StateLogger
from agent.bounded_files import is_file, is_folder, text_or_empty
from agent.machine.facts import Unusable
from agent.nvml import memorylimits
from agent.nvml.memorylimits import MemoryLimit
from agent.resources.device_resource import Refused
from agent.timeout_call import TimedOut, WithTimeout

log = logging.getLogger(__name__)

SET_S = 5.0  # timeout of a driver call; the kubelet's for PreStartContainer is 30 s
PODS = ("kubepods.slice", "kubepods")
DMEM = "dmem"  # the cgroup controller for device memory, in kernels that have it
SYS_ADMIN = 1 << 21
RIGHTS = re.compile(r"[0-9a-fA-F]{1,32}")  # of /proc/self/status
T = TypeVar("T")


class Driver(Protocol):
    """Both raise Unusable with a sentence."""

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
        self._timeout = WithTimeout("the NVIDIA driver")
        self._log = StateLogger(log)

    def why_not(self, uuid: str) -> str:
        """Returns why the memory of a healthy GPU cannot be limited by cgroup; "" if it can."""
        root = self._root
        if root is None:
            return "the agent cannot write cgroups (--cgroup-root is not set)"
        if not is_file(root / "cgroup.controllers"):
            return f"cgroup v2 is not mounted on {root}"
        if not may(self._proc, SYS_ADMIN):
            return "the agent lacks the capability SYS_ADMIN"
        pods = next((root / name for name in PODS if is_folder(root / name)), root)
        try:
            self._ask(lambda: self._driver.read(uuid, pods))
        except (Unusable, TimedOut) as error:
            return str(error)
        return ""

    def set(self, uuid: str, pod: str, cap: int) -> None:
        """Writes the pod's limit. pod: its UID; cap: bytes. Raises Refused."""
        folder = self._folder(pod)
        try:
            found = self._ask(lambda: self._driver.write(uuid, folder, cap))
        except (Unusable, TimedOut) as error:
            raise Refused(f"cannot set its GPU memory cap: {error}") from None
        if found.limit != cap:
            raise Refused(f"its cap of GPU memory was set to {cap} bytes and is {found.limit}")

    def keep(self, uuid: str, pod: str, cap: int) -> int | None:
        """Sets the limit again if it was lost, as after a GPU reset. Returns the bytes in use, or
        None if unknown."""
        if self._root is None or cgroups.unified(self._root, pod) is None:
            return None
        try:
            folder = self._folder(pod)
            found = self._ask(lambda: self._driver.read(uuid, folder))
            if found.limit != cap:
                self.set(uuid, pod, cap)
                log.info("pod %s: restored its GPU memory cap of %d bytes", pod, cap)
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
        return self._timeout.call(question, SET_S)


def may(proc_root: Path, capability: int) -> bool:
    """Returns whether this process has the Linux capability."""
    rights = status(proc_root).get("CapEff", "")
    return bool(int(rights, 16) & capability) if RIGHTS.fullmatch(rights) else False


def status(proc_root: Path) -> dict[str, str]:
    """The fields of /proc/self/status; empty if unreadable."""
    text = text_or_empty(proc_root / "self" / "status")
    rows = (line.partition(":") for line in text.splitlines())
    return {key: value.strip() for key, _, value in rows}
