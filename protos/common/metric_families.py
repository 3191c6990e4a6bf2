"""Families of metrics, made of the rows that a collector has."""

from collections.abc import Iterable, Sequence

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

# The values of the labels, or of the only one; None: no sample. A plain number: a metric without labels.
Rows = Iterable[tuple[str | Sequence[str], float | None]] | float


def gauge(name: str, about: str, rows: Rows, *labels: str) -> Metric:
    return _filled(GaugeMetricFamily(f"lockstep_{name}", about, labels=labels), rows)


def counter(name: str, about: str, rows: Rows, *labels: str) -> Metric:
    return _filled(CounterMetricFamily(f"lockstep_{name}", about, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: Rows) -> Metric:
    for values, value in [((), rows)] if isinstance(rows, int | float) else rows:
        if value is not None:
            family.add_metric((values,) if isinstance(values, str) else values, value)
    return family
