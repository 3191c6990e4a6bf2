"""Admission of Jobs: the pods of a Job are created only when its queue has quota for them, so that Jobs over quota
have no pods. Free capacity in the cluster is not checked: pending pods show an autoscaler how much is missing.

Design: docs/design/admission.md
"""

from collections import deque
from collections.abc import Callable, Iterable

from central.controllers.job import job_podgroup
from central.controllers.job.job import Job
from central.model import wording
from central.model.amounts import Amounts
from central.model.facts import PodSpec
from central.model.resources import Sums, add, requested
from central.scheduler.queues import claimable_quota, quota
from central.scheduler.queues.min_resources import MinResources
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

Groups = tuple[tuple[PodSpec, int], ...]


def admit(
    queues: Queues,
    min_resources: MinResources,
    waiting: Iterable[tuple[Job, Gang]],
    failed: Callable[[Job, Exception], None],
    public: Callable[[str, str], str],
) -> list[Job]:
    """The Jobs that are admitted now, or refused for another reason than before. Jobs are checked in queue
    order: a Job leaves quota for the Jobs ahead of it. failed: of Jobs whose check raises.
    public: a reason as readers of a namespace may see it."""
    changed: list[Job] = []
    lines: dict[str, _Line] = {}
    refused: dict[tuple[object, ...], str] = {}

    def check(job: Job, gang: Gang) -> None:
        groups = _groups(job, gang)
        name = gang.account.queue if gang.account is not None else ""
        path = queues.by_name[name].path if name else ()
        bounds = [lines.setdefault(above.name, _Line(above)) for above in path if above.capability]
        own, least = _own_terms(gang)
        alike = (name, groups, gang.priority, gang.started, least, quota.tenant(queues, gang))
        why = own or refused.get(alike) or _refusal(queues, min_resources, gang, groups, bounds)
        if why:
            if not own:
                refused[alike] = why
            why = public(why, gang.namespace)
        else:
            for line in bounds:
                add(line.in_flight, queues.currency.counted(requested(groups)), 1)
        if job.pending_reason != why or not why:
            job.pending_reason, job.admitted = why, not why
            changed.append(job)

    for job, gang in sorted(waiting, key=lambda pair: pair[1].attempt.rank):
        try:
            check(job, gang)
        except Exception as error:  # noqa: BLE001  a bug; the Job is set aside
            failed(job, error)
    return changed


class _Line:
    """A queue's capability, and the demand of the pending gangs in its subtree that are ahead of the checked
    one. Gangs are checked in order, so the demand only grows."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.in_flight: Sums = {}
        waiting = (
            gang
            for each in queue
            for gang in each.gangs.values()
            if gang.account is not None and gang.account.demand
        )
        self._waiting = deque(sorted(waiting, key=lambda gang: gang.attempt.rank))

    def pass_to(self, gang: Gang) -> None:
        while self._waiting and self._waiting[0].attempt.rank < gang.attempt.rank:
            account = self._waiting.popleft().account
            assert account is not None
            add(self.in_flight, account.demand, 1)

    def refusal(self, wanted: Sums) -> str:
        used = self.queue.used
        for resource, most in self.queue.capability.items():
            amount = wanted.get(resource, 0)
            if amount and used.get(resource, 0) + self.in_flight.get(resource, 0) + amount > most:
                return (
                    f"queue {self.queue.name}: capability of "
                    f"{wording.quantity(resource, most)} is already claimed by jobs ahead of this one"
                )
        return ""


def _own_terms(gang: Gang) -> tuple[str, Amounts]:
    """The error of its PodGroup, and minResources."""
    return (gang.object.error, gang.object.min_resources) if gang.object is not None else ("", ())


def _groups(job: Job, gang: Gang) -> Groups:
    """The pods of the Job's minimum, as (requests, count) of each task."""
    seen = gang.object
    least = seen.min_member if seen is not None else job.spec.min_available
    each = bool(seen is not None and seen.task_min)
    tasks = [task for task in job.spec.tasks if task.replicas]
    return tuple(
        (PodSpec(requests=task.requests), count)
        for task, count in job_podgroup.initial_pods(tasks, least, each=each)
    )


def _refusal(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Groups, bounds: Iterable[_Line]
) -> str:
    if why := quota.refusal(queues, min_resources, gang, groups):
        return "" if claimable_quota.may_claim(queues, min_resources, gang, groups) else why
    wanted = queues.currency.counted(requested(groups))
    for line in bounds:
        line.pass_to(gang)
        if why := line.refusal(wanted):
            return why
    return ""
