"""Machines whose GPUs are connected by PCIe only."""

from agent.machine.facts import Machine, NumaFacts
from tests.captures.sketch import Sketch


def pcie_switch() -> Machine:
    """F9: no NVLink, and firmware that reports no NUMA node."""
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
    """F10: no NVLink; one switch per pair, each on its own root port; one old NIC."""
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


def rtx_pro() -> Machine:
    """Two GPUs to a switch, which is half of a chip; each switch at a host bridge of its own."""
    name = "NVIDIA RTX PRO 6000 Blackwell Server Edition"
    made = Sketch("rtx-pro-6000-8", name, 96, 0x2BB510DE, "12.0", "580.95.05")
    made.nodes(["0-63,128-191", "64-127,192-255"], 2)
    gpus = [f"0000:{bus}:00.0" for bus in ("13", "14", "73", "74", "83", "84", "f3", "f4")]
    made.promise(gpus)
    for pair, bus in enumerate(("10", "70", "80", "f0")):
        host = made.host(f"0000:{bus}", pair // 2)
        switch = host.switch(host.port())
        for place in (2 * pair, 2 * pair + 1):
            made.gpu(host, switch.down(), gpus[place])
    return made.machine(lambda _a, _b: False)
