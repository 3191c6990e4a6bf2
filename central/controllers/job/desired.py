"""Brings a Job's PodGroup, plugin objects, claims and pods to what its phase requires."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial

from central.controllers.job import job_podgroup, planned_leave, plugins, pod_manifest
from central.controllers.job.job import Job, ObjectRef
from central.controllers.job.pod_tally import ENDED, PodTally
from central.controllers.job.state_machine import ACTIVE
from central.model import limits
from central.model.decisions import Create, Decision, Delete, Patch
from central.model.facts import PodSeen
from central.model.jobspec import FINISHED, RESTARTING, TaskSpec
from central.model.json_types import ReadOnlyJson
from central.scheduler.state.gangs import Gang

AVOIDED_S = 300.0  # for so long a pod waits for another node than the one where it failed


def reconcile_objects(
    job: Job, gang: Gang | None, counts: PodTally, now: float
) -> Iterator[Decision]:
    phase = job.status.phase
    if phase in ACTIVE:
        if not job.seen.error:
            yield from _reconcile_active(job, gang, counts, now)
    elif phase == RESTARTING:
        if (at := job.status.retry_at) is not None and at > now:
            job.requeue(at)
        outdated = [pod for pod in job.pods.values() if _is_outdated(job, pod)]
        yield from _delete_pods(job, outdated or _running_pods(job), "the Job is restarting", now)
    else:
        yield from _delete_pods(job, _running_pods(job), f"the Job is {phase}", now)
    ttl_s = job.spec.ttl_s
    if phase in FINISHED and ttl_s is not None:
        if now >= job.status.since + ttl_s:
            yield from _delete_finished(job, now)
        else:
            job.requeue(job.status.since + ttl_s)


def _is_outdated(job: Job, pod: PodSeen) -> bool:
    return pod.part is not None and pod.part.version < job.status.version


def _running_pods(job: Job) -> list[PodSeen]:
    return [pod for pod in job.pods.values() if pod.phase not in ENDED]


def _delete_finished(job: Job, now: float) -> Iterator[Decision]:
    spec = job.spec
    place = ("Job", spec.name)
    if job.may_call("Delete", place, now):
        job.in_flight.add(("Delete", place))
        why = f"{job.status.phase} for ttlSecondsAfterFinished"
        yield Delete("Job", spec.namespace, spec.name, spec.uid, why, foreground=True)


def _reconcile_active(
    job: Job, gang: Gang | None, counts: PodTally, now: float
) -> Iterator[Decision]:
    """An active Job has a PodGroup, the objects of its plugins and volumes and, once it is admitted, the pods
    of the tasks that may start."""
    yield from _replace_blamed(job, now)
    unwanted = planned_leave.ready(job, _unwanted_pods(job), now)
    yield from _delete_pods(job, unwanted, "no longer part of the Job", now)
    tasks = startable_tasks(job, counts)
    if gang is None or gang.object is None:
        manifest = partial(job_podgroup.manifest, job.spec, tasks)
        yield from _create(job, ("PodGroup", job.group), manifest, now)
        return
    yield from _resize(job, gang, job_podgroup.size(job.spec, tasks), now)
    for name in pod_manifest.claims(job.spec):
        place = ("PersistentVolumeClaim", name)
        if place not in job.unobserved:
            yield from _create(job, place, partial(pod_manifest.claim, job.spec, name), now)
    yield from _make_objects(job, now)
    if not job.admitted or not _has_objects(job):
        return
    there, free = job.names(), {task.name for task in tasks}
    left = limits.CREATES - sum(place[0] == "Pod" for _, place in job.in_flight)
    for name, (task, index) in job.desired_pods.items():
        if (task.name, index) in job.status.completed:
            continue
        if name not in there and task.name in free:
            if left <= 0:  # the answers continue, unless one is lost
                job.requeue(now + 1.0)
                return
            body = partial(
                pod_manifest.manifest,
                job.spec,
                job.status,
                task,
                index,
                job.avoided.get(name, ("", 0.0))[0],
            )
            for created in _create(job, ("Pod", name), body, now):
                left -= 1
                yield created


def _unwanted_pods(job: Job) -> list[PodSeen]:
    kept = job.current().values()
    keep = {pod.uid for pod in kept}
    return [pod for pod in job.pods.values() if pod.uid not in keep]


def _replace_blamed(job: Job, now: float) -> Iterator[Decision]:
    """Deletes pods that the coordinator replaces. Their successors get other nodes; after a while any node."""
    said = job.reported
    for pod in [*job.pods.values()]:
        _, until = job.avoided.get(pod.name, ("", 0.0))
        if said is not None and pod.uid in said.replaced and pod.node:
            job.avoided.setdefault(pod.name, (pod.node, now + AVOIDED_S))
            yield from _delete_pods(
                job, [pod], f"replaced by its coordinator: {said.slow or said.pairs}", now
            )
        elif until and not pod.node and now >= until:
            del job.avoided[pod.name]
            yield from _delete_pods(
                job, [pod], "no other node than the one that it avoids is free", now
            )
        elif until and pod.node:
            del job.avoided[pod.name]
        elif until:
            job.requeue(until)


def _resize(job: Job, gang: Gang, size: dict[str, object], now: float) -> Iterator[Decision]:
    seen = gang.object
    place = ("PodGroup", job.group)
    assert seen is not None
    tasks = {name: least for name, least in dict(size["minTaskMember"]).items() if least}  # type: ignore[call-overload]  # a mapping of numbers
    if job.podgroup_written is None and (seen.min_member, dict(seen.task_min)) == (
        size["minMember"],
        tasks,
    ):
        job.podgroup_written = size
    if job.podgroup_written != size and job.may_call("Patch", place, now):
        change = job_podgroup.size_patch(size, seen, job.podgroup_written)
        job.podgroup_written = size
        job.in_flight.add(("Patch", place))
        yield Patch(*place[:1], job.spec.namespace, job.group, seen.uid, {"spec": change})


def _make_objects(job: Job, now: float) -> Iterator[Decision]:
    """Creates each object once, and again when its body depends on the Job's size and that has changed."""
    for one in plugins.objects(job.spec):
        place = (one.kind, one.name)
        known = job.objects.get(place)
        if (known is None or (one.follows and known != one.body)) and job.may_call(
            "Create", place, now
        ):
            job.objects[place] = one.body
            job.in_flight.add(("Create", place))
            where = (one.kind, job.spec.namespace, one.name)
            yield Create(
                *where, one.body, renew=one.follows, keys=one.keys, certificate=one.certificate
            )


def _has_objects(job: Job) -> bool:
    """Returns whether the plugins' objects exist. Pods that mount a missing object would only wait on their nodes."""
    return not any(
        place in job.refused or ("Create", place) in job.in_flight for place in job.objects
    )


def _create(
    job: Job, place: ObjectRef, body: Callable[[], ReadOnlyJson], now: float
) -> Iterator[Decision]:
    if job.may_call("Create", place, now):
        job.in_flight.add(("Create", place))
        kind, name = place
        yield Create(kind, job.spec.namespace, name, body())


def _delete_pods(job: Job, who: Iterable[PodSeen], why: str, now: float) -> Iterator[Decision]:
    for pod in who:
        place = ("Pod", pod.name)
        if not pod.deleting and pod.uid not in job.deletions and job.may_call("Delete", place, now):
            job.deletions[pod.uid] = now
            job.in_flight.add(("Delete", place))
            yield Delete("Pod", pod.namespace, pod.name, pod.uid, why)


def startable_tasks(job: Job, counts: PodTally) -> tuple[TaskSpec, ...]:
    there = {pod.part.task for pod in job.pods.values() if pod.part is not None}
    there |= {task for task, _ in job.status.completed}
    return job_podgroup.startable_tasks(job.spec, counts, there)
