"""The capacity that a gang may use while other gangs hold reservations.

While the pending gangs are tried in order, reserved capacity is taken out of the shared snapshot
for the gangs that must leave it free, and put back for the others. So placement needs to know
nothing of reservations, and gangs bound by the same reservations share refusals.

Design: docs/design/reservations.md
Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from math import inf
from operator import attrgetter

import numpy as np

from central.model.arrays import Ints
from central.model.decisions import Decision, Evict
from central.scheduler import containment, partial_gangs
from central.scheduler.binding_reservations import BindingReservations
from central.scheduler.pass_claims import PassClaims
from central.scheduler.pass_reservations import PassReservations
from central.scheduler.placement import PlacementRequest
from central.scheduler.queues import quota
from central.scheduler.queues.order import run_time_s
from central.scheduler.queues.queue_claims import FIRST_S, waits_by_order
from central.scheduler.queues.shortfall import Shortfalls
from central.scheduler.refusal_remarks import remarks
from central.scheduler.reservation.better_place import plan_better
from central.scheduler.reservation.planned_reservation import plan_reservation
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.shared_refusals import CountedCapacity
from central.scheduler.state.gangs import Gang
from central.scheduler.work_meter import WorkLimitReached

REPLAN_S = 10.0  # how often a better place for a reservation is looked for
MAX_HEADS = 8  # gangs with a reservation, until which others get one
_by_eviction = attrgetter("by_eviction")

# The quota that victims must free, as alternatives; none: what terminates in any case suffices. None: no victims help.
Claimable = Callable[[], Sequence[Shortfalls] | None]


class ReservedCapacity:
    """Used for the passes over the pending gangs of one round, and kept between its slices.

    reserved.begin(decisions, resumed=...)  # in each slice
    for view in reserved.views_for(gang):   # try to place the gang; stop when it fits
    reserved.on_bound(gang) | reserved.on_refused(gang, request) | reserved.release(gang)
    reserved.on_tried(gang)                 # always, before the next gang
    reserved.end()                          # of the slice: the snapshot is whole again
    """

    def __init__(self, scheduler: Scheduler, *, began: float) -> None:
        """began: when the round began: victims are compared as they were then, so that what is counted of them holds
        for all slices."""
        self._scheduler, self._state = scheduler, scheduler.state
        self._now = scheduler.state.now
        self.claimed: list[Gang] = []  # that got the place that their victims left
        self._held = PassReservations(scheduler)
        self._broken = self._held.broken
        self._reservations, self._withheld = self._held.by_key, self._held.withheld
        self._claims = PassClaims(scheduler, self._held, began=began)
        self._binding = BindingReservations(scheduler)
        self._is_for_quota = False  # what is withheld stays so until show_free()

    def begin(self, decisions: list[Decision], *, resumed: bool = False) -> None:
        """Begins a pass or a slice of one. decisions: of this cycle; evictions whose dry runs succeeded are appended as
        the state changes. resumed: only the pass has changed free capacity since its last slice, so its findings
        hold."""
        self._now = self._state.now
        self._claims.begin(decisions, resumed=resumed)
        self._binding.begin(resumed=resumed)
        self._state.pending.end_preemption_backoff(self._now)
        self._held.begin(decisions, resumed=resumed)

    def restart(self) -> None:
        """Forgets what the pass found, for the next one."""
        self._held.dropped = False
        self._broken.clear()
        self._binding.tried.clear()
        self._claims.restart()

    def alone(self, began: float, decisions: list[Decision]) -> "ReservedCapacity":
        """Returns the same for gangs that are tried beside the pass, without what it found of victims."""
        other = ReservedCapacity(self._scheduler, began=began)
        other._held.broken = other._broken = self._broken
        other._binding.tried = self._binding.tried
        other.begin(decisions)
        return other

    @property
    def dropped(self) -> bool:
        """Returns whether a reservation ended, so that others may fit."""
        return self._held.dropped

    @property
    def postponed(self) -> list[Gang]:
        """Returns the gangs that searched victims a moment ago, and not again."""
        return self._claims.postponed

    @property
    def withdrawn(self) -> list[Gang]:
        """Returns the gangs whose bindings the pass withdrew for others."""
        return self._claims.withdrawn

    def views_for(self, gang: Gang) -> Iterator[frozenset[object]]:
        """Changes the snapshot to what the gang may use, and yields a key for refusals that hold:
        first without all capacity that is reserved against the gang. Then, if the gang has a run
        time, with the reserved capacity that it gives back before the reservation starts (EASY
        backfill). Volumes stay withheld even then: a bound volume does not come back."""
        binding = self._binding.of(gang)
        self._is_for_quota = False
        own = self._reservations.get(gang.key)
        if own is not None and own.by_eviction:
            self._withheld.set(binding, own=own)
            yield frozenset(((own, "own"),))  # others may not use its place
        else:
            self._withheld.set(binding)
            yield frozenset(binding)
        lasts_s = run_time_s(gang)
        # mostly, and binding may be thousands
        if lasts_s == inf or all(map(_by_eviction, binding)):
            return
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
        self._claims.on_bound()
        self._held.pods_changed()
        gang.preemption.end_of_turn()
        if (own := self._reservations.get(gang.key)) is not None:
            self.claimed += [gang] if own.by_eviction else []
            gang.preemption.started_by_reservation = not own.by_eviction
            self._held.drop(gang.key)
        for held in self._reservations.values():
            if held.gang.key not in self._withheld:
                self._held.refresh(held)

    def on_refused(self, gang: Gang, request: PlacementRequest) -> list[Evict]:
        """Preempts for the gang's minimum if it may. Else, if the gang is the first of its queue
        that does not fit, reserves capacity for it."""
        key = gang.key
        own = self._reservations.get(key)
        if not gang.counts.placed:
            gang.preemption.started_by_reservation = False
        if own is not None and own.moved is not None:
            return []  # others are still where it is moved to
        if own is not None and self._awaits_victims(own, request):
            return []
        if self._scheduler.elastic.serves(self._scheduler.preemption, gang):
            self._scheduler.refused[key].left_to_surplus = True
            self._held.release(gang)
            return []
        if (evictions := self._claims.preempt(gang, request)) is not None:
            return evictions
        if (evictions := self._move_whole(gang, request)) is not None:
            return evictions
        if key in self._held.late:
            return []
        if own is not None and own.by_eviction:  # the victims have gone, and it still does not fit
            self._held.drop(key)
            own = None
        if own is None:
            self._reserve_in_turn(gang, request)
        elif key in self._broken or own.request != request:
            self._reserve(gang, request, instead=[own])
        elif self._now - own.planned_at >= REPLAN_S:
            own.planned_at = self._now
            self._reserve(gang, request, instead=[own], better=True)
        return []

    def _reserve_in_turn(self, gang: Gang, request: PlacementRequest) -> None:
        """Reserves capacity for a gang that comes before all that compete with it."""
        if (rivals := self.replaced_for(gang, request)) is not None:
            self._reserve(gang, request, instead=rivals, in_turn=True)

    def replaced_for(self, gang: Gang, request: PlacementRequest) -> list[Reservation] | None:
        """Returns the reservations that one for the gang would replace. None: it may have none now."""
        rivals, places = self._held.rivals(gang, request), len(self._reservations)
        if places >= MAX_HEADS + len(rivals):  # the first of all comes before the youngest, too
            rivals += [held for held in self._held.heads() if held not in rivals][-1:]
        if places >= MAX_HEADS + len(rivals):
            return None
        first = all(self._takes_over(gang, held) for held in rivals)
        return rivals if first and self._held.reserves(gang) else None

    def _move_whole(self, gang: Gang, request: PlacementRequest) -> list[Evict] | None:
        """Evicts a started gang whose lost members have no place beside the others, and reserves its new place. None:
        it stays."""
        if not gang.is_broken or not (request.required or request.subgroups):
            return None
        policy = self._scheduler.policy.placement
        with containment.ContainedSearch(self._state.snapshot):
            found = partial_gangs.move_whole(self._state, gang, policy, self._now)
        if found is None:
            return None
        if gang.key in self._reservations:
            self._held.drop(gang.key)
        held, evictions = found
        held.refresh(self._state, self._now)
        self._reservations[gang.key] = held
        self._held.pods_changed()
        return evictions

    def on_growth_refused(self, gang: Gang, request: PlacementRequest) -> list[Evict]:
        """Preempts for one more member of a gang that has its minimum, if it may. Nothing is reserved or moved for
        it otherwise. A queue has one such claim at a time: what its victims free beyond the claim is used first."""
        own = self._reservations.get(gang.key)
        if own is not None and (own.moved is not None or self._awaits_victims(own, request)):
            return []
        evictions = self._claims.preempt(gang, request, growth=True)
        if evictions is None and gang.key not in self._held.late:
            self._held.release(gang)
        return evictions or []

    def _awaits_victims(self, own: Reservation, request: PlacementRequest) -> bool:
        anew = self.must_retry(own.gang)
        return own.by_eviction and not anew and own.request.is_for_same_pods(request)

    def on_over_quota(
        self, gang: Gang, request: PlacementRequest, claimable: Claimable, *, growth: bool
    ) -> list[Evict]:
        """Preempts for a gang that its queue may not start now, so that quota and capacity become free together.
        claimable: counts the quota that victims must free. growth: of a gang that has its minimum. What is withheld for
        that stays so until show_free(), since the next gang mostly claims beside the same reservations: where many
        claim, each would give back and take those of all before it."""
        own, lacks = self._reservations.get(gang.key), claimable()
        if own is not None and self._goes_on(own, request, lacks):
            return []
        if own is not None and own.victims:  # they stay, and so they free nothing
            self._held.cancel(own)
            lacks = claimable()
        evictions: list[Evict] | None = None
        if lacks is not None:
            next(iter(self.views_for(gang)))
            evictions = self._claims.preempt(gang, request, lacks, growth=growth, awaits=not lacks)
        self._is_for_quota = True
        if evictions is None and gang.key not in self._held.late:
            self._held.release(gang)
        return evictions or []

    def _goes_on(
        self, own: Reservation, request: PlacementRequest, lacks: Sequence[Shortfalls] | None
    ) -> bool:
        """Returns whether the claim stays as it is, until its victims and what else terminates have gone."""
        if lacks is None or not self._awaits_victims(own, request):
            return False
        claim = self._scheduler.queues.claims.get(own.gang.key)
        return claim is not None and (not lacks or claim.has_present_victims())

    def withheld(self) -> tuple[tuple[Reservation, ...], tuple[Reservation, ...]]:
        """The reservations that are out of the snapshot now, and those of which only volumes are."""
        return tuple(self._withheld.reservations()), tuple(self._withheld.volumes_only)

    def counted(self) -> CountedCapacity:
        """Returns the capacity that a refusal counts on now."""
        return CountedCapacity.of(self._state, self._withheld)

    def annotate(self, gang: Gang) -> None:
        """Adds to the gang's reason what reservations, disruption budgets and queues mean for it."""
        refused = self._scheduler.refused.get(gang.key)
        if refused is None:
            return
        withheld = self._withheld
        if self._is_for_quota:  # quota refused the gang, no reservation
            withheld = WithheldCapacity(self._state.snapshot)
            if quota.GUARANTEED in refused.base:
                self.show_free()  # the reason counts it
        gang.attempt.reason += remarks(self._scheduler, gang, refused, withheld, self._now)

    def must_retry(self, gang: Gang) -> bool:
        """Returns whether the gang is tried even if no capacity was freed."""
        return gang.key in self._broken or gang.key in self._held.late

    def on_tried(self, gang: Gang) -> None:
        self._binding.tried.add(gang.key)

    def release(self, gang: Gang) -> None:
        """Drops the reservation of a gang that cannot be tried now."""
        self._held.release(gang)

    def show_free(self) -> None:
        """Gives back what on_over_quota() left withheld, before free capacity is read for the next gang."""
        if self._is_for_quota:
            self.close()

    def end(self) -> None:
        self.close()
        self._binding.end()

    def close(self) -> None:
        self._is_for_quota = False
        self._withheld.set([])

    def _takes_over(self, gang: Gang, held: Reservation) -> bool:
        """Returns whether the gang may have a reservation instead of this one, on nodes that both could use."""
        if held.queue != gang.queue:
            return self._binding.comes_first(gang, held)
        since = self._now if gang.preemption.head_since is None else gang.preemption.head_since
        older = (-gang.priority, since) < (-held.gang.priority, held.head_since)
        return held.gang.key not in self._binding.tried and (not held.strict or older)

    def _reserve(
        self,
        gang: Gang,
        request: PlacementRequest,
        instead: Sequence[Reservation],
        *,
        in_turn: bool = False,
        better: bool = False,
    ) -> None:
        """instead: the reservations that the new one replaces. in_turn: also those that it comes before, where no place
        is left beside them. better: only if the start is earlier than that of its own."""
        own = self._reservations.get(gang.key)
        found: Reservation | None = None
        with suppress(WorkLimitReached):
            found = self._planned(gang, request, own if better else None, instead)
            behind = (
                [held for held in self._held.heads() if self._takes_over(gang, held)]
                if found is None and in_turn
                else []
            )
            if len(behind) > len(instead):
                found = self._planned(gang, request, None, behind)
                rows = () if found is None else found.place.rows
                instead = [o for o in behind if o in instead or np.isin(o.place.rows, rows).any()]
        if found is not None:
            since = gang.preemption.head_since
            found.head_since = self._now if since is None else since
        if better and own is not None:
            strict_since = own.head_since + self._held.strict_after_s(own)
            if found is None or not found.better_than(own, self._state.snapshot, strict_since):
                return
        if found is None and own is None:
            return  # else two would take turns, and each drop has all gangs tried again
        for held in instead:
            self._held.drop(held.gang.key)
            if held.gang is not gang:  # when its turn comes again, it begins anew
                held.gang.preemption.end_of_turn()
        self._broken.discard(gang.key)
        if found is None:
            return
        gang.preemption.head_since = found.head_since
        queues = self._scheduler.queues
        if queues.enabled and found.start == inf and waits_by_order(queues, gang):
            self._state.pending.preemption_retry_at.add(found.head_since + FIRST_S)
        self._held.refresh(found)
        self._reservations[gang.key] = found

    def _planned(
        self,
        gang: Gang,
        request: PlacementRequest,
        own: Reservation | None,
        instead: Sequence[Reservation],
    ) -> Reservation | None:
        """own: only a better place than this one is looked for. instead: as if these were not there."""
        for held in instead:
            self._withheld.without(held)
        others = [held.place.rows for held in self._reservations.values() if held not in instead]
        excluded: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *others])
        state, running = self._state, self._held.running
        with containment.ContainedSearch(state.snapshot):
            if own is not None:
                return plan_better(state, own, running, excluded)
            return plan_reservation(state, gang, request, running, excluded)
