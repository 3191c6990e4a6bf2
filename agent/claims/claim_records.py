"""The prepared claims on the disk: a CDI spec per claim, which is also the record that a restarted agent reads."""

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.allocations import MigAddresses
from agent.bounded_files import read_json, replace_text, sync
from agent.mig import orphans
from agent.resources.device_resource import ContainerResponse
from protos.claim_devices import is_safe, uuid_of
from protos.names import DOMAIN
from protos.printing import brief
from protos.topology import ClaimDevice, ClaimPlan

log = logging.getLogger(__name__)

KIND = f"{DOMAIN}/claim"  # of the CDI devices; the key, too, of the annotation with the claim
VERSION = "0.6.0"  # the first with annotations
MOUNT = ("ro", "nosuid", "nodev", "rbind", "rprivate")
BYTES = 1 << 20  # of a record; one with 32 devices has 10 KiB


class ClaimRecords:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def _file(self, uid: str) -> Path:
        return self._directory / f"{KIND.replace('/', '-')}-{uid}.json"

    def write(self, claim: ClaimPlan, parts: Mapping[str, ContainerResponse]) -> None:
        """Returns when the record would survive a power failure. parts: what containers get, by the name of the CDI
        device. Raises OSError."""
        devices = [{"name": name, "containerEdits": _edits(part)} for name, part in parts.items()]
        text = json.dumps(
            [
                *(claim.namespace, claim.name),
                *((d.request, d.device, *(True,) * d.admin) for d in claim.devices),
            ]
        )
        slices = [part.annotations.get(orphans.ANNOTATION, "") for part in parts.values()]
        spec = {
            "cdiVersion": VERSION,
            "kind": KIND,
            "annotations": {KIND: text, orphans.ANNOTATION: ",".join(filter(None, slices))},
            "devices": devices,
        }
        self._directory.mkdir(parents=True, exist_ok=True)
        replace_text(self._file(claim.uid), json.dumps(spec, indent=1) + "\n", durable=True)

    def remove(self, uid: str) -> None:
        """Raises OSError."""
        self._file(uid).unlink(missing_ok=True)
        if self._directory.is_dir():
            sync(self._directory)

    def read(self) -> tuple[tuple[ClaimPlan, ...], MigAddresses]:
        """Returns the claims of all records, and the addresses of their slices. Leaves out what is no record."""
        claims: list[ClaimPlan] = []
        annotations: list[Mapping[str, str]] = []
        beginning = self._file("").name.removesuffix(".json")
        for file in sorted(self._directory.glob(f"{beginning}*.json")):
            try:
                found = read_json(file, BYTES)["annotations"]
                claims.append(_claim(file.stem.removeprefix(beginning), json.loads(found[KIND])))
                annotations.append(found)
            except (OSError, ValueError, KeyError, TypeError) as error:
                log.error("%s is no record of a claim: %s", file, brief(str(error), 200))
        uuids = [uuid_of(each.device) for claim in claims for each in claim.devices]
        return tuple(claims), orphans.addresses(annotations, uuids)


def _claim(uid: str, parts: Any) -> ClaimPlan:
    """Raises ValueError or TypeError."""
    namespace, name, *devices = parts
    claim = ClaimPlan(namespace, name, uid, tuple(ClaimDevice(*each) for each in devices))
    if not all(map(is_safe, (uid, namespace, name))):
        raise ValueError("its names are none of Kubernetes")
    if not all(
        uuid_of(each.device) and str(each.request) == each.request for each in claim.devices
    ):
        raise ValueError("its devices are none of this driver")
    return claim


def _edits(part: ContainerResponse) -> dict[str, Any]:
    edits: dict[str, Any] = {"env": [f"{name}={value}" for name, value in part.envs.items()]}
    if part.device_nodes:
        edits["deviceNodes"] = [{"path": path} for path in dict.fromkeys(part.device_nodes)]
    if part.mounts:
        edits["mounts"] = [
            {"hostPath": host, "containerPath": inside, "options": [*MOUNT]}
            for host, inside, _ in part.mounts
        ]
    return edits
