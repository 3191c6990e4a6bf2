"""Members of unlike priority: of those of a gang that may go by themselves, the least urgent ones do.

A gang has one priority, the highest of its pods, by which gangs are compared. Which of its members leave is compared by
the pods' own. That is an exchange after victims were chosen, for members with the same requests, so that queues lose
as much: only gangs of unlike priorities have anything to exchange, and what the less urgent member frees is proven by a
placement like any other plan. GPU shares are left as they are: their plans keep particular GPUs.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import evictable, surplus_members
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
)
from central.scheduler.state.gangs import Gang, GangKey

MAX_TRIALS = 32  # placements for one plan

Prove = Callable[[Sequence[Pod]], PreemptionPlan | None]


def exchanged(
    context: PreemptionContext, request: PreemptionRequest, plan: PreemptionPlan, prove: Prove
) -> PreemptionPlan:
    """The plan with less urgent members of the same gangs, as far as the claimant fits without them as well. prove: the
    plan with these victims beside the forced ones; None: it does not fit."""
    if any(spec.share_containers for spec, _ in request.placement.groups):
        return plan
    forced = {pod.seen.uid for pod in request.forced}
    chosen = [pod for pod in plan.victims if pod.seen.uid not in forced]
    gangs = _with_unlike_members(context, chosen)
    trials = 0
    for gang in gangs:
        ours = [pod for pod in chosen if context.state.gang_of(pod) is gang]
        staying = [pod for pod in gang.counts.placed if not pod.leaving]
        surplus = surplus_members.surplus_count(gang, staying)
        if not 0 < len(ours) + _count_of(context, request.forced, gang) <= surplus:
            continue  # it goes whole
        for urgent in sorted(ours, key=_priority, reverse=True):
            for other in _less_urgent(gang, staying, urgent, request.now):
                if trials == MAX_TRIALS:
                    return plan
                going = [other if pod is urgent else pod for pod in chosen]
                if other in chosen or not _may_all_leave(context, request, gang, going, staying):
                    continue
                trials += 1
                if (better := prove(going)) is not None:
                    plan, chosen = better, going
                    break
    return plan


def _with_unlike_members(context: PreemptionContext, pods: Sequence[Pod]) -> list[Gang]:
    found: dict[GangKey, Gang] = {}
    for pod in pods:
        gang = context.state.gang_of(pod)
        if gang is not None and gang.counts.least_priority < gang.counts.priority:
            found[gang.key] = gang
    return list(found.values())


def _count_of(context: PreemptionContext, pods: Sequence[Pod], gang: Gang) -> int:
    return sum(context.state.gang_of(pod) is gang for pod in pods)


def _less_urgent(gang: Gang, staying: Sequence[Pod], than: Pod, now: float) -> Iterator[Pod]:
    """The least urgent first, of equals those with the last rank."""
    others = [
        pod
        for pod in staying
        if pod.seen.priority < than.seen.priority
        and pod.spec.requests == than.spec.requests
        and not pod.spec.share_containers
    ]
    others.sort(key=lambda pod: pod.seen.order, reverse=True)
    for pod in sorted(others, key=_priority):
        if evictable.may_leave(gang, pod) and pod.evict_backoff.not_before <= now:
            yield pod


def _may_all_leave(
    context: PreemptionContext,
    request: PreemptionRequest,
    gang: Gang,
    going: Sequence[Pod],
    staying: Sequence[Pod],
) -> bool:
    """Whether the gang's tasks keep their minima, and disruption budgets allow all of these."""
    every, budgets = [*request.forced, *going], context.budgets
    of_task = Counter(
        surplus_members.task_key(gang.key, pod.seen.task)
        for pod in every
        if context.state.gang_of(pod) is gang
    )
    by_task = surplus_members.surplus_by_task(gang, staying)
    if any(of_task[task] > most for task, most in by_task.items()):
        return False
    if request.ignore_budgets:
        return True
    gangs = context.state.gangs.values()
    return not budgets.never_evictable(going) and budgets.allow(every, gangs)


def _priority(pod: Pod) -> int:
    return pod.seen.priority
