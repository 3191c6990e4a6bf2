"""Metrics by queue, of the fragmentation of free GPUs, and of what happened to gangs. Names and labels are in
docs/reference/metrics.md.

The number of series is bounded: the queues that use or wait for the most have labels of their own, all others
together have the label queue="_other" (no queue can have that name).

Design: docs/design/observability.md
"""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import product

from prometheus_client.metrics_core import HistogramMetricFamily, Metric

from central.model.decisions import EVICTION_CAUSES
from central.model.pending_causes import CAPACITY
from central.model.resources import ROOT
from central.scheduler.status.queue_status import PHASES
from central.server import elastic_metrics
from central.server.gpu_uses import GpuUses
from central.server.stats.gang_counters import WAIT_BUCKETS_S, Buckets, GangCounters
from central.server.stats.pending_rows import PendingRow
from central.server.stats.queue_rows import ABSENT, Amounts, QueueRow
from central.server.stats.surveyor import Survey
from central.server.version import version
from protos.common.metric_families import counter, gauge
from protos.names import GPU

OTHER = "_other"
QUEUES_MOST = 100  # with series of their own, by default
RANK_AGAIN_S = 60.0

AMOUNTS: Mapping[str, tuple[str, Callable[[QueueRow], Amounts]]] = {
    "used": ("that its gangs and those of queues below it use", lambda row: row.used),
    "deserved": ("that are its own, and lent while unused", lambda row: row.deserved),
    "guarantee": ("that are kept free for it", lambda row: row.guarantee),
    "capability": ("that it may use at most", lambda row: row.capability),
    "fair_share": (
        "that it is entitled to now, at most what it uses and asks for",
        lambda row: row.fair_share,
    ),
    "requested": ("that its own pending gangs request", lambda row: row.requested),
}
UNITS = "GPU equivalents, CPU cores, bytes, or units of the resource"


class QueueLabels:
    """The queues that have series of their own. A queue keeps its series while it is among the first by use and
    requests; the ranks are taken again once a minute."""

    def __init__(
        self, most: int = QUEUES_MOST, exists: Callable[[str], bool] = lambda name: True
    ) -> None:
        """exists: whether there is such a queue: gangs may name any text."""
        self._most, self._exists = most, exists
        self._named: frozenset[str] = frozenset()
        self._ranked_at = -RANK_AGAIN_S
        self._all: frozenset[str] | None = None  # all queues, if there are few

    def label(self, queue: str) -> str:
        """Returns the queue's label, from any thread. Before the first ranking the first queues have labels of their
        own, or their early counts would be counted for others."""
        early = self._all is None and queue not in self._named and len(self._named) < self._most
        if early and self._exists(queue):
            self._named |= {queue}
        return queue if queue in self._named else OTHER

    def rank(self, rows: Iterable[QueueRow]) -> None:
        rows = [row for row in rows if row.name != ABSENT]
        names = frozenset(row.name for row in rows)
        now = time.monotonic()
        if now - self._ranked_at < RANK_AGAIN_S and (self._named <= names == self._all):
            return
        self._ranked_at, self._all = now, names
        busiest = sorted(rows, key=lambda row: (*_busy(row), row.name not in self._named, row.name))
        self._named = frozenset(row.name for row in busiest[: self._most])


def _busy(row: QueueRow) -> tuple[bool, float, float]:
    """The least first: the root, then by GPUs, then by cores."""
    gpus = row.used.get(GPU, 0.0) + row.requested.get(GPU, 0.0)
    return (row.name != ROOT, -gpus, -row.used.get("cpu", 0.0) - row.requested.get("cpu", 0.0))


class QueueMetrics:
    def __init__(
        self, counters: GangCounters, labels: QueueLabels, uses: GpuUses | None = None
    ) -> None:
        self._counters = counters
        self._labels = labels
        self._uses = uses or GpuUses()

    def families(self, survey: Survey) -> Iterator[Metric]:
        self._labels.rank(survey.queues)
        queues = self._folded(survey.queues)
        yield from _totals(survey)
        exist = sum(row.name != ABSENT for row in survey.queues)
        yield gauge("queues", "Queues, with the root and invalid ones", exist)
        about, named = 'Queues that are not part of queue="_other"', len(queues.keys() - {OTHER})
        yield gauge("queues_with_series", about, named)
        yield from _amounts(queues)
        yield from self._gangs(queues)
        leaves = [label for label in queues if label != ROOT]
        yield from self._pending(survey, leaves)
        yield from self._happened(queues)
        yield from _reserved(survey, self._labels.label, leaves)
        yield from self._use(survey, leaves)
        about = (
            "GPUs of the largest gang that would fit into one domain of the level now, by the GPUs of its pods; quotas "
            "are not considered"
        )
        largest = [((row.level, row.model, str(row.pod_gpus)), row.gpus) for row in survey.largest]
        yield gauge("largest_gang_gpus", about, largest, "level", "model", "pod_gpus")
        yield from elastic_metrics.families(
            survey.elastic, self._counters.resizes, self._labels.label
        )
        yield gauge("build_info", "1; the version", [(version(), 1)], "version")

    def _use(self, survey: Survey, queues: Iterable[str]) -> Iterator[Metric]:
        """Utilization and idle GPUs, from what agents report."""
        now, idle = time.monotonic(), dict.fromkeys(queues, 0.0)
        known, busy = defaultdict[str, float](float), defaultdict[str, float](float)
        for node, row in survey.nodes.items():
            for held in row.holders:
                use = self._uses.on_node(node, held.namespace, held.pod)
                if use is None or use.utilization is None or held.gang is None:
                    continue
                label = self._labels.label(held.queue)
                known[label] += held.gpus
                busy[label] += held.gpus * use.utilization
                idle[label] = idle.get(label, 0.0) + held.gpus * self._uses.is_idle(use, now)
        about = (
            "GPU equivalents of pods whose utilization has been below --idle-below for --idle-after"
        )
        yield gauge("queue_idle_gpus", about, sorted(idle.items()), "queue")
        ratios = [(label, busy[label] / gpus) for label, gpus in sorted(known.items()) if gpus]
        about = "Utilization of the queue's GPUs as the driver tells it, 0 to 1"
        yield gauge("queue_gpu_utilization_ratio", about, ratios, "queue")

    def _folded(self, rows: Iterable[QueueRow]) -> dict[str, list[QueueRow]]:
        """Groups the rows by label."""
        found: dict[str, list[QueueRow]] = {}
        for row in rows:
            found.setdefault(self._labels.label(row.name), []).append(row)
        return found

    def _gangs(self, queues: Mapping[str, list[QueueRow]]) -> Iterator[Metric]:
        found = [
            ((label, phase), count)
            for label, rows in queues.items()
            for phase, count in sorted(
                (dict.fromkeys(PHASES, 0) | _sum(row.gangs for row in rows)).items()
            )
        ]
        about = "Gangs of the queue by phase, as PodGroups name it"
        yield gauge("queue_gangs", about, found, "queue", "phase")

    def _pending(self, survey: Survey, queues: Iterable[str]) -> Iterator[Metric]:
        by: dict[tuple[str, str], list[PendingRow]] = {(each, CAPACITY): [] for each in queues}
        for row in survey.pending:
            by.setdefault((self._labels.label(row.queue), row.cause), []).append(row)
        abouts: tuple[tuple[str, str, Callable[[PendingRow], float]], ...] = (
            ("gangs", "Gangs that have not started, by cause", lambda row: not row.runs),
            (
                "pods",
                "Pods without a node, by the cause of their gang's waiting",
                lambda row: row.pods,
            ),
            (
                "gpus",
                "GPU equivalents that pods without a node request, by cause",
                lambda row: row.gpus,
            ),
        )
        for what, about, amount in abouts:
            found = [(labels, sum(map(amount, rows))) for labels, rows in sorted(by.items())]
            yield gauge(f"queue_pending_{what}", about, found, "queue", "cause")
        created = dict.fromkeys(queues, survey.at)
        for (label, _), rows in by.items():
            for row in rows:
                if not row.runs:
                    created[label] = min(row.created, created.get(label, row.created))
        ages = [(label, max(0.0, survey.at - since)) for label, since in sorted(created.items())]
        about = "Seconds since the creation of the oldest pending gang"
        yield gauge("queue_oldest_pending_seconds", about, ages, "queue")

    def _happened(self, queues: Iterable[str]) -> Iterator[Metric]:
        """Counters of each queue begin at 0: Prometheus sees no increase in a series that begins at 1, so that the
        first eviction of a queue would not count."""
        counters = self._counters
        labels = sorted({*queues, *counters.labels()} - {ROOT})
        abouts = {
            "admitted": "PodGroups and Jobs whose queue let their pods be created",
            "started": "Times that a gang got nodes for its minimum",
            "completed": "Gangs of which all pods succeeded",
            "failed": "Gangs whose pods have all ended, one or more of them failed",
        }
        for event, about in abouts.items():
            found = [(label, counters.gangs[event][label]) for label in labels]
            yield counter(f"queue_gangs_{event}", about, found, "queue")
        both = list(product(labels, EVICTION_CAUSES))
        about = "Evictions decided, by the queue of the evicted pod and by cause"
        evictions = [(each, counters.evictions[each]) for each in both]
        yield counter("queue_evictions", about, evictions, "queue", "cause")
        about = (
            "GPU seconds since the start or the last checkpoint of evicted pods, by queue and cause"
        )
        lost = [(each, counters.lost_gpu_s.get(each, 0.0)) for each in both]
        yield counter("queue_evicted_gpu_seconds", about, lost, "queue", "cause")
        yield from self._durations(labels)

    def _durations(self, labels: Iterable[str]) -> Iterator[Metric]:
        counters = self._counters
        waits = HistogramMetricFamily(
            "lockstep_queue_wait_duration_seconds",
            "Seconds from a gang's creation until its minimum had nodes",
            labels=("queue",),
        )
        none = Buckets(WAIT_BUCKETS_S)
        for label in labels:
            buckets = counters.waits.get(label, none)
            waits.add_metric((label,), cumulative(buckets), buckets.total)
        yield waits
        starts = HistogramMetricFamily(
            "lockstep_gang_start_duration_seconds",
            "Seconds from a gang's creation until its minimum was bound, by its GPUs",
            labels=("size",),
        )
        for size, buckets in counters.starts.items():
            starts.add_metric((size,), cumulative(buckets), buckets.total)
        yield starts
        binds = HistogramMetricFamily(
            "lockstep_pod_bind_duration_seconds",
            "Seconds from a pod's creation until the watch showed its node",
        )
        binds.add_metric((), cumulative(counters.binds), counters.binds.total)
        yield binds


def cumulative(buckets: Buckets) -> list[tuple[str, float]]:
    """Returns the buckets in the exposition format: le, and the count up to there."""
    found, count = [], 0
    counts = list(buckets.counts)
    for bound, more in zip((*map(str, buckets.bounds), "+Inf"), counts, strict=True):
        count += more
        found.append((bound, float(count)))
    return found


def _amounts(queues: Mapping[str, list[QueueRow]]) -> Iterator[Metric]:
    for what, (about, read) in AMOUNTS.items():
        found = [
            ((label, resource), amount)
            for label, rows in queues.items()
            for resource, amount in sorted(_sum(map(read, rows)).items())
        ]
        yield gauge(f"queue_{what}", f"{UNITS} {about}", found, "queue", "resource")


def _sum(amounts: Iterable[Amounts]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for each in amounts:
        for resource, amount in each.items():
            sums[resource] = sums.get(resource, 0.0) + amount
    return sums


def _totals(survey: Survey) -> Iterator[Metric]:
    count, gangs = survey.count, survey.gangs
    about = "GPUs of all nodes; what is neither used nor free takes no pods"
    yield gauge("gpus", about, count.gpus)
    yield gauge("gpus_used", "GPU equivalents that pods of all schedulers use", count.used)
    yield gauge("gpus_free", "GPU equivalents that a pod can get now", count.free)
    unhealthy = sum(row.unhealthy.bit_count() for row in survey.nodes.values())
    yield gauge("gpus_unhealthy", "GPUs that agents report as unhealthy", unhealthy)
    pending = gangs["pending"] + gangs["inqueue"]
    yield gauge("gangs_pending", "Gangs that have not started", pending)
    yield gauge("gangs_running", "Gangs whose minimum has nodes", gangs["running"])


def _reserved(
    survey: Survey, label: Callable[[str], str], queues: Iterable[str]
) -> Iterator[Metric]:
    held: Counter[str] = Counter(dict.fromkeys(queues, 0))
    for row in survey.reservations:
        held[label(row.queue)] += row.held
    about = "GPUs that are kept free for a pending gang of the queue"
    yield gauge("queue_reserved_gpus", about, sorted(held.items()), "queue")
