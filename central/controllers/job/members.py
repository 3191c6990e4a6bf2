"""The members of a Job's elastic task: a set of pod numbers, which may have holes. The set is written to the status
before pods are made or deleted for it.

A member that leaves because the set was changed is neither evicted nor failed. The same holds for members on a node
that is being drained. One that is lost leaves the set as well, as long as the least size remains, unless a policy for
PodEvicted says otherwise.

Design: docs/design/elastic-sizes.md
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from central.controllers.job import job_events
from central.controllers.job.job import Job
from central.controllers.job.job_events import JobEvent
from central.controllers.job.state_machine import ACTIVE
from central.model import wording
from central.model.decisions import Decision
from central.model.event_objects import about, build_event
from central.model.event_reasons import GREW, MEMBER_LOST, SHRANK
from central.model.jobspec import API, POD_EVICTED, ElasticTask, JobStatus, pod_name
from central.scheduler.elastic.elastic_gang import LEAVE_S

# Causes of changes that the autoscaler did not decide, beside its own.
DRAIN, EVICTED, LOSS, RANGE = "drain", "evicted", "loss", "range"


def next_members(job: Job, status: JobStatus, now: float) -> JobStatus:
    """The same object if nothing changes."""
    elastic = job.seen.spec.elastic
    if elastic is None or status.phase not in ACTIVE or job.seen.error:
        return status
    wanted, why, cause = set(job.members), status.resized, status.cause
    leave_s = LEAVE_S
    if job.resize is not None and set(job.resize.members) != wanted:
        wanted, why, cause = set(job.resize.members), job.resize.why, job.resize.cause
        leave_s = job.resize.leave_s
    for going in _going(job, elastic, wanted):
        wanted -= going.numbers
        why, cause = going.why, going.cause
    bounded = _within_bounds(wanted, elastic)
    if bounded != wanted:
        wanted, why = bounded, f"the Job allows {elastic.least} to {elastic.most}"
        cause = RANGE
    members = tuple(sorted(wanted))
    if members == status.members:
        return status
    generation = status.generation + 1
    leave_by = status.leave_by
    if elastic.files and _leave_running(job, elastic, set(job.members) - bounded):
        leave_by = float(int(now + leave_s))
    return replace(
        status, members=members, generation=generation, resized=why, cause=cause, leave_by=leave_by
    )


def _leave_running(job: Job, elastic: ElasticTask, going: set[int]) -> bool:
    """Returns whether one of them runs, and can learn that it leaves."""
    return any(
        pod.part is not None
        and pod.part.task == elastic.task
        and pod.part.index in going
        and pod.phase == "Running"
        and not pod.deleting
        for pod in job.pods.values()
    )


class Going(NamedTuple):
    """Returns the members that leave without a decision on another size."""

    numbers: set[int]
    why: str
    cause: str

    @property
    def is_loss(self) -> bool:
        """Returns whether the member leaves without a plan."""
        return self.cause == LOSS


def _going(job: Job, elastic: ElasticTask, wanted: set[int]) -> Iterator[Going]:
    """Never below the least size."""
    if not job.lost:
        return
    spare = max(0, len(wanted) - elastic.least)
    drained = [number for number in _on_drained_nodes(job, elastic) if number in wanted]
    if leaving := set(drained[:spare]):
        nodes = sorted(job.drained)
        verb = "is" if len(nodes) == 1 else "are"
        yield Going(
            leaving,
            f"{wording.plural(len(nodes), 'node')} {', '.join(nodes)} {verb} drained",
            DRAIN,
        )
    lost = [number for number in _lost(job, elastic) if number in wanted - leaving]
    if gone := set(lost[: spare - len(leaving)]):
        yield _lost_where(job, elastic, gone)


def _lost_where(job: Job, elastic: ElasticTask, gone: set[int]) -> Going:
    task = job.spec.task(elastic.task)
    assert task is not None
    names = [pod_name(job.spec, task, number) for number in gone]
    what = wording.counted(len(gone), "member")
    if all(name in job.by_scheduler for name in names):
        return Going(gone, f"{what} evicted by the scheduler", EVICTED)
    nodes = sorted({job.lost_from.get(name, "") for name in names} - {""})
    where = f" on {', '.join(nodes[:3])}{', ...' * (len(nodes) > 3)}" if nodes else ""
    return Going(gone, f"{what} lost{where}", LOSS)


def _on_drained_nodes(job: Job, elastic: ElasticTask) -> list[int]:
    """Returns the members on drained nodes: those that are being evicted first, then the others on the same nodes,
    highest number first."""
    if not job.drained:
        return []
    task = job.spec.task(elastic.task)
    assert task is not None
    there = job.current()
    taken, others = [], []
    for number in task.indices:
        name = pod_name(job.spec, task, number)
        if name in job.lost and job.lost_from.get(name) in job.drained:
            taken.append(number)
        elif name in there and there[name].node in job.drained:
            others.append(number)
    return [*taken[::-1], *others[::-1]]


def _lost(job: Job, elastic: ElasticTask) -> list[int]:
    """Lost members without a new pod that no policy speaks for, highest number first."""
    task = job.spec.task(elastic.task)
    assert task is not None
    found: list[int] = []
    there = job.current()
    for number in task.indices:
        name = pod_name(job.spec, task, number)
        pod = there.get(name)
        if name not in job.lost or (
            pod is not None and pod.phase == "Pending" and not pod.deleting
        ):
            continue
        evicted = JobEvent(POD_EVICTED, task, (name,), "", name)
        if name in job.by_scheduler or job_events.policy_for(job.spec, evicted) is None:
            found.append(number)
    return found[::-1]


def _within_bounds(wanted: set[int], elastic: ElasticTask) -> set[int]:
    kept = sorted(number for number in wanted if number < elastic.most)
    return lowest_free(kept, max(0, elastic.least - len(kept)))


def lowest_free(members: Iterable[int], more: int) -> set[int]:
    """The members and that many more, with the lowest numbers that are free."""
    found, number = set(members), 0
    wanted = len(found) + more
    while len(found) < wanted:
        found.add(number)
        number += 1
    return found


def event(job: Job, status: JobStatus, now: float) -> Decision:
    """Returns the Event of a change of size that is being written."""
    before, after = len(job.status.members or ()), len(status.members or ())
    elastic = job.seen.spec.elastic
    assert elastic is not None
    message = f"task {elastic.task}: {before} to {after} members; {status.resized}"
    reason = GREW if after > before else SHRANK
    going = _going(job, elastic, set(job.members))
    is_loss = any(each.is_loss and each.why == status.resized for each in going)
    reason = MEMBER_LOST if is_loss or after == before else reason
    place = about(API, "Job", *job.key, job.spec.uid)
    return build_event(place, reason, message, now, warning=is_loss, of_now=True)
