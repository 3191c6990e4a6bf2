"""Finds the file with the machine's PCIe tree, for machines whose /sys does not show it."""

from pathlib import Path

from agent.bounded_files import is_file, is_folder, read_text
from agent.machine import pcie_tree
from agent.machine.facts import SysfsFacts, Unusable

# Where NCCL looks, too: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
USUAL = "run/nvidia-topologyd/virtualTopology.xml"
DEFAULT = "default"


def with_tree(
    facts: SysfsFacts, given: str | Path | None, driver_root: str | Path | None, node: str
) -> SysfsFacts:
    """given: a file, or a directory with a file for each node by name, else `default`; the usual place
    comes last. A file that can't be used is named in pcie_source, and /sys is used."""
    file = _file(given, driver_root, node)
    if file is None:
        return facts
    try:
        text = read_text(file, pcie_tree.MOST_BYTES)
        return pcie_tree.apply(facts, pcie_tree.parse(text, str(file)), str(file))
    except (OSError, Unusable) as error:
        why = error if isinstance(error, Unusable) else f"{file}: {error.strerror}"
        return pcie_tree.apply(facts, {}, f"/sys, because {why}")


def _file(given: str | Path | None, driver_root: str | Path | None, node: str) -> Path | None:
    found = [Path(driver_root or "/") / USUAL]
    if given:
        path = Path(given)
        if not is_folder(path):
            return path
        names = (name for name in (node, DEFAULT) if name and "/" not in name)
        found = [*(path / name for name in names), *found]
    return next((file for file in found if is_file(file)), None)
