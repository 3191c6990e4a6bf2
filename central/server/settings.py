"""Every knob of the centre: one frozen value, one block of flags. The environment only changes a
flag's default."""

import argparse
import os
from dataclasses import dataclass

from central.scheduler.state.cluster import PATIENCE_S
from central.server import argtypes
from protos import logs
from protos.names import BLOCK, NAMESPACE, PACK, RACK, SCHEDULER, SPREAD, ZONE

LEASE_S = 15
LEVELS = (ZONE, BLOCK, RACK)


@dataclass(frozen=True, slots=True)
class Settings:
    listen: str = "0.0.0.0:9443"
    kubeconfig: str | None = None
    namespace: str = NAMESPACE
    pod_name: str = ""
    leader_elect: bool = False
    lease_s: int = LEASE_S
    tls_dir: str | None = None
    ca_out: str | None = None
    topology_levels: tuple[str, ...] = LEVELS
    scheduler_names: tuple[str, ...] = (SCHEDULER, "volcano")
    patience_s: float = PATIENCE_S
    half_life_s: float = 0.0
    placement: str = PACK
    default_queue: bool = False
    workers: int = 32
    silent_after_s: float = 30.0
    agents_wait_s: float = 5.0
    metrics_listen: str = ""  # empty: nowhere
    log_level: str = "info"
    log_format: str = "text"
    journal: str | None = None
    journal_mib: int = 256


def add_scheduling_flags(parser: argparse.ArgumentParser) -> None:
    """What decides where a gang goes."""
    parser.add_argument(
        "--topology-levels",
        type=argtypes.label_keys,
        default=LEVELS,
        metavar="KEY,...",
        help=f"node label keys of the network tree, widest first (default {','.join(LEVELS)})",
    )
    parser.add_argument(
        "--scheduler-names",
        type=argtypes.some_names,
        default=(SCHEDULER, "volcano"),
        metavar="NAME,...",
        help=f"pods with one of these schedulerNames are ours (default {SCHEDULER},volcano)",
    )
    parser.add_argument(
        "--patience",
        type=argtypes.seconds,
        default=PATIENCE_S,
        metavar="S",
        help="seconds at the head of the line after which nobody may delay a gang (default 600)",
    )
    parser.add_argument(
        "--usage-half-life",
        type=argtypes.seconds,
        default=0.0,
        metavar="S",
        help="what queues used in the past counts for whose turn it is, half as much for each so "
        "many seconds that it is back (default 0: only what they use now counts)",
    )
    parser.add_argument(
        "--placement",
        choices=(PACK, SPREAD),
        default=PACK,
        help="the fewest nodes of the closest domain, or many of them, for gangs and pods without "
        "the annotation lockstep.dev/placement (default pack)",
    )


def add_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        type=argtypes.listen,
        default="0.0.0.0:9443",
        metavar="HOST:PORT",
        help="for agents and users, gRPC (default 0.0.0.0:9443)",
    )
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        help="how to reach the API server (default: the pod's ServiceAccount, else KUBECONFIG)",
    )
    parser.add_argument(
        "--namespace",
        default=os.environ.get("POD_NAMESPACE") or NAMESPACE,
        help="where the agents run and the certificate is kept (POD_NAMESPACE; default %(default)s)",
    )
    parser.add_argument(
        "--leader-elect",
        action="store_true",
        help="of several centres one decides: whoever holds the Lease lockstep-central of the "
        "namespace; the others stand by",
    )
    parser.add_argument(
        "--default-queue",
        action="store_true",
        help="make the Queue `default` where there is none, as Volcano does; then queues that gangs "
        "name must exist",
    )
    parser.add_argument(
        "--lease-duration",
        type=argtypes.whole,
        default=LEASE_S,
        metavar="S",
        help="seconds without a word of the one that decides after which another may (default 15)",
    )
    parser.add_argument(
        "--pod-name",
        default=os.environ.get("POD_NAME") or "",
        metavar="NAME",
        help="our own pod, which is labelled lockstep.dev/leads while it decides (POD_NAME)",
    )
    parser.add_argument(
        "--tls-dir",
        metavar="DIR",
        help="keep CA and certificate here, not in a Secret and a ConfigMap",
    )
    parser.add_argument("--ca-out", metavar="FILE", help="also write the CA's certificate here")
    add_scheduling_flags(parser)
    parser.add_argument(
        "--workers",
        type=argtypes.whole,
        default=32,
        metavar="N",
        help="API calls in flight (default 32)",
    )
    parser.add_argument(
        "--silent-after",
        type=argtypes.seconds,
        default=30.0,
        metavar="S",
        help="seconds without a word after which an agent counts as silent (default 30)",
    )
    parser.add_argument(
        "--agents-wait",
        type=argtypes.seconds,
        default=5.0,
        metavar="S",
        help="after a start, wait this long at most for agents before deciding (default 5)",
    )
    parser.add_argument(
        "--journal", metavar="FILE", help="write down what is told and decided, for lockstep replay"
    )
    parser.add_argument(
        "--journal-size",
        type=argtypes.whole,
        default=256,
        metavar="MIB",
        help="a journal that has grown so large becomes FILE.1 (default 256)",
    )
    parser.add_argument(
        "--metrics-listen",
        type=argtypes.listen,
        default="",
        metavar="HOST:PORT",
        help="serve /metrics, /healthz and /readyz there, over plain HTTP (default: nowhere; the "
        "shipped manifests say 0.0.0.0:9400)",
    )
    logs.add_arguments(parser)


def settings(args: argparse.Namespace) -> Settings:
    return Settings(
        listen=args.listen,
        kubeconfig=args.kubeconfig,
        namespace=args.namespace,
        pod_name=args.pod_name,
        leader_elect=args.leader_elect,
        lease_s=args.lease_duration,
        tls_dir=args.tls_dir,
        ca_out=args.ca_out,
        topology_levels=args.topology_levels,
        scheduler_names=args.scheduler_names,
        patience_s=args.patience,
        half_life_s=args.usage_half_life,
        placement=args.placement,
        default_queue=args.default_queue,
        workers=args.workers,
        silent_after_s=args.silent_after,
        agents_wait_s=args.agents_wait,
        metrics_listen=args.metrics_listen,
        log_level=args.log_level,
        log_format=args.log_format,
        journal=args.journal,
        journal_mib=args.journal_size,
    )
