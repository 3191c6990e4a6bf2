"""Prometheus metrics of the scheduler and its liveness and readiness probes. The totals of the cluster
come from a question to the loop, and are left out while the loop is too busy to answer."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.quarantine import CYCLE
from central.scheduler.scheduler import Scheduler
from central.server.queue_metrics import QueueMetrics
from central.server.stats.surveyor import SurveySource
from protos.common.metric_families import counter, gauge

ASK_S = 1.0
SURVEY_S, SURVEY_AGE_S = 3.0, 2.0  # for a survey of the cluster, and its oldest age
STUCK_S = 120.0  # without a cycle, after which the liveness probe fails
CYCLE_BUCKETS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)

TOTALS = {
    "nodes": "Nodes",
    "nodes_last_choice": "Nodes on which gangs of several namespaces died within a day",
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


Families = Callable[[], Iterable[Metric]]


class Metrics(Collector):
    """api_calls: requests to the API server so far, by verb and outcome."""

    def __init__(self, api_calls: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._api_calls = api_calls
        self._loop: ObservedLoop | None = None
        self._election: LeaderStatus | None = None
        self._queues: tuple[SurveySource, QueueMetrics] | None = None
        self._watch_problem: Callable[[], str] = str
        self._standby_lag: Callable[[], str] = str
        self._parts: list[Families] = []
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

    def watch_watches(self, problem: Callable[[], str]) -> None:
        """problem: why the replica is not ready; empty: its watches work."""
        self._watch_problem = problem

    def add(self, *parts: Families) -> None:
        """Adds the metrics of other parts of the program."""
        self._parts += parts

    def watch_standby(self, lag: Callable[[], str]) -> None:
        """lag: why a replica that stands by should not take over yet; empty: it may."""
        self._standby_lag = lag

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
        return self._watch_problem()

    def collect(self) -> Iterator[Metric]:
        """Yields metrics of the process; then of the replica, once it has a loop; then of the cluster, once that is
        known."""
        yield from self._cycles.collect()
        for name, about, counts in (
            ("facts", "Facts applied, by kind", self._facts),
            ("decisions", "Decisions made, by kind", self._decisions),
        ):
            yield counter(f"scheduler_{name}", about, sorted(counts.items()), "kind")
        about, calls = "Requests to the Kubernetes API server, by verb and outcome", self._api_calls
        yield counter("api_requests", about, sorted(calls().items()), "verb", "outcome")
        for families in self._parts:
            yield from families()
        if self._loop is None:
            return
        leads = bool(self._election and self._election.is_leader)
        yield gauge("scheduler_leader", "1 if this replica is the leader", leads)
        about = "Facts and questions in the inbox"
        yield gauge("scheduler_inbox_length", about, self._loop.inbox_length)
        yield gauge("scheduler_synced", "1 after the initial sync", self._loop.synced)
        if self._loop.synced:
            with suppress(TimeoutError):
                yield from self._cluster_families(self._loop)

    def _cluster_families(self, loop: ObservedLoop) -> Iterator[Metric]:
        """Yields metrics of the scheduler's state. Raises TimeoutError."""
        totals, wakeups, (set_aside, failures) = loop.ask(
            lambda it: (totals_of(it), wakeups_of(it), quarantine_of(it)), ASK_S
        )
        about = "Changes that let refused gangs be tried again"
        yield counter("scheduler_wakeups", about, sorted(wakeups.items()), "reason")
        about = "Bugs that stopped one object, by kind; scheduling cycle: no object, and the state was built again"
        yield counter("scheduler_failures", about, sorted(failures.items()), "kind")
        about = "Objects that are set aside after a bug, by kind"
        yield gauge("quarantined_objects", about, sorted(set_aside.items()), "kind")
        for name, about in TOTALS.items():
            yield gauge(name, about, totals[name])
        if self._queues is not None:
            surveyor, queues = self._queues
            yield from queues.families(surveyor.survey(SURVEY_AGE_S, SURVEY_S))


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
        "nodes_last_choice": len(snapshot.last_choice.shared),
        "nodes_not_offered": len(state.node_sets.not_offered),
        "nodes_silent": sum(node.silent for node in nodes),
        "nodes_unhealthy": len(state.node_sets.unhealthy),
        "pods": len(state.pods),
        "gangs": len(state.gangs),
        "gangs_partial": len(state.pending.partial),
    }
