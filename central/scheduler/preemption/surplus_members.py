"""Surplus: how many members a gang can lose without falling below its minimum, in all and by task.

A task with a minimum of its own is limited like a disruption budget.
"""

from collections import Counter
from collections.abc import Sequence

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.least_harm import Allowance
from central.scheduler.state.gangs import Gang, GangKey


def surplus_count(gang: Gang, placed: Sequence[Pod]) -> int:
    """0 for gangs that are only evicted whole: by their own setting, and those with subgroups."""
    if len(placed) < 2:  # every minimum is at least 1; most gangs are one pod, and asked often
        return 0
    if gang.object is not None and (gang.object.subgroups or gang.object.evicted_whole):
        return 0
    return max(0, len(placed) - max(gang.minimum, sum(least for _, least in gang.task_min)))


def has_surplus(gang: Gang) -> bool:
    return surplus_count(gang, gang.counts.placed) > 0


def own_surplus_count(gang: Gang) -> int:
    """Returns how many members a gang may lose that lacks pods of one task and has more than it needs of another, so
    that it has its minimum with those that it lacks. 0 for gangs that lack none."""
    coming = sum(gang.short_tasks().values())
    if not coming or gang.subgroups or (gang.object is not None and gang.object.evicted_whole):
        return 0
    staying = sum(not pod.leaving for pod in gang.counts.placed)
    return min(staying, max(0, staying + coming - gang.minimum))


def urgencies(gang: Gang, pods: Sequence[Pod]) -> list[int]:
    """Returns for each pod how many priorities of the gang's pods are below its own. A gang has one priority, the
    highest of its pods; the pods' own priorities decide which of its members leave."""
    if gang.counts.least_priority == gang.counts.priority:
        return [0] * len(pods)
    priorities = {pod.seen.priority for pod in gang.members.values()}
    return [sum(each < pod.seen.priority for each in priorities) for pod in pods]


def surplus_by_task(gang: Gang, placed: Sequence[Pod]) -> dict[Allowance, int]:
    if not gang.task_min:
        return {}
    have = Counter(pod.seen.task for pod in placed)
    return {
        task_key(gang.key, task): max(0, have[task] - minimum) for task, minimum in gang.task_min
    }


def task_key(key: GangKey, task: str) -> Allowance:
    return "/".join(key[:2]), task  # no namespace has a slash
