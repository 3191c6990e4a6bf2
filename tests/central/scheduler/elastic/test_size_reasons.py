"""Why an elastic Job has its size: each sentence on a cluster where it is true, with its numbers."""

from typing import Any

import pytest

from central.model.facts import QueueSeen
from central.scheduler.elastic import size_reasons
from tests.central import factories
from tests.central.controllers.job.job_api import Api
from tests.central.controllers.job.test_elastic import elastic


class Asked(Api):
    def why(self, name: str = "j") -> str:
        scheduler = self.cluster
        gangs = scheduler.controllers.elastic_gangs(scheduler.state)
        key = next((each.key for each in gangs if each.gang.owner == f"job/{name}"), ("", "", True))
        return size_reasons.describe(
            scheduler.elastic, scheduler.preemption, gangs, key, scheduler.state.now
        )

    def started(self, *jobs: dict[str, Any]) -> "Asked":
        for each in jobs:
            self.apply(each)
            self.settle()
        return self


def test_no_seat_is_free() -> None:
    assert Asked(nodes=1).started(elastic()).why() == (
        "8 of 2 to 12 members; last change: there is room for more; 0 seats free for more; "
        "its share is 6 of the 6 seats above the least sizes"
    )


@pytest.mark.long
def test_two_share() -> None:
    api = Asked(nodes=1).started(elastic(), elastic(name="k"))
    for _ in range(60):
        api.step(10.0)
    assert "4 of 2 to 12 members" in api.why()
    assert api.why().endswith(
        "0 seats free for more; its share is 2 of the 4 seats above the least sizes, shared with 1 other Job"
    )


def test_the_most() -> None:
    assert (
        Asked(nodes=1).started(elastic(most=4)).why().endswith("this is the most that it can use")
    )


def test_no_faster() -> None:
    job = elastic(most=6)
    job["metadata"]["annotations"]["lockstep.dev/speed"] = "2:2 3:2.5 4:3 5:2 6:2"
    reason = Asked(nodes=1).started(job).why()
    assert reason.startswith("4 of 2 to 6 members")
    assert reason.endswith("it would not be faster with more (lockstep.dev/speed)")


def test_a_change_that_costs_too_much_now() -> None:
    job = elastic()
    job["metadata"]["annotations"]["lockstep.dev/resize-cost"] = "30s"
    api = Asked(nodes=2)
    api.cordon("n1")
    api.started(job)
    api.step(20.0)
    api.tell(factories.node("n1", cpu=64_000, gpus=8))
    api.step()
    reason = api.why()
    assert "8 of 2 to 12 members" in reason
    assert "its share is 12; it changes in " in reason
    assert reason.endswith("at the earliest, because a change costs it 30 s of work")


def test_a_capability() -> None:
    api = Asked(nodes=1)
    api.tell(QueueSeen("q", capability=(("cpu", 48_000),)))
    assert api.started(elastic(queue="q")).why().endswith("queue q is at its capability")


def test_one_that_waits_has_the_reason_of_a_gang() -> None:
    assert Asked(nodes=1).started(elastic(least=9)).why() == ""
    assert Asked(nodes=1).why("nobody") == ""
