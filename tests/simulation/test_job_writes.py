"""How many calls of a Job's life change something in the API. More of them, and thousands of Jobs at once take
longer."""

from collections import Counter

import pytest

from tests.simulation.job_writes import writes_of

LIFE = Counter(
    {
        ("PATCH", "jobs/status"): 4,  # Pending, its pods are there, Running, Completed
        ("POST", "podgroups"): 1,
        ("PATCH", "podgroups/status"): 2,  # Running, Completed
        ("POST", "events"): 3,  # Created, Running, Completed
    }
)


def test_the_writes_of_one_job() -> None:
    assert writes_of(1, 10) <= LIFE


@pytest.mark.slow
def test_jobs_at_once_need_no_more_writes_each() -> None:
    jobs = 20
    found = writes_of(jobs, 10)
    most = LIFE + Counter({("PATCH", "jobs/status"): 1})  # some of its pods end later than others
    assert found <= Counter({key: jobs * count for key, count in most.items()})
