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


def surplus_by_task(gang: Gang, placed: Sequence[Pod]) -> dict[Allowance, int]:
    if not gang.task_min:
        return {}
    have = Counter(pod.seen.task for pod in placed)
    return {
        task_key(gang.key, task): max(0, have[task] - minimum) for task, minimum in gang.task_min
    }


def task_key(key: GangKey, task: str) -> Allowance:
    return "/".join(key[:2]), task  # no namespace has a slash
