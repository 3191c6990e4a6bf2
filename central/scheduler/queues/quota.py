"""What a queue may start, its fair share, what it may reclaim. Pure.

Ordering needs no fair shares: the queue with the lowest usage level is served next, which is
water-filling step by step. Fair shares are computed (fair_share.py) only where one queue wants
capacity back from another, and for `lockstep explain`.

Design: docs/design/0015-queues.md
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import ROOT, Sums, add
from central.scheduler.queues import access
from central.scheduler.queues.fair_share import Amount, QueueDemand, divide
from central.scheduler.queues.min_resources import MinResources, required
from central.scheduler.queues.queue_tree import Queues, sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

UsageLevel = tuple[bool, int, float, str]


def usage_level(queue: Queue, total: Sums) -> UsageLevel:
    """The sort key of queues; the lowest is served first.

    Queues below their deserved amount come before others, then higher priority before lower. Then
    the share of the dominant resource counts: of the deserved amount that is used, or else of the
    total that is used above it, with past usage, divided by the weight.

    Example: 16 GPUs in total. b with weight 2 uses 6 and deserves 2: (6 - 2) / (16 * 2) = 0.125. c
    with weight 1 uses 1 and deserves nothing: 1 / 16 = 0.0625. c is served first.
    """
    seen = queue.seen
    deserved = dict(seen.deserved)
    used = queue.used
    if deserved and all(used.get(resource, 0) < own for resource, own in deserved.items()):
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
        return queue.error
    request = StartRequest(queues, min_resources, gang, queue, required(gang, groups))
    for policy in QUEUE_POLICIES:
        if why := policy(request):
            return why
    return ""


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
            return f"queue {queue.name} is first in, first out; {first.name} is ahead of it"
    return ""


def within_capability(request: StartRequest) -> str:
    """No queue, and none above it, uses more than its capability."""
    for above in request.queue.path:
        for resource, most in above.capability.items():
            if amount := request.need.get(resource, 0):
                reserved = _outstanding(
                    request.queues, request.min_resources, request.gang, above, resource
                )
                if above.used.get(resource, 0) + reserved + amount > most:
                    return _over_capability(request.queue, above, resource, amount, reserved)
    return ""


def leaves_guarantees(request: StartRequest) -> str:
    """What other queues are guaranteed and do not use stays free, except for what the queue itself, or one above
    it, is guaranteed: a guarantee of more than the cluster has stops no other guaranteed queue."""
    queues, queue = request.queues, request.queue
    if not queues.guarantees:
        return ""
    for resource, amount in request.need.items():
        withheld, owners = 0, []
        for inner, outer in zip(queue.path, queue.path[1:], strict=False):
            if inner.used.get(resource, 0) + amount <= inner.guarantee.get(resource, 0):
                break
            for other in outer.children:
                if other is not inner and (unused := _unused_guarantee(queues, other, resource)):
                    withheld += unused
                    owners.append(other.name)
        free = queues.total.get(resource, 0) - queues.root.used.get(resource, 0)
        if withheld and amount > free - withheld:
            return (
                f"needs {wording.amount(resource, amount)} {wording.resource(resource)}; "
                f"{wording.amount(resource, free)} are free, of which "
                f"{wording.amount(resource, min(withheld, free))} are guaranteed to "
                f"queue{'s' if len(owners) > 1 else ''} {', '.join(owners)}"
            )
    return ""


def within_running_gangs(request: StartRequest) -> str:
    """No queue, and no namespace in it, runs more gangs than its limit."""
    if request.gang.account is None or request.gang.account.used:
        return ""
    namespace = request.gang.namespace
    for above in request.queue.path:
        most = above.seen.running_gangs
        running = above.running() if most is not None else 0
        whose = _named(request.queue, above)
        if most is None or running < most:
            usage, most = above.namespaces.get(namespace), above.seen.namespace_gangs
            running = usage.running if usage is not None else 0
            whose = f"namespace {namespace} in {whose}"
        if most is not None and running >= most:
            never = f"{wording.NEVER}: " if not most else ""
            return f"{never}{whose} runs {running} gangs, and may run {most} at a time"
    return ""


def within_namespace_amounts(request: StartRequest) -> str:
    """The gangs of one namespace use no more of a queue than its limit for each namespace."""
    namespace = request.gang.namespace
    for above in request.queue.path:
        usage = above.namespaces.get(namespace)
        used = usage.used if usage is not None else {}
        for resource, most in above.seen.namespace_amounts:
            amount = request.need.get(resource, 0)
            if not amount or used.get(resource, 0) + amount <= most:
                continue
            whose = f"namespace {namespace} in {_named(request.queue, above)}"
            unit, needed = wording.resource(resource), wording.amount(resource, amount)
            if amount > most:
                limit = wording.amount(resource, most)
                return f"{wording.NEVER}: {whose} may use {limit} {unit}; {needed} are needed"
            return (
                f"{whose} uses {wording.amount(resource, used.get(resource, 0))} of its "
                f"{wording.amount(resource, most)} {unit}; {needed} more are needed"
            )
    return ""


def never_evicted_within_deserved(request: StartRequest) -> str:
    """What is never evicted can't be reclaimed, so it stays inside the deserved amounts of its queue and of each
    above it: of the resources that these name. More would take from others for good."""
    if not request.gang.never_evicted:
        return ""
    for above in request.queue.path:
        used = _used_by_never_evicted(request.queues, above)
        for resource, most in above.seen.deserved:
            amount, have = request.need.get(resource, 0), used.get(resource, 0)
            if amount and have + amount > most:
                unit, limit = wording.resource(resource), wording.amount(resource, most)
                never = f"{wording.NEVER}: " if amount > most else ""
                return (
                    f"{never}gangs that are not preemptable may use the deserved {limit} {unit} of "
                    f"{_named(request.queue, above)}, and use {wording.amount(resource, have)}; "
                    f"{wording.amount(resource, amount)} more are needed"
                )
    return ""


def _used_by_never_evicted(queues: Queues, queue: Queue) -> Sums:
    cache = queues.cache
    key = (queue.name, "never_evicted")  # is no name of a resource
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
    within_namespace_amounts,
    within_capability,
    never_evicted_within_deserved,
    leaves_guarantees,
)


def _outstanding(
    queues: Queues, min_resources: MinResources, gang: Gang, queue: Queue, resource: str
) -> int:
    """What other gangs of the queue and its descendants have not taken of their minResources."""
    by_name = queues.by_name
    return sum(
        sums.get(resource, 0)
        for other, sums in min_resources.by_gang.values()
        if other is not gang
        and other.account is not None
        and queue in by_name[other.account.queue].path
    )


def _over_capability(queue: Queue, above: Queue, resource: str, amount: int, reserved: int) -> str:
    most = above.capability[resource]
    own = dict(above.seen.capability).get(resource) == most
    noun = "capability" if own else "deserved amount plus borrowingLimit"
    capability = f"{noun} of {wording.amount(resource, most)} {wording.resource(resource)}"
    needed = f"{wording.amount(resource, amount)}{{}} {'is' if amount == 1 else 'are'} needed"
    if amount > most:
        text = f"{wording.NEVER}: {_named(queue, above)} has a {capability}; {needed.format('')}"
        return f"{text}; reduce the request or raise the capability"
    used = wording.amount(resource, above.used.get(resource, 0))
    also = f", {wording.amount(resource, reserved)} are reserved (minResources)" if reserved else ""
    return f"{_named(queue, above)} uses {used} of its {capability}{also}; {needed.format(' more')}"


def _named(queue: Queue, above: Queue) -> str:
    return f"queue {above.name}" + (f" (above {queue.name})" if above is not queue else "")


def tenant(queues: Queues, gang: Gang) -> tuple[object, ...]:
    """What makes the answers of the policies differ for gangs of one queue; empty: nothing."""
    own = (gang.namespace, access.accounts(gang)) if queues.restricted else ()
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


# --- fair shares -----------------------------------------------------------------


def fair_shares(queues: Queues, resource: str) -> dict[str, Amount]:
    """By name of each queue in the tree: its fair share of the resource, at most its demand."""
    cached: dict[str, Amount] | None = queues.cache.get(("", resource))
    if cached is not None:
        return cached
    demands: dict[str, QueueDemand] = {}
    _add_demands(queues.root, resource, demands)
    shares: dict[str, Amount] = {ROOT: min(queues.total.get(resource, 0), demands[ROOT].demand)}
    for queue in queues.root:
        below = divide(shares[queue.name], [demands[child.name] for child in queue.children])
        for child, share in zip(queue.children, below, strict=True):
            shares[child.name] = share
    queues.cache["", resource] = shares
    return shares


def _add_demands(queue: Queue, resource: str, demands: dict[str, QueueDemand]) -> QueueDemand:
    seen = queue.seen
    children = [_add_demands(child, resource, demands) for child in queue.children]
    own = queue.used.get(resource, 0) - sum(child.used.get(resource, 0) for child in queue.children)
    demand = own + queue.demand.get(resource, 0) + sum(child.demand for child in children)
    capability = queue.capability.get(resource, demand)
    deserved = dict(seen.deserved).get(resource, sum(child.deserved for child in children))
    guarantee = queue.guarantee.get(resource, 0)
    demands[queue.name] = QueueDemand(
        seen.weight,
        min(demand, capability),
        deserved,
        max(guarantee, sum(child.guarantee for child in children)),
        seen.priority,
    )
    return demands[queue.name]


def scarce_shares(queues: Queues, gang: Gang) -> list[tuple[str, int, Amount]]:
    """Of each resource that the pending gang requests and whose fair share is below the queue's
    demand: (resource, amount the queue uses, fair share)."""
    if gang.account is None:
        return []
    queue = queues.by_name[gang.account.queue]
    found = []
    for resource in sorted(gang.account.demand):
        share = fair_shares(queues, resource).get(queue.name)
        used = queue.used.get(resource, 0)
        if share is not None and share < used + queue.demand.get(resource, 0):
            found.append((resource, used, share))
    return found


def may_reclaim_any(queues: Queues, claimant: Gang) -> bool:
    """Whether the queue would stay within its fair share; else it may not reclaim at all."""
    if claimant.account is None or (queue := queues.by_name[claimant.account.queue]).error:
        return False
    return _within_fair_share(queues, [queue], _minimum_request(claimant))


def _minimum_request(claimant: Gang) -> Sums:
    return sums_of(
        claimant.counts.waiting[: max(1, claimant.minimum - len(claimant.counts.placed))]
    )


def _within_fair_share(queues: Queues, path: Iterable[Queue], requests: Sums) -> bool:
    shares = {resource: fair_shares(queues, resource) for resource in requests}
    return all(
        queue.used.get(resource, 0) + amount <= shares[resource][queue.name]
        for queue in path
        for resource, amount in requests.items()
    )


def may_reclaim(queues: Queues, claimant: Gang, victim: Gang, taken: Iterable[Gang] = ()) -> bool:
    """Whether the claimant's queue may reclaim the victim's capacity, after that of `taken`.

    At each level below the common ancestor, the claimant's queue must stay within its fair share,
    and the victim's queue must still be above its own, and keep its guarantee.
    """
    if claimant.account is None or victim.account is None:
        return False
    by_name = queues.by_name
    mine, theirs = by_name[claimant.account.queue], by_name[victim.account.queue]
    if mine is theirs or mine.error or theirs.error:
        return False
    common = next(queue for queue in mine.path if queue in theirs.path)
    up = mine.path[: mine.path.index(common)]
    down = theirs.path[: theirs.path.index(common)]
    if not up or not down or not all(queue.seen.reclaimable for queue in down):
        return False
    lost = [(by_name[gang.account.queue], gang.account.used) for gang in taken if gang.account]
    requests = _minimum_request(claimant)
    if not _within_fair_share(queues, up, requests):
        return False
    shares = {resource: fair_shares(queues, resource) for resource in requests}
    return all(_can_spare(queue, victim.account.used, lost, shares) for queue in down)


def keeps_guarantee(
    queues: Queues, claimant: Gang, victim: Gang, taken: Iterable[Gang] = ()
) -> bool:
    """Whether the victim's queue, and each above it that the claimant is not in, keeps its guarantee without the
    victim and those of `taken`."""
    if claimant.account is None or victim.account is None:
        return False
    by_name = queues.by_name
    mine, theirs = by_name[claimant.account.queue], by_name[victim.account.queue]
    lost = [(by_name[gang.account.queue], gang.account.used) for gang in taken if gang.account]
    return all(
        _left_above_guarantee(queue, victim.account.used, _without(queue, lost))
        for queue in theirs.path
        if queue not in mine.path
    )


def _without(queue: Queue, lost: Sequence[tuple[Queue, Sums]]) -> Sums:
    """What the queue uses without what it has lost."""
    left = dict(queue.used)
    for other, taken in lost:
        if queue in other.path:
            add(left, taken, -1)
    return left


def _left_above_guarantee(queue: Queue, amounts: Sums, left: Sums) -> bool:
    return all(
        not amounts.get(resource) or left.get(resource, 0) - amounts[resource] >= amount
        for resource, amount in queue.guarantee.items()
    )


def _can_spare(
    queue: Queue,
    amounts: Sums,
    lost: Sequence[tuple[Queue, Sums]],
    shares: dict[str, dict[str, Amount]],
) -> bool:
    left = _without(queue, lost)
    if not _left_above_guarantee(queue, amounts, left):
        return False
    return any(
        left.get(resource, 0) > share[queue.name]
        for resource, share in shares.items()
        if amounts.get(resource)
    )
