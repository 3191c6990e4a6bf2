"""sysfs.read() on rendered machines, and on incomplete ones."""

from pathlib import Path

import pytest

from agent.machine import capture, sysfs
from agent.machine.facts import (
    InfinibandDevice,
    Machine,
    PciDevice,
    Port,
    RdmaCgroup,
    RdmaDeviceLimit,
    SysfsFacts,
    Unusable,
)
from tests.agent.nvml_fixture import CAPTURES, NAMES
from tests.fakes import sysfs as fake


@pytest.mark.parametrize("name", NAMES)
def test_a_rendered_machine_is_read_back(name: str, tmp_path: Path) -> None:
    machine = capture.load(CAPTURES / f"{name}.json")
    fake.render(machine, tmp_path)
    assert sysfs.read(tmp_path) == machine.sysfs


def test_a_software_device_is_listed_without_an_address(tmp_path: Path) -> None:
    soft = InfinibandDevice("rxe0", "", "uverbs0", (Port(1, "ACTIVE", "Ethernet", "2.5 Gb/sec"),))
    fake.render(Machine(sysfs=SysfsFacts(infiniband=(soft,))), tmp_path)
    assert sysfs.read(tmp_path).infiniband == (soft,)


def test_virtual_functions_name_their_physical_function(tmp_path: Path) -> None:
    function = tmp_path / "devices/pci0000:00/0000:00:01.0"
    for address in ("0000:01:00.0", "0000:01:00.2"):
        (function / address).mkdir(parents=True)
        (function / address / "class").write_text("0x020700\n")
        (function / address / "vendor").write_text("0x15b3\n")
        link = tmp_path / "bus/pci/devices" / address
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(function / address)
    (function / "0000:01:00.2/physfn").symlink_to("../0000:01:00.0")
    physical, virtual = sysfs.read(tmp_path).pci
    assert (physical.physfn, virtual.physfn) == ("", "0000:01:00.0")
    assert (physical.numa, physical.local_cpus) == (-1, "")


def test_nics_are_in_natural_order(tmp_path: Path) -> None:
    cards = tuple(InfinibandDevice(f"rxe{n}", uverbs=f"uverbs{n}") for n in (0, 2, 10))
    fake.render(Machine(sysfs=SysfsFacts(infiniband=cards)), tmp_path)
    assert [card.name for card in sysfs.read(tmp_path).infiniband] == ["rxe0", "rxe2", "rxe10"]


@pytest.mark.parametrize(
    "cgroup",
    [
        RdmaCgroup(2),
        RdmaCgroup(1),
        RdmaCgroup(2, (RdmaDeviceLimit("mlx5_0", 2, 2000), RdmaDeviceLimit("mlx5_1"))),
        RdmaCgroup(1, (RdmaDeviceLimit("mlx5_0", 2, 2000),)),
        None,
    ],
)
def test_the_rdma_controller_of_both_cgroup_versions(
    cgroup: RdmaCgroup | None, tmp_path: Path
) -> None:
    fake.render(Machine(sysfs=SysfsFacts(rdma_cgroup=cgroup)), tmp_path)
    assert sysfs.read(tmp_path).rdma_cgroup == cgroup


def test_keys_of_newer_kernels_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "fs/cgroup/kubepods").mkdir(parents=True)
    (tmp_path / "fs/cgroup/cgroup.controllers").write_text("cpu rdma\n")
    (tmp_path / "fs/cgroup/kubepods/rdma.max").write_text(
        "mlx5_0 hca_handle=7 qp=3 hca_object=max \n"
    )
    assert sysfs.read(tmp_path).rdma_cgroup == RdmaCgroup(2, (RdmaDeviceLimit("mlx5_0", 7),))


def test_drivers_interfaces_and_the_namespace_mode(tmp_path: Path) -> None:
    path = "devices/pci0000:00/0000:00:01.0/0000:01:00.0"
    card = PciDevice("0000:01:00.0", path, "0x020700", "0x15b3", "0x1021", driver="mlx5_core")
    ports = (Port(1, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)"),)
    device = InfinibandDevice("mlx5_0", card.address, "uverbs0", ports, net=("ib0", "ib1"))
    facts = SysfsFacts((card,), infiniband=(device,), rdma_exclusive=True)
    fake.render(Machine(sysfs=facts), tmp_path)
    seen = sysfs.read(tmp_path)
    assert (seen.pci, seen.infiniband, seen.rdma_exclusive) == ((card,), (device,), True)
    (tmp_path / "module/ib_core/parameters/netns_mode").write_text("Y\n")
    assert not sysfs.read(tmp_path).rdma_exclusive


def test_a_machine_without_devices(tmp_path: Path) -> None:
    assert sysfs.read(tmp_path) == SysfsFacts()


def test_a_missing_root_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match=r"--sysfs-root .*nowhere is not a directory"):
        sysfs.read(tmp_path / "nowhere")


def test_this_machines_own_sys_can_be_read() -> None:
    if Path("/sys/devices").is_dir():
        assert isinstance(sysfs.read("/sys"), SysfsFacts)
