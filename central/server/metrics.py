"""How the centre is, in Prometheus' words and as two probes. The loop tells it of every turn; what the
cluster looks like is asked between two turns, and left out where the loop is too busy to say."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, Histogram, ProcessCollector
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from central.model.decisions import Decision
from central.model.facts import Fact
from central.scheduler.state.cluster import Cluster

ASK_S = 1.0
STUCK_S = 120.0  # without a turn
TURNS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0)


class Loop(Protocol):
    @property
    def queued(self) -> int: ...
    @property
    def turned_at(self) -> float | None: ...
    @property
    def decides(self) -> bool: ...
    def ask(self, question: Callable[[Cluster], Any], timeout_s: float = ...) -> Any: ...


class Leading(Protocol):
    @property
    def leads(self) -> bool: ...
    @property
    def trouble(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Totals:
    nodes: int
    silent: int  # nodes whose agent has not been heard for too long
    ailing: int  # nodes with GPUs or network cards that are not fit
    unfit: int
    gpus: int
    gpus_free: int
    pods: int
    gangs: int
    waiting: int
    partial: int


class Status(Collector):
    """calls: requests to the API server so far, by verb and outcome."""

    def __init__(self, calls: Callable[[], Mapping[tuple[str, str], int]]) -> None:
        self._calls = calls
        self._loop: Loop | None = None
        self._leading: Leading | None = None
        self._facts: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self.registry = CollectorRegistry()
        self._turns = Histogram(
            "lockstep_turn_seconds", "Turns of the loop", buckets=TURNS_S, registry=self.registry
        )
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def watch(self, loop: Loop) -> None:
        self._loop = loop

    def stands_by(self, leading: Leading) -> None:
        """Until it leads. Standing by is being ready: to take over."""
        self._leading = leading

    def turned(self, facts: Sequence[Fact], decisions: Sequence[Decision], seconds: float) -> None:
        """By the loop, after each turn."""
        self._turns.observe(seconds)
        for counts, items in ((self._facts, facts), (self._decisions, decisions)):
            for kind, count in Counter(map(type, items)).items():
                counts[kind.__name__] += count

    def unhealthy(self) -> str:
        turned_at = self._loop.turned_at if self._loop else None
        late_s = time.monotonic() - turned_at if turned_at is not None else 0.0
        return f"the last turn ended {late_s:.0f} s ago" if late_s > STUCK_S else ""

    def unready(self) -> str:
        if self._leading is not None and not self._leading.leads:
            return self._leading.trouble
        if self._loop is None or self._loop.turned_at is None:
            return "still starting: no certificate, or no answer of the API server"
        return "" if self._loop.decides else "not everything is listed yet"

    def collect(self) -> Iterator[Metric]:
        yield _counter("lockstep_facts", "What the core was told", "kind", self._facts)
        yield _counter("lockstep_decisions", "What it asked for", "kind", self._decisions)
        calls = CounterMetricFamily(
            "lockstep_api_requests", "To the API server", labels=("verb", "outcome")
        )
        for (verb, outcome), count in sorted(self._calls().items()):
            calls.add_metric((verb, outcome), count)
        yield calls
        loop = self._loop
        if loop is None:
            return
        leads = int(self._leading is not None and self._leading.leads)
        yield GaugeMetricFamily("lockstep_leads", "0: it stands by for another centre", leads)
        yield GaugeMetricFamily("lockstep_inbox", "Facts and questions that wait", loop.queued)
        yield GaugeMetricFamily("lockstep_decides", "1: all is listed", int(loop.decides))
        if not loop.decides:
            return
        try:
            totals: Totals = loop.ask(totals_of, ASK_S)
        except TimeoutError:
            return
        for name, what, value in (
            ("nodes", "Nodes", totals.nodes),
            ("nodes_silent", "Nodes whose agent is not heard", totals.silent),
            ("nodes_ailing", "Nodes with GPUs or network cards that are not fit", totals.ailing),
            ("gpus", "GPUs that the kubelets offer", totals.gpus),
            ("gpus_free", "Of them, nobody's", totals.gpus_free),
            ("gpus_unfit", "GPUs that agents call not fit", totals.unfit),
            ("pods", "Pods that are known", totals.pods),
            ("gangs", "Gangs, single pods included", totals.gangs),
            ("gangs_waiting", "Gangs with pods that want a place", totals.waiting),
            ("gangs_partial", "Gangs bound in part, never whole", totals.partial),
        ):
            yield GaugeMetricFamily(f"lockstep_{name}", what, value)


def totals_of(cluster: Cluster) -> Totals:
    snapshot = cluster.snapshot
    rows = list(snapshot.row.values())
    nodes = [cluster.nodes[name] for name in snapshot.row]
    reports = [cluster.nodes[name].report for name in cluster.ailing]
    return Totals(
        nodes=len(nodes),
        silent=sum(node.silent for node in nodes),
        ailing=len(cluster.ailing),
        unfit=sum(not gpu.healthy for report in reports if report for gpu in report.topology.gpus),
        gpus=int(snapshot.allocatable[rows, 0].sum()),
        gpus_free=int(snapshot.free[rows, 0].sum()),
        pods=len(cluster.pods),
        gangs=len(cluster.gangs),
        waiting=len(cluster.waiting),
        partial=len(cluster.partial),
    )


def _counter(name: str, what: str, label: str, counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(name, what, labels=(label,))
    for key, count in sorted(dict(counts).items()):
        family.add_metric((key,), count)
    return family
