"""Durations counted in buckets, for a Prometheus histogram."""

import bisect

BUCKETS_S = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0)


class Latency:
    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS_S) + 1)
        self.total_s = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect.bisect_left(BUCKETS_S, seconds)] += 1
        self.total_s += seconds

    def buckets(self) -> list[tuple[str, float]]:
        """Cumulative counts by upper bound, as Prometheus has them."""
        sizes = [*(str(size) for size in BUCKETS_S), "+Inf"]
        return [(size, float(sum(self._counts[: i + 1]))) for i, size in enumerate(sizes)]
