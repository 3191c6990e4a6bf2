"""Reasons why a pending gang gets no victims: whose share, which level, which rule. For `lockstep explain`, too.

Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Sequence
from itertools import chain

from central.model import wording
from central.model.resources import Sums
from central.scheduler.queues.entitlement import fair_shares, own_amount
from central.scheduler.queues.queue_claims import Claim, waits_by_order
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.state.gangs import Gang

SHOWN = 3  # queues that could give, by name
NO_QUEUE_ABOVE = "no other queue uses more than its share"
ONLY_DESERVED = "queues reclaim deserved amounts and guarantees only"  # with --usage-half-life
NO_VICTIMS = "no victims: "
NO_CLAIM = "it may not reclaim from other queues: "
NONE_BELOW = "its queue runs no gang of priority below"
QUEUES_MOST = 200  # with more only `lockstep explain` says it: a cycle that counts many reasons would take too long


# What protects the gangs of these queues from the claimant, as the end of a sentence.
ProtectedIn = Callable[[frozenset[str]], str]


def why_no_victims(
    queues: Queues, gang: Gang, need: Sums, protected: ProtectedIn, *, growth: bool
) -> str:
    """need: the requests of the pods that are to start. growth: above the gang's minimum. Empty: there is nothing
    to say, or there are victims."""
    if gang.account is None or not queues.enabled or gang.key in queues.claims:
        return ""
    queue = queues.by_name[gang.account.queue]
    if queue.error:
        return ""
    need = {name: amount for name, amount in need.items() if queues.is_claimed(name)}
    claim = Claim(queues, gang, need, {}, growth=growth)
    entitlement, givers = _by_entitlement(queues, claim) if need else ("", frozenset())
    by_entitlement = _with_rules(entitlement, givers, protected)
    by_priority = _by_priority(queue, gang)
    if not by_priority.startswith(NONE_BELOW):
        by_priority = _with_rules(by_priority, frozenset({queue.name}), protected)
    return "; ".join(filter(None, (by_entitlement, by_priority)))


def _with_rules(sentence: str, queues: frozenset[str], protected: ProtectedIn) -> str:
    """The sentence, if it speaks of gangs of these queues that do not free enough, with the rules that protect some."""
    return sentence + protected(queues) if sentence and queues else sentence


def clause(queues: Queues, gang: Gang, need: Sums, protected: ProtectedIn, *, growth: bool) -> str:
    """The same as a clause of the gang's reason, without what goes without saying: that other queues use nothing, and
    that its own queue runs nothing of lower priority."""
    if gang.account is None or not queues.enabled or gang.key in queues.claims:
        return ""
    queue = queues.by_name[gang.account.queue]
    if queue.error or len(queues.by_name) > QUEUES_MOST:
        return ""
    need = {name: amount for name, amount in need.items() if queues.is_claimed(name)}
    by_order = waits_by_order(queues, gang)
    key = ("no victims", f"{queue.name}/{gang.priority}/{growth}/{by_order}/{sorted(need.items())}")
    found: list[tuple[str, frozenset[str]]] | None = queues.cache.get(key)
    if found is None:
        found = queues.cache[key] = _sentences(queues, gang, queue, need, growth=growth)
    said = [_with_rules(sentence, givers, protected) for sentence, givers in found]
    return f"{NO_VICTIMS}{', and '.join(said)}".replace(NO_CLAIM, "") if said else ""


def _sentences(
    queues: Queues, gang: Gang, queue: Queue, need: Sums, *, growth: bool
) -> list[tuple[str, frozenset[str]]]:
    """Each with the queues whose gangs do not free enough."""
    others = [other for above in queue.path[1:] for other in above.children]
    found = []
    if any(other.used.get(name) for other in others if other not in queue.path for name in need):
        claim = Claim(queues, gang, need, {}, growth=growth)
        found.append(_by_entitlement(queues, claim))
    by_priority = _by_priority(queue, gang)
    if not by_priority.startswith(NONE_BELOW):
        found.append((by_priority, frozenset({queue.name})))
    return found


def _by_priority(queue: Queue, gang: Gang) -> str:
    if queue.usage_by_priority.lowest() < gang.priority:
        return f"evicting all gangs of its queue with priority below {gang.priority} would not free enough"
    return f"{NONE_BELOW} {gang.priority}"


def _by_entitlement(queues: Queues, claim: Claim) -> tuple[str, frozenset[str]]:
    """The sentence, and the queues that could give and whose gangs do not free enough."""
    if givers := [*chain.from_iterable(claim.furthest_above())]:
        named = [f"queue {giver.name} {_standing(queues, claim, giver)}" for giver in givers]
        more = ", ..." if len(named) > SHOWN else ""
        who = "member above a minimum" if claim.growth else "gang"
        said = f"{', '.join(named[:SHOWN])}{more}, but evicting every {who} that may be evicted would not let it start"
        return said, frozenset(giver.name for giver in givers)
    others = claim.above_shares()
    if claim.only_by_order and others and (above_own := _above_own(queues, claim)):
        return f"{ONLY_DESERVED}: {above_own}", frozenset()
    if above := claim.above_limits():
        return f"{NO_CLAIM}{_exceeded(claim, _decisive(claim, above))}", frozenset()
    stubborn = [
        f"queue {other.name} {_standing(queues, claim, other)}, and is not reclaimable"
        for other in others
        if not other.seen.reclaimable
    ]
    return "; ".join(stubborn[:SHOWN]) or NO_QUEUE_ABOVE, frozenset()


def _above_own(queues: Queues, claim: Claim) -> str:
    """Says which queue of the claimant's path would use more than it may reclaim as deserved or guaranteed."""
    for queue in claim.queue.path[:-1]:
        for resource in claim.resources:
            would = wording.quantity(resource, claim.would_use(queue, resource))
            own, share = own_amount(queues, queue, resource), claim.limit(queue, resource)
            if claim.would_use(queue, resource) <= min(own, share):
                continue
            deserves = f"deserves {wording.amount(resource, own) if own else 'none'}"
            limit = (
                deserves if own <= share else f"its fair share is {wording.amount(resource, share)}"
            )
            return f"queue {queue.name} would use {would}, and {limit}"
    return ""


def _decisive(claim: Claim, above: Sequence[Shortfall]) -> Shortfall:
    """The widest queue that is above its share. Where its other queues use as much as it lacks, a claim inside it would
    do, and a nearer one decides."""
    path = claim.queue.path
    for short in reversed(above[1:]):
        beside = [child for child in short.queue.children if child not in path]
        for resource, over in short.amounts.items():
            if sum(child.used.get(resource, 0) for child in beside) < over:
                return short
    return above[0]


def _exceeded(claim: Claim, short: Shortfall) -> str:
    queue, (resource, over) = short.queue, next(iter(short.amounts.items()))
    limit = claim.limit(queue, resource)
    where = f"queue {queue.name}" + (
        f" (above {claim.queue.name})" if queue is not claim.queue else ""
    )
    return (
        f"{where} would use {wording.quantity(resource, limit + over)}, and its fair share"
        f" is {wording.amount(resource, limit)}"
    )


def _standing(queues: Queues, claim: Claim, queue: Queue) -> str:
    resource = next(
        (
            r
            for r in claim.resources
            if queue.used.get(r, 0) > fair_shares(queues, r).get(queue.name, 0)
        ),
        "",
    )
    if resource:
        share = fair_shares(queues, resource).get(queue.name, 0)
        noun = "its fair share of"
    else:
        resource = next(iter(claim.resources))
        share, noun = own_amount(queues, queue, resource), "its deserved"
    used = wording.quantity(resource, queue.used.get(resource, 0))
    return f"uses {used}, above {noun} {wording.amount(resource, share)}"
