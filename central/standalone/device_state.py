"""What a hollow kubelet's device manager knows, and its checkpoint on disk, in the real one's form."""

import base64
import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from protos.stubs import deviceplugin_pb2 as pb


@dataclass(slots=True)
class HeldDevices:
    ids: tuple[str, ...]
    response: pb.ContainerAllocateResponse


@dataclass(slots=True)
class DeviceState:
    """Everything known per resource, and per pod uid, container and resource."""

    healthy: dict[str, set[str]] = field(default_factory=dict)
    unhealthy: dict[str, set[str]] = field(default_factory=dict)
    allocated: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, dict[str, dict[str, HeldDevices]]] = field(default_factory=dict)

    def reckon(self) -> None:
        """allocated anew from what is held; devices of an Allocate under way are forgotten."""
        self.allocated = {}
        for containers in self.held.values():
            for resources in containers.values():
                for resource, held in resources.items():
                    self.allocated.setdefault(resource, set()).update(held.ids)

    def save(self, file: Path) -> None:
        entries = [
            {
                "PodUID": uid,
                "ContainerName": container,
                "ResourceName": resource,
                "DeviceIDs": {"0": list(held.ids)},
                "AllocResp": base64.b64encode(held.response.SerializeToString()).decode(),
            }
            for uid, containers in sorted(self.held.items())
            for container, resources in sorted(containers.items())
            for resource, held in sorted(resources.items())
        ]
        registered = {name: sorted(ids) for name, ids in sorted(self.healthy.items())}
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        checksum = zlib.crc32(json.dumps(data).encode())
        file.write_text(json.dumps({"Data": data, "Checksum": checksum}))

    @classmethod
    def load(cls, file: Path) -> Self:
        """Without the file: empty."""
        books = cls()
        if file.exists():
            data = json.loads(file.read_text())["Data"]
            for entry in data["PodDeviceEntries"]:
                ids = tuple(sorted(i for ids in entry["DeviceIDs"].values() for i in ids))
                response = pb.ContainerAllocateResponse.FromString(
                    base64.b64decode(entry["AllocResp"])
                )
                containers = books.held.setdefault(entry["PodUID"], {})
                resources = containers.setdefault(entry["ContainerName"], {})
                resources[entry["ResourceName"]] = HeldDevices(ids, response)
            # Known but empty until the plugin registers again.
            books.healthy = {name: set() for name in data["RegisteredDevices"]}
            books.unhealthy = {name: set() for name in data["RegisteredDevices"]}
        books.reckon()
        return books
