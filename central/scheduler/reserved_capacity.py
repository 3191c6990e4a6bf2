"""Which capacity a gang may use while other gangs hold reservations.

While the pending gangs are tried in order, reserved capacity is taken out of the shared snapshot
for the gangs that must leave it free, and put back for the others. So placement needs to know
nothing of reservations, and gangs bound by the same reservations share refusals.

Design: docs/design/0018-reservations.md
Design: docs/design/0062-growth.md
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import NamedTuple

import numpy as np

from central.model.arrays import Ints
from central.model.decisions import Decision, Evict
from central.scheduler.binding_reservations import BindingReservations
from central.scheduler.fence import search
from central.scheduler.inventory.pods import EVICTION_ENDED
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import defragment, evictable, reclaim, withdrawal
from central.scheduler.preemption.preemption_request import (
    PreemptionPlan,
    PreemptionRequest,
    outranks,
)
from central.scheduler.queues.claim_in_flight import present_victims
from central.scheduler.queues.order import run_time_s
from central.scheduler.queues.shortfall import Shortfalls
from central.scheduler.refusal_remarks import remarks
from central.scheduler.reservation.reservation import Reservation, plan_reservation
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.state.other_pod import OtherPod
from central.scheduler.work_meter import WorkLimitReached

REPLAN_S = 10.0  # how often a better place for a reservation is looked for
PREEMPTION_RETRY_S = 2.0  # after a search without victims, which reads every gang
MAX_HEADS = 8  # queues whose first gang has a reservation
UNDECIDED = "the search for victims reached the work limit of one cycle; it is tried again"

# Requests without possible victims, by queue, priority and tenant, with the budgets that block.
NoVictims = dict[tuple[object, ...], str]


class PassMemory(NamedTuple):
    """What one pass over the pending gangs remembers, if it is cut into slices."""

    tried: set[GangKey]
    no_victims: NoVictims
    broken: set[GangKey]  # reservations that cannot be met as planned

    @classmethod
    def empty(cls) -> "PassMemory":
        return cls(set(), {}, set())


class ReservedCapacity:
    """Used for one pass over the pending gangs.

    for view in reserved.views_for(gang):   # try to place the gang; stop when it fits
    reserved.on_bound(gang) | reserved.on_refused(gang, request) | reserved.release(gang)
    reserved.on_tried(gang)                 # always, before the next gang
    reserved.close()                        # at the end: the snapshot is whole again
    """

    def __init__(
        self,
        scheduler: Scheduler,
        now: float,
        memory: "PassMemory",
        decisions: list[Decision],
        *,
        resumed: bool = False,
        began: float,
    ) -> None:
        """decisions: evictions whose dry runs succeeded are appended as the state changes.
        memory: of the earlier slices of the pass; it is continued. resumed: only this pass has
        changed free capacity since they ended, so their findings hold. began: when the round began: victims are
        compared as they were then, so that what is counted of them holds for all slices."""
        self._scheduler = scheduler
        self._state, self._pending = scheduler.state, scheduler.state.pending
        self._reservations = scheduler.reservations
        self._context = scheduler.preemption
        self._policy = scheduler.policy
        self._now, self._began = now, began
        self.dropped = False  # a reservation ended, so others may fit
        self.claimed: list[Gang] = []  # that got the place that their victims left
        self.postponed: list[Gang] = []  # that searched victims a moment ago, and not again
        self.withdrawn: list[Gang] = []  # whose bindings were withdrawn for another gang
        self._decisions = decisions
        self._runtime_ends: list[float] | None = None  # evictable.next_end(), until a gang is bound
        self._tried, self._no_victims, self._broken = memory
        # Evictions of this cycle, also of an attempt that a bug ended: uid, whether a dry run.
        self._asked = {(each.pod, each.trial) for each in decisions if isinstance(each, Evict)}
        self._withheld = WithheldCapacity(scheduler.state.snapshot)
        self._running = RunningPods(self._state, now)  # new after each change of a pod
        self._binding = BindingReservations(scheduler, self._tried)
        none: Ints = np.zeros(0, dtype=np.int64)
        self._claim_rows: tuple[list[Reservation], Ints] = [], none  # see _rows_of_claims()
        self._pending.end_preemption_backoff(now)
        for key, held in list(self._reservations.items()):
            if not self._holds(key, held):
                self.drop(key)
                continue
            if resumed:
                continue
            if self._refresh(held):
                decisions += self._evictions(held)
            else:
                self._broken.add(key)
                self._cancel(held)
        self._keep_one_head_per_queue()

    def _holds(self, key: GangKey, held: Reservation) -> bool:
        """Whether the gang still waits, or its moved pods are still to be made again."""
        if held.moved is None:
            waiting = self._pending.waiting.get(key) is held.gang
            return waiting and (held.by_eviction or self._reserves(held.gang))
        held.gang = self._state.gangs.get(key, held.gang)  # made again, with its first new pod
        if not held.moved.awaited(self._state, self._now):
            return False
        self._pending.preemption_retry_at.add(held.moved.until)
        return held.refresh(self._state, self._now)

    def _refresh(self, held: Reservation) -> bool:
        """Updates whether the reservation is strict, and what it withholds. Returns whether it can be met."""
        policy, headed_s, most_idle = self._policy, self._now - held.head_since, 0
        if held.by_eviction or headed_s >= self._strict_after_s(held):
            held.become_strict()
        if held.start == inf and headed_s >= policy.reserve_after_s:
            total = int(self._state.snapshot.columns.allocatable[:, 0].sum())
            others = sum(o.idle for o in self._reservations.values() if o is not held)
            most_idle = max(int(total * policy.reserve_idle) - others, 1)
        return held.refresh(self._state, self._now, most_idle)

    def _strict_after_s(self, held: Reservation) -> float:
        """How long its gang is the head before the reservation is strict. One that holds nothing yet, since no start
        is known, has nothing to be strict about: it goes wherever fewer GPUs lack."""
        policy = self._policy
        return max(policy.patience_s, policy.reserve_after_s if held.start == inf else 0.0)

    def _keep_one_head_per_queue(self) -> None:
        """Gangs of two deleted queues are in one queue then, so that it may have two heads. The
        older one stays."""
        heads = [held for held in self._reservations.values() if not held.by_eviction]
        seen: set[str] = set()
        for held in sorted(heads, key=lambda held: held.head_since):
            if held.queue in seen:
                self.drop(held.gang.key)
            seen.add(held.queue)

    def views_for(self, gang: Gang) -> Iterator[frozenset[object]]:
        """Changes the snapshot to what the gang may use, and yields a key for refusals that hold:
        first without all capacity that is reserved against the gang. Then, if the gang has a run
        time, with the reserved capacity that it gives back before the reservation starts (EASY
        backfill). Volumes stay withheld even then: a bound volume does not come back."""
        binding = self._binding.of(gang)
        self._withheld.set(binding)
        yield frozenset(binding)
        lasts_s = run_time_s(gang)
        delayed = [
            held for held in binding if held.by_eviction or not held.lets_in(lasts_s, self._now)
        ]
        if len(delayed) < len(binding):
            rest = [held for held in binding if held not in delayed]
            self._withheld.set(delayed, rest)
            yield frozenset(
                (*delayed, *((held, "volumes") for held in rest if held.withheld_volumes))
            )

    def on_bound(self, gang: Gang) -> None:
        """Drops the gang's reservation, and updates those that it was allowed to use."""
        self._runtime_ends = None
        self._pods_changed()
        gang.preemption.head_since = None
        gang.preemption.latest_start, gang.preemption.overrun = inf, 1.0
        if (own := self._reservations.get(gang.key)) is not None:
            self.claimed += [gang] if own.by_eviction else []
            self.drop(gang.key)
        for held in self._reservations.values():
            if held.gang.key not in self._withheld:
                self._refresh(held)

    def on_refused(self, gang: Gang, request: PlacementRequest) -> list[Evict]:
        """Preempts for the gang's minimum if it may. Else, if the gang is the first of its queue
        that does not fit, reserves capacity for it."""
        key = gang.key
        own = self._reservations.get(key)
        if own is not None and own.moved is not None:
            return []  # others are still where it is moved to
        if own is not None and self._awaits_victims(own, request):
            return []
        if self._scheduler.elastic.serves(self._context, gang):
            self._scheduler.refused[key].left_to_surplus = True
            self.release(gang)
            return []
        if (evictions := self._preempt(gang, request)) is not None:
            return evictions
        if own is not None and own.by_eviction:  # the victims have gone, and it still does not fit
            self.drop(key)
            own = None
        if own is None:
            head = self._head(gang)
            ahead = head is None or (
                head.gang.key not in self._tried
                and not (head.strict and head.gang.priority >= gang.priority)
            )
            own_places = sum(not isinstance(o.gang, OtherPod) for o in self._reservations.values())
            if ahead and self._reserves(gang) and own_places < MAX_HEADS:
                self._reserve(gang, request, instead=head)
        elif key in self._broken or own.request != request:
            self._reserve(gang, request, instead=own)
        elif self._now - own.planned_at >= REPLAN_S:
            own.planned_at = self._now
            self._reserve(gang, request, instead=own, better=True)
        return []

    def on_growth_refused(self, gang: Gang, request: PlacementRequest) -> list[Evict]:
        """Preempts for one more member of a gang that has its minimum, if it may. Nothing is reserved or moved for
        it otherwise. A queue has one such claim at a time: what its victims free beyond the claim is used first."""
        own = self._reservations.get(gang.key)
        if own is not None and (own.moved is not None or self._awaits_victims(own, request)):
            return []
        evictions = self._preempt(gang, request, growth=True)
        if evictions is None:
            self.release(gang)
        return evictions or []

    def _may_grow(self, gang: Gang) -> bool:
        """Whether it may claim for a member above its minimum now."""
        if self._scheduler.elastic.manages(gang):
            return False
        if any(self._grows_beside(held, gang) for held in self._reservations.values()):
            self._pending.preemption_retry_at.add(self._now + PREEMPTION_RETRY_S)
            return False
        return True

    def _grows_beside(self, held: Reservation, gang: Gang) -> bool:
        """Whether another gang of the queue awaits victims for a member above its minimum."""
        other, claims = held.gang, held.by_eviction and held.moved is None
        return claims and other is not gang and other.queue == gang.queue and not other.missing()

    def _awaits_victims(self, own: Reservation, request: PlacementRequest) -> bool:
        return own.by_eviction and own.gang.key not in self._broken and own.request == request

    def on_over_quota(
        self, gang: Gang, request: PlacementRequest, lacks: Sequence[Shortfalls], *, growth: bool
    ) -> list[Evict]:
        """Preempts for a gang that its queue may not start now, so that quota and capacity become free together.
        lacks: the quota, as alternatives; none: no victims help. growth: of a gang that has its minimum."""
        own = self._reservations.get(gang.key)
        evictions: list[Evict] | None = None
        if lacks and own is not None and own.by_eviction and self._are_leaving(gang, own, request):
            evictions = []
        elif lacks:
            next(iter(self.views_for(gang)))
            evictions = self._preempt(gang, request, lacks, growth=growth)
        self._withheld.set([])
        if evictions is None:
            self.release(gang)
        return evictions or []

    def _are_leaving(self, gang: Gang, own: Reservation, request: PlacementRequest) -> bool:
        queues = self._scheduler.queues
        claims = [queues.claims[gang.key]] if gang.key in queues.claims else []
        unchanged = gang.key not in self._broken and own.request == request
        return unchanged and bool(present_victims(claims, queues.by_name))

    def withheld(self) -> tuple[tuple[Reservation, ...], tuple[Reservation, ...]]:
        """The reservations that are out of the snapshot now, and those of which only volumes are."""
        return tuple(self._withheld.reservations()), tuple(self._withheld.volumes_only)

    def annotate(self, gang: Gang) -> None:
        """Adds to the gang's reason what reservations, disruption budgets and queues mean for it."""
        refused = self._scheduler.refused.get(gang.key)
        if refused is not None:
            gang.attempt.reason += remarks(
                self._scheduler, gang, refused, self._withheld, self._now
            )

    def must_retry(self, gang: Gang) -> bool:
        """Whether the gang is tried even if no capacity was freed."""
        return gang.key in self._broken

    def on_tried(self, gang: Gang) -> None:
        self._tried.add(gang.key)

    def _evictions(self, held: Reservation) -> list[Evict]:
        """What is to be asked for now. A pod is asked for once a cycle: if its claim is dropped and another one takes
        the same pod, that one gets the answer."""
        found = reclaim.continue_evictions(self._context, held)
        found = [each for each in found if (each.pod, each.trial) not in self._asked]
        self._asked.update((each.pod, each.trial) for each in found)
        return found

    def release(self, gang: Gang) -> None:
        """Drops the reservation of a gang that cannot be tried now. A moved gang is tried once all of its
        pods are made again."""
        own = self._reservations.get(gang.key)
        if own is not None and own.moved is None:
            self.drop(gang.key)

    def drop(self, key: GangKey) -> None:
        held = self._reservations.pop(key)
        self._cancel(held)
        self._pending.claims_over += held.by_eviction
        self.dropped = True
        self._pending.capacity_freed("reservation dropped")

    def _cancel(self, held: Reservation) -> None:
        if held.victims:
            self._pods_changed()
        reclaim.cancel(self._context, held)

    def _pods_changed(self) -> None:
        self._running = RunningPods(self._state, self._now)

    def close(self) -> None:
        self._withheld.set([])

    def _reserves(self, gang: Gang) -> bool:
        """Whether its queue lets its first gang reserve capacity."""
        queue = self._scheduler.queues.by_name.get(gang.queue)
        return queue is None or queue.seen.reserves

    def _head(self, gang: Gang) -> Reservation | None:
        queue = gang.queue
        return next(
            (
                held
                for held in self._reservations.values()
                if not held.by_eviction and held.queue == queue
            ),
            None,
        )

    def _preempt(
        self,
        gang: Gang,
        request: PlacementRequest,
        lacks: Sequence[Shortfalls] = (),
        *,
        growth: bool = False,
    ) -> list[Evict] | None:
        """Evicts victims so that all of the request fits, with the quota that it lacks (one of the
        alternatives), and reserves what they free for the gang. None: there are no such victims."""
        key = gang.key
        alike = request.groups if growth and _is_anywhere(request) else request
        tenant = self._context.tenant(gang, self._now)
        searched = (gang.queue, gang.priority, alike, growth, *tenant)
        preempts = gang.priority > self._pending.lowest_priority or self._scheduler.queues.enabled
        if not preempts and (growth or not self._state.any_pod.movable):
            return None
        if growth and not self._may_grow(gang):
            return None
        if not all(pod.seen.preempts for pod in gang.counts.waiting):
            return None
        if searched in self._no_victims:
            gang.preemption.blocked_by = self._no_victims[searched]
            return None
        if self._is_postponed(gang):
            self.postponed.append(gang)
            self._pending.preemption_retry_at.add(gang.preemption.not_before)
            # Equal gangs come after it, though they have searched nothing themselves.
            self._no_victims[searched] = gang.preemption.blocked_by
            return None
        own = self._reservations.get(key)
        if own is not None:
            self._cancel(own)
            self._withheld.without(own)
        excluded = self._rows_of_claims(own)
        by_priority = partial(outranks, self._context.across)
        preemption = PreemptionRequest(
            gang, request, self._began, excluded, by_priority, by_group=True, growth=growth
        )
        try:
            plan = self._plan(preemption, lacks, preempts=preempts)
            blocked_by = "" if plan is not None else self._blocked_by(preemption, lacks)
        except WorkLimitReached:
            plan, blocked_by = None, UNDECIDED
        if plan is None:
            self._no_victims[searched] = gang.preemption.blocked_by = blocked_by
            goes_on = self._state.snapshot.meter.keeps_progress
            gang.preemption.not_before = self._now + (0.0 if goes_on else PREEMPTION_RETRY_S)
            gang.preemption.claims_over = self._pending.claims_over
            self._retry_when_others_may_go()
            return None
        gang.preemption.blocked_by = ""
        self._pods_changed()
        if own is not None:
            self.drop(key)
        self._broken.discard(key)
        plan = self._without_unsent(plan)
        try:
            self._reservations[key] = held = reclaim.start_evictions(
                self._context, gang, request, plan, self._now
            )
            for place in plan.new_places:
                place.refresh(self._state, self._now)
                self._reservations[place.gang.key] = place
            return self._evictions(held)
        except Exception:
            for pod in plan.victims:
                pod.advance(EVICTION_ENDED)
            raise

    def _is_postponed(self, gang: Gang) -> bool:
        """Whether the gang searched victims a moment ago, and no claim has ended since: the search left out the nodes
        of claims, and those of one that is over would go to gangs behind it that have not searched yet."""
        standing = gang.preemption
        return self._now < standing.not_before and standing.claims_over == self._pending.claims_over

    def _rows_of_claims(self, own: Reservation | None) -> Ints:
        """Where the victims of other claims leave. Where thousands claim, each comes after all before it, and only its
        rows are added."""
        claims = [
            held for held in self._reservations.values() if held.by_eviction and held is not own
        ]
        known, rows = self._claim_rows
        if claims[: len(known)] != known:
            known, rows = [], rows[:0]
        rows = np.concatenate([rows, *(held.place.rows for held in claims[len(known) :])])
        self._claim_rows = claims, rows
        return rows

    def _retry_when_others_may_go(self) -> None:
        if self._runtime_ends is None:
            self._runtime_ends = evictable.next_end(self._context, self._now)
        self._pending.preemption_retry_at.update(self._runtime_ends)

    def _plan(
        self, preemption: PreemptionRequest, lacks: Sequence[Shortfalls], *, preempts: bool
    ) -> PreemptionPlan | None:
        snapshot, context = self._state.snapshot, self._context
        plan = search(snapshot, reclaim.plan, context, preemption, lacks) if preempts else None
        if plan is None and self._state.any_pod.movable and not lacks and not preemption.growth:
            plan = search(snapshot, defragment.plan, context, preemption)
            if plan is None:
                settled = defragment.next_settled(context, self._now)
                self._pending.preemption_retry_at.update(settled)
        return plan

    def _without_unsent(self, plan: PreemptionPlan) -> PreemptionPlan:
        """Withdraws the bindings of victims that were placed by this very cycle."""
        if plan.victims_fit_elsewhere or not any(pod.assumed for pod in plan.victims):
            return plan
        self._withheld.set([])
        left = withdrawal.withdraw(self._state, plan.victims, self._decisions)
        if len(left) < len(plan.victims):
            self._pending.capacity_freed(withdrawal.WITHDRAWN)
        gangs = [self._state.gang_of(pod) for pod in plan.victims if not pod.node]
        self.withdrawn += [gang for gang in dict.fromkeys(gangs) if gang is not None]
        return replace(plan, victims=left)

    def _blocked_by(self, preemption: PreemptionRequest, lacks: Sequence[Shortfalls]) -> str:
        snapshot = self._state.snapshot
        return search(snapshot, reclaim.blocking_budgets, self._context, preemption, lacks)

    def _reserve(
        self,
        gang: Gang,
        request: PlacementRequest,
        instead: Reservation | None,
        *,
        better: bool = False,
    ) -> None:
        """instead: the reservation that the new one replaces. better: only if the start is earlier."""
        if instead is not None:
            self._withheld.without(instead)
        others = [held.place.rows for held in self._reservations.values() if held is not instead]
        excluded: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *others])
        found: Reservation | None = None
        with suppress(WorkLimitReached):
            snapshot = self._state.snapshot
            found = search(
                snapshot, plan_reservation, self._state, gang, request, self._running, excluded
            )
        if found is not None:
            since = gang.preemption.head_since
            found.head_since = self._now if since is None else since
        if better and instead is not None:
            strict_since = instead.head_since + self._strict_after_s(instead)
            if found is None or not found.better_than(instead, self._state.snapshot, strict_since):
                return
        if found is None and instead is not None and instead.gang is not gang:
            return  # else the two would take turns, and each drop has all gangs tried again
        if instead is not None:
            self.drop(instead.gang.key)
        self._broken.discard(gang.key)
        if found is None:
            return
        gang.preemption.head_since = found.head_since
        self._refresh(found)
        self._reservations[gang.key] = found


def _is_anywhere(request: PlacementRequest) -> bool:
    """Whether it does not matter where the gang's other members are."""
    return not (request.required or request.subgroups or request.roles)
