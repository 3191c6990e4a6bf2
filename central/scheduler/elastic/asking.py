"""Members for which there is no seat yet, as pending pods, so that node autoscalers see them (lockstep.dev/elastic-ask:
pods).

A gang that asks has as many members as its greatest size and the capability of its queue allow. They start when a node
comes; nothing else waits for them, and nothing is evicted for them.
"""

from collections.abc import Sequence

from central.scheduler.elastic import pools
from central.scheduler.elastic.elastic_gang import ASK, ElasticGang, Resize, with_more
from central.scheduler.preemption.preemption_request import PreemptionContext

Asked = dict[str, dict[str, int]]  # by queue, amounts of each resource


def resizes(context: PreemptionContext, gangs: Sequence[ElasticGang]) -> list[Resize]:
    """Returns the changes of gangs that may ask for more members than they have, or no longer for all of these. Empty
    while another change is under way."""
    if any(gang.started and (gang.waits or not gang.settled) for gang in gangs):
        return []  # what others are about to take would be taken from them
    asked: Asked = {}
    found = []
    for gang in sorted(gangs, key=lambda gang: gang.gang.attempt.rank):
        if not (gang.task.asks and gang.started) or gang.ending:
            continue
        size, have = _size(context, gang, asked), len(gang.members)
        if size > have:
            members = with_more(gang.members, gang.used, size - have, gang.task.most)
        elif size < have:
            waiting = sorted(gang.pending)[: size - len(gang.placed)]
            members = {*gang.placed, *waiting}
        else:
            continue
        why = "asked for, so that nodes are added" if size > have else "its queue allows no more"
        found.append(Resize(gang.key, tuple(sorted(members)), why, ASK))
    return found


def _size(context: PreemptionContext, gang: ElasticGang, asked: Asked) -> int:
    """Returns the gang's members with those that it may ask for, at least those with a seat. Adds what it asks for to
    `asked`, which counts as used."""
    placed, spec = len(gang.placed), gang.spec
    assert spec is not None  # it has started
    request = dict(spec.requests)
    more = gang.task.most - placed
    if context.queues.enabled:
        request = context.queues.currency.counted(request)
        more = min(more, pools.within_capability(context, gang.gang.queue, request, asked))
    size = max(gang.allowed(placed + more), placed) if more > 0 else placed
    for queue in context.queues.by_name[gang.gang.queue].path if context.queues.enabled else ():
        own = asked.setdefault(queue.name, {})
        for resource, amount in request.items():
            own[resource] = own.get(resource, 0) + amount * (size - placed)
    return size
