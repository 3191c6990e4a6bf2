"""The scheduler's settings in one table: each field of Settings with its flag, default and help. The
environment only changes a flag's default."""

import argparse
import os
from dataclasses import dataclass, field, fields
from typing import Any

from central.scheduler.scheduler import PATIENCE_S
from central.server import argtypes
from protos.common import logs
from protos.names import BLOCK, NAMESPACE, PACK, RACK, SCHEDULER, SPREAD, ZONE

LEVELS = (ZONE, BLOCK, RACK)


def _flag(name: str, default: Any, about: str, *, env: str = "", **more: Any) -> Any:
    """name: as typed. env: the variable that changes the default. shown: the default in the help, if
    not the value itself. scheduling: `simulate` has the flag too. Other keywords are argparse's."""
    return field(default=default, metadata={"name": name, "about": about, "env": env, **more})


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    listen: str = _flag(
        "--listen",
        "0.0.0.0:9443",
        "address of the gRPC services for agents and users",
        type=argtypes.listen,
        metavar="HOST:PORT",
    )
    kubeconfig: str | None = _flag(
        "--kubeconfig",
        None,
        "kubeconfig file",
        metavar="FILE",
        shown="the pod's ServiceAccount, else KUBECONFIG",
    )
    namespace: str = _flag(
        "--namespace",
        NAMESPACE,
        "namespace of the agents, the certificate and the lease",
        env="POD_NAMESPACE",
        metavar="NAME",
    )
    leader_elect: bool = _flag(
        "--leader-elect",
        False,
        "elect a leader among the replicas with the Lease lockstep-central; the others stand by",
        action="store_true",
    )
    default_queue: bool = _flag(
        "--default-queue",
        False,
        "create the Queue default if it does not exist, as Volcano does; gangs may then name only "
        "existing queues",
        action="store_true",
    )
    lease_s: int = _flag(
        "--lease-duration",
        15,
        "lease duration in seconds; a standby takes over when the leader has not renewed it for "
        "this long",
        type=argtypes.whole,
        metavar="S",
    )
    pod_name: str = _flag(
        "--pod-name",
        "",
        "name of this replica's pod; the leader labels it lockstep.dev/leads=true",
        env="POD_NAME",
        metavar="NAME",
        shown="none",
    )
    tls_dir: str | None = _flag(
        "--tls-dir",
        None,
        "directory for the CA and the certificate",
        metavar="DIR",
        shown="a Secret and a ConfigMap",
    )
    ca_out: str | None = _flag(
        "--ca-out", None, "also write the CA certificate to this file", metavar="FILE"
    )
    topology_levels: tuple[str, ...] = _flag(
        "--topology-levels",
        LEVELS,
        "node label keys of the network tree, widest level first",
        type=argtypes.label_keys,
        metavar="KEY,...",
        scheduling=True,
    )
    scheduler_names: tuple[str, ...] = _flag(
        "--scheduler-names",
        (SCHEDULER, "volcano"),
        "schedule pods with one of these schedulerNames",
        type=argtypes.some_names,
        metavar="NAME,...",
        scheduling=True,
    )
    patience_s: float = _flag(
        "--patience",
        PATIENCE_S,
        "after this many seconds at the head of its queue, a gang's reservation is strict: no "
        "backfill by equal or lower priority",
        type=argtypes.seconds,
        metavar="S",
        scheduling=True,
    )
    half_life_s: float = _flag(
        "--usage-half-life",
        0.0,
        "half-life in seconds of past usage in queue ordering; 0 disables history",
        type=argtypes.seconds,
        metavar="S",
        scheduling=True,
    )
    placement: str = _flag(
        "--placement",
        PACK,
        "use the fewest nodes of the closest domain, or spread over many; for gangs and pods "
        "without the annotation lockstep.dev/placement",
        choices=(PACK, SPREAD),
        scheduling=True,
    )
    workers: int = _flag("--workers", 32, "concurrent API calls", type=argtypes.whole, metavar="N")
    silent_after_s: float = _flag(
        "--silent-after",
        30.0,
        "seconds without a report or heartbeat after which an agent counts as silent",
        type=argtypes.seconds,
        metavar="S",
    )
    agents_wait_s: float = _flag(
        "--agents-wait",
        5.0,
        "seconds to wait for agents' reports after the initial sync, at most",
        type=argtypes.seconds,
        metavar="S",
    )
    journal: str | None = _flag(
        "--journal", None, "record facts and decisions for lockstep replay", metavar="FILE"
    )
    journal_mib: int = _flag(
        "--journal-size",
        256,
        "size in MiB at which the journal is rotated to FILE.1",
        type=argtypes.whole,
        metavar="MIB",
    )
    metrics_listen: str = _flag(
        "--metrics-listen",
        "",
        "address of /metrics, /healthz and /readyz, over plain HTTP; the shipped manifests use "
        "0.0.0.0:9400",
        type=argtypes.listen,
        metavar="HOST:PORT",
        shown="not served",
    )
    log_level: str = "info"  # the flags of both are shared with the agent: protos.common.logs
    log_format: str = "text"


def add_flags(parser: argparse.ArgumentParser) -> None:
    for each in fields(Settings):
        if each.metadata:
            _add(parser, each.name, each.default, **each.metadata)
    logs.add_arguments(parser)


def add_scheduling_flags(parser: argparse.ArgumentParser) -> None:
    """Only the flags that decide where a gang goes."""
    for each in fields(Settings):
        if each.metadata.get("scheduling"):
            _add(parser, each.name, each.default, **each.metadata)


def settings(args: argparse.Namespace) -> Settings:
    return Settings(**{each.name: getattr(args, each.name) for each in fields(Settings)})


def _add(
    parser: argparse.ArgumentParser,
    dest: str,
    default: Any,
    *,
    name: str,
    about: str,
    env: str,
    shown: str = "",
    scheduling: bool = False,
    **more: Any,
) -> None:
    default = os.environ.get(env) or default
    notes = [f"env {env}"] if env else []
    if shown := argtypes.shown(default) or shown:
        notes.append(f"default {shown}")
    parser.add_argument(
        name,
        dest=dest,
        default=default,
        help=about + (f" ({'; '.join(notes)})" if notes else ""),
        **more,
    )
