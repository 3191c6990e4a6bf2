"""Which Events of a Job's gang are left to the Job: those that say no more than its own."""

import pytest

from central.model.decisions import UpdateGangStatus
from tests.central.controllers.job.job_api import Api, job


def updates(api: Api, least: int) -> list[UpdateGangStatus]:
    """Of the gang of a Job with three pods, until nothing changes any more."""
    api.apply(job({"w": 3}, minAvailable=least))
    found: list[UpdateGangStatus] = []
    for _ in range(8):
        found += [each for each in api.step() if isinstance(each, UpdateGangStatus)]
    return found


@pytest.mark.parametrize("least", [1, 3])
def test_that_all_pods_are_placed_is_said_by_the_job(least: int) -> None:
    running = [each for each in updates(Api(), least) if each.phase == "Running"]
    assert running
    assert all(each.quiet and each.of_job for each in running)


def test_why_a_job_waits_is_said_of_its_gang_too() -> None:
    pending = [each for each in updates(Api(nodes=1, cpu=150), 3) if each.phase == "Pending"]
    assert any("CPU" in each.reason or "cpu" in each.reason for each in pending)
    assert not any(each.quiet for each in pending)


def test_why_further_pods_wait_is_said_of_the_gang() -> None:
    """The Job's Event says only that its minimum runs."""
    running = [each for each in updates(Api(nodes=1, cpu=150), 1) if each.phase == "Running"]
    assert any("remaining pods" in each.reason and not each.quiet for each in running)
