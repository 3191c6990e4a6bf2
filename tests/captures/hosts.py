"""Machines with NUMA nodes smaller than a socket, and with GPUs straight at the processors."""

from dataclasses import replace

from agent.machine.facts import Machine, NvLink
from tests.captures.sketch import Sketch


def h100_four_snc() -> Machine:
    """Four GPUs joined directly, six links to a pair; eight NUMA nodes of four cores, and each GPU with a NIC on one of
    its own."""
    made = Sketch("h100-snc-4", "NVIDIA H100", 64, 0x233010DE, "9.0", "550.54.14")
    made.nodes([f"{first},{first + 8},{first + 16},{first + 24}" for first in range(8)], 2)
    cores = {3: 6, 1: 4, 7: 7, 5: 5}  # the first core by NUMA node, as published
    for node, first in cores.items():
        cpus = f"{first},{first + 8},{first + 16},{first + 24}"
        made.numa[node] = replace(made.numa[node], cpus=cpus)
    rest = [first for first in range(8) if first not in cores.values()]
    for node, first in zip((0, 2, 4, 6), rest, strict=True):
        cpus = f"{first},{first + 8},{first + 16},{first + 24}"
        made.numa[node] = replace(made.numa[node], cpus=cpus)
    gpus = [f"0000:{bus}:00.0" for bus in ("1d", "56", "8f", "c8")]
    made.promise([*gpus, *(f"0000:{bus}:00.0" for bus in ("20", "59", "92", "cb"))])
    for place, (node, bus) in enumerate(zip(cores, ("16", "4f", "88", "c1"), strict=True)):
        host = made.host(f"0000:{bus}", node)
        switch = host.switch(host.port())
        made.gpu(host, switch.down(), gpus[place])
        address = f"0000:{('20', '59', '92', 'cb')[place]}:00.0"
        made.card(host, switch.down(), address, "200 Gb/sec (4X HDR)")
    for place, gpu in enumerate(made.gpus):
        peers = [peer for peer in range(4) if peer != place]
        links = tuple(NvLink(link, True, "gpu", gpus[peers[link // 6]]) for link in range(18))
        made.gpus[place] = replace(gpu, nvlinks=links)
    return made.machine(lambda a, b: a != b)


def l40s_four() -> Machine:
    """Two GPUs to a socket, each at a host bridge of its own; one NIC with two functions."""
    made = Sketch("l40s-4", "NVIDIA L40S", 48, 0x26B910DE, "8.9", "570.86.15")
    made.nodes(["0-95,192-287", "96-191,288-383"], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ("21", "41", "a1", "c1")]
    made.promise(gpus)
    for place, bus in enumerate(("20", "40", "a0", "c0")):
        host = made.host(f"0000:{bus}", place // 2)
        made.gpu(host, host.port(), gpus[place])
    host = made.host("0000:e0", 1)
    above = host.port()
    for function in range(2):
        made.card(host, above, f"0000:e1:00.{function}", "100 Gb/sec (2X HDR)", "Ethernet")
    return made.machine(lambda _a, _b: False)


def h100_no_nics() -> Machine:
    """A board with NVSwitches in a machine whose NICs are no RDMA devices of the kernel."""
    made = Sketch("h100-no-nics-8", "NVIDIA H100 80GB HBM3", 80, 0x233010DE, "9.0", "550.163.01")
    made.nodes(["0-47,96-143", "48-95,144-191"], 2)
    buses = ("53", "64", "75", "86", "97", "a8", "b9", "ca")
    made.promise([f"0000:{bus}:00.0" for bus in buses])
    for place, bus in enumerate(("44", "55", "66", "77", "88", "99", "aa", "bb")):
        host = made.host(f"0000:{bus}", place // 4)
        made.gpu(host, host.port(), f"0000:{buses[place]}:00.0")
    made.switched(18, [])
    return made.machine(lambda a, b: a != b)


def hgx_thirteen_nics() -> Machine:
    """Two GPUs to a switch, each with its NIC behind a switch of its own; a card of five functions for other
    traffic."""
    made = Sketch("hgx-13-nics-8", "NVIDIA H100 80GB HBM3", 80, 0x233010DE, "9.0", "550.163.01")
    made.nodes(["0-55,112-167", "56-111,168-223"], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ("1b", "1f", "43", "47", "9b", "9f", "c3", "c7")]
    nics = [f"0000:{bus}:00.0" for bus in ("1c", "20", "44", "48", "9c", "a0", "c4", "c8")]
    made.promise([*gpus, *nics])
    for pair, bus in enumerate(("15", "3d", "95", "bd")):
        host = made.host(f"0000:{bus}", pair // 2)
        above = host.switch(host.port())
        for place in (2 * pair, 2 * pair + 1):
            own = host.switch(above.down())
            made.gpu(host, own.down(), gpus[place])
            made.card(host, own.down(), nics[place], "400 Gb/sec (4X NDR)")
    host = made.host("0000:e0", 1)
    port = host.port()
    for function in range(5):
        made.card(host, port, f"0000:e1:00.{function}", "25 Gb/sec (1X EDR)", "Ethernet")
    made.switched(18, [])
    return made.machine(lambda a, b: a != b)
