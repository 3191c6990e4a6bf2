"""The metrics of queues under the names that Volcano's scheduler gives them, for dashboards that read these."""

from collections.abc import Iterator, Mapping
from functools import partial

from prometheus_client.metrics_core import Metric

from central.server.stats.queue_rows import Amounts, QueueRow
from protos.common import metric_families

# Volcano's name, and ours.
KINDS = {
    "allocated": "used",
    "request": "requested",
    "deserved": "deserved",
    "capacity": "capability",
    "real_capacity": "fair_share",
}
PHASES = ("pending", "inqueue", "running", "unknown", "completed")


_gauge = partial(metric_families.gauge, prefix="volcano_queue_")


def families(queues: Mapping[str, QueueRow]) -> Iterator[Metric]:
    """queues: by the label of their series."""
    for theirs, ours in KINDS.items():
        yield from _amounts(theirs, ours, queues)
    about = "Weight of the queue, under Volcano's name"
    yield _by_queue("weight", about, {label: row.weight for label, row in queues.items()})
    about = "1 if the queue uses more of a resource than its fair share, under Volcano's name"
    yield _by_queue("overused", about, {label: _over(row) for label, row in queues.items()})
    for phase in PHASES:
        about = f"As lockstep_queue_gangs with phase {phase}, under Volcano's name"
        counts = {label: row.gangs.get(phase, 0) for label, row in queues.items()}
        yield _by_queue(f"pod_group_{phase}_count", about, counts)


def _amounts(theirs: str, ours: str, queues: Mapping[str, QueueRow]) -> Iterator[Metric]:
    about = f"As lockstep_queue_{ours}, under Volcano's name"
    found: dict[str, Amounts] = {label: getattr(row, ours) for label, row in queues.items()}
    for resource, name, unit in (("cpu", "milli_cpu", 1000), ("memory", "memory_bytes", 1)):
        values = {label: sums[resource] * unit for label, sums in found.items() if resource in sums}
        yield _by_queue(f"{theirs}_{name}", about, values)
    others = [
        ((label, resource), sums[resource])
        for label, sums in found.items()
        for resource in sorted(sums.keys() - {"cpu", "memory"})
    ]
    yield _gauge(f"{theirs}_scalar_resources", about, others, "queue_name", "resource")


def _over(row: QueueRow) -> float:
    shares = row.fair_share.items()
    return float(any(row.used.get(resource, 0.0) > share + 1e-9 for resource, share in shares))


def _by_queue(name: str, about: str, values: Mapping[str, float]) -> Metric:
    return _gauge(name, about, values.items(), "queue_name")
