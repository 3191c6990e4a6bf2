"""DGX machines: a cube mesh, two boards of eight, eight NUMA nodes."""

from dataclasses import replace

from agent.machine.facts import Machine, NvLink
from tests.captures.sketch import NVSWITCH, Sketch, Switch, storage_card


def dgx1() -> Machine:
    """F1: a cube mesh; each half is on one socket, behind two switches."""
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
    """F3: two boards of eight GPUs on NVSwitches. Each socket has two host bridges, and below each
    a switch with two more switches, each with two GPUs and a NIC. Socket 1 has two more NICs."""
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


def dgx_a100(
    name: str = "dgx-a100-8", model: str = "NVIDIA A100-SXM4-80GB", gib: int = 80
) -> Machine:
    """F4: four NUMA nodes per socket. Two GPUs and two NICs are below a switch of switches; storage
    NICs with two functions are on other NUMA nodes."""
    made = Sketch(name, model, gib, 0x20B210DE, "8.0", "535.161.08")
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
        if place == 4:  # numbers 4 and 5 are the first storage NIC
            storage_card(made, "0000:60", 0, "0000:61:00", "200 Gb/sec (4X HDR)")
        above = top.host.switch(top.down()).down()
        made.card(top.host, above, address, "200 Gb/sec (4X HDR)", ids="15b3:101b")
    storage_card(made, "0000:e0", 4, "0000:e1:00", "200 Gb/sec (4X HDR)")
    below = tops[3].host.switch(tops[3].host.port())
    for address in switches:
        made.add(below.host, below.down(), address, NVSWITCH, "1af1:1af1")
    made.switched(12, switches)
    return made.machine(lambda a, b: a != b)
