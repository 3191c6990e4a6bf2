"""Finds the cgroup of a pod: cgroup v1 and v2, the kubelet's layouts for cgroupfs and systemd,
below any root."""

import contextlib
import errno
import os
import re
from pathlib import Path

from agent import bounded_files
from agent.bounded_files import exists, is_file, is_folder
from agent.resources.device_resource import Refused

CONTROLLER = "rdma"
QOS = ("", "burstable", "besteffort")  # guaranteed pods are directly below the kubelet's cgroup
# The last part of a cgroup path that names a pod. systemd's cgroup driver writes _ for -.
POD = re.compile(r"pod([0-9a-fA-F]{8}[-_0-9a-zA-Z]{0,56})")
UID = re.compile(r"[0-9A-Za-z-]{1,64}")
NUMBERS = re.compile(r"^NSpid:([\t 0-9]*)$", re.MULTILINE)  # one in each PID namespace
KUBE = re.compile("kubepods|kubelet")
# In cgroup v1 the kubelet creates pods' folders for these controllers, but not for rdma.
KUBELET_CONTROLLERS = ("memory", "pids", "cpu,cpuacct", "cpu", "systemd")
MOST_BYTES = 1 << 20  # of a file; one with process ids may be long
DEPTH = 4  # levels to search if the kubelet has a --cgroup-root


class CgroupFiles:
    """Access to cgroup files. Each write is one system call, which the kernel takes for one
    command."""

    def read(self, file: Path) -> str:
        return bounded_files.read_text(file, MOST_BYTES)

    def write(self, file: Path, text: str) -> None:
        handle = os.open(file, os.O_WRONLY)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)

    def make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)


class Cgroups:
    """The cgroups of pods with the rdma controller."""

    def __init__(self, root: Path, files: CgroupFiles | None = None) -> None:
        self.root, self.files = root, files or CgroupFiles()

    def version(self) -> int:
        """The cgroup version of the rdma controller; 0: the kernel has none."""
        if CONTROLLER in self._text(self.root / "cgroup.controllers").split():
            return 2
        return 1 if is_folder(self.root / CONTROLLER) else 0

    @property
    def base(self) -> Path:
        return self.root if self.version() == 2 else self.root / CONTROLLER

    def pod(self, uid: str) -> Path:
        """The pod's folder, with rdma.max to be written. Raises Refused."""
        version = self.version()
        if not version:
            raise Refused("the kernel has no rdma cgroup controller")
        found = self.find(uid)
        try:
            if version == 2 and found:
                enable(self.root, found, CONTROLLER, self.files)
            elif version == 1:
                found = found or self._make(uid)
        except OSError as error:
            raise Refused(_message(error, self.root)) from None
        if found is None:
            raise Refused(f"no cgroup for pod {uid} below {self.root}")
        if not exists(found / "rdma.max"):
            raise Refused(f"{found} has no rdma.max, although the kernel has the rdma controller")
        return found

    def find(self, uid: str) -> Path | None:
        """The pod's folder, as it is."""
        return _search(self.base, uid) if UID.fullmatch(uid) else None

    def _make(self, uid: str) -> Path | None:
        for name in KUBELET_CONTROLLERS:
            there = _search(self.root / name, uid)
            if there is None:
                continue
            path = there.relative_to(self.root / name)
            for folder in (*reversed(path.parents), path):
                self.files.make(self.base / folder)
            return self.base / path
        return None

    def _text(self, file: Path) -> str:
        try:
            return self.files.read(file)
        except OSError:
            return ""


def unified(root: Path, uid: str) -> Path | None:
    """The pod's folder in a cgroup v2 hierarchy."""
    if not UID.fullmatch(uid) or not is_file(root / "cgroup.controllers"):
        return None
    return _search(root, uid)


def enable(root: Path, pod: Path, controller: str, files: CgroupFiles | None = None) -> None:
    """Enables the controller (cgroup v2) from the root down to the pod, level by level. Does
    nothing if the kernel lacks the controller. Raises OSError."""
    files = files or CgroupFiles()
    if controller not in files.read(root / "cgroup.controllers").split():
        return
    for folder in reversed(pod.relative_to(root).parents):
        control = root / folder / "cgroup.subtree_control"
        if controller not in files.read(control).split():
            files.write(control, f"+{controller}")


def pod_runs(root: Path, uid: str) -> bool:
    """Returns whether the pod has a cgroup of any controller with a process in it."""
    if not UID.fullmatch(uid):
        return False
    bases = [root, *(root / name for name in KUBELET_CONTROLLERS)]
    found = [_search(base, uid) for base in bases if is_folder(base)]
    return any(folder is not None and _populated(folder) for folder in found)


def _populated(folder: Path) -> bool:
    """True also if the cgroup does not say."""
    with contextlib.suppress(OSError):
        return "populated 0" not in bounded_files.read_text(folder / "cgroup.events")
    with contextlib.suppress(OSError):  # cgroup v1 says it for each level alone
        lists = [bounded_files.read_text(file, MOST_BYTES) for file in folder.rglob("cgroup.procs")]
        return any(lists) or not lists
    return True


def sees_host(proc_root: Path) -> bool:
    """Returns whether this process is in the host's PID namespace. The driver omits processes that are not in the
    caller's."""
    found = NUMBERS.search(bounded_files.text_or_empty(proc_root / "self" / "status"))
    return found is not None and len(found[1].split()) == 1


def pod_of(proc_root: Path, pid: int) -> str:
    """UID of the process's pod; empty if it is in none, or gone."""
    found = POD.findall(bounded_files.text_or_empty(proc_root / str(pid) / "cgroup"))
    return str(found[-1]).replace("_", "-") if found else ""


def _search(base: Path, uid: str) -> Path | None:
    for path in _usual(uid):
        if is_folder(base / path):
            return base / path
    names = (f"pod{uid}", f"-pod{uid.replace('-', '_')}.slice")
    for folder, children, _ in os.walk(base):
        for child in children:
            if child == names[0] or child.endswith(names[1]):
                return Path(folder) / child
        if len(Path(folder).relative_to(base).parts) >= DEPTH:
            children.clear()
        children[:] = [each for each in children if each in QOS or KUBE.search(each)]
    return None


def _usual(uid: str) -> list[str]:
    dashless = uid.replace("-", "_")
    paths = []
    for qos in QOS:
        inside, infix = (f"{qos}/", f"-{qos}") if qos else ("", "")
        part = f"kubepods{infix}.slice/" if qos else ""
        paths.append(f"kubepods/{inside}pod{uid}")
        paths.append(f"kubepods.slice/{part}kubepods{infix}-pod{dashless}.slice")
    return paths


def _message(error: OSError, root: Path) -> str:
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"could not write {error.filename or root}: is {root} mounted writable?"
    return f"{error.filename or root}: {error.strerror}"
