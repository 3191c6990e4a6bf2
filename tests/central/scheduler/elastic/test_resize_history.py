"""When a gang may be resized though nobody needs it, while a service comes and goes all the time."""

from itertools import pairwise

import pytest

from tests.central.scheduler.elastic.test_autoscaler import elastic, machine, priority
from tests.experiments.elastic import Run, service, simulate, template

GAIN = ("its share is smaller", "there is room for more")


def breathing(cost: str, hold: str) -> Run:
    """Every 20 s a service takes half of the node, or gives it back."""
    job = elastic("e", arguments=[f"--hold={hold}"])
    job["metadata"]["annotations"]["lockstep.dev/resize-cost"] = cost
    steps = [
        service("web", 4 * (index % 2), 20.0 * index, template(1.0, "1Gi"), "high")
        for index in range(60)
    ]
    return simulate([priority("high", 9), machine(0), job, *steps], 1200)


def gains(run: Run) -> list[float]:
    return [
        resized.at_s
        for resized in run.result.resized
        if resized.reason in GAIN and resized.at_s > 10.0
    ]


@pytest.mark.long
def test_growth_costs_no_more_than_the_budget() -> None:
    times = gains(breathing("8s", "1s"))
    assert 4 <= len(times) <= 7, "the budget pays for 1200 s / 20 / 8 s"
    for count, at_s in enumerate(times, 1):
        assert count * 8 <= 0.05 * at_s


@pytest.mark.long
def test_two_changes_are_a_hold_apart() -> None:
    times = gains(breathing("100ms", "90s"))
    assert len(times) >= 6
    assert all(after - before >= 90 for before, after in pairwise(times))


@pytest.mark.long
def test_without_either_the_job_follows_the_service() -> None:
    assert len(gains(breathing("10ms", "1s"))) >= 24
