"""What the Job controller hears of pods and of its calls. An exception in it is the Job's, never the pod's: the
pod is recorded in any case, and the Job, set aside, finds what it missed when it is tried again.

Design: docs/design/0049-containment.md
"""

from central.controllers.job.job import Job
from central.controllers.job.job_store import JobStore
from central.controllers.object_fence import ObjectFence
from central.model.facts import Answered, PodSeen


def pod_seen(
    jobs: JobStore, fence: ObjectFence, pod: PodSeen, now: float, *, by_scheduler: bool
) -> None:
    """by_scheduler: the scheduler itself evicts the pod."""
    job = jobs.job_of(pod)
    if job is None:
        jobs.hold_pod(pod)
    elif fence.blocks(job.key, content_of(job)):
        jobs.record_pod(job, pod)
    else:
        try:
            job.on_pod_seen(pod, now, by_scheduler=by_scheduler)
            jobs.changed[job.key] = None
        except Exception as error:  # noqa: BLE001  a bug; the Job is set aside
            jobs.record_pod(job, pod)
            fence.failed(job.key, content_of(job), error)


def pod_gone(
    jobs: JobStore, fence: ObjectFence, pod: PodSeen, now: float, *, by_scheduler: bool
) -> None:
    """As pod_seen."""
    job = jobs.job_of(pod)
    if job is None:
        jobs.drop_held_pod(pod)
    elif fence.blocks(job.key, content_of(job)):
        jobs.forget_pod(job, pod)
    else:
        try:
            job.on_pod_gone(pod, now, by_scheduler=by_scheduler)
            jobs.changed[job.key] = None
        except Exception as error:  # noqa: BLE001  a bug; the Job is set aside
            jobs.forget_pod(job, pod)
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
    """What a decision about the Job depends on, apart from its pods, which change often."""
    seen = job.seen
    return (seen.spec, seen.error, seen.deleting, tuple(wish.uid for wish in job.commands))
