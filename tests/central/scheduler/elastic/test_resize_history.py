"""When a gang may be resized though nobody needs it, while a service, or gangs of another tenant, come and go all the
time."""

from itertools import pairwise

import pytest

from central.scheduler.preemption.time_sharing import CHURN
from tests.central.scheduler.elastic.test_autoscaler import (
    elastic,
    machine,
    priority,
    queue,
    rigid,
    sizes,
)
from tests.experiments.elastic import Json, Run, service, simulate, template

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


def visit(number: int, at_s: float, stays_s: float) -> Json:
    """A gang of four pods of another queue that is deleted again."""
    job = rigid(f"r{number}", 4, at_s, queue="a")
    job["metadata"]["annotations"]["lockstep.dev/leaves-at"] = f"{at_s + stays_s:g}s"
    return job


@pytest.mark.long
@pytest.mark.parametrize(
    ("cost_s", "stays_s", "every_s"),
    [(30, 20, 40), (30, 50, 200), (30, 90, 200), (1, 20, 40), (10, 20, 40)],
)
def test_a_loop_of_submit_and_delete_costs_a_job_no_more_than_its_budget_twice(
    cost_s: int, stays_s: float, every_s: float
) -> None:
    """The other tenant is served each time. The Job pays for its own growth, and for as many changes by the other."""
    until_s = 4200
    visits = [visit(i, 600 + every_s * i, stays_s) for i in range(int(3600 / every_s))]
    job = elastic("e", queue="b")  # --hold=10s
    job["metadata"]["annotations"]["lockstep.dev/resize-cost"] = f"{cost_s}s"
    run = simulate([machine(0), machine(1), queue("a"), queue("b"), job, *visits], until_s)
    changes = [one.at_s for one in run.result.resized if one.name.endswith("e") and one.at_s > 0]
    assert cost_s * len(changes) <= 2 * CHURN * until_s + cost_s, "and the first one by the other"
    assert len(
        {one.gang for one in run.result.placed if one.gang.split("/")[-1].startswith("r")}
    ) == len(visits)
    assert min(sizes(run, "e", at_s=at_s)[0] for at_s in changes) >= 12, "what a long gang leaves"
