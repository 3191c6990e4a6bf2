"""What a queue is due, what it may start now, and what it may take back from others. Pure.

Whose turn it is goes by the level of what each queue uses, as when water is poured: the one that
stands lowest is served next, and so all come to their fair shares (central.scheduler.queues.fair_share) without
anybody working these out. They are worked out where one queue wants something back from another.
"""

from collections.abc import Iterable, Sequence

from central.model import wording
from central.model.facts import PodSpec
from central.model.resources import ROOT, Sums, add
from central.scheduler.queues.fair_share import Amount, QueueDemand, divide
from central.scheduler.queues.min_resources import MinResources, needs
from central.scheduler.queues.queue_tree import Queue, Queues, sums_of
from central.scheduler.state.gangs import Gang

Level = tuple[bool, int, float, str]


def level(queue: Queue, total: Sums) -> Level:
    """The lowest goes first: who is below what it deserves, then by the queues' priority, then by
    its dominant resource: what it uses of its own, or above that, for its weight. Where the past
    counts, what it used above its own lately is added."""
    seen = queue.seen
    deserved = dict(seen.deserved)
    used = queue.used
    if deserved and all(used.get(resource, 0) < own for resource, own in deserved.items()):
        share = max(used.get(resource, 0) / own for resource, own in deserved.items())
        return (False, -seen.priority, share, queue.name)
    share = max(
        (
            (used.get(resource, 0) - deserved.get(resource, 0) + queue.lately.of(resource))
            / (whole * seen.weight)
            for resource in queue.lately.beside(used)
            if (whole := total.get(resource, 0))
        ),
        default=0.0,
    )
    return (True, -seen.priority, share, queue.name)


def refusal(
    queues: Queues, min_resources: MinResources, gang: Gang, groups: Sequence[tuple[PodSpec, int]]
) -> str:
    """Why the gang's queue may not start so many pods of such kinds now; empty: it may."""
    if gang.account is None:
        return ""
    queue = queues.by_name[gang.account.queue]
    if queue.error:
        return queue.error
    if not gang.started and (why := _is_shut(queue)):
        return why
    if queue.seen.fifo and not gang.started:
        first = queues.fifo.first(queue.name)
        if first is not None and first is not gang and first.attempt.rank < gang.attempt.rank:
            return f"queue {queue.name} is first in, first out: {first.name} comes before it"
    wanted = needs(gang, groups)  # with what its later pods will ask for
    for above in queue.path:
        for resource, most in above.seen.capability:
            if amount := wanted.get(resource, 0):
                owed = _owed(queues, min_resources, gang, above, resource)
                if above.used.get(resource, 0) + owed + amount > most:
                    return _over(queue, above, resource, amount, owed)
    return _promised(queues, queue, wanted)


def _owed(
    queues: Queues, min_resources: MinResources, gang: Gang, queue: Queue, resource: str
) -> int:
    """What other gangs of it, and below it, have been promised and not taken yet."""
    by_name = queues.by_name
    return sum(
        sums.get(resource, 0)
        for other, sums in min_resources.by_gang.values()
        if other is not gang
        and other.account is not None
        and queue in by_name[other.account.queue].path
    )


def _is_shut(queue: Queue) -> str:
    for above in queue.path:
        if above.seen.closed:
            return _who(queue, above) + " is closed"
    if queue.children or queue.name == ROOT:
        below = ", ".join(child.name for child in queue.children[:3])
        more = ", ..." if len(queue.children) > 3 else ""
        return f"queue {queue.name} has queues below it ({below}{more}): name one of them"
    return ""


def _over(queue: Queue, above: Queue, resource: str, amount: int, owed: int) -> str:
    name, most = wording.resource(resource), dict(above.seen.capability)[resource]
    if amount > most:
        return (
            f"{_who(queue, above)} may use {wording.amount(resource, most)} {name} and no more; "
            f"{wording.amount(resource, amount)} {'is' if amount == 1 else 'are'} wanted"
        )
    promised = f", and {wording.amount(resource, owed)} are promised (minResources)" if owed else ""
    return (
        f"{_who(queue, above)} may use {wording.amount(resource, most)} {name} and uses "
        f"{wording.amount(resource, above.used.get(resource, 0))}{promised}; "
        f"{wording.amount(resource, amount)} more {'is' if amount == 1 else 'are'} wanted"
    )


def _who(queue: Queue, above: Queue) -> str:
    return f"queue {above.name}" + (f" (above {queue.name})" if above is not queue else "")


# --- guarantees ------------------------------------------------------------------


def _promised(queues: Queues, queue: Queue, wanted: Sums) -> str:
    """What is free may be promised to others."""
    if not queues.guarantees:
        return ""
    for resource, amount in wanted.items():
        kept, whose = 0, []
        for inner, outer in zip(queue.path, queue.path[1:], strict=False):
            for other in outer.children:
                if other is not inner and (missing := _missing(queues, other, resource)):
                    kept += missing
                    whose.append(other.name)
        free = queues.total.get(resource, 0) - queues.root.used.get(resource, 0)
        if kept and amount > free - kept:
            name = wording.resource(resource)
            return (
                f"{wording.amount(resource, amount)} {name} are wanted and "
                f"{wording.amount(resource, free)} are free, of which "
                f"{wording.amount(resource, min(kept, free))} are kept for "
                f"queue{'s' if len(whose) > 1 else ''} {', '.join(whose)} (guarantee)"
            )
    return ""


def _missing(queues: Queues, queue: Queue, resource: str) -> int:
    """What must stay free so that the queue and those below it can have what is guaranteed."""
    known = queues.worked_out
    if (found := known.get((queue.name, resource))) is None:
        own = dict(queue.seen.guarantee).get(resource, 0) - queue.used.get(resource, 0)
        inner = sum(_missing(queues, child, resource) for child in queue.children)
        found = known[queue.name, resource] = max(0, own, inner)
    return int(found)


# --- fair shares -----------------------------------------------------------------


def fair(queues: Queues, resource: str) -> dict[str, Amount]:
    """Of each queue in the tree: what it is due of the resource now, bounded by what it asks for."""
    known: dict[str, Amount] | None = queues.worked_out.get(("", resource))
    if known is not None:
        return known
    claims: dict[str, QueueDemand] = {}
    _claim(queues.root, resource, claims)
    shares: dict[str, Amount] = {
        ROOT: min(queues.total.get(resource, 0), claims[ROOT].most),
    }
    for queue in queues.root:
        below = divide(shares[queue.name], [claims[child.name] for child in queue.children])
        for child, share in zip(queue.children, below, strict=True):
            shares[child.name] = share
    queues.worked_out["", resource] = shares
    return shares


def _claim(queue: Queue, resource: str, claims: dict[str, QueueDemand]) -> QueueDemand:
    seen = queue.seen
    inner = [_claim(child, resource, claims) for child in queue.children]
    own = queue.used.get(resource, 0) - sum(child.used.get(resource, 0) for child in queue.children)
    asks = own + queue.asks.get(resource, 0) + sum(claim.most for claim in inner)
    capability = dict(seen.capability).get(resource, asks)
    deserved = dict(seen.deserved).get(resource, sum(claim.deserved for claim in inner))
    guarantee = dict(seen.guarantee).get(resource, 0)
    claims[queue.name] = QueueDemand(
        seen.weight,
        min(asks, capability),
        deserved,
        max(guarantee, sum(claim.guarantee for claim in inner)),
        seen.priority,
    )
    return claims[queue.name]


def standing(queues: Queues, gang: Gang) -> list[tuple[str, int, Amount]]:
    """Of each resource that the gang waits for and its queue is due less of than it asks for: the
    resource, what the queue uses, what it is due."""
    if gang.account is None:
        return []
    queue = queues.by_name[gang.account.queue]
    found = []
    for resource in sorted(gang.account.asks):
        due = fair(queues, resource).get(queue.name)
        used = queue.used.get(resource, 0)
        if due is not None and due < used + queue.asks.get(resource, 0):
            found.append((resource, used, due))
    return found


def may_claim(queues: Queues, claimant: Gang) -> bool:
    """Whether its queue would stay within its fair share; else there is nobody to reclaim from."""
    if claimant.account is None or (queue := queues.by_name[claimant.account.queue]).error:
        return False
    return _within(queues, [queue], _wanted(claimant))


def _wanted(claimant: Gang) -> Sums:
    return sums_of(claimant.waiting()[: max(1, claimant.minimum - len(claimant.placed()))])


def _within(queues: Queues, path: Iterable[Queue], wanted: Sums) -> bool:
    shares = {resource: fair(queues, resource) for resource in wanted}
    return all(
        queue.used.get(resource, 0) + amount <= shares[resource][queue.name]
        for queue in path
        for resource, amount in wanted.items()
    )


def may_reclaim(queues: Queues, claimant: Gang, victim: Gang, taken: Iterable[Gang] = ()) -> bool:
    """Whether the claimant's queue may take the victim's room, after that of those taken already:
    it must stay within its fair share, and the other must be above its own by then, never to fall
    below what is guaranteed to it; at each level below the queue that both are in."""
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
    wanted = _wanted(claimant)
    if not _within(queues, up, wanted):
        return False
    shares = {resource: fair(queues, resource) for resource in wanted}
    return all(_can_spare(queue, victim.account.used, lost, shares) for queue in down)


def _can_spare(
    queue: Queue,
    gives: Sums,
    lost: Sequence[tuple[Queue, Sums]],
    shares: dict[str, dict[str, Amount]],
) -> bool:
    left = dict(queue.used)
    for other, amounts in lost:
        if queue in other.path:
            add(left, amounts, -1)
    for resource, amount in queue.seen.guarantee:
        given = gives.get(resource, 0)
        if given and left.get(resource, 0) - given < amount:
            return False
    return any(
        left.get(resource, 0) > share[queue.name]
        for resource, share in shares.items()
        if gives.get(resource)
    )
