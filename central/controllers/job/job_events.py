"""The events of a Job that lifecycle policies match. They are derived from the state of the pods, not from its
changes, so that a restart of the scheduler misses none."""

from collections.abc import Iterator
from dataclasses import dataclass

from central.controllers.job.pod_tally import PodTally
from central.model import jobspec
from central.model.facts import PodSeen


@dataclass(frozen=True, slots=True)
class JobEvent:
    name: str
    task: jobspec.TaskSpec | None  # None: the whole Job
    pods: tuple[str, ...]  # names
    what: str  # for people
    key: str  # identifies the event over time, with the name
    exit_codes: tuple[int, ...] = ()
    since: float | None = None  # None: since its first detection
    by_scheduler: bool = False  # the scheduler evicted the pod: no failure of the Job


@dataclass(frozen=True, slots=True)
class JobView:
    """The input of policies: the pods of the Job's current version."""

    spec: jobspec.JobSpec
    pods: dict[str, PodSeen]  # the desired ones, by name
    lost: dict[str, float]  # names of evicted or terminating pods, since when
    lost_by_task: dict[str, float]  # tasks that lost pods while no scheduler ran
    counts: PodTally
    gang_unknown: str = ""  # why a gang that ran cannot be completed
    spec_changed: bool = False
    by_scheduler: frozenset[str] = frozenset()  # lost pods that the scheduler evicted


def detect_events(view: JobView) -> Iterator[JobEvent]:
    """Completion comes before failure."""
    for task in view.spec.tasks:
        done = view.counts.task(task.name).succeeded
        if task.replicas and done >= task.replicas:
            what = f"all {done} pods of task {task.name} succeeded"
            yield JobEvent(jobspec.TASK_COMPLETED, task, _names(view, task), what, task.name)
    for task in view.spec.tasks:
        yield from _pod_events(view, task)
        restarts = view.counts.task(task.name).restarts
        if task.max_retry != jobspec.NO_LIMIT and restarts >= task.max_retry:
            what = f"containers of task {task.name} were restarted {restarts} times"
            yield JobEvent(jobspec.TASK_FAILED, task, _names(view, task), what, task.name)
    if view.gang_unknown:
        yield JobEvent(jobspec.GANG_UNKNOWN, None, (), view.gang_unknown, "gang")
    if view.spec_changed:
        yield JobEvent(jobspec.JOB_UPDATED, None, (), "the Job's spec was changed", "job")


def _names(view: JobView, task: jobspec.TaskSpec) -> tuple[str, ...]:
    return tuple(jobspec.pod_name(view.spec, task, index) for index in task.indices)


def _pod_events(view: JobView, task: jobspec.TaskSpec) -> Iterator[JobEvent]:
    for name in _names(view, task):
        pod = view.pods.get(name)
        if pod is not None and pod.phase == "Failed" and not pod.deleting:
            assert pod.part is not None
            codes = pod.part.exit_codes
            exits = f" with exit code {', '.join(map(str, codes))}" if codes else ""
            what = f"pod {name} failed{exits}"
            yield JobEvent(jobspec.POD_FAILED, task, (name,), what, pod.uid, codes, pod.part.ended)
        if (since := view.lost.get(name)) is not None:
            what = f"pod {name} was evicted or deleted"
            by_scheduler = name in view.by_scheduler
            what = f"pod {name} was evicted by the scheduler" if by_scheduler else what
            yield JobEvent(
                jobspec.POD_EVICTED,
                task,
                (name,),
                what,
                name,
                since=since,
                by_scheduler=by_scheduler,
            )
        if pod is not None and pod.phase == "Pending" and not pod.deleting:
            what = f"pod {name} is pending"
            yield JobEvent(
                jobspec.POD_PENDING, task, (name,), what, pod.uid, since=pod.created or None
            )
    if (since := view.lost_by_task.get(task.name)) is not None:
        what = f"pods of task {task.name} disappeared while the scheduler was down"
        gone = tuple(name for name in _names(view, task) if name not in view.pods)
        yield JobEvent(jobspec.POD_EVICTED, task, gone, what, task.name, since=since)


def policy_for(spec: jobspec.JobSpec, event: JobEvent) -> jobspec.LifecyclePolicy | None:
    """The first policy that matches: the task's own, then the Job's."""
    own = event.task.policies if event.task is not None else ()
    for policy in (*own, *spec.policies):
        if policy.exit_code is not None:
            matches = event.name == jobspec.POD_FAILED and policy.exit_code in event.exit_codes
        else:
            matches = event.name in policy.events or jobspec.ANY in policy.events
        # Every pod is pending at first; only one that stays pending is an event.
        if matches and (event.name != jobspec.POD_PENDING or policy.timeout_s > 0):
            return policy
    return None
