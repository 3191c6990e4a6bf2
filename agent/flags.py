"""The agent's command line: every flag, its default and what it means. Environment only as a flag's default."""

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
from protos import logs


class Parser(argparse.ArgumentParser):
    """What is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message} (see {self.prog} --help)\n")


def parser() -> Parser:
    top = Parser(
        prog="lockstep-agent",
        description="One per node: sees the hardware, serves the kubelet, tells the centre.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"lockstep-agent {version()}")
    kinds = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = kinds.add_parser("run", help="serve the kubelet and the centre", allow_abbrev=False)
    commands.add_machine_arguments(run)
    _add_run_arguments(run)
    topology = kinds.add_parser("topology", help="print this machine's matrix", allow_abbrev=False)
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
    capture = kinds.add_parser("capture", help="print this machine as JSON", allow_abbrev=False)
    commands.add_capture_arguments(capture)
    return top


def _add_run_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--node",
        type=_node,
        default=os.environ.get("NODE_NAME") or socket.gethostname().lower(),  # as kubelets do
        metavar="NAME",
        help="this node's name in Kubernetes (default: NODE_NAME, else the host's name)",
    )
    run.add_argument(
        "--server",
        type=_server,
        default=os.environ.get("LOCKSTEP_SERVER", ""),
        metavar="HOST:PORT",
        help="the centre (default: LOCKSTEP_SERVER; none: serve the kubelet only)",
    )
    run.add_argument(
        "--ca-file", type=Path, metavar="FILE", help="who has signed the centre's certificate"
    )
    run.add_argument(
        "--token-file", type=Path, metavar="FILE", help="this agent's ServiceAccount token"
    )
    run.add_argument(
        "--server-name", default="", metavar="NAME", help="the name in the centre's certificate"
    )
    run.add_argument(
        "--kubelet-dir",
        type=Path,
        default=Path("/var/lib/kubelet"),
        metavar="DIR",
        help="holds device-plugins/ and pod-resources/ (default: %(default)s)",
    )
    run.add_argument(
        "--dev-root", type=Path, default=Path("/dev"), metavar="DIR", help="the host's /dev"
    )
    run.add_argument(
        "--pass-device-nodes",
        choices=("auto", "always", "never"),
        default="auto",
        help="give containers their device files: those that exist, all or an error, none",
    )
    add_sharing_arguments(run)
    run.add_argument(
        "--gpu-memory-grace",
        type=_seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long a pod may exceed its cap where it is watched (default: %(default)g)",
    )
    _add_cdi_arguments(run)
    _add_rdma_arguments(run)
    run.add_argument(
        "--report-every",
        type=_seconds,
        default=5.0,
        metavar="SECONDS",
        help="tell the centre that we live, when there is no news (default: %(default)g)",
    )
    run.add_argument(
        "--survey-every",
        type=_seconds,
        default=30.0,
        metavar="SECONDS",
        help="look at the hardware (default: %(default)g); some events make it look at once",
    )
    run.add_argument(
        "--driver-wait",
        type=_seconds,
        default=20.0,
        metavar="SECONDS",
        help="a driver that has not answered for so long counts as hanging (default: %(default)g)",
    )
    held = HoldDown()
    run.add_argument(
        "--hold",
        type=_seconds,
        default=held.hold_s,
        metavar="SECONDS",
        help="a GPU is fit again when nothing has spoken against it for so long; doubled at each "
        "further fall (default: %(default)g)",
    )
    run.add_argument(
        "--hold-most",
        type=_seconds,
        default=held.max_hold_s,
        metavar="SECONDS",
        help="at most so long",
    )
    run.add_argument(
        "--hold-xid",
        type=_seconds,
        default=held.xid_s,
        metavar="SECONDS",
        help="an XID that needs a reset counts so long where the driver does not say that it is "
        "over and no reset is seen (default: %(default)g)",
    )
    run.add_argument(
        "--settled",
        type=_seconds,
        default=held.settled_s,
        metavar="SECONDS",
        help="a GPU that was fit for so long has its earlier falls forgotten (default: %(default)g)",
    )
    run.add_argument(
        "--metrics-listen",
        type=_server,
        default="",
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz there (default: nowhere; the shipped manifests "
        "say 0.0.0.0:9400)",
    )
    logs.add_arguments(run)


def _add_cdi_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--device-mode",
        choices=("auto", "env", "cdi", "both"),
        default="auto",
        help="how containers come by their devices: env: variables and device files; cdi: names of "
        "CDI devices (Kubernetes 1.29 and newer); auto: both with --cdi-dir, else env (default)",
    )
    run.add_argument(
        "--cdi-dir",
        type=Path,
        metavar="DIR",
        help="where to write CDI specs: /var/run/cdi is where runtimes look",
    )
    run.add_argument(
        "--cdi-kind",
        choices=("lockstep.dev/gpu", "nvidia.com/gpu"),
        default="lockstep.dev/gpu",
        help="of GPUs: our own specs, device files alone, or those that NVIDIA's toolkit writes, "
        "driver libraries and all (default: %(default)s)",
    )


def _add_rdma_arguments(run: argparse.ArgumentParser) -> None:
    run.add_argument(
        "--rdma-devices",
        type=_cards,
        default=("auto",),
        metavar="CARDS",
        help="network cards to offer, comma separated: names with * and ?; all; none; auto: those that "
        "share a PCIe switch with a GPU, else the fastest (default); what holds of a card, such as "
        "vendor=15b3+link=InfiniBand (vendor, device, driver, link, net, pci); vf: virtual functions "
        "(vf+pf=mlx5_0: of this card)",
    )
    run.add_argument(
        "--rdma-shares",
        type=_count,
        default=0,
        metavar="N",
        help="how many shares a network card is, or auto: how many pods have room below the limit "
        "that the cgroup of all pods has, 16 without one (default: auto)",
    )

    run.add_argument(
        "--cgroup-root",
        type=Path,
        metavar="DIR",
        help="the host's /sys/fs/cgroup, writable: where pods' limits go (default: none are set)",
    )
    for name, what in (
        ("handles", "opened contexts"),
        ("objects", "queue pairs, memory regions ..."),
    ):
        run.add_argument(
            f"--rdma-hca-{name}",
            type=_limit,
            default=-1,
            metavar="N",
            help=f"{what} that a pod may have of each of its network cards, where it wishes no "
            "other limit (default: max)",
        )


def _limit(text: str) -> int:
    if text == "max":
        return -1
    if text.isascii() and text.isdigit() and int(text) < 2**31 - 1:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither a whole number nor max")


def _cards(text: str) -> tuple[str, ...]:
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
        f"{text!r} is no node's name: small letters, digits, - and ., as kubectl get nodes shows it"
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
