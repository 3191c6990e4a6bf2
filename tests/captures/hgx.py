"""HGX boards, and a tray of a rack-scale NVLink fabric."""

from dataclasses import replace

from agent.machine.facts import Fabric, Machine, NumaFacts, NvLink, Platform
from tests.captures.sketch import NVSWITCH, Sketch, storage_card

HGX_GPUS = [f"0000:{bus}:00.0" for bus in ["1b", "43", "52", "61", "9d", "c3", "d1", "df"]]
HGX_CARDS = [f"0000:{bus}:00.0" for bus in ["1f", "45", "54", "63", "a1", "c5", "d3", "e1"]]
HGX_HOSTS = ["15", "37", "48", "59", "97", "b7", "c7", "d7"]
HGX_CPUS = ["0-55,112-167", "56-111,168-223"]


def _hgx(made: Sketch, rate: str, storage: dict[int, tuple[str, str]]) -> None:
    """A GPU and its NIC share a host bridge; the NIC contains a switch. A storage NIC follows the
    rail's NIC at the given position."""
    made.nodes(HGX_CPUS, 2)
    made.promise([*HGX_GPUS, *HGX_CARDS])
    for place, bus in enumerate(HGX_HOSTS):
        host = made.host(f"0000:{bus}", place // 4)
        switch = host.switch(host.port())
        made.gpu(host, switch.down(), HGX_GPUS[place])
        made.card(host, host.switch(switch.down()).down(), HGX_CARDS[place], rate)
        if place in storage:
            storage_card(
                made, storage[place][0], place // 4, storage[place][1], "100 Gb/sec (2X HDR)"
            )


def hgx_h100() -> Machine:
    """F7: eight rails, and two storage NICs with two functions."""
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
    """F12: GPU 2 is off the fabric, its links are down. The switches are not on PCI, but the NICs
    that manage them are; those carry no network traffic."""
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
