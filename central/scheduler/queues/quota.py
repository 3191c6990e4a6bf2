"""Policies by which a queue may start pods of a gang. Pure.

Ordering needs no fair shares: the queue with the lowest usage level is served next, which is
water-filling step by step. Fair shares are computed (entitlement.py) only where one queue wants
capacity back from another, and for `lockstep explain`.

Design: docs/design/queues.md
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import ROOT, Sums, add
from central.scheduler.queues import access, tenant_limits
from central.scheduler.queues.claim_in_flight import NEVER_EVICTED, Counted, InFlight, pending_needs
from central.scheduler.queues.min_resources import MinResources, required
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import GANGS
from central.scheduler.state.gangs import Gang

UsageLevel = tuple[bool, int, float, str]

GUARANTEED = "guaranteed to queue"  # in the refusal by leaves_guarantees()


def usage_level(queue: Queue, total: Sums, need: Sums | None = None) -> UsageLevel:
    """The sort key of queues; the lowest is served first. need: what the queue would use more.

    Queues below their deserved amount come before others, then higher priority before lower. Then
    the share of the dominant resource counts: of the deserved amount that is used, or else of the
    total that is used above it, with past usage, divided by the weight.

    Example: 16 GPUs in total. b with weight 2 uses 6 and deserves 2: (6 - 2) / (16 * 2) = 0.125. c
    with weight 1 uses 1 and deserves nothing: 1 / 16 = 0.0625. c is served first.
    """
    seen = queue.seen
    deserved, used = queue.deserved, queue.used
    if need:
        used = dict(used)
        add(used, need, 1)
    if queue.below_deserved:
        share = max(used.get(resource, 0) / own for resource, own in deserved.items())
        return (False, -seen.priority, share, queue.name)
    return (True, -seen.priority, queue.share_above_deserved(used, total), queue.name)


class StartRequest(NamedTuple):
    """A gang that wants to start pods, as a queue policy sees it."""

    queues: Queues
    min_resources: MinResources
    gang: Gang
    queue: Queue
    need: Sums  # of the pods, with what the gang's later pods will ask for


def refusal(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> str:
    """Returns why the gang's queue may not start these pods (by class, with counts) now; empty: it may."""
    if gang.account is None:
        return ""
    queue = queues.by_name[gang.account.queue]
    if queue.error:
        return queues.why_invalid(queue)
    need = queues.currency.counted(required(gang, groups))
    request = StartRequest(queues, min_resources, gang, queue, need)
    for policy in QUEUE_POLICIES:
        if why := policy(request):
            return why
    return ""


def allowed_to_use(request: StartRequest) -> str:
    """The rules of the queue that the gang names, and of those above it, admit the gang."""
    queues, gang = request.queues, request.gang
    name = queues.name_of(gang)
    if not queues.terms.restricted or (above := queues.refusing_queue(gang, name)) is None:
        return ""
    rule = access.describe(above.seen.access) if above.seen.access is not None else ""
    return (
        f"namespace {gang.namespace} may not use {_named(queues.by_name[name], above)}: it is for "
        f"{rule} (access); name another queue, or ask its owner"
    )


def open_leaf(request: StartRequest) -> str:
    """Gangs start only in open queues without children; what has started may grow."""
    queue = request.queue
    if request.gang.started:
        return ""
    for above in queue.path:
        if above.seen.closed:
            return _named(queue, above) + " is closed"
    if queue.children or queue.name == ROOT:
        children = ", ".join(child.name for child in queue.children[:3])
        more = ", ..." if len(queue.children) > 3 else ""
        return f"queue {queue.name} is not a leaf; use one of its children: {children}{more}"
    return ""


def first_in_first_out(request: StartRequest) -> str:
    """Refuses a gang behind the first ready gang of a queue with dequeueStrategy fifo, unless it has started."""
    queue, gang = request.queue, request.gang
    if queue.seen.fifo and not gang.started:
        first = request.queues.fifo.first(queue.name)
        if first is not None and first is not gang and first.attempt.rank < gang.attempt.rank:
            ahead = first.qualified_name  # equal gangs of several namespaces share the reason
            return f"queue {queue.name} is first in, first out; {ahead} is ahead of it"
    return ""


def within_capability(request: StartRequest) -> str:
    """Refuses pods with which the queue, or one above it, would use more than its capability."""
    for above in request.queue.path:
        for resource, most in above.capability.items():
            if amount := request.need.get(resource, 0):
                reserved = outstanding(
                    request.queues, request.min_resources, request.gang, above, resource
                )
                claimed = _claimed(request.queues, request.gang, above, resource)
                if above.used.get(resource, 0) + reserved + claimed + amount > most:
                    held = (reserved, claimed)
                    return _over_capability(request, above, resource, amount, held)
    return ""


def leaves_guarantees(request: StartRequest) -> str:
    """Refuses pods that would take what other queues are guaranteed and do not use, except for what the queue itself,
    or one above it, is guaranteed: a guarantee of more than the cluster has stops no other guaranteed queue."""
    if not request.queues.terms.guarantees:
        return ""
    for resource, amount in request.need.items():
        free, withheld, owners = _free_beside_guarantees(request, resource, amount)
        if withheld and amount > free.left - withheld:
            claimed = wording.are(resource, free.claimed)
            also = f" and {claimed} kept for gangs whose victims terminate"
            return (
                f"needs {wording.quantity(resource, amount)}; "
                f"{wording.are(resource, free.left + free.claimed)} free, of which "
                f"{wording.are(resource, min(withheld, free.left))} "
                f"{GUARANTEED}{'s' if len(owners) > 1 else ''} {', '.join(owners)}"
                f"{also if free.claimed else ''}"
            )
    return ""


class _Free(NamedTuple):
    """Unused capacity: what claims in flight of other gangs will take, and what is left."""

    left: int
    claimed: int


def _free(request: StartRequest, resource: str) -> _Free:
    queues = request.queues
    free = queues.total.get(resource, 0) - queues.root.used.get(resource, 0)
    claimed = min(_claimed(queues, request.gang, queues.root, resource), max(0, free))
    return _Free(free - claimed, claimed)


def _withheld_for(request: StartRequest, other: Queue, resource: str) -> int:
    """Returns how much is withheld for the other queue's guarantee, beside what claims in flight will take for it."""
    unused = _unused_guarantee(request.queues, other, resource)
    if not unused:
        return 0
    return max(0, unused - _claimed(request.queues, request.gang, other, resource))


def _free_beside_guarantees(
    request: StartRequest, resource: str, amount: int
) -> tuple[_Free, int, list[str]]:
    """Returns what is free, how much is withheld for guarantees, and the names of the queues that have these."""
    queue = request.queue
    withheld, owners = 0, []
    for inner, outer in zip(queue.path, queue.path[1:], strict=False):
        own = inner.guarantee.get(resource, 0)
        if own >= amount:
            claimed = _claimed(request.queues, request.gang, inner, resource)
            if inner.used.get(resource, 0) + claimed + amount <= own:
                break
        for other in outer.children:
            if other is not inner and (unused := _withheld_for(request, other, resource)):
                withheld += unused
                owners.append(other.name)
    return _free(request, resource), withheld, owners


def within_running_gangs(request: StartRequest) -> str:
    """Refuses to start a gang with which the queue, one above it, or a namespace or user in these would run more gangs
    than its limit."""
    if request.gang.account is None or request.gang.account.used:
        return ""
    for above in request.queue.path:
        most = above.seen.running_gangs
        running = above.running() if most is not None else 0
        claimed = _claimed(request.queues, request.gang, above, GANGS)
        whose = _named(request.queue, above)
        if most is not None and running + claimed >= most:
            never = f"{wording.NEVER}: " if not most else ""
            gangs = tenant_limits.running_gangs(running, claimed)
            return f"{never}{whose} runs {gangs}, and may run {most} at a time"
        for each in tenants_of(request, above):
            if why := each.gangs_refusal(whose, _claimed_by_tenant(request, each)):
                return why
    return ""


def tenants_of(request: StartRequest, above: Queue) -> Iterator[tenant_limits.Tenant]:
    return tenant_limits.tenants(request.queues.currency, request.gang, above)


def _claimed_by_tenant(request: StartRequest, tenant: tenant_limits.Tenant) -> Callable[[str], int]:
    return partial(_claimed, request.queues, request.gang, tenant.key)


def within_tenant_amounts(request: StartRequest) -> str:
    """The gangs of one namespace, or of one user, use no more of a queue than its limit for each of them."""
    for above in request.queue.path:
        for each in tenants_of(request, above):
            claimed = _claimed_by_tenant(request, each)
            if why := each.amounts_refusal(request.need, _named(request.queue, above), claimed):
                return why
    return ""


def never_evicted_within_deserved(request: StartRequest) -> str:
    """Refuses pods of gangs that are never evicted beyond the deserved amounts of their queue and of each above it, of
    the resources that these name: such gangs can't be reclaimed, so more would take from others for good."""
    if not request.gang.never_evicted:
        return ""
    for above in request.queue.path:
        used = _used_by_never_evicted(request.queues, above)
        for resource, most in above.deserved.items():
            amount, have = request.need.get(resource, 0), used.get(resource, 0)
            counted = above, NEVER_EVICTED, ""
            claimed = _claimed(request.queues, request.gang, counted, resource) if amount else 0
            if amount and have + claimed + amount > most:
                limit = wording.quantity(resource, most)
                never = f"{wording.NEVER}: " if amount > most else ""
                return (
                    f"{never}gangs that are not preemptable may use the deserved {limit} of "
                    f"{_named(request.queue, above)}, and use {wording.amount(resource, have)}"
                    f"{tenant_limits.kept(resource, claimed)}; "
                    f"{wording.are(resource, amount, 'more')} needed"
                )
    return ""


def _used_by_never_evicted(queues: Queues, queue: Queue) -> Sums:
    cache = queues.cache
    key = (queue.name, "never_evicted")  # is not a name of a resource
    if (found := cache.get(key)) is None:
        found = {}
        for below in queue:
            for gang in below.gangs.values():
                if gang.account is not None and gang.account.used and gang.never_evicted:
                    add(found, gang.account.used, 1)
        cache[key] = found
    sums: Sums = found
    return sums


# What may refuse a start, in order: the first refusal is the reason. To add a queue policy, add its
# function and its entry (docs/contributing.md).
QUEUE_POLICIES: tuple[Callable[[StartRequest], str], ...] = (
    allowed_to_use,
    open_leaf,
    first_in_first_out,
    within_running_gangs,
    within_tenant_amounts,
    within_capability,
    never_evicted_within_deserved,
    leaves_guarantees,
)


OF_AMOUNTS = (within_running_gangs, within_tenant_amounts, within_capability, leaves_guarantees)


def _claimed(queues: Queues, gang: Gang, counted: Counted, resource: str) -> int:
    """Returns how much claims in flight of other gangs will use of the queue, or its tenant, beyond what terminating
    pods use now; at least 0."""
    return max(0, in_flight(queues, gang, counted, resource))


def in_flight(queues: Queues, gang: Gang, counted: Counted, resource: str) -> int:
    """Returns how much claims in flight of other gangs will use of the queue, or its tenant, less what terminating pods
    use now. Claims of less urgent gangs of the gang's own queue do not count: it would evict these gangs as soon as
    they have started."""
    in_flight, by_name = queues.in_flight, queues.by_name
    if in_flight.none:
        return 0
    binding = in_flight.binding(gang, by_name)
    needs: InFlight | None
    if binding is None:
        needs = in_flight.needs_of_others(gang, by_name)
    elif (needs := queues.cache.get(key := ("claimed", *gang.key))) is None:
        needs = queues.cache[key] = pending_needs(binding, by_name)
    leaving = in_flight.leaving(by_name)
    more, less = (sums.get(counted, {}).get(resource, 0) for sums in (needs, leaving))
    return more - less


def outstanding(
    queues: Queues, min_resources: MinResources, gang: Gang, queue: Queue, resource: str
) -> int:
    """Returns how much other gangs of the queue and its descendants have not taken of their minResources."""
    by_name, currency = queues.by_name, queues.currency
    return sum(
        currency.counted(sums).get(resource, 0)
        for other, sums in min_resources.by_gang.values()
        if other is not gang
        and other.account is not None
        and queue in by_name[other.account.queue].path
    )


def _over_capability(
    request: StartRequest, above: Queue, resource: str, amount: int, held: tuple[int, int]
) -> str:
    """held: for minResources, and for claims"""
    queue, (reserved, claimed) = request.queue, held
    most = above.capability[resource]
    noun = "deserved amount plus borrowingLimit" if above.borrows(resource) else "capability"
    capability = f"{noun} of {wording.quantity(resource, most)}"
    if amount > most:
        needed = f"{wording.are(resource, amount)} needed"
        text = f"{wording.NEVER}: {_named(queue, above)} has a {capability}; {needed}"
        return f"{text}; reduce the request or raise the capability"
    used = wording.amount(resource, above.used.get(resource, 0))
    needed = f"{wording.are(resource, amount, 'more')} needed"
    also = f", {wording.are(resource, reserved)} reserved (minResources)" if reserved else ""
    also += tenant_limits.kept(resource, claimed)
    return f"{_named(queue, above)} uses {used} of its {capability}{also}; {needed}"


def _named(queue: Queue, above: Queue) -> str:
    return f"queue {above.name}" + (f" (above {queue.name})" if above is not queue else "")


def tenant(queues: Queues, gang: Gang) -> tuple[object, ...]:
    """Returns the properties that make the answers of the policies differ for gangs of one queue; empty: there are
    none."""
    own: tuple[object, ...] = ()
    if queues.terms.restricted:
        own = (gang.namespace, access.accounts(gang))
    if queues.terms.limits_users:
        own += (gang.account.user if gang.account is not None else "",)
    return (*own, True) if gang.never_evicted else own


# --- guarantees ------------------------------------------------------------------


def _unused_guarantee(queues: Queues, queue: Queue, resource: str) -> int:
    """Returns how much must stay free for the guarantees of the queue and its descendants."""
    cache = queues.cache
    if (found := cache.get((queue.name, resource))) is None:
        own = queue.guarantee.get(resource, 0) - queue.used.get(resource, 0)
        inner = sum(_unused_guarantee(queues, child, resource) for child in queue.children)
        found = cache[queue.name, resource] = max(0, own, inner)
    return int(found)
