"""Why nobody gives way to a pending gang: whose share, which level, which rule. For `lockstep explain`.

Design: docs/design/0015-queues.md
"""

from central.model import wording
from central.model.resources import Sums, add
from central.scheduler.queues.entitlement import fair_shares, own_amount
from central.scheduler.queues.queue_claims import DESERVED, RULES, Claim
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.state.gangs import Gang

SHOWN = 3  # queues that could give, by name


def why_nobody(queues: Queues, gang: Gang, need: Sums, *, growth: bool) -> str:
    """need: the requests of the pods that are to start. growth: above the gang's minimum. Empty: there is nothing
    to say, or somebody gives way."""
    if gang.account is None or not queues.enabled or gang.key in queues.claims:
        return ""
    queue = queues.by_name[gang.account.queue]
    if queue.error:
        return ""
    need = {name: amount for name, amount in need.items() if queues.is_shared(name)}
    rules = (DESERVED,) if growth else RULES
    claim = Claim(queues, gang, need, {}, rules)
    return "; ".join(filter(None, (_by_entitlement(queues, claim), _by_priority(queue, gang))))


def _by_priority(queue: Queue, gang: Gang) -> str:
    used: Sums = {}
    for other in queue.gangs.values():
        if other.account is not None and other.priority < gang.priority:
            add(used, other.account.used, 1)
    if any(used.values()):
        return (
            f"what is less urgent than priority {gang.priority} in its queue does not free enough"
        )
    return f"nothing in its queue is less urgent than priority {gang.priority}"


def _by_entitlement(queues: Queues, claim: Claim) -> str:
    if givers := claim.furthest_above():
        named = [f"queue {giver.name} {_standing(queues, claim, giver)}" for giver in givers]
        more = ", ..." if len(named) > SHOWN else ""
        return f"{', '.join(named[:SHOWN])}{more}, but gangs that may go do not let it start"
    if not claim.names_amounts():
        return (
            f"queue {claim.queue.name} deserves nothing that members above the minimum could claim"
        )
    if above := claim.above_limits():
        return f"it may claim nothing from other queues: {_exceeded(queues, claim, above[-1])}"
    stubborn = [
        f"queue {other.name} {_standing(queues, claim, other)}, and is not reclaimable"
        for other in claim.above_and_not_reclaimable()
    ]
    return "; ".join(stubborn[:SHOWN]) or "no other queue uses more than its share"


def _exceeded(queues: Queues, claim: Claim, short: Shortfall) -> str:
    queue, (resource, over) = short.queue, next(iter(short.amounts.items()))
    limit = claim.limit(queue, resource)
    where = f"queue {queue.name}" + (
        f" (above {claim.queue.name})" if queue is not claim.queue else ""
    )
    noun = "fair share" if limit == fair_shares(queues, resource).get(queue.name) else "deserved"
    unit = wording.resource(resource)
    return (
        f"{where} would use {wording.amount(resource, limit + over)} {unit}, and its {noun}"
        f"{' amount' if noun == 'deserved' else ''} is {wording.amount(resource, limit)}"
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
    used = wording.amount(resource, queue.used.get(resource, 0))
    return (
        f"uses {used} {wording.resource(resource)}, above {noun} {wording.amount(resource, share)}"
    )
