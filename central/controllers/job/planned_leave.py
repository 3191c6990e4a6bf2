"""When members that leave by plan are deleted. Their coordinator knows the plan first: it agrees with all members on
the step at which these stop, and says when they train no more. It is waited for as long as the resize allows, and not
at all while it is silent.

Design: docs/design/0085-plan-to-coordinator.md
"""

from collections.abc import Iterable

from central.controllers.job.job import Job
from central.model.facts import PodSeen


def ready(job: Job, unwanted: Iterable[PodSeen], now: float) -> list[PodSeen]:
    """Of the pods that are no longer part of the Job, those that are deleted now. Sees to it that the others are
    looked at again."""
    found, leave_by = [], {}
    for pod in unwanted:
        if _trains(job, pod):
            by = leave_by[pod.uid] = job.leave_by.get(pod.uid, now + job.leave_s)
            if now < by:
                job.requeue(by)
                continue
        found.append(pod)
    job.leave_by = leave_by
    return found


def _trains(job: Job, pod: PodSeen) -> bool:
    """Whether other members may still count on this pod, which is not a member any more."""
    part, elastic, said = pod.part, job.seen.spec.elastic, job.reported
    if part is None or elastic is None or said is None or part.task != elastic.task:
        return False
    if part.version != job.status.version or pod.phase != "Running" or pod.deleting:
        return False
    follows = said.generation >= job.status.generation
    return part.index not in job.members and (not follows or part.index in said.training)
