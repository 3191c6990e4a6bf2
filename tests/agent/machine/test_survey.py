"""survey() on machines that differ from their specification."""

from dataclasses import replace

import pytest

from agent.machine import capture
from agent.machine.facts import (
    Fabric,
    GpuFacts,
    InfinibandDevice,
    Machine,
    NvLink,
    NvmlFacts,
    PciDevice,
    Port,
    RdmaCgroup,
    RdmaDeviceLimit,
    SysfsFacts,
)
from agent.machine.survey import pcie_connection, survey
from protos.topology import RdmaLimit
from tests.agent.nvml_fixture import CAPTURES

UP = Fabric(3, cluster_uuid="0" * 32)


def gpu(index: int, links: tuple[NvLink, ...] = (), **changes: object) -> GpuFacts:
    made = GpuFacts(
        index=index,
        uuid=f"GPU-{index}",
        pci=f"0000:0{index}:00.0",
        nvlinks=links,
        p2p_nvlink=(0, 0),
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # fields by name


def switched(count: int, far: str = "0000:c4:00.0", remote: str = "switch") -> tuple[NvLink, ...]:
    return tuple(NvLink(link, True, remote, far) for link in range(count))


def toward(index: int, count: int) -> tuple[NvLink, ...]:
    return switched(count, f"0000:0{index}:00.0", "gpu")


def word(a: GpuFacts, b: GpuFacts) -> str:
    return survey(Machine(NvmlFacts(gpus=(a, b)))).links[0][1]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (gpu(0, toward(1, 4)), gpu(1, toward(0, 4)), "NV4"),
        (gpu(0, toward(1, 4)), gpu(1, toward(0, 3)), "NV3"),
        (gpu(0, toward(1, 2)), gpu(1), "NV2"),
        (gpu(0, switched(12)), gpu(1, switched(12)), "NV12"),
        (gpu(0, switched(12)), gpu(1, switched(10)), "NV10"),
        (gpu(0, switched(18, "", "")), gpu(1, switched(18, "", "")), "NV18"),
        (gpu(0, switched(18), p2p_nvlink=(-1, 5)), gpu(1, switched(18)), "SYS"),
        (gpu(0, switched(18), p2p_nvlink=()), gpu(1, switched(18)), "SYS"),
        (gpu(0, switched(18), fabric=UP), gpu(1, switched(18), fabric=UP), "NV18"),
        (gpu(0, switched(18), fabric=UP), gpu(1, switched(18), fabric=Fabric(2)), "SYS"),
        (
            gpu(0, switched(18), fabric=UP),
            gpu(1, switched(18), fabric=replace(UP, clique_id=1)),
            "SYS",
        ),
        (gpu(0, toward(1, 4), ancestors=(-1, 30)), gpu(1, ancestors=(30, -1)), "NV4"),
        (gpu(0, ancestors=(-1, 30)), gpu(1, ancestors=(30, -1)), "PHB"),
        (gpu(0, (NvLink(0, False),)), gpu(1), "SYS"),
    ],
)
def test_nvlink_pair_by_pair(a: GpuFacts, b: GpuFacts, expected: str) -> None:
    assert word(a, b) == expected
    flipped = survey(Machine(NvmlFacts(gpus=(a, b))))
    assert flipped.links[1][0] == expected


def device(path: str, numa: int = 0) -> PciDevice:
    return PciDevice(path.rsplit("/", maxsplit=1)[-1], f"devices/{path}", numa=numa)


TOP = "pci0000:00/0000:00:01.0/0000:01:00.0"


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f"{TOP}/0000:02:00.0/0000:03:00.0", f"{TOP}/0000:02:01.0/0000:04:00.0", "PIX"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:01.0/0000:01:00.1", "PIX"),
        (
            f"{TOP}/0000:02:00.0/0000:03:00.0/0000:05:00.0/0000:06:00.0",
            f"{TOP}/0000:02:01.0/0000:04:00.0",
            "PXB",
        ),
        (
            f"{TOP}/0000:02:00.0/0000:03:00.0/0000:05:00.0",
            f"{TOP}/0000:02:01.0/0000:04:00.0",
            "PXB",
        ),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:02.0/0000:02:00.0", "PHB"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:00/0000:00:01.1/0000:02:00.0", "PHB"),
        ("pci0000:00/0000:00:05.0", "pci0000:00/0000:00:06.0", "PHB"),
        ("pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0", "NODE"),
        ("pci10000:e0/10000:e0:01.0/10000:e1:00.0", "pci0000:e0/0000:e0:01.0/0000:e1:00.0", "NODE"),
    ],
)
def test_pcie_by_path(a: str, b: str, expected: str) -> None:
    assert (
        pcie_connection(device(a), device(b)) == pcie_connection(device(b), device(a)) == expected
    )


def test_across_host_bridges_the_numa_node_decides() -> None:
    a, b = "pci0000:00/0000:00:01.0/0000:01:00.0", "pci0000:40/0000:40:01.0/0000:41:00.0"
    assert pcie_connection(device(a, 0), device(b, 1)) == "SYS"
    assert pcie_connection(device(a, -1), device(b, -1)) == "SYS", (
        "an unknown NUMA node equals no other"
    )


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"fault": "NVML can't read it: GPU is lost"}, "GPU is lost"),
        ({"uuid": ""}, "no UUID"),
        ({"mig": True}, ""),
        ({"mig": True, "fabric": Fabric(1)}, ""),
        ({"fabric": Fabric(0)}, ""),
        ({"fabric": UP}, ""),
        ({"fabric": Fabric(1)}, "not started"),
        ({"fabric": Fabric(2)}, "is the fabric manager running?"),
        ({"fabric": Fabric(9)}, "state: 9"),
        ({"fabric": Fabric(3, status=999)}, "NVML error 999"),
    ],
)
def test_an_unhealthy_gpu_has_a_reason(changes: dict[str, object], why: str) -> None:
    seen = survey(Machine(NvmlFacts(gpus=(gpu(0, **changes),)))).gpus[0]  # type: ignore[arg-type]
    assert seen.healthy == (not why)
    assert why in seen.why


def test_a_lost_gpu_keeps_its_index_and_has_no_links() -> None:
    machine = capture.load(CAPTURES / "hgx-h100-8.json")
    gpus = list(machine.nvml.gpus)
    gpus[3] = GpuFacts(index=3, fault="NVML can't reach it: GPU is lost")
    gone = survey(replace(machine, nvml=replace(machine.nvml, gpus=tuple(gpus))))
    assert [each.index for each in gone.gpus] == list(range(8))
    assert gone.islands == ((0, 1, 2, 4, 5, 6, 7), (3,))
    assert gone.healthy_mask() == 0b1111_0111
    assert len({each.uuid for each in gone.gpus}) == 8


@pytest.mark.parametrize(
    ("name", "islands"),
    [
        ("dgx1-v100-8", (tuple(range(8)),)),
        ("dgx2-v100-16", (tuple(range(16)),)),
        ("gb200-nvl72-tray-4", ((0, 1, 2, 3),)),
        ("b200-one-off-fabric-8", ((0, 1, 3, 4, 5, 6, 7), (2,))),
        ("pcie-plx-8", tuple((each,) for each in range(8))),
        ("single-gpu", ((0,),)),
        ("h100-snc-4", ((0, 1, 2, 3),)),
        ("l40s-4", ((0,), (1,), (2,), (3,))),
        ("hgx-13-nics-8", (tuple(range(8)),)),
    ],
)
def test_islands(name: str, islands: tuple[tuple[int, ...], ...]) -> None:
    assert survey(capture.load(CAPTURES / f"{name}.json")).islands == islands


def test_nics_that_pods_can_use() -> None:
    physical = device("pci0000:00/0000:00:01.0/0000:01:00.0")
    virtual = replace(device("pci0000:00/0000:00:01.0/0000:01:00.2"), physfn="0000:01:00.0")
    passed = replace(device("pci0000:00/0000:00:02.0/0000:02:00.2"), physfn="0000:02:00.0")
    ports = (
        Port(1, "DOWN", "Ethernet", ""),
        Port(2, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)"),
    )
    cards = (
        InfinibandDevice("mlx5_0", physical.address, ports=ports),
        InfinibandDevice("mlx5_1", virtual.address),
        InfinibandDevice("mlx5_2", passed.address, ports=(Port(1, "DOWN", rate="100 Gb/sec"),)),
        InfinibandDevice("rxe0"),
        InfinibandDevice("mlx5_3", physical.address, bridge=True),
    )
    limits = RdmaCgroup(2, (RdmaDeviceLimit("mlx5_0", 64), RdmaDeviceLimit("rxe0", 1, 1)))
    seen = survey(
        Machine(sysfs=SysfsFacts((physical, virtual, passed), infiniband=cards, rdma_cgroup=limits))
    )
    assert [(card.name, card.link_layer, card.rate_gbps) for card in seen.hcas] == [
        ("mlx5_0", "InfiniBand", 400.0),
        ("mlx5_2", "", 100.0),
    ]
    assert seen.rdma_cgroup == (("mlx5_0", RdmaLimit(64, -1)), ("mlx5_2", RdmaLimit()))
    facts = SysfsFacts((physical, virtual, passed), infiniband=cards)
    unfolded = survey(Machine(sysfs=facts), functions=True).hcas
    whose = {"mlx5_0": "", "mlx5_1": "mlx5_0", "mlx5_2": ""}
    assert {card.name: card.physical for card in unfolded} == whose


def test_an_empty_machine_has_an_empty_topology() -> None:
    seen = survey(Machine())
    assert (seen.gpus, seen.links, seen.islands, seen.rdma_cgroup) == ((), (), (), None)
