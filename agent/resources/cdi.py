"""Container Device Interface: specs of devices that the container runtime reads, and their names,
which the kubelet passes to the runtime. https://github.com/cncf-tags/container-device-interface,
version 0.5.

Design: docs/design/kubelet.md
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from agent.backoff import StateLogger
from agent.bounded_files import replace_text
from agent.resources.device_resource import ContainerResponse

log = logging.getLogger(__name__)

VERSION = "0.5.0"
NVIDIA = "nvidia.com/gpu"  # NVIDIA's toolkit writes the specs of this kind, with driver libraries

Devices = Mapping[str, tuple[str, ...]]  # device files by device name


def spec(kind: str, devices: Devices, variable: str) -> dict[str, Any]:
    """Files that all devices share stand once, outside the devices. Each device sets a variable of
    its own with its name, because of a variable that two devices set only the last value
    remains."""
    shared = set.intersection(*map(set, devices.values())) if len(devices) > 1 else set[str]()
    made: dict[str, Any] = {"cdiVersion": VERSION, "kind": kind, "devices": []}
    for number, (name, files) in enumerate(devices.items()):
        edits = {
            "env": [f"{variable}_{number}={name}"],
            "deviceNodes": [{"path": file} for file in files if file not in shared],
        }
        made["devices"].append({"name": name, "containerEdits": edits})
    if shared:
        made["containerEdits"] = {"deviceNodes": [{"path": file} for file in sorted(shared)]}
    return made


class Specs:
    """Writes specs into one directory, one file per kind, atomically."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._lock = threading.Lock()
        self._log = StateLogger(log)
        self._written: dict[str, dict[str, Any] | None] = {}

    def file(self, kind: str) -> Path:
        return self.directory / f"{kind.replace('/', '-')}.json"

    def put(self, kind: str, devices: Devices, variable: str) -> bool:
        """Writes the spec, or removes it if there are no devices. Returns whether that worked."""
        wanted = spec(kind, devices, variable) if devices else None
        with self._lock:
            file = self.file(kind)
            if (
                kind in self._written
                and self._written[kind] == wanted
                and file.exists() == bool(devices)
            ):
                return True
            try:
                if wanted is None:
                    file.unlink(missing_ok=True)
                else:
                    file.parent.mkdir(parents=True, exist_ok=True)
                    # Runtimes read only names ending in .json, which those of parts do not.
                    replace_text(file, json.dumps(wanted, indent=1) + "\n")
            except OSError as error:
                self._log.failed(f"cannot write {file}: {error.strerror}")
                return False
            self._written[kind] = wanted
            self._log.ok(f"{file}: {len(devices)} devices")
            return True


class Injection:
    """Passes the devices of one resource into containers.

    Mode env: environment variables and device files. cdi: CDI names, and variables that NVIDIA's
    runtime does not act on. both: all of these. current() returns the present devices with their
    files. mounts: what every container with such a device gets mounted, read only: path on the
    host, path in the container."""

    def __init__(
        self,
        mode: str,
        kind: str,
        variable: str,
        specs: Specs | None,
        current: Callable[[], Devices],
        *,
        mounts: Sequence[tuple[str, str]] = (),
    ) -> None:
        self.mode, self.kind, self._variable = mode, kind, variable
        self._specs, self._current = specs, current
        self._mounts = tuple((host, inside, True) for host, inside in mounts)

    def refresh(self) -> bool:
        if self.mode == "env" or self.kind == NVIDIA:
            return self.mode != "env"
        assert self._specs is not None
        return self._specs.put(self.kind, self._current(), self._variable)

    def apply(self, names: Sequence[str], given: ContainerResponse) -> ContainerResponse:
        """Raises ValueError in mode cdi if a device has no spec."""
        given = replace(given, mounts=(*given.mounts, *self._mounts))
        if self.mode == "env":
            return given
        known = self.refresh() and (self.kind == NVIDIA or set(names) <= self._current().keys())
        if not known:
            if self.mode == "cdi":
                raise ValueError(f"no CDI spec of {self.kind} for {', '.join(names)}")
            return given
        envs = dict(given.envs)
        if self.mode == "cdi" and self.kind == NVIDIA and "NVIDIA_VISIBLE_DEVICES" in envs:
            envs["NVIDIA_VISIBLE_DEVICES"] = (
                "void"  # the spec adds everything; the runtime must add nothing
            )
        return replace(
            given,
            envs=envs,
            device_nodes=() if self.mode == "cdi" else given.device_nodes,
            cdi_devices=tuple(f"{self.kind}={name}" for name in names),
        )
