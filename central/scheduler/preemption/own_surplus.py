"""Members that a gang does not need leave for one that it lacks: it has too few pods of one task and more than it needs
of another.

Nobody else loses by it, but who gives way by priority or share goes first: that gang keeps all that it has.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import evictable, preemption_plan
from central.scheduler.preemption.disruption_budgets import disruptions_left
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.state.gangs import Gang
from protos.names import GPU

MOST_NODES = 64  # on which members are tried that might leave
MOST_TRIALS = 64  # placements with one of the chosen members left where it is


def plan(context: PreemptionContext, request: PreemptionRequest) -> PreemptionPlan | None:
    """Members of one node if these are enough, the fewest of any node, else of all nodes together."""
    candidates = [
        pod for pod in may_leave(request.gang) if pod.evict_backoff.not_before <= request.now
    ]
    by_node: dict[str, list[Pod]] = {}
    for pod in candidates:
        by_node.setdefault(pod.node, []).append(pod)
    nodes = [*by_node.values()][:MOST_NODES]
    found = [_without(context, request, pods) for pods in nodes]
    best = min(filter(None, found), key=lambda plan: len(plan.victims), default=None)
    return best or (_without(context, request, candidates) if len(by_node) > 1 else None)


def may_leave(gang: Gang) -> list[Pod]:
    """Placed members that may go, in the order in which they go, though not all of them together."""
    short = gang.short_tasks()
    if not short or gang.subgroups or (gang.object is not None and gang.object.evicted_whole):
        return []
    above = _above(gang)
    if _most(gang) <= 0:
        return []
    return [
        pod
        for pod in sorted(_staying(gang), key=_order)
        if above[pod.seen.task] > 0 and not pod.assumed and evictable.may_leave(gang, pod)
    ]


def _order(pod: Pod) -> tuple[int, int, int]:
    """The least urgent first, then those that free most, so that few go, then the last ranks."""
    gpus = sum(amount for name, amount in pod.seen.spec.requests if name == GPU)
    return pod.seen.priority, -gpus, -pod.seen.order[0]


def _above(gang: Gang) -> dict[str, int]:
    """By task, how many more it has than it needs."""
    least = dict(gang.task_min)
    have = Counter(pod.seen.task for pod in _staying(gang))
    return {task: count - least.get(task, 0) for task, count in have.items()}


def _most(gang: Gang) -> int:
    """How many may go together so that the gang has its minimum with those that come."""
    coming = sum(gang.short_tasks().values())
    return len(_staying(gang)) + coming - gang.minimum


def _staying(gang: Gang) -> list[Pod]:
    """Placed members without those whose eviction was decided before."""
    return [pod for pod in gang.counts.placed if not pod.leaving]


def _without(
    context: PreemptionContext, request: PreemptionRequest, pods: Sequence[Pod]
) -> PreemptionPlan | None:
    """As many of them as may go together, if that is enough, without those that need not go."""
    going = _together(context, request, pods)
    found = _fits_without(context, request, going)
    if found is None:
        return None
    for pod in [*reversed(going)][:MOST_TRIALS]:
        fewer = [other for other in going if other is not pod]
        if fewer and (without := _fits_without(context, request, fewer)):
            found, going = without, fewer
    return found


def _fits_without(
    context: PreemptionContext, request: PreemptionRequest, going: Sequence[Pod]
) -> PreemptionPlan | None:
    if not going:
        return None
    return preemption_plan.find_without_victims(context, replace(request, forced=tuple(going)))


def _together(
    context: PreemptionContext, request: PreemptionRequest, pods: Sequence[Pod]
) -> list[Pod]:
    """The first of them that leave the gang what it needs, and overspend no disruption budget."""
    budgets, gang = context.budgets, request.gang
    covered = bool(budgets.seen) and not request.ignore_budgets
    left = Counter(disruptions_left(budgets, context.state.gangs.values()) if covered else {})
    above, found = _above(gang), list[Pod]()
    for pod in pods:
        used = budgets.disruptions([pod]) if covered else {}
        overspends = covered and (
            budgets.never_evictable([pod]) or any(left[name] < used[name] for name in used)
        )
        if above[pod.seen.task] > 0 and not overspends:
            found.append(pod)
            above[pod.seen.task] -= 1
            left.subtract(used)
    return found[: _most(gang)]
