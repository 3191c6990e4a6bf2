"""Prometheus metrics of the scheduler and its liveness and readiness probes. The totals of the cluster
come from a question to the loop, and are left out while the loop is too busy to answer."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.quarantine import CYCLE
from central.scheduler.scheduler import Scheduler
from central.server.queue_metrics import QueueMetrics
from central.server.stats.surveyor import SurveySource

ASK_S = 1.0
SURVEY_S, SURVEY_AGE_S = 3.0, 2.0  # for a survey of the cluster, and its oldest age
STUCK_S = 120.0  # without a cycle, after which the liveness probe fails
CYCLE_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

TOTALS = {
    "nodes": "Nodes",
    "nodes_not_offered": "Nodes whose kubelet does not have the devices, as the agent or the kubelet restarts",
    "nodes_silent": "Nodes whose agent has been silent for longer than --silent-after",
    "nodes_unhealthy": "Nodes with an unhealthy GPU or RDMA NIC",
    "pods": "Pods known to the scheduler",
    "gangs": "Gangs, including single pods",
    "gangs_partial": "Gangs of which some pods are bound, and the minimum never was",
}


class ObservedLoop(Protocol):
    """The part of server.loop.Loop that metrics read."""

    @property
    def inbox_length(self) -> int: ...
    @property
    def last_cycle_at(self) -> float | None: ...
    @property
    def synced(self) -> bool: ...
    def ask(self, question: Callable[[Scheduler], Any], timeout_s: float = ...) -> Any: ...


class LeaderStatus(Protocol):
    """The part of server.leader_election.LeaderElection that metrics read."""

    @property
    def is_leader(self) -> bool: ...
    @property
    def problem(self) -> str: ...


class WatchStatus(Protocol):
    """The part of kube.transport.watch.Watches that metrics read."""

    def out_of_sync(self) -> Mapping[str, tuple[float, str]]: ...
    def problem(self) -> str: ...


class OpenTickets(Protocol):
    """The part of kube.write.tickets.Tickets that metrics read."""

    def open_count(self) -> int: ...
    def oldest_s(self) -> float: ...


class AuditStatus(Protocol):
    """The part of server.assumption_audit.AssumptionAudit that metrics read."""

    @property
    def old(self) -> int: ...
    @property
    def outcomes(self) -> Mapping[str, int]: ...


class ConnectionStatus(Protocol):
    """The part of server.grpc.tcp_proxy.TcpProxy that metrics read."""

    def counts(self) -> Mapping[str, int]: ...
    def closed(self) -> Mapping[str, int]: ...


class TraceStatus(Protocol):
    """The part of server.tracing.trace_exporter.TraceExporter that metrics read."""

    @property
    def sent(self) -> int: ...
    @property
    def queued(self) -> int: ...
    def dropped(self) -> Mapping[str, int]: ...


class FollowedStarts(Protocol):
    """The part of server.tracing.gang_stages.GangStages that metrics read."""

    @property
    def ignored(self) -> int: ...


class Metrics(Collector):
    """api_calls: requests to the API server so far, by verb and outcome."""

    def __init__(self, api_calls: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._api_calls = api_calls
        self._loop: ObservedLoop | None = None
        self._election: LeaderStatus | None = None
        self._connections: ConnectionStatus | None = None
        self._queues: tuple[SurveySource, QueueMetrics] | None = None
        self._api: tuple[WatchStatus, OpenTickets, AuditStatus] | None = None
        self._standby_lag: Callable[[], str] = str
        self._resizes: Callable[[], Iterable[Metric]] = tuple
        self._traces: tuple[TraceStatus, FollowedStarts] | None = None
        self._facts: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._cycles = Histogram(
            "lockstep_scheduler_cycle_duration_seconds",
            "Duration of scheduling cycles",
            buckets=CYCLE_BUCKETS_S,
            registry=None,
        )
        self.registry = CollectorRegistry()
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def watch_loop(self, loop: ObservedLoop) -> None:
        self._loop = loop

    def watch_queues(self, surveyor: SurveySource, queues: QueueMetrics) -> None:
        self._queues = (surveyor, queues)

    def watch_election(self, election: LeaderStatus) -> None:
        """A replica that stands by is ready: it is able to take over."""
        self._election = election

    def watch_api(self, watches: WatchStatus, tickets: OpenTickets, audit: AuditStatus) -> None:
        self._api = (watches, tickets, audit)

    def watch_connections(self, connections: ConnectionStatus) -> None:
        """Adds the metrics of the gRPC port."""
        self._connections = connections

    def watch_standby(self, lag: Callable[[], str]) -> None:
        """lag: why a replica that stands by should not take over yet; empty: it may."""
        self._standby_lag = lag

    def watch_resizes(self, families: Callable[[], Iterable[Metric]]) -> None:
        """Adds the metrics of elastic Jobs."""
        self._resizes = families

    def watch_traces(self, exporter: TraceStatus, starts: FollowedStarts) -> None:
        self._traces = (exporter, starts)

    def observe_cycle(
        self, facts: Sequence[Fact], decisions: Sequence[Decision], seconds: float
    ) -> None:
        self._cycles.observe(seconds)
        for counts, items in ((self._facts, facts), (self._decisions, decisions)):
            for kind, count in Counter(map(type, items)).items():
                counts[kind.__name__] += count

    def unhealthy(self) -> str:
        """Returns why the liveness probe fails; "" if it succeeds. unready() likewise."""
        last_at = self._loop.last_cycle_at if self._loop else None
        late_s = time.monotonic() - last_at if last_at is not None else 0.0
        return f"the last scheduling cycle began {late_s:.0f} s ago" if late_s > STUCK_S else ""

    def unready(self) -> str:
        if self._election is not None and not self._election.is_leader:
            return self._election.problem or self._standby_lag()
        if self._loop is None or self._loop.last_cycle_at is None:
            return "starting: no certificate yet, or the API server does not answer"
        if not self._loop.synced:
            return "the initial sync is not complete"
        return self._api[0].problem() if self._api is not None else ""

    def collect(self) -> Iterator[Metric]:
        """Yields metrics of the process; then of the replica, once it has a loop; then of the cluster, once that is
        known."""
        yield from self._cycles.collect()
        yield _counters("scheduler_facts", "Facts applied, by kind", ("kind",), self._facts)
        yield _counters(
            "scheduler_decisions", "Decisions made, by kind", ("kind",), self._decisions
        )
        about = "Requests to the Kubernetes API server, by verb and outcome"
        yield _counters("api_requests", about, ("verb", "outcome"), self._api_calls())
        yield from self._connection_families()
        yield from self._trace_families()
        yield from self._resizes()
        if self._loop is None:
            return
        election = self._election
        yield _gauge(
            "leader", "1 if this replica is the leader", bool(election and election.is_leader)
        )
        yield _gauge("inbox_length", "Facts and questions in the inbox", self._loop.inbox_length)
        yield _gauge("synced", "1 after the initial sync", self._loop.synced)
        yield from self._api_families()
        if self._loop.synced:
            with suppress(TimeoutError):
                yield from self._cluster_families(self._loop)

    def _cluster_families(self, loop: ObservedLoop) -> Iterator[Metric]:
        """Yields metrics of the scheduler's state. Raises TimeoutError."""
        totals, wakeups, (set_aside, failures) = loop.ask(
            lambda it: (totals_of(it), wakeups_of(it), quarantine_of(it)), ASK_S
        )
        yield _counters(
            "scheduler_wakeups",
            "Changes that let refused gangs be tried again",
            ("reason",),
            wakeups,
        )
        yield _counters(
            "scheduler_failures",
            "Bugs that stopped one object, by kind; scheduling cycle: no object, and the state was built again",
            ("kind",),
            failures,
        )
        about = "Objects that are set aside after a bug, by kind"
        yield _gauges("quarantined_objects", about, "kind", set_aside)
        for name, about in TOTALS.items():
            yield GaugeMetricFamily(f"lockstep_{name}", about, totals[name])
        yield from self._queue_families()

    def _queue_families(self) -> Iterator[Metric]:
        if self._queues is None:
            return
        surveyor, queues = self._queues
        try:
            survey = surveyor.survey(SURVEY_AGE_S, SURVEY_S)
        except TimeoutError:
            return
        yield from queues.families(survey)

    def _connection_families(self) -> Iterator[Metric]:
        if self._connections is None:
            return
        about = "Connections to the gRPC port: unknown until one has shown a valid token"
        yield _gauges("grpc_connections", about, "state", self._connections.counts())
        about = "Connections to the gRPC port that were closed for a limit, by cause"
        yield _counters("grpc_connections_closed", about, ("cause",), self._connections.closed())

    def _trace_families(self) -> Iterator[Metric]:
        if self._traces is None:
            return
        exporter, starts = self._traces
        about = "Spans of gangs that the collector took"
        yield CounterMetricFamily("lockstep_trace_spans_sent", about, exporter.sent)
        about = "Spans of gangs that were dropped, by cause: a full queue, no answer, refused or rejected by the collector"
        yield _counters("trace_spans_dropped", about, ("cause",), exporter.dropped())
        about = "Spans of gangs that wait to be sent"
        yield GaugeMetricFamily("lockstep_trace_spans_queued", about, exporter.queued)
        about = "Starts of gangs without a trace, because too many gangs were starting"
        yield CounterMetricFamily("lockstep_trace_starts_ignored", about, starts.ignored)

    def _api_families(self) -> Iterator[Metric]:
        if self._api is None:
            return
        watches, tickets, audit = self._api
        about = "Seconds for which a kind has had no watch that works, by kind; none while all have"
        late = {kind: seconds for kind, (seconds, _) in watches.out_of_sync().items()}
        yield _gauges("scheduler_out_of_sync_seconds", about, "kind", late)
        about = "Decisions that the API server has not answered yet"
        yield _gauge("decisions_open", about, tickets.open_count())
        about = "Age in seconds of the oldest decision without an answer"
        yield _gauge("decisions_open_oldest_seconds", about, tickets.oldest_s())
        about = "Bindings and evictions that the watch does not show after 30 s"
        yield _gauge("assumptions_old", about, audit.old)
        about = "Old bindings and evictions compared with the API server, by outcome"
        yield _counters("scheduler_assumptions_audited", about, ("outcome",), audit.outcomes)


def wakeups_of(scheduler: Scheduler) -> dict[str, int]:
    """Returns wakeups by reason; the sum is the capacity epoch (central.scheduler.state.pending_gangs)."""
    state = scheduler.state
    return {"node capacity freed": state.snapshot.freed, **state.pending.wakeups}


def quarantine_of(scheduler: Scheduler) -> tuple[dict[str, int], dict[str, int]]:
    """Objects that are set aside now, and failures so far, both by kind."""
    return scheduler.quarantine.counts(), {CYCLE: 0, **scheduler.quarantine.total}


def totals_of(scheduler: Scheduler) -> dict[str, int]:
    """Returns totals by the names in TOTALS."""
    state, snapshot = scheduler.state, scheduler.state.snapshot
    nodes = [state.nodes[name] for name in snapshot.columns.row]
    return {
        "nodes": len(nodes),
        "nodes_not_offered": len(state.node_sets.not_offered),
        "nodes_silent": sum(node.silent for node in nodes),
        "nodes_unhealthy": len(state.node_sets.unhealthy),
        "pods": len(state.pods),
        "gangs": len(state.gangs),
        "gangs_partial": len(state.pending.partial),
    }


def _gauge(name: str, about: str, value: float) -> Metric:
    return GaugeMetricFamily(f"lockstep_scheduler_{name}", about, value)


def _counters(name: str, about: str, labels: tuple[str, ...], counts: Mapping[Any, int]) -> Metric:
    """counts: by the label's value, or by those of all labels."""
    family = CounterMetricFamily(f"lockstep_{name}", about, labels=labels)
    for values, count in sorted(dict(counts).items()):
        family.add_metric(values if len(labels) > 1 else (values,), count)
    return family


def _gauges(name: str, about: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"lockstep_{name}", about, labels=(label,))
    for key, value in sorted(dict(values).items()):
        family.add_metric((key,), value)
    return family
