"""Reservations that bind a gang, so that it must leave their capacity free.

Design: docs/design/reservations.md
"""

from math import inf
from operator import attrgetter

import numpy as np

from central.model.defaults import ACROSS_QUEUES
from central.scheduler.preemption import evictable
from central.scheduler.preemption.preemption_request import outranks
from central.scheduler.queues.turns import QueueTurns
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

_rank = attrgetter("queue", "gang.priority")


class BindingReservations:
    """The reservations that bind a gang, in one pass over the pending gangs. tried: the gangs that the pass has tried,
    to which the caller adds."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.tried = set[GangKey]()
        self._reservations, self._context = scheduler.reservations, scheduler.preemption
        self._queues = scheduler.queues
        self._ranks: list[tuple[object, ...]] = []  # at the end of the last slice
        self._turns = QueueTurns(scheduler.queues, {})
        # By queue and priority of a gang: the claims whose victims leave, from the first reservation on, and which of
        # them bind it. No attempt changes that.
        self._bound_by: dict[tuple[str, int], tuple[list[Reservation], list[Reservation]]] = {}

    def begin(self, *, resumed: bool) -> None:
        """Begins a pass or a slice of one. What is known of claims holds in a resumed pass while queues and gangs are
        the same."""
        if not resumed or self._ranks != self._present_ranks():
            self._bound_by.clear()
            self._turns = QueueTurns(self._queues, {})

    def end(self) -> None:
        self._ranks = self._present_ranks()

    def _present_ranks(self) -> list[tuple[object, ...]]:
        return [(self._queues.version,), *map(_rank, self._reservations.values())]

    def of(self, gang: Gang) -> list[Reservation]:
        """The reservations whose capacity the gang must leave free. Where thousands claim at once, each comes after
        all claims before it: what is known of these for equal gangs is not asked again."""
        if not self._reservations:
            return []
        every = list(self._reservations.values())
        if gang.key in self._reservations:
            return [held for held in every if self._binds(held, gang)]
        claims, binding = self._bound_by.setdefault((gang.queue, gang.priority), ([], []))
        if every[: len(claims)] != claims:  # one has ended
            claims.clear()
            binding.clear()
        for held in every[len(claims) :]:
            if not held.by_eviction:
                break
            claims.append(held)
            if self._binds(held, gang):
                binding.append(held)
        return binding + [held for held in every[len(claims) :] if self._binds(held, gang)]

    def _binds(self, held: Reservation, gang: Gang) -> bool:
        """Returns whether the gang must leave the reserved capacity free. The first rule that applies decides:

        1. A gang may use its own reservation.
        2. A started gang that is below its minimum, and one whose victims leave nodes of the plan, may use the plan of
           another gang, unless that one is more urgent in the same queue. Else the two would wait for each other.
        3. Capacity freed by evictions is closed to other queues: priorities compare inside a queue.
        4. Capacity whose start is unknown may be used by gangs that the reserved one may evict: it does so when the
           rest is free.
        5. Until it is strict, gangs of the same queue may use it that are tried before its own gang in this pass; those
           of any queue if its start is unknown.
        6. More urgent gangs of the same queue may use it, those of any queue with --preempt-across queues, and gangs
           of another queue whose turn comes first (QueueTurns.passes()).
        7. It is closed to all others.

        Example, one queue: "big" (priority 5) is the head and has a plan. "b" (5) comes after it and is bound by
        rule 7, "urgent" (9) is not. The gang "c" (9) of queue "other" is bound, unless "other" has received less for
        its weight, or as much.
        """
        if held.gang is gang:
            return False
        if not held.by_eviction and _gives_way(held, gang):
            own = self._reservations.get(gang.key)
            if gang.is_broken or (own is not None and _claims_there(own, held)):
                return False
        if held.by_eviction and held.queue != gang.queue:
            return True
        if held.start == inf and self._may_evict(held.gang, gang):
            return False
        by_order = held.queue == gang.queue or held.start == inf
        if not held.strict and by_order and held.gang.key not in self.tried:
            return False
        return not self.comes_first(gang, held)

    def comes_first(self, gang: Gang, held: Reservation) -> bool:
        """Compares the gang with that of the reservation: inside a queue priority decides, else turns do."""
        if held.queue == gang.queue or self._context.across == ACROSS_QUEUES:
            return gang.priority > held.gang.priority
        return self._turns.passes(gang, held.gang)

    def _may_evict(self, claimant: Gang, gang: Gang) -> bool:
        """Returns whether the claimant will be able to evict the gang at once, whatever else runs."""
        context = self._context
        if not outranks(context.across, claimant, gang):  # mostly
            return False
        pods = [pod for pod in gang.members.values() if pod.alive]
        return (
            claimant.preempts
            and all(evictable.may_leave(gang, pod) for pod in pods)
            and not evictable.MinRuntimes(context).of(gang)
            and not any(context.budgets.selecting(pod) for pod in pods)
        )


def _claims_there(own: Reservation, held: Reservation) -> bool:
    """Returns whether the victims of a claim leave nodes of the other reservation."""
    return own.by_eviction and bool(np.isin(own.place.rows, held.place.rows).any())


def _gives_way(held: Reservation, gang: Gang) -> bool:
    return held.queue != gang.queue or held.gang.priority <= gang.priority
