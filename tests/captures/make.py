"""The named machines, from compact descriptions: python -m tests.captures.make

Each reproduces a matrix that was published (see published/). What was published is a matrix;
addresses, bridges, models and the rest are as such machines have them, or plausible. Two of them
serve the demo and are package data of central/standalone; links lead there."""

import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from agent import capture
from agent.machine import (
    Fabric,
    GpuFacts,
    HostFacts,
    InfinibandDevice,
    Machine,
    NumaFacts,
    NvLink,
    NvmlFacts,
    PciDevice,
    Platform,
    Port,
    RdmaCgroup,
    SysfsFacts,
)
from agent.survey import pcie_word

LANES = {"8.0": 4, "8.6": 4, "8.9": 4, "9.0": 5, "10.0": 5}  # generation by capability
HERE = Path(__file__).parent
DEMO = HERE.parents[1] / "central" / "standalone" / "captures"
LEVEL = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}
GIB = 1 << 30
GPU, NVSWITCH, INFINIBAND, ETHERNET = "0x030200", "0x068000", "0x020700", "0x020000"


@dataclass
class Host:
    """A host bridge, with bus numbers for what hangs below it."""

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
        """The next bus that is free."""
        bus = self.bus
        while f"{self.domain}:{bus:02x}" in self.machine.promised:
            bus += 1
        self.machine.promised.add(f"{self.domain}:{bus:02x}")
        return f"{self.domain}:{bus:02x}"


@dataclass
class Switch:
    """The path to a switch's upstream port; every call is a downstream port of its own."""

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
    """A machine in the making."""

    name: str
    model: str
    memory_gib: int
    device_id: int
    capability: str
    driver: str
    promised: set[str] = field(default_factory=set)  # buses that are taken
    gpus: list[GpuFacts] = field(default_factory=list)
    pci: list[PciDevice] = field(default_factory=list)
    numa: list[NumaFacts] = field(default_factory=list)
    cards: list[InfinibandDevice] = field(default_factory=list)

    def promise(self, addresses: Iterable[str]) -> None:
        self.promised |= {address.rpartition(":")[0] for address in addresses}

    def nodes(self, cpus: list[str], sockets: int) -> None:
        """NUMA nodes, evenly over the sockets."""
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
        self.promised.add(bus)
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
        """`open_pairs` says between which GPUs the way over NVLink is open."""
        functions = {device.address: device for device in self.pci}
        everyone = range(len(self.gpus))

        def level(a: int, b: int) -> int:
            word = pcie_word(functions[self.gpus[a].pci], functions[self.gpus[b].pci])
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


def dgx1() -> Machine:
    """F1: a cube mesh. Each half hangs on one socket, by two switches."""
    made = Sketch("dgx1-v100-8", "Tesla V100-SXM2-32GB", 32, 0x1DB510DE, "7.0", "535.161.08")
    made.nodes(["0-19,40-59", "20-39,60-79"], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ("06", "07", "0a", "0b", "85", "86", "89", "8a")]
    cards = [f"0000:{bus}:00.0" for bus in ("05", "0c", "84", "8b")]
    made.promise([*gpus, *cards])
    hosts = [made.host("0000:00", 0), made.host("0000:80", 1)]
    switches = [host.switch(host.port()) for host in hosts for _ in range(2)]
    for place, address in enumerate(gpus):
        made.gpu(switches[place // 2].host, switches[place // 2].down(), address)
    for switch, address in zip(switches, cards, strict=True):
        made.card(switch.host, switch.down(), address, "100 Gb/sec (4X EDR)", ids="15b3:1013")
    mesh = [
        "01",
        "02",
        "03:2",
        "04:2",
        "12:2",
        "13",
        "15:2",
        "23:2",
        "26",
        "37",
        "45",
        "46",
        "47:2",
        "56:2",
        "57",
        "67:2",
    ]
    peers: dict[int, list[int]] = {gpu: [] for gpu in range(8)}
    for edge in mesh:
        ends, _, count = edge.partition(":")
        a, b = int(ends[0]), int(ends[1])
        peers[a] += [b] * int(count or 1)
        peers[b] += [a] * int(count or 1)
    for place, gpu in enumerate(made.gpus):
        links = tuple(NvLink(n, True, "gpu", gpus[peer]) for n, peer in enumerate(peers[place]))
        made.gpus[place] = replace(gpu, nvlinks=links)
    return made.machine(lambda a, b: b in peers[a])


def dgx2() -> Machine:
    """F3: two boards of eight on NVSwitches. Two host bridges to a socket; below each a switch
    with two more switches, each with two GPUs and a card. Two more cards on socket 1."""
    made = Sketch("dgx2-v100-16", "Tesla V100-SXM3-32GB", 32, 0x1DB810DE, "7.0", "535.161.08")
    made.nodes(["0-23,48-71", "24-47,72-95"], 2)
    buses = [
        "34",
        "36",
        "39",
        "3b",
        "57",
        "59",
        "5c",
        "5e",
        "b7",
        "b9",
        "bc",
        "be",
        "e0",
        "e2",
        "e5",
        "e7",
    ]
    gpus = [f"0000:{bus}:00.0" for bus in buses]
    cards = [f"0000:{bus}:00.0" for bus in ["35", "3a", "58", "5d", "b8", "bd", "e1", "e6"]]
    switches = [f"0000:{bus:02x}:00.0" for bus in range(0x62, 0x68)]
    made.promise([*gpus, *cards, *switches])
    leaves: list[Switch] = []
    for bus, numa in (("2c", 0), ("4e", 0), ("ae", 1), ("d7", 1)):
        host = made.host(f"0000:{bus}", numa)
        top = host.switch(host.port())
        leaves += [host.switch(top.down()), host.switch(top.down())]
    for place, address in enumerate(gpus):
        leaf = leaves[place // 2]
        made.gpu(leaf.host, leaf.down(), address)
    for leaf, address in zip(leaves, cards, strict=True):
        made.card(leaf.host, leaf.down(), address, "100 Gb/sec (4X EDR)", ids="15b3:1017")
    storage = made.host("0000:80", 1)
    above = storage.port()
    for function in range(2):
        made.card(storage, above, f"0000:86:00.{function}", "100 Gb/sec (4X EDR)", "Ethernet")
    below = leaves[2]
    for address in switches:
        made.add(below.host, below.down(), address, NVSWITCH, "10de:1ac2")
    made.switched(6, switches)
    return made.machine(lambda a, b: a != b)


def dgx_a100() -> Machine:
    """F4: four NUMA nodes to a socket; two GPUs and two cards below a switch of switches; storage
    cards with two functions on nodes of their own."""
    made = Sketch("dgx-a100-8", "NVIDIA A100-SXM4-80GB", 80, 0x20B210DE, "8.0", "535.161.08")
    made.nodes([f"{16 * n}-{16 * n + 15},{16 * n + 128}-{16 * n + 143}" for n in range(8)], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ["07", "0f", "47", "4e", "87", "90", "b7", "bd"]]
    cards = [f"0000:{bus}:00.0" for bus in ["0c", "12", "4b", "54", "8d", "94", "ba", "cc"]]
    switches = [f"0000:{bus:02x}:00.0" for bus in range(0xC4, 0xCA)]
    made.promise([*gpus, *cards, *switches])
    tops: list[Switch] = []
    for bus, numa in (("00", 3), ("40", 1), ("80", 7), ("a0", 5)):
        host = made.host(f"0000:{bus}", numa)
        tops.append(host.switch(host.port()))
    for place, address in enumerate(gpus):
        top = tops[place // 2]
        made.gpu(top.host, top.host.switch(top.down()).down(), address)
    for place, address in enumerate(cards):
        top = tops[place // 2]
        if place == 4:  # the numbers 4 and 5 are the first storage card
            _storage(made, "0000:60", 0, "0000:61:00", "200 Gb/sec (4X HDR)")
        above = top.host.switch(top.down()).down()
        made.card(top.host, above, address, "200 Gb/sec (4X HDR)", ids="15b3:101b")
    _storage(made, "0000:e0", 4, "0000:e1:00", "200 Gb/sec (4X HDR)")
    below = tops[3].host.switch(tops[3].host.port())
    for address in switches:
        made.add(below.host, below.down(), address, NVSWITCH, "1af1:1af1")
    made.switched(12, switches)
    return made.machine(lambda a, b: a != b)


def _storage(made: Sketch, bus: str, numa: int, device: str, rate: str) -> None:
    """A card with two functions on a root port of its own."""
    host = made.host(bus, numa)
    above = host.port()
    for function in range(2):
        made.card(host, above, f"{device}.{function}", rate, "Ethernet", ids="15b3:101b")


HGX_GPUS = [f"0000:{bus}:00.0" for bus in ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]]
HGX_CARDS = [f"0000:{bus}:00.0" for bus in ["1f", "45", "54", "63", "a1", "c5", "d3", "e1"]]
HGX_HOSTS = ["15", "37", "48", "59", "97", "b7", "c7", "d7"]
HGX_CPUS = ["0-55,112-167", "56-111,168-223"]


def _hgx(made: Sketch, rate: str, storage: dict[int, tuple[str, str]]) -> None:
    """A GPU and its card on a host bridge each; the card has a switch of its own inside. A storage
    card stands after the rail's card of the given place."""
    made.nodes(HGX_CPUS, 2)
    made.promise([*HGX_GPUS, *HGX_CARDS])
    for place, bus in enumerate(HGX_HOSTS):
        host = made.host(f"0000:{bus}", place // 4)
        switch = host.switch(host.port())
        made.gpu(host, switch.down(), HGX_GPUS[place])
        made.card(host, host.switch(switch.down()).down(), HGX_CARDS[place], rate)
        if place in storage:
            _storage(made, storage[place][0], place // 4, storage[place][1], "100 Gb/sec (2X HDR)")


def hgx_h100() -> Machine:
    """F7: eight rails, and two storage cards with two functions."""
    made = Sketch("hgx-h100-8", "NVIDIA H100 80GB HBM3", 80, 0x233010DE, "9.0", "550.90.07")
    _hgx(made, "400 Gb/sec (4X NDR)", {0: ("0000:26", "0000:27:00"), 4: ("0000:a7", "0000:a8:00")})
    switches = [f"0000:{bus:02x}:00.0" for bus in range(5, 9)]
    made.promise(switches)
    host = made.host("0000:00", 0)
    below = host.switch(host.port())
    for address in switches:
        made.add(host, below.down(), address, NVSWITCH, "10de:22a3")
    made.switched(18, switches, Fabric(3, cluster_uuid="0" * 32, health=1))
    return made.machine(lambda a, b: a != b)


def b200_one_off() -> Machine:
    """F12: GPU 2 is off the fabric: its links are down. The switches are not on PCI; the cards that
    manage them are, and are nobody's network."""
    made = Sketch("b200-one-off-fabric-8", "NVIDIA B200", 180, 0x290110DE, "10.0", "570.133.20")
    _hgx(made, "400 Gb/sec (4X NDR)", {})
    host = made.host("0000:00", 0)
    below = host.switch(host.port())
    for bus in ("0a", "0b"):
        made.card(host, below.down(), f"0000:{bus}:00.0", "400 Gb/sec (4X NDR)", bridge=True)
    made.switched(18, [], Fabric(3, cluster_uuid="0" * 32, health=1))
    down = tuple(NvLink(link, active=False) for link in range(18))
    made.gpus[2] = replace(made.gpus[2], nvlinks=down, fabric=Fabric(0, cluster_uuid="0" * 32))
    return made.machine(lambda a, b: a != b and 2 not in (a, b))


def gb200() -> Machine:
    """F8: a tray of a rack that is one fabric. Every device has a PCI domain, and so a host bridge,
    of its own; the matrix says SYS between cards of one socket: they tell no NUMA node. The GPUs'
    memory is 8 NUMA nodes to a GPU, the first of which is in use."""
    made = Sketch("gb200-nvl72-tray-4", "NVIDIA GB200", 186, 0x294110DE, "10.0", "570.133.20")
    made.all_cpus = "0-143"
    cpus = ["0-71", "72-143"]
    made.numa = [
        NumaFacts(
            a,
            cpus[a] if a < 2 else "",
            tuple(10 if a == b else 40 if max(a, b) < 2 else 80 for b in range(34)),
        )
        for a in range(34)
    ]
    for place, domain in enumerate(("0008", "0009", "0018", "0019")):
        host = made.host(f"{domain}:00", place // 2)
        made.gpu(host, host.port(), f"{domain}:01:00.0")
    for domain in ("0000", "0002", "0006", "0010", "0012", "0016"):
        host = made.host(f"{domain}:00", -1)
        above = host.port()
        twins = domain in ("0006", "0016")
        for function in range(2 if twins else 1):
            address = f"{domain}:{'01' if twins else '03'}:00.{function}"
            rate = "200 Gb/sec (4X HDR)" if twins else "400 Gb/sec (4X NDR)"
            made.card(host, above, address, rate, "Ethernet" if twins else "InfiniBand")
    made.switched(18, [], Fabric(3, cluster_uuid="6f1c" * 8, clique_id=32766, health=1))
    nodes = ("0,3-9,11-17", "0,3-9,11-17", "1,19-25,27-33", "1,19-25,27-33")
    for place, gpu in enumerate(made.gpus):
        made.gpus[place] = replace(
            gpu,
            memory_numa=2 + 8 * place,
            memory_affinity=nodes[place],
            module_id=place + 1,
            platform=Platform("1821224180042", 9, 3, 1, place + 1),
        )
    return made.machine(lambda a, b: a != b)


def pcie_switch() -> Machine:
    """F9: no NVLink, and a firmware that tells no NUMA node."""
    made = Sketch("pcie-switch-8", "NVIDIA L40S", 48, 0x26B910DE, "8.9", "550.90.07")
    made.all_cpus = "0-95"
    made.numa = [NumaFacts(0, "0-95", (10,))]
    gpus = [f"0000:{bus}:00.0" for bus in ["4f", "50", "53", "57", "d1", "d2", "d5", "d9"]]
    made.promise(gpus)
    for half, bus in enumerate(("46", "c8")):
        host = made.host(f"0000:{bus}", -1)
        top = host.switch(host.port())
        pair, third, fourth = (host.switch(top.down()) for _ in range(3))
        four = zip((pair, pair, third, fourth), gpus[4 * half : 4 * half + 4], strict=True)
        for switch, address in four:
            made.gpu(host, switch.down(), address)
    return made.machine(lambda _a, _b: False)


def pcie_plx() -> Machine:
    """F10: no NVLink; a switch to a pair, each on its own root port; one old card."""
    made = Sketch("pcie-plx-8", "Tesla P40", 24, 0x1B3810DE, "6.1", "470.256.02")
    made.nodes(["0-9,20-29", "10-19,30-39"], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ["04", "05", "08", "09", "84", "85", "88", "89"]]
    made.promise([*gpus, "0000:0b:00.0"])
    hosts = [made.host("0000:00", 0), made.host("0000:80", 1)]
    switches = [host.switch(host.port()) for host in hosts for _ in range(2)]
    for place, address in enumerate(gpus):
        made.gpu(hosts[place // 4], switches[place // 2].down(), address)
    made.card(
        hosts[0],
        hosts[0].port(),
        "0000:0b:00.0",
        "56 Gb/sec (4X FDR)",
        ids="15b3:1003",
        name="mlx4_{}",
    )
    return made.machine(lambda _a, _b: False)


def single() -> Machine:
    """F15: one GPU in a virtual machine of one socket."""
    made = Sketch("single-gpu", "NVIDIA A10", 24, 0x223610DE, "8.6", "550.90.07")
    made.all_cpus = "0-7"
    made.numa = [NumaFacts(0, "0-7", (10,))]
    made.gpu(made.host("0000:00", -1), ["pci0000:00"], "0000:00:05.0")
    return made.machine(lambda _a, _b: False)


MACHINES = (
    dgx1,
    dgx2,
    dgx_a100,
    hgx_h100,
    gb200,
    pcie_switch,
    pcie_plx,
    b200_one_off,
    single,
)
DEMONSTRATED = ("dgx-a100-8", "hgx-h100-8")


def machines() -> Iterator[tuple[str, Machine]]:
    for make in MACHINES:
        made = make()
        yield made.host.hostname, made


def where(name: str) -> Path:
    """The file itself, whoever needs it."""
    return (DEMO if name in DEMONSTRATED else HERE) / f"{name}.json"


def main() -> None:
    DEMO.mkdir(parents=True, exist_ok=True)
    for name, made in machines():
        capture.save(made, where(name))
        link = HERE / f"{name}.json"
        if not link.exists():
            link.symlink_to(Path(*[".."] * 2) / DEMO.relative_to(HERE.parents[1]) / link.name)
        print(where(name))


if __name__ == "__main__":
    main()
