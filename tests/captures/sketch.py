"""Builds the facts of a machine from host bridges, switches and the devices below them."""

import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from agent.machine.facts import (
    Fabric,
    GpuFacts,
    HostFacts,
    InfinibandDevice,
    Machine,
    NumaFacts,
    NvLink,
    NvmlFacts,
    PciDevice,
    Port,
    RdmaCgroup,
    SysfsFacts,
)
from agent.machine.survey import pcie_connection

LANES = {
    "8.0": 4,
    "8.6": 4,
    "8.9": 4,
    "9.0": 5,
    "10.0": 5,
    "10.3": 6,
    "12.0": 5,
}  # generation by capability
LEVEL = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
GIB = 1 << 30
GPU, NVSWITCH, INFINIBAND, ETHERNET = "0x030200", "0x068000", "0x020700", "0x020000"


@dataclass
class Host:
    """A host bridge, with bus numbers for the devices below it."""

    machine: "Sketch"
    domain: str
    bus: int
    numa: int
    ports: int = 0

    def port(self) -> list[str]:
        """The path through a new root port."""
        self.ports += 1
        return [
            f"pci{self.domain}:{self.bus:02x}",
            f"{self.domain}:{self.bus:02x}:{self.ports:02x}.0",
        ]

    def switch(self, above: list[str]) -> "Switch":
        return Switch(self, [*above, f"{self._next()}:00.0"])

    def _next(self) -> str:
        """The next free bus number."""
        bus = self.bus
        while f"{self.domain}:{bus:02x}" in self.machine.used_buses:
            bus += 1
        self.machine.used_buses.add(f"{self.domain}:{bus:02x}")
        return f"{self.domain}:{bus:02x}"


@dataclass
class Switch:
    """The path to a switch's upstream port; every call adds a downstream port."""

    host: Host
    above: list[str]
    inner: str = ""
    ports: int = 0

    def down(self) -> list[str]:
        if not self.inner:
            self.inner = self.host._next()
        self.ports += 1
        return [*self.above, f"{self.inner}:{self.ports - 1:02x}.0"]


@dataclass
class Sketch:
    """A machine under construction."""

    name: str
    model: str
    memory_gib: int
    device_id: int
    capability: str
    driver: str
    used_buses: set[str] = field(default_factory=set)  # bus numbers
    gpus: list[GpuFacts] = field(default_factory=list)
    pci: list[PciDevice] = field(default_factory=list)
    numa: list[NumaFacts] = field(default_factory=list)
    cards: list[InfinibandDevice] = field(default_factory=list)

    def promise(self, addresses: Iterable[str]) -> None:
        self.used_buses |= {address.rpartition(":")[0] for address in addresses}

    def nodes(self, cpus: list[str], sockets: int) -> None:
        """Adds NUMA nodes, spread evenly over the sockets."""
        per = len(cpus) // sockets

        def distance(a: int, b: int) -> int:
            return 10 if a == b else 12 if a // per == b // per else 32

        self.numa = [
            NumaFacts(a, cpus[a], tuple(distance(a, b) for b in range(len(cpus))))
            for a in range(len(cpus))
        ]

    def cpus(self, numa: int) -> str:
        return self.numa[numa].cpus if numa >= 0 else self.all_cpus

    all_cpus: str = ""

    def host(self, bus: str, numa: int) -> Host:
        domain, _, number = bus.partition(":")
        self.used_buses.add(bus)
        return Host(self, domain, int(number, 16), numa)

    def add(self, host: Host, above: list[str], address: str, kind: str, ids: str) -> PciDevice:
        vendor, _, device = ids.partition(":")
        made = PciDevice(
            address=address,
            path="/".join(["devices", *above, address]),
            kind=kind,
            vendor=f"0x{vendor}",
            device=f"0x{device}",
            numa=host.numa,
            local_cpus=self.cpus(host.numa),
        )
        self.pci.append(made)
        return made

    def gpu(self, host: Host, above: list[str], address: str) -> None:
        index = len(self.gpus)
        ids = f"{self.device_id & 0xFFFF:04x}:{self.device_id >> 16:04x}"
        self.add(host, above, address, GPU, ids)
        self.gpus.append(
            GpuFacts(
                index=index,
                uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{self.name}.lockstep.dev')}",
                model=self.model,
                pci=address,
                device_id=self.device_id,
                minor=index,
                capability=self.capability,
                memory_bytes=self.memory_gib * GIB,
                cpu_affinity=self.cpus(host.numa),
                memory_affinity=str(host.numa) if host.numa >= 0 else "",
                pcie_generation=LANES.get(self.capability, 3),
                pcie_width=16,
            )
        )

    def card(
        self,
        host: Host,
        above: list[str],
        address: str,
        rate: str,
        layer: str = "InfiniBand",
        *,
        ids: str = "15b3:1021",
        name: str = "mlx5_{}",
        bridge: bool = False,
    ) -> None:
        index = len(self.cards)
        self.add(host, above, address, INFINIBAND if layer == "InfiniBand" else ETHERNET, ids)
        port = Port(1, "ACTIVE", layer, rate)
        self.cards.append(
            InfinibandDevice(name.format(index), address, f"uverbs{index}", (port,), bridge)
        )

    def switched(self, links: int, switches: list[str], fabric: Fabric | None = None) -> None:
        """Every GPU has `links` links, spread evenly over the switches (no name: not on PCI)."""
        for place, gpu in enumerate(self.gpus):
            nvlinks = tuple(
                NvLink(link, True, "switch", switches[link % len(switches)] if switches else "")
                for link in range(links)
            )
            self.gpus[place] = replace(gpu, nvlinks=nvlinks, fabric=fabric)

    def machine(self, open_pairs: Callable[[int, int], bool]) -> Machine:
        """`open_pairs`: the GPUs with peer-to-peer over NVLink."""
        functions = {device.address: device for device in self.pci}
        everyone = range(len(self.gpus))

        def level(a: int, b: int) -> int:
            word = pcie_connection(functions[self.gpus[a].pci], functions[self.gpus[b].pci])
            return -1 if a == b else LEVEL[word]

        gpus = tuple(
            replace(
                gpu,
                p2p_nvlink=tuple(
                    -1 if peer == gpu.index else 0 if open_pairs(gpu.index, peer) else 5
                    for peer in everyone
                ),
                ancestors=tuple(level(gpu.index, peer) for peer in everyone),
            )
            for gpu in self.gpus
        )
        cpus = [part for numa in self.numa for part in numa.cpus.split(",") if part]
        count = sum(
            int(part.partition("-")[2] or part) - int(part.partition("-")[0]) + 1 for part in cpus
        )
        return Machine(
            NvmlFacts(self.driver, f"12.{self.driver}", "12.4", gpus),
            SysfsFacts(
                tuple(sorted(self.pci, key=lambda device: device.address)),
                tuple(self.numa),
                tuple(self.cards),
                RdmaCgroup(2),
            ),
            HostFacts(
                self.name,
                str(uuid.uuid5(uuid.NAMESPACE_DNS, self.name)),
                "6.8.0",
                count,
                2048 * GIB,
            ),
        )


def storage_card(made: Sketch, bus: str, numa: int, device: str, rate: str) -> None:
    """A NIC with two functions on its own root port."""
    host = made.host(bus, numa)
    above = host.port()
    for function in range(2):
        made.card(host, above, f"{device}.{function}", rate, "Ethernet", ids="15b3:101b")
