"""Machines with eight B200 or B300, with one NUMA node or two to a socket."""

from agent.machine.facts import Fabric, Machine
from tests.captures.sketch import Host, Sketch

FABRIC = Fabric(3, cluster_uuid="0" * 32, health=1)
SNC = ["0-27,112-139", "28-55,140-167", "56-83,168-195", "84-111,196-223"]
NDR = "400 Gb/sec (4X NDR)"


def _rail(made: Sketch, host: Host, gpu: str, nic: str, rate: str = NDR) -> None:
    """A GPU and its NIC below one switch."""
    switch = host.switch(host.port())
    made.gpu(host, switch.down(), gpu)
    made.card(host, switch.down(), nic, rate)


def hgx_b300() -> Machine:
    """A NIC beside each GPU, behind a switch of its own."""
    made = Sketch("hgx-b300-8", "NVIDIA B300 SXM6 AC", 268, 0x318210DE, "10.3", "580.95.05")
    made.nodes(["0-63,128-191", "64-127,192-255"], 2)
    buses = ("18", "38", "58", "78", "98", "b8", "d0", "e8")
    gpus = [f"0000:{int(bus, 16) + 4:02x}:00.0" for bus in buses]
    nics = [f"0000:{int(bus, 16) + 6:02x}:00.0" for bus in buses]
    made.promise([*gpus, *nics])
    for place, bus in enumerate(buses):
        host = made.host(f"0000:{bus}", place // 4)
        switch = host.switch(host.port())
        made.gpu(host, switch.down(), gpus[place])
        inner = host.switch(switch.down())
        made.card(host, inner.down(), nics[place], "800 Gb/sec (4X XDR)")
    made.switched(18, [], FABRIC)
    return made.machine(lambda a, b: a != b)


def dgx_b200() -> Machine:
    """Two NUMA nodes to a socket; four functions that manage the NVSwitches stand before the NICs of the GPUs, and two
    cards of two functions between them."""
    made = Sketch("dgx-b200-snc-8", "NVIDIA B200", 180, 0x290110DE, "10.0", "570.124.06")
    made.nodes(SNC, 2)
    buses = ("1b", "2b", "3b", "4b", "9b", "ab", "bb", "cb")
    gpus = [f"0000:{int(bus, 16) + 3:02x}:00.0" for bus in buses]
    nics = [f"0000:{int(bus, 16) + 5:02x}:00.0" for bus in buses]
    made.promise([*gpus, *nics])
    host = made.host("0000:05", 0)
    below = host.switch(host.port())
    for bus in ("0a", "0b", "0c", "0d"):
        made.card(host, below.down(), f"0000:{bus}:00.0", NDR)
    for place, bus in enumerate(buses):
        node = place // 2
        _rail(made, made.host(f"0000:{bus}", node), gpus[place], nics[place])
        if place in (0, 4):  # between the NICs of this node's GPUs
            other = made.host("0000:25" if place == 0 else "0000:a5", node)
            port, own = other.port(), 0x26 if place == 0 else 0xA6
            for function in range(2):
                made.card(other, port, f"0000:{own:02x}:00.{function}", NDR, "Ethernet")
    made.switched(18, [], FABRIC)
    return made.machine(lambda a, b: a != b)


def hgx_b200_snc() -> Machine:
    """Two NUMA nodes to a socket, each with two GPUs and their NICs; a NIC for other traffic at the first."""
    made = Sketch("hgx-b200-snc-8", "NVIDIA B200", 180, 0x290110DE, "10.0", "570.133.20")
    made.nodes([cpus.partition(",")[0] for cpus in SNC], 2)
    buses = ("1b", "2b", "3b", "4b", "9b", "ab", "bb", "cb")
    gpus = [f"0000:{int(bus, 16) + 3:02x}:00.0" for bus in buses]
    nics = [f"0000:{int(bus, 16) + 5:02x}:00.0" for bus in buses]
    made.promise([*gpus, *nics])
    for place, bus in enumerate(buses):
        _rail(made, made.host(f"0000:{bus}", place // 2), gpus[place], nics[place])
    host = made.host("0000:e5", 0)
    made.card(host, host.port(), "0000:e6:00.0", "100 Gb/sec (2X HDR)", "Ethernet")
    made.switched(18, [], FABRIC)
    return made.machine(lambda a, b: a != b)
