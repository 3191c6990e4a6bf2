"""What the survey makes of each fact of a GPU and a NIC, one by one."""

from dataclasses import replace

import pytest

from agent.machine.facts import (
    Fabric,
    GpuFacts,
    InfinibandDevice,
    Machine,
    PciDevice,
    Platform,
    Port,
    RdmaCgroup,
    RdmaDeviceLimit,
)
from agent.machine.survey import pcie_connection, survey
from protos.topology import Gpu, Hca, RdmaLimit
from tests.fakes import machines

MACHINE = machines.machine(2, cards=2)


def gpu(change: GpuFacts, device: PciDevice | None = None) -> Gpu:
    """GPU 0 with other facts. device: in place of its own in /sys."""
    nvml = replace(MACHINE.nvml, gpus=(change, *MACHINE.nvml.gpus[1:]))
    sysfs = MACHINE.sysfs
    if device is not None:
        rest = [each for each in sysfs.pci if each.address != change.pci]
        sysfs = replace(sysfs, pci=(device, *rest))
    return survey(Machine(nvml, sysfs, MACHINE.host)).gpus[0]


FIRST = MACHINE.nvml.gpus[0]
DEVICE = next(each for each in MACHINE.sysfs.pci if each.address == FIRST.pci)


@pytest.mark.parametrize(
    ("numa", "memory", "expected"),
    [(0, "", "0"), (3, "", "3"), (-1, "", ""), (0, "0,3-9", "0,3-9"), (-1, "2", "2")],
)
def test_the_numa_nodes_near_a_gpu(numa: int, memory: str, expected: str) -> None:
    found = gpu(replace(FIRST, memory_affinity=memory), replace(DEVICE, numa=numa))
    assert (found.numa, found.numa_affinity) == (numa, expected)


@pytest.mark.parametrize(
    ("sysfs", "nvml", "expected"),
    [("0-55", "0-7", "0-55"), ("", "0-7", "0-7"), ("0-55", "", "0-55"), ("", "", "")],
)
def test_the_cpus_near_a_gpu_are_those_of_sysfs(sysfs: str, nvml: str, expected: str) -> None:
    found = gpu(replace(FIRST, cpu_affinity=nvml), replace(DEVICE, local_cpus=sysfs))
    assert found.cpu_affinity == expected


def test_the_place_of_a_gpu_in_its_rack() -> None:
    found = gpu(replace(FIRST, platform=Platform("serial", 3, 2)))
    assert (found.chassis, found.slot, found.tray) == ("serial", 3, 2)
    assert (gpu(FIRST).chassis, gpu(FIRST).slot, gpu(FIRST).tray) == ("", -1, -1)


@pytest.mark.parametrize(
    ("fabric", "expected"),
    [
        (None, ""),
        (Fabric(3, 0, "abc", 7), "abc.7"),
        (Fabric(2, 0, "abc", 7), ""),  # in progress
        (Fabric(3, 1, "abc", 7), ""),  # failed
        (Fabric(3, 0, "00", 7), ""),  # it ends at this machine
        (Fabric(3, 0, "", 7), ""),
    ],
)
def test_the_clique_of_a_gpu(fabric: Fabric | None, expected: str) -> None:
    assert gpu(replace(FIRST, fabric=fabric)).clique == expected


def test_a_gpu_that_cannot_be_read() -> None:
    lost = gpu(GpuFacts(index=0, fault="lost"))
    assert (lost.uuid, lost.healthy, lost.why, lost.numa) == ("unknown-0", False, "lost", -1)
    assert lost.index == 0
    assert gpu(FIRST).healthy


def nic(*ports: Port, net: tuple[str, ...] = ()) -> Hca:
    first = replace(MACHINE.sysfs.infiniband[0], ports=ports, net=net)
    sysfs = replace(MACHINE.sysfs, infiniband=(first, *MACHINE.sysfs.infiniband[1:]))
    return survey(replace(MACHINE, sysfs=sysfs)).hcas[0]


UP = Port(2, "ACTIVE", "Ethernet", "400 Gb/sec (4X NDR)")
DOWN = Port(1, "DOWN", "InfiniBand", "800 Gb/sec")


def test_of_a_nic_the_active_port_counts() -> None:
    found = nic(DOWN, UP, net=("eth0", "eth1"))
    assert (found.port, found.link_layer, found.rate_gbps) == (2, "Ethernet", 400.0)
    assert (found.why, found.net) == ("", "eth0,eth1")
    fastest = nic(UP, replace(UP, number=3, rate="800.5 Gb/sec"))
    assert (fastest.port, fastest.rate_gbps) == (2, 800.5)


@pytest.mark.parametrize(
    ("ports", "why", "port", "layer"),
    [
        ((DOWN,), "no port is ACTIVE: 1 is DOWN", 1, "InfiniBand"),
        (
            (DOWN, replace(UP, state="")),
            "no port is ACTIVE: 1 is DOWN, 2 is unknown",
            1,
            "InfiniBand",
        ),
        ((), "the NIC has no port", 1, ""),
    ],
)
def test_a_nic_without_an_active_port(
    ports: tuple[Port, ...], why: str, port: int, layer: str
) -> None:
    found = nic(*ports)
    assert (found.why, found.port, found.link_layer) == (why, port, layer)


@pytest.mark.parametrize(
    ("rate", "expected"),
    [
        ("", 0.0),
        ("fast", 0.0),
        ("100", 100.0),
        ("2.5 Gb/sec", 2.5),
        ("1e9 Gb/sec", 0.0),
        ("-5 G", 0.0),
    ],
)
def test_the_rate_of_a_port(rate: str, expected: float) -> None:
    assert nic(replace(UP, rate=rate)).rate_gbps == expected


def test_the_rdma_limits_of_the_node() -> None:
    names = [each.name for each in MACHINE.sysfs.infiniband]
    limits = (RdmaDeviceLimit(names[0], 5, 6), RdmaDeviceLimit("mlx5_gone", 1, 1))
    sysfs = replace(MACHINE.sysfs, rdma_cgroup=RdmaCgroup(2, limits=limits))
    found = dict(survey(replace(MACHINE, sysfs=sysfs)).rdma_cgroup or ())
    assert found == {name: RdmaLimit() for name in names} | {names[0]: RdmaLimit(5, 6)}
    assert survey(MACHINE).rdma_cgroup is None


def test_which_nics_pods_may_use() -> None:
    physical, other, *_ = MACHINE.sysfs.infiniband
    function = InfinibandDevice("mlx5_9", "0000:aa:00.1", ports=(UP,))
    managing = replace(other, name="mlx5_8", bridge=True)
    software = InfinibandDevice("rxe0", "", ports=(UP,))
    place = PciDevice(function.pci, "devices/pci0000:aa/0000:aa:00.1", physfn=physical.pci)

    def names(*devices: InfinibandDevice, functions: bool = False) -> dict[str, str]:
        sysfs = replace(MACHINE.sysfs, infiniband=devices, pci=(*MACHINE.sysfs.pci, place))
        found = survey(replace(MACHINE, sysfs=sysfs), functions=functions)
        return {each.name: each.physical for each in found.hcas}

    everything = (physical, function, managing, software)
    assert names(*everything) == {physical.name: ""}
    assert names(*everything, functions=True) == {physical.name: "", "mlx5_9": physical.name}
    assert names(function) == {"mlx5_9": ""}  # its physical function is the host's


def device(path: str, numa: int = 0) -> PciDevice:
    return PciDevice(path.rpartition("/")[2], f"devices/{path}", numa=numa)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (device("pci0/r1/d1"), device("pci0/r2/d2"), "PHB"),
        (device("pci0/r1/u1/p1/d1"), device("pci0/r1/u1/p2/d2"), "PIX"),
        (device("pci0/r1/u1/p1/u2/p3/d1"), device("pci0/r1/u1/p2/d2"), "PXB"),
        (device("pci0/r1/u1/p2/d2"), device("pci0/r1/u1/p1/u2/p3/d1"), "PXB"),
        (device("pci0/r1/d1"), device("pci1/r1/d2"), "NODE"),
        (device("pci0/r1/d1"), device("pci1/r1/d2", 1), "SYS"),
        (device("pci0/r1/d1", -1), device("pci1/r1/d2", -1), "SYS"),
        (device("pci0/r1/d1"), None, ""),
        (None, device("pci0/r1/d1"), ""),
    ],
)
def test_the_name_of_a_connection(a: PciDevice | None, b: PciDevice | None, expected: str) -> None:
    assert pcie_connection(a, b) == expected
