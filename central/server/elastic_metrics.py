"""Metrics of elastic Jobs. Names and labels are in docs/reference/metrics.md.

The number of series is bounded: the Jobs that hold the most GPUs have series of their own, the sums by queue count all.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from prometheus_client.metrics_core import Metric

from central.server.stats.elastic_rows import ElasticRow
from protos.common.metric_families import counter, gauge

JOBS_MOST = 100  # with series of their own


def families(
    rows: Sequence[ElasticRow],
    resizes: Mapping[tuple[str, str, str], int],
    label: Callable[[str], str],
) -> Iterator[Metric]:
    """resizes: by queue's label, cause and direction. label: of a queue's name."""
    yield from _by_queue(rows, label)
    yield from _by_job(rows, label)
    about = (
        "Changes of the size of elastic Jobs, by cause: need (another gang takes seats), share (others are due more), "
        "room (free seats), no-seat (members that found none), no-start (members that did not start), "
        "place (onto one node)"
    )
    yield counter("elastic_resizes", about, sorted(resizes.items()), "queue", "cause", "direction")


def _by_queue(rows: Sequence[ElasticRow], label: Callable[[str], str]) -> Iterator[Metric]:
    abouts: tuple[tuple[str, str, Callable[[ElasticRow], float]], ...] = (
        ("jobs", "Elastic Jobs whose pods may be created", lambda row: 1),
        ("members", "Members of elastic Jobs that have a node", lambda row: row.size),
        ("members_least", "Members that elastic Jobs need to start", lambda row: row.least),
        ("members_most", "Members that elastic Jobs can use at most", lambda row: row.most),
    )
    for what, about, amount in abouts:
        sums: Counter[str] = Counter()
        for row in rows:
            sums[label(row.queue)] += int(amount(row))
        yield gauge(f"queue_elastic_{what}", about, sorted(sums.items()), "queue")


def _by_job(rows: Sequence[ElasticRow], label: Callable[[str], str]) -> Iterator[Metric]:
    """Yields the metrics by job. A name is unique in its namespace, so no series occurs twice."""
    largest = sorted(rows, key=lambda row: (-row.gpus, -row.size, row.namespace, row.job))
    abouts: tuple[tuple[str, str, Callable[[ElasticRow], float]], ...] = (
        ("size", "Members that have a node", lambda row: row.size),
        ("target", "Members that the scheduler decided on", lambda row: row.target),
        ("fulfilment", "(size - least) / (most - least), from 0 to 1", lambda row: row.fulfilment),
    )
    for what, about, amount in abouts:
        shown = [((label(r.queue), r.namespace, r.job), amount(r)) for r in largest[:JOBS_MOST]]
        yield gauge(f"elastic_{what}", about, shown, "queue", "namespace", "job")
