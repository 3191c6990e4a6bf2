"""A machine's /sys, the part that the agent reads: python -m tests.fakes.sysfs ROOT CAPTURE.json

Devices lie where the kernel puts them, below their bridges; buses and classes are links to them."""

import argparse
import os
import re
import sys
from dataclasses import replace
from pathlib import Path

from agent.machine import capture
from agent.machine.facts import InfinibandDevice, Machine, PciDevice, RdmaCgroup, Unusable

FUNCTION = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
STATES = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}


def render(machine: Machine, root: Path) -> None:
    """Writes the tree below root, which stands for /sys."""
    facts = machine.sysfs
    for device in facts.pci:
        _function(root, device)
    for device in facts.pci:
        if device.physfn:
            physical = next(each for each in facts.pci if each.address == device.physfn)
            _link(root / device.path / "physfn", root / physical.path)
    nodes = root / "devices/system/node"
    nodes.mkdir(parents=True, exist_ok=True)
    _write(nodes / "online", f"0-{len(facts.numa) - 1}")
    for numa in facts.numa:
        _write(nodes / f"node{numa.id}/cpulist", numa.cpus)
        _write(nodes / f"node{numa.id}/distance", " ".join(map(str, numa.distance)))
    paths = {device.address: device.path for device in facts.pci}
    for number, card in enumerate(facts.infiniband):
        _card(root, card, paths.get(card.pci, ""), number)
    if facts.rdma_exclusive:
        _write(root / "module/ib_core/parameters/netns_mode", "N")
    if facts.rdma_cgroup:
        _cgroup(root / "fs/cgroup", facts.rdma_cgroup)


def _function(root: Path, device: PciDevice) -> None:
    """The device and every bridge above it."""
    parts = Path(device.path).parts
    for depth, part in enumerate(parts[:-1], start=1):
        path = Path(*parts[:depth])
        if FUNCTION.fullmatch(part) and not (root / path / "class").exists():
            bridge = replace(
                device, path=str(path), kind="0x060400", vendor="0x8086", device="0x2030"
            )
            _attributes(root, bridge)
    _attributes(root, device)


def _attributes(root: Path, device: PciDevice) -> None:
    folder = root / device.path
    _write(folder / "class", device.kind)
    _write(folder / "vendor", device.vendor)
    _write(folder / "device", device.device)
    _write(folder / "numa_node", str(device.numa))
    _write(folder / "local_cpulist", device.local_cpus)
    if device.driver:
        driver = root / "bus/pci/drivers" / device.driver
        driver.mkdir(parents=True, exist_ok=True)
        _link(folder / "driver", driver)
    _link(root / "bus/pci/devices" / folder.name, folder)


def _card(root: Path, card: InfinibandDevice, path: str, number: int) -> None:
    soft = not path
    owner = root / "devices/virtual" if soft else root / path
    folder = owner / "infiniband" / card.name
    _write(folder / "node_type", "1: CA")
    for port in card.ports:
        where = folder / "ports" / str(port.number)
        _write(where / "state", f"{STATES.get(port.state, 1)}: {port.state}")
        _write(where / "link_layer", port.link_layer)
        _write(where / "rate", port.rate)
    _link(root / "class/infiniband" / card.name, folder)
    verbs = owner / "infiniband_verbs" / (card.uverbs or f"uverbs{number}")
    _write(verbs / "ibdev", card.name)
    _link(root / "class/infiniband_verbs" / verbs.name, verbs)
    _write(root / "class/infiniband_verbs/abi_version", "6")
    if soft:
        return
    _link(folder / "device", root / path)
    for net in card.net:
        _write(owner / "net" / net / "operstate", "up")
    if card.bridge:
        (root / path / "vpd").write_bytes(b"\x82\x0a\x00ConnectX-7\x90\x0b\x00V3\x06SW_MNG\x78")


def _cgroup(folder: Path, cgroup: RdmaCgroup) -> None:
    """The controller exists but is not enabled for the pods, so there are no limits."""
    if cgroup.version == 1:
        base = folder / "rdma"
        base.mkdir(parents=True, exist_ok=True)
    else:
        base = folder
        _write(folder / "cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma misc")
    if cgroup.limits:
        lines = [
            f"{each.name} hca_handle={_max(each.hca_handle)} hca_object={_max(each.hca_object)} "
            for each in cgroup.limits
        ]
        _write(base / "kubepods.slice/rdma.max", "\n".join(lines))


def _max(number: int) -> str:
    return str(number) if number >= 0 else "max"


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n", encoding="utf-8")


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(target, link.parent))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path, metavar="ROOT")
    parser.add_argument("capture", type=Path, metavar="CAPTURE.json")
    arguments = parser.parse_args()
    try:
        render(capture.load(arguments.capture), arguments.root)
    except Unusable as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
