"""The one network: a bridge in the control plane's namespace that machines and host plug into."""

import subprocess
from collections.abc import Iterable
from typing import Protocol

from tests.e2e.cluster.machine import Machine
from tests.e2e.cluster.settings import (
    CONTROL_PLANE,
    CONTROL_PLANE_IP,
    HOST_IP,
    MACHINES,
    NAME,
    PATH,
    PODS,
    SERVICES,
    run,
)


class Routed(Protocol):
    """A node: where it is, and the network of its pods."""

    address: str

    @property
    def pods(self) -> object: ...


def link_host(hub: Machine, nodes: Iterable[Routed]) -> None:
    """Makes the bridge, plugs the host into it, and routes pods and Services through it."""
    prefix = MACHINES.prefixlen
    run(*("ip", "link", "add", NAME, "type", "veth"), *("peer", "name", "host", "netns", hub.pid()))
    nodes = list(nodes)
    hub.ip(
        # A bridge without a fixed address changes its own when a port goes: a minute's outage.
        "link add nodes address 02:00:0a:59:00:01 type bridge",
        f"addr add {CONTROL_PLANE_IP}/{prefix} dev nodes",
        "link set nodes up",
        "link set host master nodes up",
        *(f"route add {node.pods} via {node.address}" for node in nodes),
        *(f"route add {SERVICES} via {node.address}" for node in nodes[:1]),
    )
    commands = [
        f"addr add {HOST_IP}/{prefix} dev {NAME}",
        f"link set {NAME} up",
        f"route add {PODS} via {CONTROL_PLANE_IP}",
        f"route add {SERVICES} via {CONTROL_PLANE_IP}",
    ]
    run("ip", "-batch", "-", stdin="\n".join(commands) + "\n")


def link(machine: Machine, interface: str) -> None:
    """Plugs a machine (as eth0) into the bridge."""
    hub = Machine(CONTROL_PLANE)
    subprocess.run(  # of a machine just ended
        [*hub.enter("-n"), "ip", "link", "del", interface],
        stderr=subprocess.DEVNULL,
        env={"PATH": PATH},
    )
    run(
        *("ip", "link", "add", interface, "netns", hub.pid(), "type", "veth"),
        *("peer", "name", "eth0", "netns", machine.pid()),
    )
    hub.ip(f"link set {interface} master nodes up")
