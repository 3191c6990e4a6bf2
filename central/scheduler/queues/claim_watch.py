"""Notices when queues may claim more than at the last look: their pending gangs are tried again then.

A refused gang waits until capacity is freed. But what its queue may claim also grows without that: another queue
takes what is free and comes above its share, or asks for less, so that shares grow, or that it would no longer reclaim
what a gang could have reserved.

Design: docs/design/reclaim.md
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from central.scheduler.queues.claim_in_flight import pending_needs
from central.scheduler.queues.entitlement import fair_shares, own_amount
from central.scheduler.queues.queue_tree import Queues

LOOK_S = 2.0  # between two looks, which read every queue


class Standing(NamedTuple):
    """Amounts of one queue and resource, each at least 0. own: by the deserved amount or guarantee, where the queue has
    one. due: the part of that amount that the queue uses or requests, while it has pending gangs."""

    may_claim: int
    may_claim_own: int
    above_share: int
    above_own: int
    due: int


_NOTHING = Standing(0, 0, 0, 0, 0)
_RULES = ((0, 2), (1, 3))  # what may be claimed, and what may be given
_DUE = 4
_Known = Mapping[tuple[str, str], Standing]


class ClaimWatch:
    def __init__(self) -> None:
        self._known: dict[tuple[str, str], Standing] = {}
        self._version = -1
        self._next_look = 0.0
        self._waits = False
        # Whether a gang has no reservation because of what queues are due.
        self.has_unreserved = False

    def look(self, queues: Queues, now: float) -> bool:
        """Returns whether some queue may claim more than before, and another one may give it, or whether some queue is
        due less, where a gang has no reservation because of what others are due."""
        self._waits = queues.version != self._version and bool(queues.root.children)
        if not self._waits or now < self._next_look:
            return False
        self._waits, self._version, self._next_look = False, queues.version, now + LOOK_S
        before, self._known = self._known, dict(_standings(queues))
        is_due = any(each.due for each in self._known.values())
        if self.has_unreserved and (_grew(self._known, before, _DUE) or not is_due):
            self.has_unreserved = False
            return True
        return any(
            (
                _grew(before, self._known, claims)
                and any(each[gives] for each in self._known.values())
            )
            or (
                _grew(before, self._known, gives)
                and any(each[claims] for each in self._known.values())
            )
            for claims, gives in _RULES
        )

    def due(self) -> list[float]:
        return [self._next_look] if self._waits else []


def _grew(before: _Known, after: _Known, part: int) -> bool:
    return any(each[part] > before.get(key, _NOTHING)[part] for key, each in after.items())


def _standings(queues: Queues) -> Iterator[tuple[tuple[str, str], Standing]]:
    lost = queues.in_flight.leaving(queues.by_name)
    gained = pending_needs(queues.claims.values(), queues.by_name)
    resources = sorted({name for queue in queues.root for name in queue.demand})
    for resource in filter(queues.is_claimed, resources):
        shares = fair_shares(queues, resource)
        for queue in queues.root:
            if queue is queues.root:
                continue
            used = queue.used.get(resource, 0) - lost.get(queue, {}).get(resource, 0)
            will_use = used + gained.get(queue, {}).get(resource, 0)
            share, own = shares[queue.name], own_amount(queues, queue, resource)
            asked = queue.demand.get(resource, 0)
            waits = bool(asked)
            yield (
                (queue.name, resource),
                Standing(
                    max(0, share - will_use) if waits else 0,
                    max(0, min(own, share) - will_use) if waits else 0,
                    max(0, used - share),
                    max(0, used - own),
                    min(own, used + asked) if waits else 0,
                ),
            )
