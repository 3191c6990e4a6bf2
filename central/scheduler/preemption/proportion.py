"""Harm in proportion: a gang that needs little waits a while before its queue reclaims much for it, because a smaller
gang may end, or a smaller victim start, in the meantime.

Design: docs/design/reclaim.md
"""

from central.model import wording
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import harm
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionPlan
from central.scheduler.state.gangs import Gang


def waits(context: PreemptionContext, gang: Gang, now: float) -> bool:
    """Returns whether a large claim of the gang waits."""
    return bool(context.large_claim) and now < gang.counts.created + context.large_claim_wait_s


def wait_until(
    context: PreemptionContext, gang: Gang, request: PlacementRequest, plan: PreemptionPlan
) -> tuple[float, str]:
    """Returns when the gang may evict the victims of other queues, and why it waits until then, as a clause. Victims
    hold capacity in the unit of harm.gpus(): GPUs, or cores and memory for pods without any."""
    if not context.large_claim:
        return 0.0, ""
    need = sum(count * harm.gpus(spec) for spec, count in request.groups)
    gangs = [(pod, context.state.gang_of(pod)) for pod in plan.victims]
    lost = sum(
        harm.gpus(pod.spec) for pod, of in gangs if of is not None and of.queue != gang.queue
    )
    if not lost or lost < context.large_claim * need:
        return 0.0, ""
    wait = wording.format_duration(context.large_claim_wait_s)
    times = f"{context.large_claim} times what it needs or more"
    why = f"its victims hold {times}: these are evicted once it has waited for {wait}"
    return gang.counts.created + context.large_claim_wait_s, why
