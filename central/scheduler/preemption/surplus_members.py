"""How many of a gang's members may go without breaking it: in all, and of each role that has a minimum of
its own, as if that were a disruption budget."""

from collections import Counter
from collections.abc import Sequence

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption.least_harm import Allowance
from central.scheduler.state.gangs import Gang, GangKey


def surplus(gang: Gang, there: Sequence[Pod]) -> int:
    """Of one with groups inside none is tried alone."""
    if gang.object is not None and gang.object.subgroups:
        return 0
    tasks = gang.object.task_min if gang.object is not None else ()
    return max(0, len(there) - max(gang.minimum, sum(least for _, least in tasks)))


def roles(gang: Gang, there: Sequence[Pod]) -> dict[Allowance, int]:
    if gang.object is None or not gang.object.task_min:
        return {}
    have = Counter(pod.seen.task for pod in there)
    return {
        role(gang.key, task): max(0, have[task] - least) for task, least in gang.object.task_min
    }


def role(key: GangKey, task: str) -> Allowance:
    return "/".join(key[:2]), task  # no namespace has a slash
