"""Where the kernel's rdma controller keeps a pod's limits: cgroup v1 and v2, the kubelet's layouts
for cgroupfs and systemd, below a root that need not be /sys/fs/cgroup."""

import errno
import os
import re
from pathlib import Path

from agent.resources.device_resource import Refused

CONTROLLER = "rdma"
QOS = ("", "burstable", "besteffort")  # guaranteed pods have no folder of their class
UID = re.compile(r"[0-9A-Za-z-]{1,64}")
KUBE = re.compile("kubepods|kubelet")
# v1: the kubelet makes a pod's folder in these, and not in that of rdma.
NEIGHBOURS = ("memory", "pids", "cpu,cpuacct", "cpu", "systemd")
DEPTH = 4  # folders above the pods', where the kubelet has a --cgroup-root


class Files:
    """The file system, as far as it matters here. One write is one system call: what the kernel
    takes for one command."""

    def read(self, file: Path) -> str:
        return file.read_text(encoding="ascii")

    def write(self, file: Path, text: str) -> None:
        handle = os.open(file, os.O_WRONLY)
        try:
            os.write(handle, text.encode("ascii"))
        finally:
            os.close(handle)

    def make(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)


class Cgroups:
    def __init__(self, root: Path, files: Files | None = None) -> None:
        self.root, self.files = root, files or Files()

    def version(self) -> int:
        """Of the hierarchy that has the controller; 0: the kernel has none."""
        if CONTROLLER in self._text(self.root / "cgroup.controllers").split():
            return 2
        return 1 if (self.root / CONTROLLER).is_dir() else 0

    @property
    def base(self) -> Path:
        return self.root if self.version() == 2 else self.root / CONTROLLER

    def pod(self, uid: str) -> Path:
        """The pod's folder, where limits can be written. Raises Refused."""
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
            raise Refused(_sentence(error, self.root)) from None
        if found is None:
            raise Refused(f"no cgroup of pod {uid} below {self.root}")
        if not (found / "rdma.max").exists():
            raise Refused(f"{found} has no rdma.max, though the kernel has the controller")
        return found

    def find(self, uid: str) -> Path | None:
        return _search(self.base, uid) if UID.fullmatch(uid) else None

    def _make(self, uid: str) -> Path | None:
        for name in NEIGHBOURS:
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
        except (OSError, UnicodeDecodeError):
            return ""


def unified(root: Path, uid: str) -> Path | None:
    """The pod's folder in a hierarchy of version 2."""
    if not UID.fullmatch(uid) or not (root / "cgroup.controllers").is_file():
        return None
    return _search(root, uid)


def enable(root: Path, pod: Path, controller: str, files: Files | None = None) -> None:
    """Controllers come down from the root, one level at a time. Nothing, where the kernel has no such
    controller. Raises OSError."""
    files = files or Files()
    if controller not in files.read(root / "cgroup.controllers").split():
        return
    for folder in reversed(pod.relative_to(root).parents):
        control = root / folder / "cgroup.subtree_control"
        if controller not in files.read(control).split():
            files.write(control, f"+{controller}")


def lives(root: Path, uid: str) -> bool:
    """Whether the pod has a cgroup of any controller: the kubelet removes it after the last process."""
    if not UID.fullmatch(uid):
        return False
    bases = [root, *(root / name for name in NEIGHBOURS)]
    return any(base.is_dir() and _search(base, uid) is not None for base in bases)


def _search(base: Path, uid: str) -> Path | None:
    for path in _usual(uid):
        if (base / path).is_dir():
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
        inside, word = (f"{qos}/", f"-{qos}") if qos else ("", "")
        part = f"kubepods{word}.slice/" if qos else ""
        paths.append(f"kubepods/{inside}pod{uid}")
        paths.append(f"kubepods.slice/{part}kubepods{word}-pod{dashless}.slice")
    return paths


def _sentence(error: OSError, root: Path) -> str:
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return f"{error.filename or root} can't be written: is {root} mounted writable?"
    return f"{error.filename or root}: {error.strerror}"
