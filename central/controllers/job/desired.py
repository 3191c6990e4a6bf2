"""What the state of a Job wants: its PodGroup, its objects, its pods, and nothing else."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from central.controllers.job import job_podgroup, plugins, pod_manifest
from central.controllers.job.job import Job, ObjectRef
from central.controllers.job.pod_tally import ENDED, PodTally
from central.controllers.job.state_machine import ACTIVE
from central.model.decisions import Create, Decision, Delete, Patch
from central.model.facts import PodSeen
from central.model.jobspec import FINISHED, RESTARTING, TaskSpec
from central.model.json_types import ReadOnlyJson

if TYPE_CHECKING:
    from central.scheduler.state.gangs import Gang


def work(job: Job, gang: "Gang | None", counts: PodTally, now: float) -> Iterator[Decision]:
    phase = job.status.phase
    if phase in ACTIVE:
        if not job.seen.error:
            yield from _keep(job, gang, counts, now)
    elif phase == RESTARTING:
        old = [pod for pod in job.pods.values() if _is_old(job, pod)]
        yield from _remove(job, old or _alive(job), "the Job is restarted", now)
    else:
        yield from _remove(job, _alive(job), f"the Job is {phase}", now)
    ttl_s = job.spec.ttl_s
    if phase in FINISHED and ttl_s is not None:
        if now >= job.status.since + ttl_s:
            yield from _go(job, now)
        else:
            job.wake(job.status.since + ttl_s)


def _is_old(job: Job, pod: PodSeen) -> bool:
    return pod.part is not None and pod.part.version < job.status.version


def _alive(job: Job) -> list[PodSeen]:
    return [pod for pod in job.pods.values() if pod.phase not in ENDED]


def _go(job: Job, now: float) -> Iterator[Decision]:
    spec = job.spec
    place = ("Job", spec.name)
    if job.may("Delete", place, now):
        job.asked.add(("Delete", place))
        why = f"it has been {job.status.phase} for ttlSecondsAfterFinished"
        yield Delete("Job", spec.namespace, spec.name, spec.uid, why, foreground=True)


def _keep(job: Job, gang: "Gang | None", counts: PodTally, now: float) -> Iterator[Decision]:
    """An active Job: its PodGroup, what its plugins and volumes need, and, once its queue takes it,
    the pods of the tasks that may start."""
    yield from _remove(job, _surplus(job), "the Job does not want it any more", now)
    tasks = released(job, counts)
    if gang is None or gang.object is None:
        manifest = partial(job_podgroup.manifest, job.spec, tasks)
        yield from _create(job, ("PodGroup", job.group), manifest, now)
        return
    yield from _resize(job, gang, job_podgroup.size(job.spec, tasks), now)
    for name in pod_manifest.claims(job.spec):
        place = ("PersistentVolumeClaim", name)
        if place not in job.answered:
            yield from _create(job, place, partial(pod_manifest.claim, job.spec, name), now)
    yield from _make_objects(job, now)
    if not job.admitted or not _has_objects(job):
        return
    there, free = job.names(), {task.name for task in tasks}
    for name, (task, index) in job.wanted.items():
        if name not in there and task.name in free:
            body = partial(pod_manifest.manifest, job.spec, job.status, task, index)
            yield from _create(job, ("Pod", name), body, now)


def _surplus(job: Job) -> list[PodSeen]:
    kept = job.current().values()
    keep = {pod.uid for pod in kept}
    return [pod for pod in job.pods.values() if pod.uid not in keep]


def _resize(job: Job, gang: "Gang", size: dict[str, object], now: float) -> Iterator[Decision]:
    seen = gang.object
    place = ("PodGroup", job.group)
    assert seen is not None
    tasks = {name: least for name, least in dict(size["minTaskMember"]).items() if least}  # type: ignore[call-overload]  # a mapping of numbers
    if job.group_told is None and (seen.min_member, dict(seen.task_min)) == (
        size["minMember"],
        tasks,
    ):
        job.group_told = size
    if job.group_told != size and job.may("Patch", place, now):
        job.group_told = size
        job.asked.add(("Patch", place))
        yield Patch(*place[:1], job.spec.namespace, job.group, seen.uid, {"spec": size})


def _make_objects(job: Job, now: float) -> Iterator[Decision]:
    """Once, and again where they follow the Job's size and that changed."""
    for one in plugins.objects(job.spec):
        place = (one.kind, one.name)
        known = job.objects.get(place)
        if (known is None or (one.follows and known != one.body)) and job.may("Create", place, now):
            job.objects[place] = one.body
            job.asked.add(("Create", place))
            where = (one.kind, job.spec.namespace, one.name)
            yield Create(*where, one.body, renew=one.follows, keys=one.keys)


def _has_objects(job: Job) -> bool:
    """Pods that mount what is not there yet would only be told to wait by their kubelets."""
    return not any(place in job.refused or ("Create", place) in job.asked for place in job.objects)


def _create(
    job: Job, place: ObjectRef, body: Callable[[], ReadOnlyJson], now: float
) -> Iterator[Decision]:
    if job.may("Create", place, now):
        job.asked.add(("Create", place))
        kind, name = place
        yield Create(kind, job.spec.namespace, name, body())


def _remove(job: Job, who: Iterable[PodSeen], why: str, now: float) -> Iterator[Decision]:
    for pod in who:
        place = ("Pod", pod.name)
        if not pod.deleting and pod.uid not in job.taken and job.may("Delete", place, now):
            job.taken[pod.uid] = now
            job.asked.add(("Delete", place))
            yield Delete("Pod", pod.namespace, pod.name, pod.uid, why)


def released(job: Job, counts: PodTally) -> tuple[TaskSpec, ...]:
    there = {pod.part.task for pod in job.pods.values() if pod.part is not None}
    return job_podgroup.released(job.spec, counts, there)
