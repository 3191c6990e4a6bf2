"""Terms of a Queue object: what its queue is entitled to, and what limits it, in the sums that are counted. Read once
for each version of the object."""

from dataclasses import dataclass

from central.model.facts import QueueSeen
from central.model.resources import Sums
from central.scheduler.queues.gpu_currency import GpuCurrency


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """capability: with borrowingLimit. guarantee: with what lendingLimit withholds. borrowing: the resources that
    borrowingLimit, and not capability, limits."""

    deserved: Sums
    capability: Sums
    guarantee: Sums
    borrowing: frozenset[str]


def terms_of(seen: QueueSeen, currency: GpuCurrency) -> QueueTerms:
    deserved = currency.entitled(seen.deserved)
    capability = currency.limits(seen.capability)
    borrowing = set()
    for resource, most in currency.limits(seen.borrowing_limit).items():
        limit = deserved.get(resource, 0) + most
        if limit < capability.get(resource, limit + 1):
            capability[resource] = limit
            borrowing.add(resource)
    guarantee = currency.entitled(seen.guarantee)
    for resource, most in currency.limits(seen.lending_limit).items():
        kept = max(0, deserved.get(resource, 0) - most)
        if kept > guarantee.get(resource, 0):
            guarantee[resource] = kept
    return QueueTerms(deserved, capability, guarantee, frozenset(borrowing))
