"""Shortfalls that victims can free: what a quota lacks for a gang, beside what terminating pods free in any case.

Design: docs/design/reclaim.md
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice, pairwise, product

from central.model.facts import PodSpec
from central.model.resources import Sums, add
from central.scheduler.queues import quota
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.min_resources import MinResources, required
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.state.gangs import Gang

MAX_ALTERNATIVES = 8  # sets of shortfalls that are tried for one gang


def shortfalls(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> list[tuple[Shortfall, ...]] | None:
    """Returns what victims must free, beside what terminating pods free in any case, so that the queue may start these
    pods (by class, with counts): alternatives, each with the nearest queue first. Empty: nothing, it may start them
    then. None: no victims can change that."""
    if gang.account is None or (queue := queues.by_name[gang.account.queue]).error:
        return None
    need = queues.currency.counted(required(gang, groups))
    request = quota.StartRequest(queues, min_resources, gang, queue, need)
    if any(policy(request) for policy in quota.QUEUE_POLICIES if policy not in quota.OF_AMOUNTS):
        return None
    found: list[Shortfall] = []
    for above in queue.path:
        if _never_within(request, above):
            return None
        found += _shortfalls_of(request, above)
    by_guarantees = islice(product(*_shortfalls_of_guarantees(request)), MAX_ALTERNATIVES)
    return [lacks for each in by_guarantees if (lacks := (*found, *chain.from_iterable(each)))]


def may_claim(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> bool:
    """Returns whether the gang lacks some of a quota, and gangs of its queue that are less urgent or share time, or
    queues above their shares, use as much as that. Its pods must exist before victims are chosen."""
    return any(
        all(_may_be_covered(queues, gang, short) for short in lacks)
        for lacks in shortfalls(queues, min_resources, gang, groups) or ()
    )


def _may_be_covered(queues: Queues, gang: Gang, short: Shortfall) -> bool:
    found: Sums = {}
    for queue in short.queue:
        own = queue.name == gang.queue
        above = not own and _is_above_share(queues, queue, short.amounts)
        for other in queue.gangs.values() if own or above else ():
            if other.account is None or not other.account.used:
                continue
            if short.counts(other, queue) and (above or _may_give_way(other, gang)):
                add(found, {**queues.staying(other), GANGS: 1}, 1)
    return all(found.get(resource, 0) >= amount for resource, amount in short.amounts.items())


def _may_give_way(other: Gang, gang: Gang) -> bool:
    """Returns whether the other gang may be evicted for the gang: its priority is lower, or is equal and it shares
    time."""
    shares_time = other.preemption.turn is not None
    return other.priority < gang.priority or (shares_time and other.priority == gang.priority)


def _is_above_share(queues: Queues, queue: Queue, resources: Iterable[str]) -> bool:
    shared = [
        resource for resource in resources if resource != GANGS and queues.is_shared(resource)
    ]
    return any(
        queue.used.get(resource, 0) > fair_shares(queues, resource)[queue.name]
        for resource in shared
    )


def _shortfalls_of_guarantees(request: quota.StartRequest) -> list[list[tuple[Shortfall, ...]]]:
    """Returns, for each resource that lacks, what must become free beside what is withheld for others: alternatives,
    the smallest first."""
    found = []
    for resource, amount in request.need.items() if request.queues.terms.guarantees else ():
        withheld = 0
        for inner, outer in pairwise(request.queue.path):
            if _will_use(request, inner, resource) + amount <= inner.guarantee.get(resource, 0):
                break
            withheld += _will_be_withheld_beside(request, inner, outer, resource)
        if withheld and amount > _will_be_free(request, resource) - withheld:
            ways = [*_ways_into_guarantees(request, resource, amount)]
            found.append(sorted(ways, key=lambda way: max(_largest(short) for short in way)))
    return found


def _largest(short: Shortfall) -> int:
    return max(short.amounts.values())


def _ways_into_guarantees(
    request: quota.StartRequest, resource: str, amount: int
) -> Iterator[tuple[Shortfall, ...]]:
    """A queue that would stay within its own guarantee leaves free only what is guaranteed to queues below the same
    parents. So for each queue of the path that could: so much of it goes that it does. Else enough goes for all."""
    withheld, free = 0, _will_be_free(request, resource)
    path, root = request.queue.path, request.queues.root
    for inner, outer in pairwise(path):
        own = inner.guarantee.get(resource, 0)
        over = _will_use(request, inner, resource) + amount - own
        beside = amount - (free - withheld)
        inside = (Shortfall(inner, {resource: over}),) if over > 0 else ()
        if own >= amount:
            rest = (Shortfall(root, {resource: beside}),) if beside > over else ()
            yield (*inside, *rest)
        if over <= 0:
            return
        withheld += _will_be_withheld_beside(request, inner, outer, resource)
    yield (Shortfall(root, {resource: amount - (free - withheld)}),)


def _will_be_free(request: quota.StartRequest, resource: str) -> int:
    """Returns what is free once terminating pods have gone and other gangs with claims in flight have started."""
    queues = request.queues
    return queues.total.get(resource, 0) - _will_use(request, queues.root, resource)


def _will_be_withheld_beside(
    request: quota.StartRequest, inner: Queue, outer: Queue, resource: str
) -> int:
    return sum(
        _will_be_withheld(request, other, resource)
        for other in outer.children
        if other is not inner
    )


def _will_be_withheld(request: quota.StartRequest, other: Queue, resource: str) -> int:
    """Returns what is withheld, at the time of _will_be_free(), for the guarantees of the other queue and those below
    it."""
    own = other.guarantee.get(resource, 0) - _will_use(request, other, resource)
    inner = sum(_will_be_withheld(request, child, resource) for child in other.children)
    return max(0, own, inner)


def _will_use(request: quota.StartRequest, queue: Queue, resource: str) -> int:
    """Returns what the queue uses at the time of _will_be_free()."""
    more = quota.in_flight(request.queues, request.gang, queue, resource)
    return queue.used.get(resource, 0) + more


def _never_within(request: quota.StartRequest, above: Queue) -> bool:
    need = request.need
    return (
        any(need.get(resource, 0) > most for resource, most in above.capability.items())
        or above.seen.running_gangs == 0
        or any(tenant.never_starts(need) for tenant in quota.tenants_of(request, above))
    )


def _shortfalls_of(request: quota.StartRequest, above: Queue) -> list[Shortfall]:
    gang, need, queues = request.gang, request.need, request.queues
    lacks = {
        resource: over
        for resource, most in above.capability.items()
        if need.get(resource) and (over := _over(request, above, resource, most)) > 0
    }
    starts = gang.account is not None and not gang.account.used
    most = above.seen.running_gangs
    if starts and most is not None:
        over = above.running() + quota.in_flight(queues, gang, above, GANGS) + 1 - most
        if over > 0:
            lacks[GANGS] = over
    its_own = (
        tenant.shortfall(need, partial(quota.in_flight, queues, gang, tenant.key), starts=starts)
        for tenant in quota.tenants_of(request, above)
    )
    found = [Shortfall(above, lacks)] if lacks else []
    return [*found, *(short for short in its_own if short is not None)]


def _over(request: quota.StartRequest, above: Queue, resource: str, most: int) -> int:
    """Returns by how much the queue would exceed its capability (most); 0 or less: it would not."""
    queues, gang = request.queues, request.gang
    reserved = quota.outstanding(queues, request.min_resources, gang, above, resource)
    return _will_use(request, above, resource) + reserved + request.need[resource] - most
