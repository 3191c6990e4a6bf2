"""Claims during one pass over the pending gangs: for a gang that does not fit, which victims leave, and what they free
is reserved for it. Equal gangs share one search.

Design: docs/design/evictions.md
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from central.model.arrays import Ints
from central.model.decisions import Decision, Evict
from central.scheduler import containment
from central.scheduler.inventory.pods import EVICTION_ENDED
from central.scheduler.pass_reservations import PassReservations
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import (
    defragment,
    evictable,
    eviction_rules,
    preemption_plan,
    proportion,
    reclaim,
    withdrawal,
)
from central.scheduler.preemption.eviction_rules import OWN_SURPLUS, Claimant
from central.scheduler.preemption.preemption_request import (
    PreemptionPlan,
    PreemptionRequest,
    outranks,
)
from central.scheduler.queues import shortfall
from central.scheduler.queues.queue_claims import waits_by_order
from central.scheduler.queues.shortfall import Shortfalls
from central.scheduler.reservation.reservation import EvictionKind, Reservation, is_counted
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.work_meter import WorkLimitReached

PREEMPTION_RETRY_S = 2.0  # after a search without victims, which reads every gang
UNDECIDED = "the search for victims exhausted its budget, retrying with a larger one"
UNDECIDED_LARGEST = "the search for victims exhausted its largest budget, retrying in 2 min"


_NO_ROWS: Ints = np.zeros(0, dtype=np.int64)


class _StandingClaims:
    """The claims among reservations."""

    def __init__(self) -> None:
        self.known: list[Reservation] = []  # all reservations
        self.by_gang: dict[GangKey, Reservation] = {}
        self.rows: list[Ints] = []
        # Rows where amounts alone do not say what others may use beside the claim.
        self.not_counted: list[Ints] = []

    def add(self, more: Sequence[Reservation]) -> "_StandingClaims":
        self.known += more
        for held in more:
            if held.by_eviction:
                self.by_gang[held.gang.key] = held
                self.rows.append(held.place.rows)
                self.not_counted += [] if held.is_counted else [held.place.rows]
        return self


class PassClaims:
    def __init__(self, scheduler: Scheduler, held: PassReservations, *, began: float) -> None:
        """began: when the round began: victims are compared as they were then."""
        self.postponed: list[Gang] = []  # that searched victims a moment ago, and not again
        self.withdrawn: list[Gang] = []  # whose bindings were withdrawn for another gang
        self._scheduler, self._held = scheduler, held
        self._state, self._pending = scheduler.state, scheduler.state.pending
        self._context = scheduler.preemption
        # Requests without possible victims, by queue, priority, tenant and the quota that victims must free, with the
        # budgets that block.
        self._no_victims: dict[tuple[object, ...], str] = {}
        self._decisions: list[Decision] = []
        self._now, self._began = scheduler.state.now, began
        self._runtime_ends: list[float] | None = None  # evictable.next_end(), until a gang is bound
        self._claims = _StandingClaims()

    def begin(self, decisions: list[Decision], *, resumed: bool) -> None:
        """Begins a pass or a slice of one. decisions: of this cycle; bindings of victims are taken out of them."""
        self._decisions, self._now, self._runtime_ends = decisions, self._state.now, None
        self._scheduler.queues.in_flight.start_pass()
        if not resumed:
            self._claims = _StandingClaims()

    def restart(self) -> None:
        """Forgets what the pass found, for the next one."""
        self._no_victims.clear()
        self.withdrawn = []

    def on_bound(self) -> None:
        self._runtime_ends = None

    def preempt(
        self,
        gang: Gang,
        request: PlacementRequest,
        lacks: Sequence[Shortfalls] = (),
        *,
        growth: bool = False,
        awaits: bool = False,
    ) -> list[Evict] | None:
        """Evicts victims so that all of the request fits, with the quota that it lacks (one of the
        alternatives), and reserves what they free for the gang. None: there are no such victims. awaits: quota becomes
        free in any case, and its place is reserved until then, also if there are no victims."""
        preempts = gang.priority > self._pending.lowest_priority or self._scheduler.queues.enabled
        by_own = not (growth or lacks or awaits) and self._has_surplus(gang)
        if not by_own and not self._may_claim(gang, preempts=preempts, growth=growth):
            return None
        alike = request.groups if growth and _is_anywhere(request) else request
        tenant = self._context.tenant(gang)
        if by_own:  # others that ask alike do not have its surplus
            tenant = (*tenant, gang.key)
        reserved = self._reserved_before(gang)
        keys = tuple(held.gang.key for held in reserved)
        waits = (
            waits_by_order(self._scheduler.queues, gang),
            proportion.waits(self._context, gang, self._now),
        )
        quota = (awaits, *map(shortfall.key, lacks))
        searched = (gang.queue, gang.priority, alike, growth, keys, waits, quota, *tenant)
        if searched in self._no_victims:
            gang.preemption.blocked_by = self._no_victims[searched]
            return None
        if self._is_postponed(gang):
            self.postponed.append(gang)
            self._pending.preemption_retry_at.add(gang.preemption.not_before)
            # Equal gangs come after it, though they have searched nothing themselves.
            self._no_victims[searched] = gang.preemption.blocked_by
            return None
        own = self._held.by_key.get(gang.key)
        if own is not None:
            self._held.cancel(own)
            self._held.withheld.without(own)
        kinds = {"preempts": preempts, "growth": growth, "awaits": awaits, "by_own": by_own}
        plan, blocked_by = self._find(gang, request, lacks, reserved, **kinds)
        gang.preemption.blocked_by = blocked_by
        if plan is None:
            if gang.key in self._held.late:  # its claim stays
                self._context.queues.add_claim(gang, request.groups, (), ())
            self._no_victims[searched] = blocked_by
            self._postpone(gang)
            return None
        self._held.pods_changed()
        if own is not None:
            self._held.drop(gang.key)
        self._held.broken.discard(gang.key)
        self._held.late.discard(gang.key)
        return self._start(gang, request, self._without_unsent(plan))

    def _reserved_before(self, gang: Gang) -> list[Reservation]:
        """The reservations that bind the gang and that it would delay. What its victims left there would be in use for
        longer. In its own queue a gang that shares time has its turn whatever others wait for."""
        in_turn = gang.queue if self._context.time_sharing.shares(gang) else None
        return [
            held
            for held in self._held.withheld.reservations()
            if not held.by_eviction and held.start < inf and held.queue != in_turn
        ]

    def _has_surplus(self, gang: Gang) -> bool:
        """Returns whether members may leave for others of the gang."""
        by = Claimant(self._context, gang, self._now)
        return eviction_rules.applies(OWN_SURPLUS, by) and not self._scheduler.elastic.manages(gang)

    def _may_claim(self, gang: Gang, *, preempts: bool, growth: bool) -> bool:
        """Returns whether victims may be searched at all. preempts: there are pods of lower priority, or queues."""
        if not preempts and (growth or not self._state.any_pod.movable):
            return False
        if growth and not self._may_grow(gang):
            return False
        return gang.preempts

    def _may_grow(self, gang: Gang) -> bool:
        """Returns whether it may claim for a member above its minimum now."""
        if self._scheduler.elastic.manages(gang):
            return False
        if any(self._grows_beside(held, gang) for held in self._held.by_key.values()):
            self._pending.preemption_retry_at.add(self._now + PREEMPTION_RETRY_S)
            return False
        return True

    def _grows_beside(self, held: Reservation, gang: Gang) -> bool:
        """Returns whether another gang of the queue awaits victims for a member above its minimum."""
        other, claims = held.gang, held.by_eviction and held.moved is None
        return claims and other is not gang and other.queue == gang.queue and not other.missing()

    def _find(
        self,
        gang: Gang,
        request: PlacementRequest,
        lacks: Sequence[Shortfalls],
        reserved: Sequence[Reservation],
        *,
        preempts: bool,
        growth: bool,
        awaits: bool,
        by_own: bool,
    ) -> tuple[PreemptionPlan | None, str]:
        """The victims, or None and which disruption budgets alone block them. reserved: where none are looked for.
        by_own: members that the gang does not need may go, if nobody else does."""
        claims = self._claims_beside(self._held.by_key.get(gang.key))
        no_rows = claims.not_counted if is_counted(request) else claims.rows
        excluded = np.concatenate([*no_rows, *(held.place.rows for held in reserved), _NO_ROWS])
        by_priority = partial(outranks, self._context.across)
        preemption = PreemptionRequest(
            gang, request, self._began, excluded, by_priority, by_group=True, growth=growth
        )
        context, plan = self._context, None
        try:
            with (
                containment.ContainedSearch(self._state.snapshot),
                self._held.withheld.beside(claims.by_gang),
            ):
                if awaits:
                    plan = preemption_plan.find_without_victims(context, preemption)
                plan = plan or self._plan(preemption, lacks, preempts=preempts)
                if plan is None and by_own:
                    own = replace(preemption, may_evict=_none, spared=frozenset((gang.key,)))
                    plan = preemption_plan.find_victims(context, own)
                    blocked = plan is None and context.budgets.cover_any(gang.counts.placed)
                    context.budgets.blocked_a_request |= blocked
                if plan is None:
                    return None, reclaim.blocking_budgets(context, preemption, lacks)
                until, why = proportion.wait_until(context, gang, request, plan)
                if self._now < until:
                    self._pending.preemption_retry_at.add(until)
                    return None, why
                return plan, ""
        except WorkLimitReached:
            return None, UNDECIDED_LARGEST if self._state.snapshot.meter.is_largest else UNDECIDED

    def _postpone(self, gang: Gang) -> None:
        """Searches again in a while: for now there are no victims. All gangs have the same moments for that, since one
        that searches has the others tried, too: else two would postpone each other for ever."""
        gang.preemption.not_before = (self._now // PREEMPTION_RETRY_S + 1) * PREEMPTION_RETRY_S
        gang.preemption.claims_over = self._pending.claims_over
        self._retry_when_others_may_go()

    def _start(self, gang: Gang, request: PlacementRequest, plan: PreemptionPlan) -> list[Evict]:
        reservations = self._held.by_key
        try:
            reservations[gang.key] = held = reclaim.start_evictions(
                self._context, gang, request, plan, self._now
            )
            for place in plan.new_places:
                place.refresh(self._state, self._now)
                reservations[place.gang.key] = place
            return self._held.evictions(held)
        except Exception:
            for pod in plan.victims:
                pod.advance(EVICTION_ENDED)
            raise

    def _is_postponed(self, gang: Gang) -> bool:
        """Returns whether the gang searched victims a moment ago, and no claim has ended since: the search left out the
        nodes of claims, and those of one that is over would go to gangs behind it that have not searched yet."""
        standing = gang.preemption
        return self._now < standing.not_before and standing.claims_over == self._pending.claims_over

    def _claims_beside(self, own: Reservation | None) -> _StandingClaims:
        """Returns the claims of all other gangs. Each of thousands of claimants adds its own claim alone to what the
        one before it has read."""
        every = list(self._held.by_key.values())
        if own is not None:
            return _StandingClaims().add([held for held in every if held is not own])
        if every[: len(self._claims.known)] != self._claims.known:
            self._claims = _StandingClaims()
        return self._claims.add(every[len(self._claims.known) :])

    def _retry_when_others_may_go(self) -> None:
        if self._runtime_ends is None:
            self._runtime_ends = evictable.next_end(self._context, self._now)
        self._pending.preemption_retry_at.update(self._runtime_ends)

    def _plan(
        self, preemption: PreemptionRequest, lacks: Sequence[Shortfalls], *, preempts: bool
    ) -> PreemptionPlan | None:
        context = self._context
        plan = reclaim.plan(context, preemption, lacks) if preempts else None
        if plan is None and self._state.any_pod.movable and not lacks and not preemption.growth:
            plan = defragment.plan(context, preemption)
            if plan is None:
                settled = defragment.next_settled(context, self._now)
                self._pending.preemption_retry_at.update(settled)
        return plan

    def _without_unsent(self, plan: PreemptionPlan) -> PreemptionPlan:
        """Withdraws the bindings of victims that were placed by this very cycle."""
        if plan.evictions is EvictionKind.MOVES or not any(pod.assumed for pod in plan.victims):
            return plan
        self._held.withheld.set([])
        left = withdrawal.withdraw(self._state, plan.victims, self._decisions)
        if len(left) < len(plan.victims):
            self._pending.capacity_freed(withdrawal.WITHDRAWN)
        gangs = [self._state.gang_of(pod) for pod in plan.victims if not pod.node]
        self.withdrawn += [gang for gang in dict.fromkeys(gangs) if gang is not None]
        return replace(plan, victims=left)


def _none(claimant: Gang, other: Gang) -> bool:
    return False


def _is_anywhere(request: PlacementRequest) -> bool:
    """Returns whether it does not matter where the gang's other members are."""
    return not (request.required or request.subgroups or request.roles)
