"""Owner references may be edited: a pod counts for the Job that it belongs to now, and for no other."""

from dataclasses import replace
from typing import Any

from central.controllers.composite import new_scheduler
from central.model.facts import JobSeen, PodGone
from central.model.jobspec import JobMember, JobSpec, TaskSpec
from central.scheduler.cycle import schedule_once
from tests.central import factories


def test_a_pod_that_leaves_its_job_counts_for_it_no_longer() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    job = JobSpec("ns", "j", "u-j", tasks=(TaskSpec("w", 1, 1, {}),))
    pod = factories.pod("p", part=JobMember("j", "u-j", "w", 0))
    schedule_once(scheduler, [JobSeen(job), pod], 1.0)
    jobs: Any = scheduler.controllers
    (known,) = jobs.jobs.by_name.values()
    assert list(known.pods) == ["uid-p"]
    schedule_once(scheduler, [replace(pod, part=None)], 2.0)
    assert not known.pods
    schedule_once(scheduler, [PodGone("uid-p")], 3.0)
    assert not known.pods


def test_a_pod_moves_to_another_job_that_is_not_known() -> None:
    scheduler = new_scheduler(factories.LEVELS)
    pod = factories.pod("p", part=JobMember("a", "u-a", "w", 0))
    schedule_once(scheduler, [pod], 1.0)
    schedule_once(scheduler, [replace(pod, part=JobMember("b", "u-b", "w", 0))], 2.0)
    schedule_once(scheduler, [PodGone("uid-p")], 3.0)
    jobs: Any = scheduler.controllers
    assert not jobs.jobs._pods
