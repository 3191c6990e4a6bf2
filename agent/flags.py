"""The agent's command line. Environment variables are read only as defaults of flags."""

import argparse
import os
import re
import socket
from pathlib import Path
from typing import NoReturn

from agent import commands
from agent.gpu_setup.command import add_arguments as add_setup_arguments
from agent.health.gpu_health import HoldDown
from agent.nics import selector
from agent.settings import version
from agent.sharing.share_flags import add_arguments as add_sharing_arguments
from protos.common import logs


class Parser(argparse.ArgumentParser):
    """Reports errors in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    top = Parser(
        prog="lockstep-agent",
        description="Node agent: discovers the hardware, serves the kubelet's device-plugin API, "
        "reports to the scheduler.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"lockstep-agent {version()}")
    kinds = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = kinds.add_parser(
        "run", help="serve the kubelet and report to the scheduler", allow_abbrev=False
    )
    commands.add_machine_arguments(run)
    _add_run_arguments(run)
    topology = kinds.add_parser(
        "topology", help="print the machine's topology matrix", allow_abbrev=False
    )
    commands.add_topology_arguments(topology)
    add_setup_arguments(
        kinds.add_parser(
            "gpu-setup",
            help="set GPUs up for MPS and time slices as the agent requests",
            allow_abbrev=False,
        )
    )
    # The former name of gpu-setup, without help: hidden, for one version.
    add_setup_arguments(kinds.add_parser("keeper", allow_abbrev=False))
    capture = kinds.add_parser(
        "capture", help="print the machine as a JSON capture", allow_abbrev=False
    )
    commands.add_capture_arguments(capture)
    return top


def _add_run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--node",
        type=_node,
        default=os.environ.get("NODE_NAME") or socket.gethostname().lower(),  # as the kubelet does
        metavar="NAME",
        help="the node's name in Kubernetes (default: NODE_NAME, else the host name)",
    )
    run.add_argument(
        "--server",
        type=_server,
        default=os.environ.get("LOCKSTEP_SERVER", ""),
        metavar="HOST:PORT",
        help="address of the scheduler (default: LOCKSTEP_SERVER; empty: serve the kubelet only)",
    )
    run.add_argument(
        "--ca-file",
        type=Path,
        metavar="FILE",
        help="CA certificate for the scheduler's certificate (default: the system's)",
    )
    run.add_argument(
        "--token-file", type=Path, metavar="FILE", help="the agent's ServiceAccount token"
    )
    run.add_argument(
        "--server-name",
        default="",
        metavar="NAME",
        help="name to expect in the scheduler's certificate (default: the host of --server)",
    )
    run.add_argument(
        "--kubelet-dir",
        type=Path,
        default=Path("/var/lib/kubelet"),
        metavar="DIR",
        help="directory with device-plugins/ and pod-resources/ (default: %(default)s)",
    )
    run.add_argument(
        "--dev-root",
        type=Path,
        default=Path("/dev"),
        metavar="DIR",
        help="the host's /dev (default: %(default)s)",
    )
    run.add_argument(
        "--pass-device-nodes",
        choices=("auto", "always", "never"),
        default="auto",
        help="device files to pass to containers: auto: those that exist; always: all, and refuse "
        "the container if one is missing; never: none (default: %(default)s)",
    )
    add_sharing_arguments(run)
    run.add_argument(
        "--gpu-memory-grace",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long a pod may exceed its memory cap on a GPU with watch enforcement (default: "
        "%(default)g)",
    )
    _add_cdi_arguments(run)
    _add_rdma_arguments(run)
    run.add_argument(
        "--report-every",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="heartbeat interval in seconds (default: %(default)g)",
    )
    run.add_argument(
        "--survey-every",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="interval of hardware surveys in seconds (default: %(default)g); driver events "
        "trigger one at once",
    )
    run.add_argument(
        "--driver-wait",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="timeout of driver calls in seconds (default: %(default)g)",
    )
    held = HoldDown()
    run.add_argument(
        "--hold",
        type=_seconds,
        default=held.hold_s,
        metavar="SECONDS",
        help="seconds without errors before a GPU is healthy again; doubled on each relapse "
        "(default: %(default)g)",
    )
    run.add_argument(
        "--hold-most",
        type=_seconds,
        default=held.max_hold_s,
        metavar="SECONDS",
        help="upper bound of the hold time in seconds (default: %(default)g)",
    )
    run.add_argument(
        "--hold-xid",
        type=_seconds,
        default=held.xid_s,
        metavar="SECONDS",
        help="seconds for which a GPU is unhealthy after an XID that needs a reset, unless the "
        "driver reports the recovery or a reset is observed (default: %(default)g)",
    )
    run.add_argument(
        "--settled",
        type=_seconds,
        default=held.settled_s,
        metavar="SECONDS",
        help="seconds in good health after which a GPU's earlier failures no longer count "
        "(default: %(default)g)",
    )
    run.add_argument(
        "--metrics-listen",
        type=_server,
        default="",
        metavar="HOST:PORT",
        help="address for /metrics, /healthz and /readyz (default: none; the shipped manifests set "
        "0.0.0.0:9400)",
    )
    logs.add_arguments(run)


def _add_cdi_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--device-mode",
        choices=("auto", "env", "cdi", "both"),
        default="auto",
        help="how devices get into containers: env: environment variables and device files; cdi: "
        "CDI device names (Kubernetes 1.29 and newer); both; auto: both if --cdi-dir is set, "
        "else env (default: %(default)s)",
    )
    run.add_argument(
        "--cdi-dir",
        type=Path,
        metavar="DIR",
        help="directory for CDI specs; container runtimes read /var/run/cdi (default: none are "
        "written)",
    )
    run.add_argument(
        "--cdi-kind",
        choices=("lockstep.dev/gpu", "nvidia.com/gpu"),
        default="lockstep.dev/gpu",
        help="CDI kind of GPUs: lockstep.dev/gpu: the agent's own specs, with device files only; "
        "nvidia.com/gpu: the specs of NVIDIA's toolkit, with driver libraries (default: "
        "%(default)s)",
    )


def _add_rdma_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--rdma-devices",
        type=_nics,
        default=("auto",),
        metavar="NICS",
        help="RDMA NICs to serve, comma separated: names with * and ?; all; none; auto: those that "
        "share a PCIe switch with a GPU, else the fastest (default); properties joined by +, "
        "such as vendor=15b3+link=InfiniBand (vendor, device, driver, link, net, pci); vf: "
        "virtual functions (vf+pf=mlx5_0: of this NIC)",
    )
    run.add_argument(
        "--rdma-shares",
        type=_count,
        default=0,
        metavar="N",
        help="shares per RDMA NIC, each for one pod; auto: as many pods with the default limit as "
        "fit in the limit of the cgroup of all pods, 16 if there is no limit (default: auto)",
    )

    run.add_argument(
        "--cgroup-root",
        type=Path,
        metavar="DIR",
        help="the host's /sys/fs/cgroup, writable; pods' RDMA and GPU memory limits are written "
        "there (default: none are written)",
    )
    for name, what in (
        ("handles", "RDMA contexts"),
        ("objects", "RDMA objects (queue pairs, memory regions, ...)"),
    ):
        run.add_argument(
            f"--rdma-hca-{name}",
            type=_limit,
            default=-1,
            metavar="N",
            help=f"default limit of {what} for a pod on each of its RDMA NICs (default: max)",
        )


def _limit(text: str) -> int:
    if text == "max":
        return -1
    if text.isascii() and text.isdigit() and int(text) < 2**31 - 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor max")


def _nics(text: str) -> tuple[str, ...]:
    try:
        return selector.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    if text == "auto":
        return 0
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 1000:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 to 1000")


def _node(text: str) -> str:
    if re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", text, re.ASCII):
        return text
    raise argparse.ArgumentTypeError(
        f"{text!r} is not a node name: lower-case letters, digits, - and ., as shown by "
        f"kubectl get nodes"
    )


def _server(text: str) -> str:
    host, colon, port = text.rpartition(":")
    if not text or (host and colon and port.isdigit() and 0 < int(port) < 65536):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.05 <= seconds <= 86400:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds (0.05 to 86400)")
    return seconds
