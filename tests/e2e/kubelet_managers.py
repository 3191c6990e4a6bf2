"""The kubelet's own device manager, topology manager, CPU manager and pod-resources server, of the version in
programs/kubernetes/1.37: built once from Go modules (five minutes of processor time) into the user's cache, and driven
by a pipe. The rest of the kubelet, and a cluster, are not needed.

    with kubelet_managers(folder, "--topology-policy=restricted") as kubelet:
        kubelet.admit(KubeletPod(...)).devices["c0"]["nvidia.com/gpu"]
"""

import fcntl
import functools
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from central.standalone.hollow_kubelet import Container, KubeletPod

HERE = Path(__file__).parent / "programs"
MODULES = HERE / "kubernetes/1.37"
PARTS = (
    MODULES / "go.mod",
    MODULES / "go.sum",
    HERE / "kubelet/main.go",
    HERE / "kubelet/claims.go",
)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "lockstep-kubelet").expanduser()
BUILD_S = 3600


@functools.cache
def program() -> Path:
    """Skips the test where there is neither Go nor the modules."""
    recipe = hashlib.sha256(b"".join(part.read_bytes() for part in PARTS)).hexdigest()[:12]
    made = CACHE / f"kubelet-managers-{recipe}"
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _build(made)
    return made


def _build(made: Path) -> None:
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go to build the kubelet's managers with")
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        folder = Path(name)
        for part in PARTS:
            shutil.copy(part, folder)
        (folder / "empty.s").touch()  # the compiler asks for it where a function has no body
        argv = [go, "build", "-gcflags=all=-dwarf=false", "-o", "managers", "."]
        environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
        done = subprocess.run(
            argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=BUILD_S
        )
        if done.returncode:
            pytest.skip(f"the kubelet's managers cannot be built: {done.stderr[-500:]}")
        (folder / "managers").rename(made)


@dataclass(frozen=True, slots=True)
class Admitted:
    ok: bool
    reason: str = ""
    message: str = ""
    devices: Mapping[str, Mapping[str, list[str]]] = field(default_factory=dict)  # by container
    cpus: Mapping[str, list[int] | None] = field(default_factory=dict)  # exclusive, by container


class KubeletManagers:
    def __init__(self, folder: Path, process: "subprocess.Popen[str]") -> None:
        self.folder, self.plugins = folder, folder / "device-plugins"
        self._process = process

    def ask(self, op: str, **more: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"op": op, **more}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the kubelet's managers have ended: {self._process.poll()}"
        found: dict[str, Any] = json.loads(line)
        return found

    @property
    def allocatable(self) -> dict[str, int]:
        return dict(self.ask("counts")["allocatable"])

    def lowest(self) -> dict[str, int]:
        """The lowest allocatable since the last call."""
        return dict(self.ask("lowest")["lowest"])

    def admit(self, pod: KubeletPod, **limits: str) -> Admitted:
        """limits: of each container, beside its devices."""
        init = [_container(each, limits) for each in pod.init_containers]
        containers = [_container(each, limits) for each in pod.containers]
        described = {"uid": pod.uid, "namespace": pod.namespace, "name": pod.name}
        return Admitted(
            **self.ask("admit", pod={**described, "init": init, "containers": containers})
        )

    def start(self, uid: str) -> dict[str, Any]:
        return self.ask("start", uid=uid)

    def remove(self, uid: str) -> None:
        self.ask("remove", uid=uid)


def _container(each: Container, limits: Mapping[str, str]) -> dict[str, Any]:
    devices = {name: str(count) for name, count in each.wants}
    return {"name": each.name, "sidecar": each.sidecar, "limits": {**limits, **devices}}


@contextmanager
def kubelet_managers(folder: Path, *flags: str) -> Iterator[KubeletManagers]:
    """folder: the kubelet's directory; its path must be short, because there are sockets in it."""
    with (folder / "kubelet.log").open("w") as log:
        process = subprocess.Popen(
            [program(), f"--dir={folder}", *flags],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
        )  # fmt: skip
        try:
            yield KubeletManagers(folder, process)
        finally:
            process.kill()
            process.communicate()
