"""Changes of pods, and answers to calls, for the Job controller. An exception in it is the Job's, never the pod's:
the pod is recorded in any case, and the Job, set aside, catches up when it is tried again.

Design: docs/design/containment.md
"""

from collections.abc import Callable
from typing import NamedTuple

from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.object_fence import ObjectFence
from central.model.facts import Answered, PodSeen


class PodChange(NamedTuple):
    """The functions for one kind of change of a pod: for its Job, and for the store if the Job is set aside or
    unknown."""

    hear: Callable[..., None]  # Job, PodSeen, now, by_scheduler
    note: Callable[[JobStore, Job, PodSeen], None]  # the Job is set aside
    note_unowned: Callable[[JobStore, PodSeen], None]


SEEN = PodChange(Job.on_pod_seen, JobStore.record_pod, JobStore.hold_pod)
GONE = PodChange(Job.on_pod_gone, JobStore.forget_pod, JobStore.drop_held_pod)


def pod_changed(
    jobs: JobStore,
    fence: ObjectFence,
    change: PodChange,
    pod: PodSeen,
    now: float,
    *,
    by_scheduler: bool,
) -> None:
    """by_scheduler: the scheduler itself evicts the pod."""
    job = jobs.job_of(pod)
    if job is None:
        change.note_unowned(jobs, pod)
    elif fence.blocks(job.key, content_of(job)):
        change.note(jobs, job, pod)
    else:
        try:
            change.hear(job, pod, now, by_scheduler=by_scheduler)
            jobs.changed[job.key] = None
        except Exception as error:  # noqa: BLE001  a bug; the Job is set aside
            change.note(jobs, job, pod)
            fence.failed(job.key, content_of(job), error)


def answered(jobs: JobStore, fence: ObjectFence, fact: Answered, now: float) -> None:
    job = jobs.take_asked(fact)
    if job is None:
        return
    try:
        job.on_answered(fact, now)
    except Exception as error:  # noqa: BLE001  a bug; the Job is set aside
        job.skip_answer(fact)
        fence.failed(job.key, content_of(job), error)


def content_of(job: Job) -> object:
    """Returns the input of a decision about the Job, apart from its pods, which change often."""
    seen = job.seen
    return (seen.spec, seen.error, seen.deleting, tuple(wish.uid for wish in job.commands))
