"""What a queue may start. Pure.

Ordering needs no fair shares: the queue with the lowest usage level is served next, which is
water-filling step by step. Fair shares are computed (entitlement.py) only where one queue wants
capacity back from another, and for `lockstep explain`.

Design: docs/design/0015-queues.md
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise, product
from typing import NamedTuple

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import ROOT, Sums, add
from central.scheduler.queues import access, tenant_limits
from central.scheduler.queues.claim_in_flight import pending_needs, present_victims
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.min_resources import MinResources, required
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import GANGS, Shortfall
from central.scheduler.state.gangs import Gang

UsageLevel = tuple[bool, int, float, str]

GUARANTEED = "guaranteed to queue"  # in the refusal by leaves_guarantees()
MAX_ALTERNATIVES = 8  # sets of shortfalls that are tried for one gang


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
    below = deserved and all(used.get(resource, 0) < own for resource, own in deserved.items())
    if need:
        used = dict(used)
        add(used, need, 1)
    if below:
        share = max(used.get(resource, 0) / own for resource, own in deserved.items())
        return (False, -seen.priority, share, queue.name)
    share = max(
        (
            (used.get(resource, 0) - deserved.get(resource, 0) + queue.past_usage.of(resource))
            / (whole * seen.weight)
            for resource in queue.past_usage.resources(used)
            if (whole := total.get(resource, 0))
        ),
        default=0.0,
    )
    return (True, -seen.priority, share, queue.name)


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
    """Why the gang's queue may not start these pods (by class, with counts) now; empty: it may."""
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


def shortfalls(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> list[tuple[Shortfall, ...]]:
    """What victims must free so that the queue may start these pods: alternatives, each with the nearest queue first.
    None at all: it may start them, or no victims can change that."""
    if gang.account is None or (queue := queues.by_name[gang.account.queue]).error:
        return []
    need = queues.currency.counted(required(gang, groups))
    request = StartRequest(queues, min_resources, gang, queue, need)
    if any(policy(request) for policy in QUEUE_POLICIES if policy not in _OF_AMOUNTS):
        return []
    found: list[Shortfall] = []
    for above in queue.path:
        if _never_within(request, above):
            return []
        found += _shortfalls_of(request, above)
    by_guarantees = islice(product(*_shortfalls_of_guarantees(request)), MAX_ALTERNATIVES)
    return [lacks for each in by_guarantees if (lacks := (*found, *chain.from_iterable(each)))]


def may_claim(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> bool:
    """Whether less urgent gangs of its queue, or queues above their shares, use as much as the gang lacks of a
    quota. Its pods must exist before victims are chosen."""
    return any(
        all(_may_be_covered(queues, gang, short) for short in lacks)
        for lacks in shortfalls(queues, min_resources, gang, groups)
    )


def _may_be_covered(queues: Queues, gang: Gang, short: Shortfall) -> bool:
    found: Sums = {}
    for queue in short.queue:
        own = queue.name == gang.queue
        above = not own and _is_above_share(queues, queue, short.amounts)
        for other in queue.gangs.values() if own or above else ():
            if other.account is None or not other.account.used:
                continue
            counts = short.namespace in ("", other.namespace)
            if counts and (above or other.priority < gang.priority):
                add(found, {**other.account.used, GANGS: 1}, 1)
    return all(found.get(resource, 0) >= amount for resource, amount in short.amounts.items())


def _is_above_share(queues: Queues, queue: Queue, resources: Iterable[str]) -> bool:
    shared = [
        resource for resource in resources if resource != GANGS and queues.is_shared(resource)
    ]
    return any(
        queue.used.get(resource, 0) > fair_shares(queues, resource)[queue.name]
        for resource in shared
    )


def _shortfalls_of_guarantees(request: StartRequest) -> list[list[tuple[Shortfall, ...]]]:
    """By resource, what must become free beside what is withheld for others: alternatives, the smallest first."""
    found = []
    for resource, amount in request.need.items() if request.queues.guarantees else ():
        free, withheld, _ = _free_beside_guarantees(request, resource, amount)
        if withheld and amount > free.left - withheld:
            ways = [*_ways_into_guarantees(request, resource, amount)]
            found.append(sorted(ways, key=lambda way: max(_largest(short) for short in way)))
    return found


def _largest(short: Shortfall) -> int:
    return max(short.amounts.values())


def _ways_into_guarantees(
    request: StartRequest, resource: str, amount: int
) -> Iterator[tuple[Shortfall, ...]]:
    """A queue that would stay within its own guarantee leaves free only what is guaranteed to queues below the same
    parents. So for each queue of the path that could: so much of it goes that it does. Else enough goes for all."""
    withheld = 0
    free = _free(request, resource).left
    path, root = request.queue.path, request.queues.root
    for inner, outer in pairwise(path):
        own = inner.guarantee.get(resource, 0)
        over = inner.used.get(resource, 0) + amount - own
        beside = amount - (free - withheld)
        inside = (Shortfall(inner, {resource: over}),) if over > 0 else ()
        if own >= amount:
            rest = (Shortfall(root, {resource: beside}),) if beside > over else ()
            yield (*inside, *rest)
        if over <= 0:
            return
        withheld += sum(
            _withheld_for(request, other, resource)
            for other in outer.children
            if other is not inner
        )
    yield (Shortfall(root, {resource: amount - (free - withheld)}),)


def _never_within(request: StartRequest, above: Queue) -> bool:
    need = request.need
    return (
        any(need.get(resource, 0) > most for resource, most in above.capability.items())
        or above.seen.running_gangs == 0
        or any(tenant.never_starts(need) for tenant in _tenants(request, above))
    )


def _shortfalls_of(request: StartRequest, above: Queue) -> list[Shortfall]:
    gang, need = request.gang, request.need
    lacks = {
        resource: over
        for resource, most in above.capability.items()
        if need.get(resource) and (over := _over(request, above, resource, most)) > 0
    }
    starts = gang.account is not None and not gang.account.used
    most = above.seen.running_gangs
    if starts and most is not None and above.running() >= most:
        lacks[GANGS] = above.running() + 1 - most
    its_own = (tenant.shortfall(need, starts=starts) for tenant in _tenants(request, above))
    found = [Shortfall(above, lacks)] if lacks else []
    return [*found, *(short for short in its_own if short is not None)]


def _over(request: StartRequest, above: Queue, resource: str, most: int) -> int:
    """How much more than its capability the queue would use."""
    queues, gang = request.queues, request.gang
    reserved = _outstanding(queues, request.min_resources, gang, above, resource)
    claimed = _claimed(queues, gang, above, resource)
    return above.used.get(resource, 0) + reserved + claimed + request.need[resource] - most


def allowed_to_use(request: StartRequest) -> str:
    """The rules of the queue that the gang names, and of those above it, admit the gang."""
    queues, gang = request.queues, request.gang
    name = queues.name_of(gang)
    if not queues.restricted or (above := queues.refusing_queue(gang, name)) is None:
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
    """With dequeueStrategy fifo only the first ready gang of the queue starts."""
    queue, gang = request.queue, request.gang
    if queue.seen.fifo and not gang.started:
        first = request.queues.fifo.first(queue.name)
        if first is not None and first is not gang and first.attempt.rank < gang.attempt.rank:
            ahead = first.qualified_name  # equal gangs of several namespaces share the reason
            return f"queue {queue.name} is first in, first out; {ahead} is ahead of it"
    return ""


def within_capability(request: StartRequest) -> str:
    """No queue, and none above it, uses more than its capability."""
    for above in request.queue.path:
        for resource, most in above.capability.items():
            if amount := request.need.get(resource, 0):
                reserved = _outstanding(
                    request.queues, request.min_resources, request.gang, above, resource
                )
                claimed = _claimed(request.queues, request.gang, above, resource)
                if above.used.get(resource, 0) + reserved + claimed + amount > most:
                    held = (reserved, claimed)
                    return _over_capability(request, above, resource, amount, held)
    return ""


def leaves_guarantees(request: StartRequest) -> str:
    """What other queues are guaranteed and do not use stays free, except for what the queue itself, or one above
    it, is guaranteed: a guarantee of more than the cluster has stops no other guaranteed queue."""
    if not request.queues.guarantees:
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
    """What nobody uses: what claims in flight of other gangs will take, and what is left."""

    left: int
    claimed: int


def _free(request: StartRequest, resource: str) -> _Free:
    queues = request.queues
    free = queues.total.get(resource, 0) - queues.root.used.get(resource, 0)
    claimed = min(_claimed(queues, request.gang, queues.root, resource), max(0, free))
    return _Free(free - claimed, claimed)


def _withheld_for(request: StartRequest, other: Queue, resource: str) -> int:
    """What is withheld for the other queue's guarantee, beside what claims in flight will take for it."""
    unused = _unused_guarantee(request.queues, other, resource)
    if not unused:
        return 0
    return max(0, unused - _claimed(request.queues, request.gang, other, resource))


def _free_beside_guarantees(
    request: StartRequest, resource: str, amount: int
) -> tuple[_Free, int, list[str]]:
    """What is free, what of it is withheld for guarantees, and for which queues."""
    queue = request.queue
    withheld, owners = 0, []
    for inner, outer in zip(queue.path, queue.path[1:], strict=False):
        if inner.used.get(resource, 0) + amount <= inner.guarantee.get(resource, 0):
            break
        for other in outer.children:
            if other is not inner and (unused := _withheld_for(request, other, resource)):
                withheld += unused
                owners.append(other.name)
    return _free(request, resource), withheld, owners


def within_running_gangs(request: StartRequest) -> str:
    """No queue, and no namespace or user in it, runs more gangs than its limit."""
    if request.gang.account is None or request.gang.account.used:
        return ""
    for above in request.queue.path:
        most = above.seen.running_gangs
        running = above.running() if most is not None else 0
        whose = _named(request.queue, above)
        if most is not None and running >= most:
            never = f"{wording.NEVER}: " if not most else ""
            return f"{never}{whose} runs {wording.counted(running, 'gang')}, and may run {most} at a time"
        for each in _tenants(request, above):
            if why := each.gangs_refusal(whose):
                return why
    return ""


def _tenants(request: StartRequest, above: Queue) -> Iterator[tenant_limits.Tenant]:
    return tenant_limits.tenants(request.queues.currency, request.gang, above)


def within_tenant_amounts(request: StartRequest) -> str:
    """The gangs of one namespace, or of one user, use no more of a queue than its limit for each of them."""
    for above in request.queue.path:
        for each in _tenants(request, above):
            if why := each.amounts_refusal(request.need, _named(request.queue, above)):
                return why
    return ""


def never_evicted_within_deserved(request: StartRequest) -> str:
    """What is never evicted can't be reclaimed, so it stays inside the deserved amounts of its queue and of each
    above it: of the resources that these name. More would take from others for good."""
    if not request.gang.never_evicted:
        return ""
    for above in request.queue.path:
        used = _used_by_never_evicted(request.queues, above)
        for resource, most in above.deserved.items():
            amount, have = request.need.get(resource, 0), used.get(resource, 0)
            if amount and have + amount > most:
                limit = wording.quantity(resource, most)
                never = f"{wording.NEVER}: " if amount > most else ""
                return (
                    f"{never}gangs that are not preemptable may use the deserved {limit} of "
                    f"{_named(request.queue, above)}, and use {wording.amount(resource, have)}; "
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


_OF_AMOUNTS = (within_running_gangs, within_tenant_amounts, within_capability, leaves_guarantees)


def _claimed(queues: Queues, gang: Gang, above: Queue, resource: str) -> int:
    """What claims in flight of other gangs will use of the queue beyond what their victims use now. A more urgent gang
    of the claimant's queue need not keep it: it would evict the claimant as soon as that has started."""
    if not queues.claims:
        return 0
    known: tuple[dict[Queue, Sums], dict[Queue, Sums]] | None
    others = queues.in_flight.binding(gang, queues.by_name)
    if others is None:
        victims_use, will_take = queues.in_flight.of_others(gang, queues.by_name)
        known = will_take, victims_use
    elif (known := queues.cache.get(key := ("claimed", "/".join(gang.key[:2])))) is None:
        known = pending_needs(others, queues.by_name), present_victims(others, queues.by_name)
        queues.cache[key] = known
    needs, victims = (sums.get(above, {}).get(resource, 0) for sums in known)
    return max(0, needs - victims)


def _outstanding(
    queues: Queues, min_resources: MinResources, gang: Gang, queue: Queue, resource: str
) -> int:
    """What other gangs of the queue and its descendants have not taken of their minResources."""
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
    if claimed:
        also += f", {wording.are(resource, claimed)} kept for gangs whose victims terminate"
    return f"{_named(queue, above)} uses {used} of its {capability}{also}; {needed}"


def _named(queue: Queue, above: Queue) -> str:
    return f"queue {above.name}" + (f" (above {queue.name})" if above is not queue else "")


def tenant(queues: Queues, gang: Gang) -> tuple[object, ...]:
    """What makes the answers of the policies differ for gangs of one queue; empty: nothing."""
    own: tuple[object, ...] = ()
    if queues.restricted:
        own = (gang.namespace, access.accounts(gang))
    if queues.limits_users:
        own += (gang.account.user if gang.account is not None else "",)
    return (*own, True) if gang.never_evicted else own


# --- guarantees ------------------------------------------------------------------


def _unused_guarantee(queues: Queues, queue: Queue, resource: str) -> int:
    """What must stay free for the guarantees of the queue and its descendants."""
    cache = queues.cache
    if (found := cache.get((queue.name, resource))) is None:
        own = queue.guarantee.get(resource, 0) - queue.used.get(resource, 0)
        inner = sum(_unused_guarantee(queues, child, resource) for child in queue.children)
        found = cache[queue.name, resource] = max(0, own, inner)
    return int(found)
