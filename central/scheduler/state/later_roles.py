"""Minima of a gang whose roles come one after the other: steps of a JobSet, or the workers of a leader that starts
alone.

Design: docs/design/gangs.md
"""

from collections.abc import Mapping, Sequence

from central.model.facts import GangSeen, LaterRole


def task_minima(seen: GangSeen, tasks: Mapping[str, int]) -> dict[str, int]:
    """Returns the minimum of each role that has one. tasks: how many pods of each role there are, without those that
    are leaving. A role before one that has come keeps its pods, but waits for none that it has lost: they have done
    what the others waited for."""
    come = [each for each in _come(seen, tasks) if each.role]
    found = dict(seen.task_min) | {each.role: each.least for each in come}
    for role in _before(seen.later, come) & found.keys():
        found[role] = min(found[role], tasks.get(role, 0))
    return {role: least for role, least in found.items() if least}


def minimum(seen: GangSeen, tasks: Mapping[str, int]) -> int:
    """Returns the minimum of all roles together; at least 1."""
    come = _come(seen, tasks)
    if any(each.role for each in come):
        return max(sum(task_minima(seen, tasks).values()), 1)
    return max(seen.min_member, 1) + sum(each.least for each in come)


def _come(seen: GangSeen, tasks: Mapping[str, int]) -> list[LaterRole]:
    beyond = sum(tasks.values()) > seen.min_member
    return [each for each in seen.later if (tasks.get(each.role) if each.role else beyond)]


def _before(later: Sequence[LaterRole], come: Sequence[LaterRole]) -> set[str]:
    """All roles before these."""
    after = {each.role: each.after for each in later}
    found: set[str] = set()
    left = [role for each in come for role in each.after]
    while left:
        role = left.pop()
        if role not in found:
            found.add(role)
            left += after.get(role, ())
    return found
