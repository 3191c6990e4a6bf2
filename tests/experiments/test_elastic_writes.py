"""Writes to the API server for elastic Jobs are few: at most twenty in a second for a thousand Jobs."""

import pytest

from tests.experiments import elastic_writes
from tests.experiments.elastic_writes import Found

MOST_PER_S = 20.0


def assert_few(found: Found, jobs: int) -> None:
    counts = found.writes.counts
    assert found.resizes >= jobs // 2, "there is something to write"
    assert found.waiting == 0
    assert found.writes.per_s <= MOST_PER_S * jobs / elastic_writes.JOBS
    assert counts["SetStatus Job"] <= 4 * found.resizes, "decided, pods made or gone, and settled"
    assert counts["status of a PodGroup"] <= 3 * found.resizes
    assert counts["Create Event"] <= 1.5 * found.resizes
    assert counts["Bind Pod"] <= counts["Create Pod"]


def test_a_hundred_jobs() -> None:
    assert_few(elastic_writes.measure(100, 500), 100)


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(1800)
def test_a_thousand_jobs_on_5000_nodes() -> None:
    assert_few(elastic_writes.measure(), elastic_writes.JOBS)
