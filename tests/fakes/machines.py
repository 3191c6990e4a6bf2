"""Synthetic machines: any number of GPUs on two sockets, joined by NVSwitch or in bridged pairs.
Captures of real machines are in tests/captures."""

from pathlib import Path

from agent.machine import capture
from agent.machine.facts import (
    GpuFacts,
    HostFacts,
    InfinibandDevice,
    Machine,
    NumaFacts,
    NvLink,
    NvmlFacts,
    PciDevice,
    Port,
    SysfsFacts,
)


def uuid(index: int) -> str:
    return f"GPU-{index:08d}-0000-4000-8000-000000000000"


def machine(count: int = 8, *, bridged: bool = False, numa: bool = True, cards: int = 0) -> Machine:
    """bridged: only 0-1, 2-3 ... have NVLinks to each other. cards: RDMA NICs, each on a PCIe
    switch with one GPU; one more, for storage, is on no GPU's switch."""
    addresses = [f"0000:{0x10 + index:02x}:00.0" for index in range(count)]

    def links(index: int) -> tuple[NvLink, ...]:
        if bridged:
            return tuple(NvLink(link, True, "gpu", addresses[index ^ 1]) for link in range(4))
        return tuple(NvLink(link, True, "switch", "0000:f0:00.0") for link in range(18))

    def node(index: int) -> int:
        return index * 2 // count if numa else -1

    gpus = tuple(
        GpuFacts(
            index=index,
            uuid=uuid(index),
            model="NVIDIA H100 80GB HBM3",
            pci=addresses[index],
            minor=index,
            memory_bytes=80 << 30,
            nvlinks=links(index),
            p2p_nvlink=(0,) * count,
            ancestors=tuple(
                0 if other == index else 40 if node(other) == node(index) else 50
                for other in range(count)
            ),
        )
        for index in range(count)
    )
    pci = tuple(
        PciDevice(
            address,
            f"devices/pci0000:{0x80 + index:02x}/0000:{0x80 + index:02x}:01.0/{address}",
            "0x030200",
            "0x10de",
            "0x2330",
            node(index),
        )
        for index, address in enumerate(addresses)
    )
    hosts = [index * count // cards for index in range(cards)] + [-1] * bool(cards)
    rails = tuple(_card(number, host, node(max(host, 0))) for number, host in enumerate(hosts))
    nodes = (NumaFacts(0, "0-31"), NumaFacts(1, "32-63")) if numa else ()
    return Machine(
        NvmlFacts("550.54.15", "12.550.54.15", "12.4", gpus),
        SysfsFacts(
            pci=(*pci, *(device for device, _ in rails)),
            numa=nodes,
            infiniband=tuple(card for _, card in rails),
        ),
        HostFacts(hostname="made-up", cpus=64),
    )


def _card(number: int, gpu: int, numa: int) -> tuple[PciDevice, InfinibandDevice]:
    bus = 0x80 + gpu if gpu >= 0 else 0xD0
    address = f"0000:{0xE0 + number:02x}:00.0"
    path = f"devices/pci0000:{bus:02x}/0000:{bus:02x}:01.0/{address}"
    device = PciDevice(address, path, "0x020700", "0x15b3", "0x1021", numa)
    ports = (Port(1, "ACTIVE", "InfiniBand", "400 Gb/sec (4X NDR)"),)
    return device, InfinibandDevice(f"mlx5_{number}", address, f"uverbs{number}", ports)


def save(directory: Path, made: Machine) -> Path:
    file = directory / "machine.json"
    capture.save(made, file)
    return file
