"""The commands `topology` and `capture`, and observe(), which reads the machine for them and for
the device monitor."""

import argparse
import json
import os
import sys
from pathlib import Path

from agent import nvml
from agent.machine import capture as captures
from agent.machine import host, pcie_source, plausible, sysfs
from agent.machine.facts import Machine
from agent.machine.survey import survey
from protos import matrix, topology_json


def observe(
    capture: str | Path | None = None,
    driver_root: str | Path | None = None,
    sysfs_root: str | Path = "/sys",
    proc_root: str | Path = "/proc",
    *,
    pcie_tree: str | Path | None = None,
    node: str = "",
) -> Machine:
    """Reads the machine from the capture if one is given, else this machine. Raises Unusable."""
    if capture:
        return captures.load(capture)
    return Machine(
        nvml=nvml.read(driver_root),
        sysfs=pcie_source.with_tree(sysfs.read(sysfs_root), pcie_tree, driver_root, node),
        host=host.read(proc_root),
    )


def add_machine_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the flags that say where a machine's facts come from."""
    parser.add_argument(
        "--capture",
        metavar="FILE",
        help="read the machine from this capture instead of the hardware",
    )
    parser.add_argument(
        "--driver-root",
        metavar="DIR",
        help="root of the driver installation, searched for libnvidia-ml.so.1 after the loader's "
        "path",
    )
    parser.add_argument(
        "--sysfs-root", metavar="DIR", default="/sys", help="the host's /sys (default: %(default)s)"
    )
    parser.add_argument(
        "--proc-root",
        metavar="DIR",
        default="/proc",
        help="the host's /proc (default: %(default)s)",
    )
    parser.add_argument(
        "--pcie-tree",
        metavar="PATH",
        default=os.environ.get("NCCL_TOPO_FILE"),
        help="the PCIe tree of a VM that hides it: NCCL's topology file, or lines with the PCI "
        "addresses behind one switch; a directory has a file for each node by name, else default "
        "(default: NCCL_TOPO_FILE, else run/nvidia-topologyd/virtualTopology.xml below the driver "
        "root, else /sys)",
    )


def add_topology_arguments(parser: argparse.ArgumentParser) -> None:
    add_machine_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="output format (default: %(default)s)",
    )
    parser.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME", ""),
        help="node name in the JSON output (default: NODE_NAME, else the host name)",
    )


def add_capture_arguments(parser: argparse.ArgumentParser) -> None:
    add_machine_arguments(parser)


def topology(arguments: argparse.Namespace) -> int:
    """Prints the topology matrix."""
    machine, left_out = plausible.checked(_observed(arguments))
    for sentence in left_out:
        print(sentence, file=sys.stderr)
    seen = survey(machine)
    if arguments.output == "json":
        node = arguments.node or machine.host.hostname
        print(json.dumps(topology_json.to_json(node, seen), indent=2))
    else:
        sys.stdout.write(matrix.table(seen))
    return 0


def capture(arguments: argparse.Namespace) -> int:
    """Prints the machine as a capture."""
    sys.stdout.write(captures.dumps(_observed(arguments)))
    return 0


def _observed(arguments: argparse.Namespace) -> Machine:
    return observe(
        arguments.capture,
        arguments.driver_root,
        arguments.sysfs_root,
        arguments.proc_root,
        pcie_tree=arguments.pcie_tree,
        node=getattr(arguments, "node", "") or os.environ.get("NODE_NAME", ""),
    )
