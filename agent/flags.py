"""The agent's command line. Environment variables are read only as defaults of flags."""

import argparse
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agent import commands
from agent.gpu_setup.command import add_arguments as add_setup_arguments
from agent.health.gpu_health import HoldDown
from agent.migrate.migrate_command import add_arguments as add_migrate_arguments
from agent.nics import rails, selector
from agent.settings import version
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


_TYPES: dict[str, Callable[[str], object]] = {  # by the value's name; else Path
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
RUN_FLAGS: tuple[tuple[Any, ...], ...] = (  # rows for _add
    (
        "--capture-uuids",
        "UUIDs of the devices of --capture: kept: as captured; own: this node's own, so that many nodes "
        "can use one capture (default %(default)s)",
        ("kept", "own"),
    ),
    ("--node NAME", "the node's name in Kubernetes (default NODE_NAME, else the host name)"),
    (
        "--server HOST:PORT",
        "address of the scheduler (default LOCKSTEP_SERVER; empty: serve the kubelet only)",
    ),
    ("--ca-file FILE", "CA certificate for the scheduler's certificate (default the system's)"),
    ("--token-file FILE", "the agent's ServiceAccount token"),
    (
        "--server-name NAME",
        "name to expect in the scheduler's certificate (default the host of --server)",
        "",
        str,
    ),
    (
        "--kubelet-dir DIR",
        "directory with device-plugins/ and pod-resources/ (default %(default)s)",
        Path("/var/lib/kubelet"),
    ),
    (
        "--numa-hints",
        "tell the kubelet's topology manager the devices' NUMA nodes: always: its policy chooses "
        "devices before the scheduler's plan; never; auto: only without --server (default auto)",
        ("auto", "always", "never"),
    ),
    ("--dev-root DIR", "the host's /dev (default %(default)s)", Path("/dev")),
    (
        "--pass-device-nodes",
        "device files to pass to containers: auto: those that exist; always: all, and refuse "
        "the container if one is missing; never: none (default %(default)s)",
        ("auto", "always", "never"),
    ),
    (
        "--imex-channel NUMBER",
        "IMEX channel for containers with whole GPUs, for NVLink between machines (default none); "
        "the node must have /dev/nvidia-caps-imex-channels/channelNUMBER and run nvidia-imex",
        -1,
    ),
    (
        "--driver-mount HOST:CONTAINER",
        "directory of the host to mount, read only, into containers with GPUs, where no runtime of "
        "NVIDIA adds the driver's libraries, as on GKE (default none)",
        (),
    ),
    (
        "--share-gpus GPUS",
        "GPUs that pods may share (lockstep.dev/gpu-share), and how memory caps are enforced: "
        "all; none; indices; or '0-3: mps; 4: watch timeslice=long; 5: whole' with one of "
        "whole, auto, kernel, mps, watch, none (default all)",
        "all",
    ),
    (
        "--share-config DIR",
        "directory that replaces --share-gpus and is read at each survey: the file named "
        "after the node, else the file default, in the syntax of --share-gpus; changes do not "
        "affect running pods",
    ),
    (
        "--sharing-dir DIR",
        "directory shared with `lockstep-agent gpu-setup`, which sets GPUs up for MPS and "
        "time slices (default neither is available)",
    ),
    (
        "--gpu-memory",
        "enforcement of memory caps (lockstep.dev/gpu-memory) on GPUs that are shared by "
        "auto: auto: by the kernel if driver and kernel support it, else by watch if the "
        "driver reports memory by process (default); watch: pods that exceed their cap are "
        "evicted; none: not enforced",
        ("auto", "watch", "none"),
    ),
    (
        "--gpu-memory-grace SECONDS",
        "how long a pod may exceed its memory cap on a GPU with watch enforcement (default "
        "%(default)g)",
        10.0,
    ),
    (
        "--device-mode",
        "how devices get into containers: env: environment variables and device files; cdi: "
        "CDI device names; both; auto: both if --cdi-dir is set, "
        "else env (default %(default)s)",
        ("auto", "env", "cdi", "both"),
    ),
    (
        "--cdi-dir DIR",
        "directory for CDI specs; container runtimes read /var/run/cdi (default none are written)",
    ),
    (
        "--cdi-kind",
        "CDI kind of GPUs: lockstep.dev/gpu: the agent's own specs, with device files only; "
        "nvidia.com/gpu: the specs of NVIDIA's toolkit, with driver libraries (default "
        "%(default)s)",
        ("lockstep.dev/gpu", "nvidia.com/gpu"),
    ),
    (
        "--device-claims",
        "GPUs and MIG slices as devices of resource claims (DRA): off; beside: claims and device plugin, never the "
        "same GPU; only: whole GPUs by claim alone (default %(default)s); needs --server and --cdi-dir",
        ("off", "beside", "only"),
    ),
    (
        "--rdma-devices NICS",
        "RDMA NICs to serve, comma separated: names with * and ?; all; none; auto: those that "
        "share a PCIe switch with a GPU, else the fastest (default); properties joined by +, "
        "such as vendor=15b3+link=InfiniBand (vendor, device, driver, link, net, pci); vf: "
        "virtual functions (vf+pf=mlx5_0: of this NIC)",
        ("auto",),
    ),
    (
        "--rdma-shares N",
        "shares per RDMA NIC, each for one pod; auto: as many pods with the default limit as "
        "fit in the limit of the cgroup of all pods, 16 if there is no limit (default auto)",
        0,
    ),
    (
        "--rdma-rails NICS",
        "NICs to offer by rail, as lockstep.dev/rail-0 and on instead of lockstep.dev/rdma: none; "
        "auto: each NIC that is served is a rail, that of GPU 0 first; or a list as for "
        "--rdma-devices, the NICs of rail 0 first (default none)",
        ("none",),
        rails.parse,
    ),
    (
        "--device-info-dir DIR",
        "the host's /var/run/k8s.cni.cncf.io/devinfo/dp, where device-info files of NICs are "
        "written for Multus (default none are written)",
    ),
    (
        "--cgroup-root DIR",
        "the host's /sys/fs/cgroup, writable; pods' RDMA and GPU memory limits are written "
        "there (default none are written)",
    ),
    (
        "--rdma-hca-handles N",
        "default limit of RDMA contexts for a pod on each of its RDMA NICs (default max)",
        -1,
        _limit,
    ),
    (
        "--rdma-hca-objects N",
        "default limit of RDMA objects (queue pairs, memory regions, ...) for a pod on each of its RDMA NICs "
        "(default max)",
        -1,
        _limit,
    ),
    ("--report-every SECONDS", "seconds between heartbeats (default %(default)g)", 5.0),
    (
        "--survey-every SECONDS",
        "seconds between hardware surveys (default %(default)g); driver events trigger one",
        30.0,
    ),
    ("--driver-wait SECONDS", "timeout of driver calls in seconds (default %(default)g)", 20.0),
    (
        "--driver-lost SECONDS",
        "seconds after which a driver that cannot be opened any more fails the liveness probe, so "
        "that a new container gets a new driver's library (default %(default)g)",
        180.0,
    ),
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
    (
        "--preflight",
        "check GPUs while no pod has them, at the agent's start, after each use and every hour; "
        "links: NVLinks and the NIC beside the GPU; copy: also copies between GPUs, where the "
        "agent's container has CUDA; a GPU that fails is unhealthy until a check passes "
        "(default %(default)s)",
        ("none", "links", "copy"),
    ),
    (
        "--preflight-wait SECONDS",
        "timeout of the copies of one check in seconds (default %(default)g)",
        20.0,
    ),
    (
        "--metrics-listen HOST:PORT",
        "address for /metrics, /healthz and /readyz (default none; the shipped manifests set "
        "0.0.0.0:9400)",
        "",
    ),
)


def _add(
    parser: argparse.ArgumentParser,
    typed: str,
    about: str,
    default: Any = None,
    kind: Callable[[str], object] | None = None,
) -> None:
    """typed: the flag and its value's name, such as "--node NAME". default: without such a name, the words to choose
    from, first the default. kind: the value's type where its name does not say it."""
    name, _, value = typed.partition(" ")
    if value:
        kind = kind or _TYPES.get(value, Path)
        parser.add_argument(name, type=kind, default=default, metavar=value, help=about)
    else:
        parser.add_argument(name, choices=default, default=default[0], help=about)


def _add_run_arguments(run: argparse.ArgumentParser) -> None:
    for row in RUN_FLAGS:
        _add(run, *row)
    logs.add_arguments(run)
    node = os.environ.get("NODE_NAME") or socket.gethostname().lower()  # as the kubelet does
    run.set_defaults(node=node, server=os.environ.get("LOCKSTEP_SERVER", ""))
