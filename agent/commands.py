"""The commands `topology` and `capture`."""

import argparse
import json
import os
import sys

from agent import nvml
from agent.machine import capture as captures
from agent.machine import kernel, plausible
from agent.machine.facts import Machine, NvmlFacts
from agent.machine.survey import survey
from protos import matrix, topology_json

NVIDIA, DISPLAY = "0x10de", "0x03"  # a PCI vendor, and how the classes of GPUs begin


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
        "--sysfs-root", metavar="DIR", default="/sys", help="the host's /sys (default %(default)s)"
    )
    parser.add_argument(
        "--proc-root", metavar="DIR", default="/proc", help="the host's /proc (default %(default)s)"
    )
    parser.add_argument(
        "--pcie-tree",
        metavar="PATH",
        default=os.environ.get("NCCL_TOPO_FILE"),
        help="the PCIe tree of a VM that hides it: NCCL's topology file, or lines with the PCI "
        "addresses behind one switch; a directory has a file for each node by name, else default "
        "(default NCCL_TOPO_FILE, else run/nvidia-topologyd/virtualTopology.xml below the driver "
        "root, else /sys)",
    )


def add_topology_arguments(parser: argparse.ArgumentParser) -> None:
    add_machine_arguments(parser)
    parser.add_argument(
        "-o",
        "--output",
        choices=("table", "json"),
        default="table",
        help="output format (default %(default)s)",
    )
    parser.add_argument(
        "--node",
        default=os.environ.get("NODE_NAME", ""),
        help="node name in the JSON output (default NODE_NAME, else the host name)",
    )


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
    """Reads the capture if one is given, else this machine. A machine without a driver and without NVIDIA's GPUs is
    read without them. Raises Unusable."""
    if arguments.capture:
        return captures.load(arguments.capture)
    system = kernel.read(
        arguments.sysfs_root,
        arguments.proc_root,
        arguments.driver_root,
        arguments.pcie_tree,
        getattr(arguments, "node", "") or os.environ.get("NODE_NAME", ""),
    )
    try:
        return Machine(nvml.read(arguments.driver_root), *system)
    except nvml.NoDriver:
        if any(each.vendor == NVIDIA and each.kind.startswith(DISPLAY) for each in system[0].pci):
            raise
        print("no NVIDIA driver, and no NVIDIA GPU on the PCI bus", file=sys.stderr)
        return Machine(NvmlFacts(), *system)
