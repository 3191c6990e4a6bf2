"""The agent's command line. Environment variables are read only as defaults of flags."""

import argparse
import os
import re
import socket
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from agent import commands
from agent.gpu_setup.command import add_arguments as add_setup_arguments
from agent.health.gpu_health import HoldDown
from agent.migrate.migrate_command import add_arguments as add_migrate_arguments
from agent.nics import rails, selector
from agent.settings import Settings, version
from agent.sharing import sharing_mode
from protos.common import logs
from protos.common.sentence_parser import SentenceParser

PATH = re.compile(r"(/[\w.+-]+)+", re.ASCII)
MOST_CHANNELS = 2047  # as many as the driver creates by default, from 0


def parser() -> SentenceParser:
    top = SentenceParser(
        prog="lockstep-agent",
        description="Node agent: discovers the hardware, serves the kubelet's device-plugin API, "
        "reports to the scheduler.",
    )
    top.add_argument("--version", action="version", version=f"lockstep-agent {version()}")
    kinds = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = _add_command(kinds, "run", "serve the kubelet and report to the scheduler")
    commands.add_machine_arguments(run)
    _add_run_arguments(run)
    topology = kinds.add_parser(
        "topology",
        help="print the machine's topology matrix, in the words of nvidia-smi topo -m",
        description="Print the machine's topology matrix, in the words of nvidia-smi topo -m. "
        "PCIe paths come from /sys: two host bridges of one NUMA node are NODE, also on machines "
        "where nvidia-smi prints SYS for them.",
    )
    commands.add_topology_arguments(topology)
    setup = "set GPUs up for MPS and time slices as the agent requests"
    add_setup_arguments(_add_command(kinds, "gpu-setup", setup))
    capture = _add_command(kinds, "capture", "print the machine as a JSON capture")
    commands.add_machine_arguments(capture)
    migrate = (
        "translate the configuration of NVIDIA's device plugin, and of the pods that use it or HAMi"
    )
    add_migrate_arguments(_add_command(kinds, "migrate", migrate))
    return top


def _add_command(kinds: Any, name: str, about: str) -> argparse.ArgumentParser:
    """Adds a command whose own help begins with the sentence that lists it."""
    made: argparse.ArgumentParser = kinds.add_parser(
        name, help=about, description=f"{about[0].upper()}{about[1:]}."
    )
    return made


def _channel(text: str) -> int:
    if not text.isdecimal() or int(text) > MOST_CHANNELS:
        raise ValueError(f"'{text}' is not a channel from 0 to {MOST_CHANNELS}")
    return int(text)


def _mount(text: str) -> tuple[tuple[str, str], ...]:
    host, colon, inside = text.partition(":")
    paths = (host, inside)
    if not colon or not all(PATH.fullmatch(each) and ".." not in each for each in paths):
        raise ValueError(
            f"'{text}' is not two absolute paths, such as "
            "/home/kubernetes/bin/nvidia:/usr/local/nvidia"
        )
    return (paths,)


def _limit(text: str) -> int:
    if text == "max":
        return -1
    if text.isascii() and text.isdigit() and int(text) < 2**31 - 1:
        return int(text)
    raise ValueError(f"{text!r} is neither a whole number nor max")


def _count(text: str) -> int:
    if text == "auto":
        return 0
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1000:
        return int(text)
    raise ValueError(f"{text!r} is not a whole number from 1 to 1000")


def _node(text: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", text, re.ASCII):
        return text
    raise ValueError(
        f"{text!r} is not a node name: lower-case letters, digits, - and ., as shown by "
        f"kubectl get nodes"
    )


def _server(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not text or (host and colon and port.isdigit() and 0 < int(port) < 65536):
        return text
    raise ValueError(f"{text!r} is not HOST:PORT")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 86400:
        raise ValueError(f"{text!r} is not a number of seconds (0.05 to 86400)")
    return seconds


_TYPES: dict[str, Callable[[str], object]] = {  # by the flag or its value's name; else Path
    "--server-name": str,
    "--rdma-rails": rails.parse,
    "--rdma-hca-handles": _limit,
    "--rdma-hca-objects": _limit,
    "SECONDS": _seconds,
    "HOST:PORT": _server,
    "NUMBER": _channel,
    "HOST:CONTAINER": _mount,
    "GPUS": sharing_mode.checked,
    "NICS": selector.parse,
    "N": _count,
    "NAME": _node,
}
_HELD = HoldDown()
HOLD_FLAGS = (  # of Settings.hold_down
    (
        "--hold SECONDS",
        "seconds without errors before a GPU is healthy again; doubled on each relapse "
        "(default %(default)g)",
        _HELD.hold_s,
    ),
    (
        "--hold-most SECONDS",
        "upper bound of the hold time in seconds (default %(default)g)",
        _HELD.max_hold_s,
    ),
    (
        "--hold-xid SECONDS",
        "seconds for which a GPU is unhealthy after an XID that needs a reset, unless the "
        "driver reports the recovery or a reset is observed (default %(default)g)",
        _HELD.xid_s,
    ),
    (
        "--settled SECONDS",
        "seconds in good health after which a GPU's earlier failures no longer count "
        "(default %(default)g)",
        _HELD.settled_s,
    ),
)


def _add(parser: argparse.ArgumentParser, typed: str, about: str, default: Any) -> None:
    """Adds a flag as a field of Settings describes it."""
    name, _, value = typed.partition(" ")
    if value:
        kind = _TYPES.get(name) or _TYPES.get(value, Path)
        parser.add_argument(name, type=kind, default=default, metavar=value, help=about)
    else:
        parser.add_argument(name, choices=default, default=default[0], help=about)


def _add_run_arguments(run: argparse.ArgumentParser) -> None:
    for each in fields(Settings):
        if each.metadata:
            _add(run, **each.metadata)
        elif each.name == "hold_down":
            for row in HOLD_FLAGS:
                _add(run, *row)
    logs.add_arguments(run)
    node = os.environ.get("NODE_NAME") or socket.gethostname().lower()  # as the kubelet does
    run.set_defaults(node=node, server=os.environ.get("LOCKSTEP_SERVER", ""))
