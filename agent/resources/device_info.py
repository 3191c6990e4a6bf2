"""Device-info files for Multus: what a device id that it hands to a CNI plugin stands for. Multus copies them into the
pod's annotation k8s.v1.cni.cncf.io/network-status, where programs read which NIC belongs to which network.

Format 1.1.0 of the Network Plumbing Working Group: DIR/RESOURCE-ID-device.json, with / as - in both.

Design: docs/design/nics.md
"""

import json
import logging
from collections.abc import Iterable
from pathlib import Path

from agent.backoff import StateLogger
from agent.bounded_files import replace_text
from protos.names import RDMA
from protos.nic_ids import names
from protos.topology import Hca, NodeTopology

log = logging.getLogger(__name__)

VERSION = "1.1.0"


class DeviceInfoFiles:
    def __init__(self, folder: Path | None) -> None:
        """folder: /var/run/k8s.cni.cncf.io/devinfo/dp of the host; None: no files are written."""
        self._folder = folder
        self._log = StateLogger(log)

    def write(
        self, device_ids: Iterable[str], topology: NodeTopology, resource: str = RDMA
    ) -> None:
        """A file that cannot be written keeps no pod from its NIC: CNI plugins have the id."""
        if self._folder is None:
            return
        name, nics = names(topology), {hca.name: hca for hca in topology.hcas}
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            for device in device_ids:
                if (nic := nics.get(name(device))) is not None:
                    replace_text(self._path(resource, device), _content(nic, topology), 0o444)
        except OSError as error:
            self._log.failed(f"no device-info file for Multus: {error}")
        else:
            self._log.ok(f"device-info files for Multus in {self._folder}")

    def _path(self, resource: str, device: str) -> Path:
        assert self._folder is not None
        return self._folder / f"{resource}-{device}-device.json".replace("/", "-")


def _content(nic: Hca, topology: NodeTopology) -> str:
    pci = {"pci-address": nic.pci, "rdma-device": nic.name}
    physical = next((hca.pci for hca in topology.hcas if hca.name == nic.physical), "")
    if physical:
        pci["pf-pci-address"] = physical
    return json.dumps({"type": "pci", "version": VERSION, "pci": pci})
