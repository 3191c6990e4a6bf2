"""What one Job needs now: first its next state, written down before anything is done about it; then
the pods and objects that its state wants."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from central.core.decisions import Create, Decision, Delete, Patch, SetStatus
from central.core.facts import PodSeen
from central.core.jobs import group, machine, plugins, pods, policies, report
from central.core.jobs.counts import ENDED, Counts
from central.core.jobs.events import View
from central.core.jobs.job import UNSEEN_S, Job, Place
from central.core.jobs.machine import ACTIVE, Cause
from central.core.jobs.spec import OVER, PENDING, RESTARTING, JobStatus, Json, TaskSpec
from central.core.jobs.stamps import stamp

if TYPE_CHECKING:
    from central.core.gangs import Gang

HOPS = 4  # states that may be passed through at once


def decide(job: Job, gang: "Gang | None", now: float) -> list[Decision]:
    """gang: its PodGroup's, once that is there."""
    job.due_at = None
    if job.seen.deleting or job.writing is not None:
        return []
    if job.is_fresh:
        job.look_first()
    _tidy(job, now)
    counts = _counts(job)
    status = _progress(job, gang, counts, now)
    if _is_move(job.status, status):
        return _write(job, status, counts, now)
    decisions = list(_work(job, gang, counts, now))
    return decisions + _report(job, counts, now)


def _counts(job: Job) -> Counts:
    counts = Counts.of(job.spec, job.status, job.pods.values())
    free = {task.name for task in _released(job, counts)}
    counts.held = sum(task.replicas for task in job.spec.tasks if task.name not in free)
    return counts


def _released(job: Job, counts: Counts) -> tuple[TaskSpec, ...]:
    there = {pod.part.task for pod in job.pods.values() if pod.part is not None}
    return group.released(job.spec, counts, there)


def _tidy(job: Job, now: float) -> None:
    wanted = {name for name, _, _ in job.wanted()}
    job.lost = {name: at for name, at in job.lost.items() if name in wanted}
    for uid, at in list(job.taken.items()):
        pod = job.pods.get(uid)
        if pod is None or (now - at >= UNSEEN_S and not pod.deleting):
            del job.taken[uid]  # it was never seen to go: asked again
    for place, at in list(job.answered.items()):
        if now - at >= UNSEEN_S and place[0] == "Pod":
            del job.answered[place]


def _is_move(before: JobStatus, after: JobStatus) -> bool:
    return (before.phase, before.version, before.restarts) != (
        after.phase,
        after.version,
        after.restarts,
    )


# --- the next state ------------------------------------------------------------


def _progress(job: Job, gang: "Gang | None", counts: Counts, now: float) -> JobStatus:
    status = job.status
    if not status.phase:
        return machine.entered(status, PENDING, now, "Created", "")
    while job.commands:
        action, why = job.commands[0]
        after = machine.moved(job.spec, status, action, Cause("Command", why), now)
        if after is not status:
            return after
        job.commands.pop(0)  # it changes nothing in this state
    if status.phase in ACTIVE and not job.seen.error:
        verdict = policies.judge(_view(job, gang, counts), job.noticed, now)
        job.noticed = verdict.noticed
        job.updated = job.updated and (verdict.due is not None or verdict.next_at is not None)
        _wake(job, verdict.next_at)
        if verdict.due is not None:
            after = machine.moved(job.spec, status, verdict.due.action, verdict.due.cause, now)
            if after is not status:
                return after
    for _ in range(HOPS):
        after = machine.settled(job.spec, status, counts, now)
        if after is status or job.seen.error:
            break
        status = after
    return status


def _view(job: Job, gang: "Gang | None", counts: Counts) -> View:
    unknown = ""
    if gang is not None and gang.started and gang.missing() and gang.tally.running:
        unknown = f"{gang.missing()} pods of the gang are missing: {gang.reason}" * bool(
            gang.reason
        )
    return View(
        job.spec,
        job.current(),
        job.lost,
        job.lost_of,
        counts,
        unknown,
        job.updated,
        frozenset(job.gave_way),
    )


def _write(job: Job, status: JobStatus, counts: Counts, now: float) -> list[Decision]:
    """A new state is written before it is acted upon: whoever comes back after a fall goes on from
    there."""
    if not _may(job, "SetStatus", ("Job", job.spec.name), now):
        return []
    job.commands = job.commands[1:]
    job.updated = False
    if status.version != job.status.version:
        counts = Counts(terminating=len(job.pods))  # what was, does not count any more
    decisions = [_set_status(job, status, counts, now)]
    if status.phase not in ACTIVE or status.restarts != job.status.restarts:
        decisions.append(_event(job, status, now))
    return decisions


def _set_status(job: Job, status: JobStatus, counts: Counts, now: float) -> Decision:
    found = report.status_of(job, status, counts)
    job.writing, job.written, job.wrote_at = status, found, now
    spec = job.spec
    return SetStatus("Job", spec.namespace, spec.name, spec.uid, found)


def _event(job: Job, status: JobStatus, now: float) -> Decision:
    spec = job.spec
    name = f"{spec.name[:200]}.{int(now * 1000):x}"
    bad = status.phase not in ("Completing", "Completed")
    body = {
        "metadata": {"name": name, "namespace": spec.namespace},
        "involvedObject": {
            "apiVersion": "batch.volcano.sh/v1alpha1",
            "kind": "Job",
            "namespace": spec.namespace,
            "name": spec.name,
            "uid": spec.uid,
        },
        "reason": status.phase if status.phase != job.status.phase else status.reason,
        "message": status.message[:1000],
        "type": "Warning" if bad else "Normal",
        "source": {"component": "lockstep"},
        "firstTimestamp": stamp(now),
        "lastTimestamp": stamp(now),
        "count": 1,
    }
    return Create("Event", spec.namespace, name, body)


def _report(job: Job, counts: Counts, now: float) -> list[Decision]:
    """The counts and the sentence, not too often."""
    found = report.status_of(job, job.status, counts)
    write, later = report.worth(job, found, counts, now)
    if write and _may(job, "SetStatus", ("Job", job.spec.name), now):
        return [_set_status(job, job.status, counts, now)]
    if not write:
        _wake(job, later)
    return []


# --- what the state wants ---------------------------------------------------------


def _work(job: Job, gang: "Gang | None", counts: Counts, now: float) -> Iterator[Decision]:
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
    if phase in OVER and ttl_s is not None:
        if now >= job.status.since + ttl_s:
            yield from _go(job, now)
        else:
            _wake(job, job.status.since + ttl_s)


def _is_old(job: Job, pod: PodSeen) -> bool:
    return pod.part is not None and pod.part.version < job.status.version


def _alive(job: Job) -> list[PodSeen]:
    return [pod for pod in job.pods.values() if pod.phase not in ENDED]


def _go(job: Job, now: float) -> Iterator[Decision]:
    spec = job.spec
    place = ("Job", spec.name)
    if _may(job, "Delete", place, now):
        job.asked.add(("Delete", place))
        why = f"it has been {job.status.phase} for ttlSecondsAfterFinished"
        yield Delete("Job", spec.namespace, spec.name, spec.uid, why, foreground=True)


def _keep(job: Job, gang: "Gang | None", counts: Counts, now: float) -> Iterator[Decision]:
    """An active Job: its PodGroup, what its plugins and volumes need, and, once its queue takes it,
    the pods of the tasks that may start."""
    yield from _remove(job, _surplus(job), "the Job does not want it any more", now)
    tasks = _released(job, counts)
    if gang is None or gang.object is None:
        manifest = partial(group.manifest, job.spec, tasks)
        yield from _create(job, ("PodGroup", job.group), manifest, now)
        return
    yield from _resize(job, gang, group.size(job.spec, tasks), now)
    for name in pods.claims(job.spec):
        place = ("PersistentVolumeClaim", name)
        if place not in job.answered:
            yield from _create(job, place, partial(pods.claim, job.spec, name), now)
    yield from _make_objects(job, now)
    if not job.admitted or not _has_objects(job):
        return
    there, free = job.names(), {task.name for task in tasks}
    for name, task, index in job.wanted():
        if name not in there and task.name in free:
            body = partial(pods.manifest, job.spec, job.status, task, index)
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
    if job.group_told != size and _may(job, "Patch", place, now):
        job.group_told = size
        job.asked.add(("Patch", place))
        yield Patch(*place[:1], job.spec.namespace, job.group, seen.uid, {"spec": size})


def _make_objects(job: Job, now: float) -> Iterator[Decision]:
    """Once, and again where they follow the Job's size and that changed."""
    for one in plugins.objects(job.spec):
        place = (one.kind, one.name)
        known = job.objects.get(place)
        if (known is None or (one.follows and known != one.body)) and _may(
            job, "Create", place, now
        ):
            job.objects[place] = one.body
            job.asked.add(("Create", place))
            where = (one.kind, job.spec.namespace, one.name)
            yield Create(*where, one.body, renew=one.follows, keys=one.keys)


def _has_objects(job: Job) -> bool:
    """Pods that mount what is not there yet would only be told to wait by their kubelets."""
    return not any(place in job.refused or ("Create", place) in job.asked for place in job.objects)


def _create(job: Job, place: Place, body: Callable[[], Json], now: float) -> Iterator[Decision]:
    if _may(job, "Create", place, now):
        job.asked.add(("Create", place))
        kind, name = place
        yield Create(kind, job.spec.namespace, name, body())


def _remove(job: Job, who: Iterable[PodSeen], why: str, now: float) -> Iterator[Decision]:
    for pod in who:
        place = ("Pod", pod.name)
        if not pod.deleting and pod.uid not in job.taken and _may(job, "Delete", place, now):
            job.taken[pod.uid] = now
            job.asked.add(("Delete", place))
            yield Delete("Pod", pod.namespace, pod.name, pod.uid, why)


def _may(job: Job, verb: str, place: Place, now: float) -> bool:
    """Whether to ask now; if only later, the Job is looked at then."""
    if job.may_ask(verb, place, now):
        return True
    refusal = job.refused.get(place)
    if refusal is not None and refusal.retry_at > now:
        _wake(job, refusal.retry_at)
    if (at := job.answered.get(place)) is not None:
        _wake(job, at + UNSEEN_S)
    return False


def _wake(job: Job, at: float | None) -> None:
    if at is not None:
        job.due_at = at if job.due_at is None else min(job.due_at, at)
