"""Keeps the files of members up to date: the annotations of their pods that a volume shows them. Only for Jobs that ask
for the files, within a rate over all Jobs, and the members that leave first.

Nothing waits for these writes. What a pod is to have follows from the Job's written status, so a scheduler that
restarts in the middle continues with the pods that the watch shows without it.

Design: docs/design/members.md
"""

from central.controllers.job.job import FILES, Job
from central.controllers.job.pod_tally import ENDED
from central.controllers.job.rate_limit import FILES_BATCH, MemberFilesLimiter
from central.controllers.job.state_machine import ACTIVE
from central.model import member_files
from central.model.decisions import Patch
from central.model.facts import PodSeen
from central.model.member_files import MemberFiles
from central.model.timestamps import stamp

RETRY_S = 1.0  # until the Job asks again for what the limiter did not grant

Update = tuple[PodSeen, MemberFiles]


def updates(job: Job, limiter: MemberFilesLimiter, now: float) -> list[Patch]:
    """Returns the writes of members' files. Called after the Job's objects were reconciled, when it is known which
    members leave by when."""
    if not _has_files(job):
        return []
    leaving, staying = _outdated(job)
    if not leaving and not staying:
        job.files_due_at = None
        return []
    if not job.may_call("Patch", FILES, now):
        return []
    if FILES in job.refused:  # one pod shows whether it is still refused
        leaving, staying = leaving[:1], [] if leaving else staying[:1]
    chosen = leaving[: limiter.take(now, len(leaving), urgent=True)]
    if len(chosen) < len(leaving):
        job.requeue(now + RETRY_S)
    else:
        chosen += _in_turn(job, staying, limiter, now)
    return [_patch(job, *update) for update in chosen]


def _in_turn(
    job: Job, staying: list[Update], limiter: MemberFilesLimiter, now: float
) -> list[Update]:
    """Returns the updates that are written now. The rest is written in a later turn of the Job."""
    wanted = min(len(staying), FILES_BATCH)
    if job.files_due_at is None and wanted:
        job.files_due_at = limiter.turn(now, wanted)
    granted: list[Update] = []
    if job.files_due_at is not None and now >= job.files_due_at:
        granted = staying[: limiter.take(now, wanted)]
        rest = min(len(staying) - len(granted), FILES_BATCH)
        job.files_due_at = limiter.turn(now, rest) if rest else None
    job.requeue(job.files_due_at)
    return granted


def _has_files(job: Job) -> bool:
    elastic = job.seen.spec.elastic
    if elastic is None or not elastic.files or job.status.members is None:
        return False
    if job.seen.error or job.seen.deleting or job.writing is not None:
        return False
    return job.status.phase in ACTIVE


def _outdated(job: Job) -> tuple[list[Update], list[Update]]:
    """Pods with what their files should say: of members that leave, and of the others."""
    there = job.names()
    job.files_written = {
        name: written for name, written in job.files_written.items() if name in there
    }
    leaving: list[Update] = []
    staying: list[Update] = []
    for pod, files in _wanted(job):
        assert pod.part is not None
        done = pod.part.files == files or job.files_written.get(pod.name) == (pod.uid, files)
        if not done and ("Patch", ("Pod", pod.name)) not in job.in_flight:
            (leaving if files.leaving else staying).append((pod, files))
    return leaving, staying


def _wanted(job: Job) -> list[Update]:
    elastic = job.seen.spec.elastic
    assert elastic is not None
    members = frozenset(job.members)
    files = member_files.of_members(job.status.generation, job.members)
    found = []
    for pod in job.pods.values():
        part = pod.part
        if part is None or part.task != elastic.task or part.version != job.status.version:
            continue
        if pod.deleting or pod.phase in ENDED or pod.uid in job.deletions:
            continue
        if (by := job.leave_by.get(pod.uid)) is not None:
            found.append((pod, files._replace(leaving=member_files.LEAVING, leave_by=stamp(by))))
        elif part.index in members:
            found.append((pod, files))
    return found


def _patch(job: Job, pod: PodSeen, files: MemberFiles) -> Patch:
    job.files_written[pod.name] = (pod.uid, files)
    job.in_flight.add(("Patch", ("Pod", pod.name)))
    return Patch("Pod", pod.namespace, pod.name, pod.uid, member_files.patch(files))
