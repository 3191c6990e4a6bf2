"""One broken file or link of /sys costs its device at most, and no other."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.machine import capture, sysfs
from agent.machine.facts import SysfsFacts
from agent.machine.survey import survey
from tests.agent.nvml_fixture import CAPTURES
from tests.fakes import sysfs as fake

MACHINE = capture.load(CAPTURES / "hgx-h100-8.json")
GPU = MACHINE.nvml.gpus[2].pci
NIC = MACHINE.sysfs.infiniband[1]


def function(root: Path, address: str = GPU) -> Path:
    return (root / "bus/pci/devices" / address).resolve()


def nic(root: Path) -> Path:
    return (root / "class/infiniband" / NIC.name).resolve()


def circle(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(path.name)


def swap(path: Path, data: bytes) -> None:
    path.write_bytes(data)


LIES: dict[str, Callable[[Path], None]] = {
    "a NUMA node that is no number": lambda root: swap(function(root) / "numa_node", b"--1"),
    "digits that int() refuses": lambda root: swap(function(root) / "numa_node", "²".encode()),
    "5000 digits": lambda root: swap(function(root) / "numa_node", b"9" * 5000),
    "no text": lambda root: swap(function(root) / "local_cpulist", b"\xff\xfe\0"),
    "a distance of 5000 digits": lambda root: swap(
        root / "devices/system/node/node0/distance", b"9" * 5000
    ),
    "a device that links to itself": lambda root: circle(root / "bus/pci/devices" / GPU),
    "a driver that links to itself": lambda root: circle(function(root, NIC.pci) / "driver"),
    "a NIC whose device links to itself": lambda root: circle(nic(root) / "device"),
    "a port without a number": lambda root: (nic(root) / "ports/²").mkdir(),
    "a rate that is no number": lambda root: swap(nic(root) / "ports/1/rate", "²".encode()),
    "a file in the place of a directory": lambda root: swap(root / "class/infiniband/none", b""),
    "a name that is no text": lambda root: (
        root / "class/infiniband" / os.fsdecode(b"mlx\xff")
    ).mkdir(),
    "a file that has gone": lambda root: (function(root) / "class").unlink(),
}


def others(facts: SysfsFacts) -> tuple[object, ...]:
    """Everything but the devices that lie, and the first NUMA node's distances."""
    return (
        [each for each in facts.pci if each.address not in (GPU, NIC.pci)],
        [each for each in facts.infiniband if each.name != NIC.name],
        facts.numa[1:],
    )


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_costs_no_other_device(lie: str, tmp_path: Path) -> None:
    fake.render(MACHINE, tmp_path)
    before = sysfs.read(tmp_path)
    LIES[lie](tmp_path)
    after = sysfs.read(tmp_path)
    assert others(after) == others(before)
    assert len(survey(MACHINE.__class__(MACHINE.nvml, after, MACHINE.host)).gpus) == 8


def test_a_file_without_end_counts_as_absent(tmp_path: Path) -> None:
    fake.render(MACHINE, tmp_path)
    cpus = function(tmp_path) / "local_cpulist"
    cpus.unlink()
    cpus.symlink_to("/dev/zero")
    found = {each.address: each for each in sysfs.read(tmp_path).pci}
    assert found[GPU].local_cpus == ""
    assert len(found) == len(MACHINE.sysfs.pci)
