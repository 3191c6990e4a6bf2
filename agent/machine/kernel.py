"""Facts about this machine from the kernel's files. A read may hang in the kernel, for example of a device that is
gone."""

from pathlib import Path

from agent.machine import host, pcie_source, sysfs
from agent.machine.facts import HostFacts, SysfsFacts

Facts = tuple[SysfsFacts, HostFacts]


def read(
    sysfs_root: str | Path = "/sys",
    proc_root: str | Path = "/proc",
    driver_root: str | Path | None = None,
    pcie_tree: str | Path | None = None,
    node: str = "",
) -> Facts:
    """Raises Unusable."""
    found = pcie_source.with_tree(sysfs.read(sysfs_root), pcie_tree, driver_root, node)
    return found, host.read(proc_root)
