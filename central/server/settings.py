"""The scheduler's settings in one table: each field of Settings with its flag, default and help. The
environment only changes a flag's default."""

import argparse
from dataclasses import dataclass, field, fields
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

from central.model import defaults
from central.server import argtypes
from protos.common import logs
from protos.names import BLOCK, NAMESPACE, PACK, RACK, SCHEDULER, SPREAD, ZONE

if TYPE_CHECKING:  # each command loads this module
    from central.kube.decode.gang_rules import GangRule
    from central.model.facts import Taint

LEVELS = (ZONE, BLOCK, RACK)
OWN, ALL = "own", "all"  # --names-in-events


# The types of flags by how their value is named; a flag may have another one.
_TYPES: dict[str, Any] = {
    **dict.fromkeys(("N", "MIB"), argtypes.whole),
    **dict.fromkeys(("NAME,...", "RESOURCE,..."), argtypes.some_names),
    "HOST:PORT": argtypes.listen,
    "S": argtypes.seconds,
    "SHARE": argtypes.share,
}


def _flag(typed: str, default: Any, about: str, **more: Any) -> Any:
    """Returns a field like argtypes.add_flag."""
    if kind := _TYPES.get(typed.partition(" ")[2]):
        more = {"type": kind, **more}
    return field(default=default, metadata={"typed": typed, "about": about, **more})


_shared = partial(_flag, scheduling=True)  # by `simulate` and `what-if`


@dataclass(frozen=True, slots=True)
class Settings:
    """Times are in seconds."""

    listen: str = _flag(
        "--listen HOST:PORT", "0.0.0.0:9443", "address of the gRPC services for agents and users"
    )
    coordinators_connect: str = _flag(
        "--coordinators-connect HOST:PORT",
        "",
        "address at which the coordinators of elastic Jobs reach the gRPC services",
        shown="Service lockstep-central in the namespace",
    )
    kubeconfig: str | None = _flag(
        "--kubeconfig FILE",
        None,
        "kubeconfig file",
        shown="the pod's ServiceAccount, else KUBECONFIG",
    )
    namespace: str = _flag(
        "--namespace NAME",
        NAMESPACE,
        "namespace of the agents, the certificate and the lease",
        env="POD_NAMESPACE",
    )
    leader_elect: bool = _flag(
        "--leader-elect",
        False,
        "elect a leader among the replicas with the Lease lockstep-central; the others stand by",
    )
    default_queue: bool = _flag(
        "--default-queue",
        False,
        "create the Queue default if it does not exist; gangs may then name only existing queues",
    )
    lease_s: int = _flag(
        "--lease-duration S",
        15,
        "seconds without a renewal after which a standby takes over",
        type=argtypes.whole,
    )
    pod_name: str = _flag(
        "--pod-name NAME",
        "",
        "name of this replica's pod; the leader labels it lockstep.dev/leads=true",
        env="POD_NAME",
        shown="none",
    )
    tls_dir: str | None = _flag(
        "--tls-dir DIR",
        None,
        "directory for the CA and the certificate",
        shown="a Secret and a ConfigMap",
    )
    ca_out: str | None = _flag("--ca-out FILE", None, "also write the CA certificate to this file")
    topology_levels: tuple[str, ...] = _shared(
        "--topology-levels KEY,...",
        LEVELS,
        "node label keys of the network tree, widest level first",
        type=argtypes.label_keys,
    )
    scheduler_names: tuple[str, ...] = _shared(
        "--scheduler-names NAME,...",
        (SCHEDULER, "volcano"),
        "schedule pods with one of these schedulerNames",
    )
    pod_groups: "tuple[GangRule, ...]" = _shared(  # noqa: RUF009  # it is a field()
        "--pod-groups FILE",
        (),
        "YAML file: further kinds of objects whose pods are a gang, with the labels and fields that identify it",
        type=argtypes.gang_rules,
        shown="none",
    )
    patience_s: float = _shared(
        "--patience S",
        defaults.PATIENCE_S,
        "after this many seconds at the head of its queue, a gang's reservation is strict: beside gangs of higher "
        "priority in its queue, it admits only gangs that end before the expected start",
    )
    reserve_after_s: float = _shared(
        "--reserve-after S",
        defaults.RESERVE_AFTER_S,
        "if the start time of a queue's first gang is unknown, keep GPUs idle for it only after this many seconds",
    )
    start_within_s: float = _shared(
        "--start-within S",
        defaults.START_WITHIN_S,
        "seconds within which the minimum of a gang must be ready after its binding (four times as long if no "
        "container is stuck); else it releases its GPUs and is tried again after growing delays; 0: no limit",
    )
    idle_below: float = _flag(
        "--idle-below SHARE", 0.05, "GPUs of a pod count as idle below this utilization (0 to 1)"
    )
    idle_after_s: float = _flag(
        "--idle-after S", 1800.0, "... once it has lasted this many seconds"
    )
    reserve_idle: float = _shared(
        "--reserve-idle SHARE",
        defaults.RESERVE_IDLE,
        "fraction of all GPUs that may idle for first gangs of queues whose start is unknown, more each day (0 to 1)",
    )
    elastic_headroom: float = _shared(
        "--elastic-headroom SHARE",
        0.0,
        "fraction of their capacity that surplus members of elastic Jobs leave free for services (0 to 1)",
    )
    elastic_controllers: bool = _flag(
        "--elastic-controllers",
        False,
        "decide the sizes of Deployments, ReplicaSets, StatefulSets, batch Jobs, JobSets, LeaderWorkerSets and "
        "RayClusters with the annotations lockstep.dev/elastic-min and elastic-max; needs the rights of "
        "components/elastic",
    )
    half_life_s: float = _shared(
        "--usage-half-life S",
        defaults.USAGE_HALF_LIFE_S,
        "half-life in seconds of past usage, which orders queues; 0: present usage orders them, and they reclaim by "
        "fair share",
    )
    share_by_weight: tuple[str, ...] = _shared(
        "--share-by-weight RESOURCE,...",
        (),
        "resources that queues reclaim from each other by weight though no queue has a quota for them, beside "
        "GPUs; all: each one",
        shown="none",
    )
    placement: str = _shared(
        "--placement",
        PACK,
        "use the fewest nodes of the closest domain, or spread over many; for gangs and pods without the "
        "annotation lockstep.dev/placement",
        choices=(PACK, SPREAD),
    )
    namespaces: tuple[str, ...] = _flag(
        "--namespaces NAME,...",
        (),
        "namespaces in which Jobs, CronJobs, JobFlows and Commands are served; other gangs are scheduled in all",
        shown="all",
    )
    preempt_across: str = _shared(
        "--preempt-across",
        defaults.ACROSS_NAMESPACES,
        "pods that a higher priority may evict: those of its own namespace and queue (none), of all namespaces in "
        "its queue, or of all queues down to their guarantees; reclaim by fair shares does not depend on it",
        choices=defaults.ACROSS,
    )
    names_in_events: str = _flag(
        "--names-in-events",
        OWN,
        "gangs and Jobs that Events, conditions and statuses name: those of the object's own namespace, or all; "
        "`lockstep explain` names those that its user may see",
        choices=(OWN, ALL),
    )
    min_runtime_s: float = _shared(
        "--min-runtime S",
        0.0,
        "seconds that a gang runs before it may be evicted, except for members above its minimum; a Queue's "
        "spec.minRuntime takes precedence for its gangs",
    )
    max_grace_s: float = _shared(
        "--max-eviction-grace S",
        defaults.MAX_GRACE_S,
        "seconds that a pod may take to end when it is evicted for others, if its own "
        "terminationGracePeriodSeconds is longer",
    )
    large_claim: int = _shared(
        "--large-claim K",
        defaults.LARGE_CLAIM,
        "a gang waits before victims in other queues that hold K times its need are evicted; 0: never",
        type=argtypes.number,
    )
    large_claim_wait_s: float = _shared(
        "--large-claim-wait S", defaults.LARGE_CLAIM_WAIT_S, "seconds since its creation"
    )
    lost_after_s: float = _shared(
        "--lost-pod-after S",
        defaults.LOST_AFTER_S,
        "seconds behind its grace period after which a pod that terminates on a node that is not ready counts as "
        "ended: it holds no quota, and claims do not wait for it",
    )
    mig_fractions: tuple[tuple[str, Fraction], ...] = _shared(
        "--mig-fraction RESOURCE=PART,...",
        (),
        "number of GPUs that one of a resource counts as in queues, such as nvidia.com/mig-1g.20gb=1/4, "
        "deviceclass.resource.kubernetes.io/mig.nvidia.com=1/7",
        type=argtypes.mig_fractions,
        shown="a MIG slice: its compute slices of the GPU's seven, of four on an A30",
    )
    pod_groups_for_controllers: bool = _flag(
        "--pod-groups-for-controllers",
        False,
        "write a PodGroup for each gang that a controller's pods form without one, for tools that look for "
        "PodGroups",
    )
    node_labels: bool = _flag(
        "--node-labels",
        False,
        "label nodes with the properties of their GPUs, as NVIDIA's GPU feature discovery does; needs "
        "components/node-labels",
    )
    node_condition: tuple[str, str] | None = _flag(
        "--node-condition TYPE[=STATUS]",
        None,
        "keep a condition of this type on nodes with GPUs, with this status (True or False) while a GPU or MIG "
        "slice is unhealthy, such as GpuUnhealthy or AcceleratedHardwareReady=False; needs "
        "components/node-condition",
        type=argtypes.node_condition,
        shown="none",
    )
    node_taint: "Taint | None" = _flag(  # noqa: RUF009  # it is a field()
        "--node-taint KEY[=VALUE]:EFFECT",
        None,
        "taint nodes while a GPU or MIG slice is unhealthy, such as lockstep.dev/gpu-unhealthy:NoSchedule, so "
        "that their healthy GPUs get no further pods either; needs components/node-taint",
        type=argtypes.node_taint,
        shown="none",
    )
    workers: int = _flag("--workers N", 32, "concurrent API calls")
    silent_after_s: float = _flag(
        "--silent-after S",
        30.0,
        "seconds without a report or heartbeat after which an agent counts as silent",
    )
    agents_wait_s: float = _flag(
        "--agents-wait S",
        5.0,
        "seconds to wait for agents' reports after the initial sync, at most",
    )
    beside_volcano: bool = _flag(
        "--beside-volcano",
        False,
        "start although Volcano's scheduler or controllers run on this cluster; both then act on the same Jobs",
    )
    journal: str | None = _flag(
        "--journal FILE", None, "record facts and decisions for lockstep replay"
    )
    journal_mib: int = _flag(
        "--journal-size MIB", 256, "size in MiB at which the journal is rotated to FILE.1"
    )
    history: str | None = _flag(
        "--history FILE",
        None,
        "keep allocations of GPUs for lockstep report, and pictures of the cluster for the console, in this file",
    )
    history_from: str = _flag(
        "--history-from HOST:PORT",
        "",
        "address from which a standby copies the leader's history",
        shown="Service lockstep-central in the namespace",
    )
    history_mib: int = _flag(
        "--history-size MIB",
        512,
        "size in MiB that the history keeps below, by deleting its oldest part",
    )
    metrics_listen: str = _flag(
        "--metrics-listen HOST:PORT",
        "",
        "address of /metrics, /healthz and /readyz, over plain HTTP; the shipped manifests use 0.0.0.0:9400",
        shown="not served",
    )
    console_listen: str = _flag(
        "--console-listen HOST:PORT",
        "",
        "address of the web console: on the loopback, for kubectl port-forward, or with --console-url on the "
        "network, over TLS; the shipped manifests use 127.0.0.1:9480",
        shown="not served",
    )
    console_url: str = _flag(
        "--console-url URL",
        "",
        "address at which a proxy or Ingress offers the console, such as https://gpus.example.org/lockstep",
        type=argtypes.https_url,
    )
    console_proxy_secret: str = _flag(
        "--console-proxy-secret FILE",
        "",
        "let the proxy at --console-url name the user, by HTTP basic authentication with the secret in this file",
    )
    console_user_prefix: str = _flag(
        "--console-user-prefix PREFIX",
        "oidc:",
        "stands before the users and groups that the proxy names, as for the API server's --oidc-username-prefix; "
        "-: nothing",
    )
    console_what_if_mib: int = _flag(
        "--console-what-if MIB",
        1024,
        "memory in MiB of the process that answers a what-if of the console, one at a time; 0: the console offers "
        "none",
        type=argtypes.number,
    )
    metrics_queues: int = _flag(
        "--metrics-queues N",
        100,
        "queues with the most use or requests that have metrics of their own; the others have the label "
        "queue=_other",
    )
    otlp_endpoint: str = _flag(
        "--otlp-endpoint URL",
        "",
        "send a trace for each gang to this OpenTelemetry collector by OTLP over HTTP, such as "
        "http://collector:4318; needs the extra otel, which the image has",
        env="OTEL_EXPORTER_OTLP_ENDPOINT",
        type=argtypes.collector,
        shown="no traces",
    )
    log_level: str = "info"  # the flags of both are shared with the agent: protos.common.logs
    log_format: str = "text"


def add_flags(parser: argparse.ArgumentParser) -> None:
    add_scheduling_flags(parser, only=False)
    logs.add_arguments(parser)


def add_scheduling_flags(parser: argparse.ArgumentParser, *, only: bool = True) -> None:
    """The flags that decide where a gang goes. only=False: all others too."""
    for each in fields(Settings):
        more = dict(each.metadata)
        if more and (more.pop("scheduling", False) or not only):
            argtypes.add_flag(parser, dest=each.name, default=each.default, **more)


def settings(args: argparse.Namespace) -> Settings:
    return Settings(**{each.name: getattr(args, each.name) for each in fields(Settings)})
