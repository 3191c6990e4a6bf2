"""The deletion of members that leave by plan. Their coordinator knows the plan first: it agrees with all members on
the step at which these stop, and reports when they have stopped training. Deletion waits for the report as long as
the resize allows, and does not wait for a silent coordinator. Members with files read there that they leave, and end
by themselves in the same time.

Design: docs/design/coordinator.md, docs/design/members.md
"""

from collections.abc import Iterable

from central.controllers.job.job import Job
from central.model.facts import PodSeen
from central.scheduler.elastic.elastic_gang import LEAVE_S


def ready(job: Job, unwanted: Iterable[PodSeen], now: float) -> list[PodSeen]:
    """Returns the pods that are deleted now, of those that are no longer part of the Job. Requeues the Job for the
    others."""
    found, leave_by = [], {}
    for pod in unwanted:
        if _trains(job, pod):
            known = job.leave_by.get(pod.uid)
            by = leave_by[pod.uid] = _until(job, pod, now) if known is None else known
            if now < by:
                job.requeue(by)
                continue
        found.append(pod)
    job.leave_by = leave_by
    return found


def _trains(job: Job, pod: PodSeen) -> bool:
    """Returns whether other members may still count on this pod, which is no member any more, or it may still learn
    that it leaves."""
    part, elastic, said = pod.part, job.seen.spec.elastic, job.reported
    if part is None or elastic is None or part.task != elastic.task:
        return False
    if part.version != job.status.version or pod.phase != "Running" or pod.deleting:
        return False
    if part.index in job.members:
        return False
    if said is None:
        return elastic.files
    follows = said.generation >= job.status.generation
    return not follows or part.index in said.training


def _until(job: Job, pod: PodSeen, now: float) -> float:
    """The time that was written with the members, or an earlier one that the pod was told: also after a restart, and
    whatever somebody else wrote there, never later than a change of size allows."""
    elastic = job.seen.spec.elastic
    if elastic is None or not elastic.files:
        return now + job.leave_s
    written = job.status.leave_by
    by = float(int(now + job.leave_s)) if written is None else min(written, now + LEAVE_S)
    told = pod.part.leave_by if pod.part is not None else None
    return by if told is None else min(by, told)
