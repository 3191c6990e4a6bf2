"""Turns: the level of a queue in the order between queues, and which gangs pass a reservation of another queue.

Where gangs are larger than their queues' shares, what queues use at one moment says nothing: whenever a gang ends,
both use nothing. So each queue counts what it has received for its weight, as start-time fair queueing does (Goyal,
Vin, Cheng 1996): the dominant share that it uses above its deserved amount, times seconds, divided by its weight. A
queue gains on its siblings only while it waits: when it begins to wait it is level with the sibling that has received
most, so an idle queue saves up no turns.

The same currency decides who passes a reservation of another queue, and until when a gang that started from one is safe
from fair shares (queue_claims.py).

Design: docs/design/queues.md
"""

from central.model.resources import Sums
from central.scheduler.queues import quota
from central.scheduler.queues.entitlement import fair_shares
from central.scheduler.queues.queue_tree import Queues
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.state.gangs import Gang

AHEAD_S = 3600.0  # of present use, beside the past
FairShares = dict[str, dict[str, int]]  # by resource and queue
# Whether the next gang exceeds the fair share, whether the queue has its deserved amount, its strict priority, its
# priority, what it has received if it exceeds, its usage level, and that with the next gang.
Level = tuple[bool, bool, int, int, float, float, float]


class QueueTurns:
    """The order between queues in one pass over the pending gangs. With --usage-half-life the past decides, which
    shares do not know, with the next hour: queues that have received nearly as much share what is free now."""

    def __init__(self, queues: Queues, shares: FairShares, *, compares: bool = True) -> None:
        """shares: found so far; a pass does not change what queues use and request together, so the first finding
        holds. compares: whether several queues have pending gangs; else shares are not computed."""
        self._queues, self._shares = queues, shares
        self._by_past = queues.half_life_s > 0
        # The shares in the past that are known, each with what it was computed from.
        self._past: dict[Queue, tuple[tuple[float, int, Sums], float]] = {}
        self.compares_shares = compares and (queues.terms.priorities or not self._by_past)

    def level(self, queue: Queue, need: Sums) -> Level:
        """The lowest is served first. need: of the next gang."""
        total, exceeds = self._queues.total, self.exceeds(queue, need)
        received = self._received(queue) if exceeds or self._by_past else 0.0
        now, then = quota.usage_level(queue, total), quota.usage_level(queue, total, need)
        rank, above = self._by_priority(queue, exceeds=exceeds), exceeds and not self._by_past
        return (above, now[0], self._strictness(queue), rank, received, now[2], then[2])

    def _strictness(self, queue: Queue) -> int:
        """The strict priority, where the past orders queues; fair shares have it in them."""
        return -queue.seen.strict_priority if self._by_past else 0

    def _by_priority(self, queue: Queue, *, exceeds: bool) -> int:
        """The priority, lowest first. Where the past orders queues, a queue whose next gang exceeds its fair share has
        the lowest of its siblings: priorities order queues, and leave their shares as they are."""
        if not exceeds or not self._by_past or queue.parent is None:
            return -queue.seen.priority
        above, cache = queue.parent, self._queues.cache
        lowest: int | None = cache.get(key := ("lowest_priority", above.name))
        if lowest is None:
            lowest = cache[key] = min(each.seen.priority for each in above.children)
        return -lowest

    def exceeds(self, queue: Queue, need: Sums) -> bool:
        """Returns whether the queue would use more than its fair share; False where shares are not compared."""
        if not self.compares_shares:
            return False
        for resource, amount in need.items():
            if self._queues.is_shared(resource):
                shares = self._shares.get(resource)
                if shares is None:
                    shares = self._shares[resource] = fair_shares(self._queues, resource)
                if queue.used.get(resource, 0) + amount > shares.get(queue.name, 0):
                    return True
        return False

    def passes(self, gang: Gang, head: Gang) -> bool:
        """Returns whether the gang comes before the head of another queue that has a reservation, and so may take the
        reserved capacity: its queue comes first by deserved amount, priority and what both have received, or the gang
        by priority."""
        by_name = self._queues.by_name
        siblings = by_name[gang.queue].siblings(by_name[head.queue])
        if siblings is None:
            return False
        own, others = siblings
        return self._rank(own, gang) < self._rank(others, head)

    def _rank(self, queue: Queue, gang: Gang) -> tuple[bool, int, int, float, int]:
        received, strictness = self._received(queue), self._strictness(queue)
        return (
            not queue.below_deserved,
            strictness,
            self._by_priority(queue, exceeds=self.exceeds(queue, gang.attempt.need)),
            received,
            -gang.priority,
        )

    def _received(self, queue: Queue) -> float:
        """Returns what the queue has received for its weight until now; where the past decides, what it will have
        received AHEAD_S from now."""
        queues = self._queues
        if not self._by_past:
            return queues.received(queue)
        stamp = (queues.now, queue.usage_version, queues.total)
        then, share = self._past.get(queue, (None, 0.0))
        if then is None or stamp[:2] != then[:2] or stamp[2] is not then[2]:
            share = queues.received(queue, AHEAD_S)
            self._past[queue] = stamp, share
        return share
