"""The reservations during one pass over the pending gangs: kept up to date, dropped where they end, and taken out of
the shared snapshot for the gangs that must leave them free.

Design: docs/design/reservations.md
"""

from collections.abc import Callable
from math import inf
from operator import attrgetter

from central.model.decisions import Decision, Evict
from central.scheduler.inventory.pods import LATE
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import reclaim
from central.scheduler.queues.entitlement import would_be_reclaimed
from central.scheduler.queues.queue_claims import FIRST_S
from central.scheduler.reservation.competition import compete
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.running_pods import RunningPods
from central.scheduler.reservation.withholding import WithheldCapacity
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

_head_since: Callable[[Reservation], float] = attrgetter("head_since")


class PassReservations:
    """by_key: all reservations, those of the scheduler. withheld: what of them is out of the snapshot now."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.by_key = scheduler.reservations
        self.broken = set[GangKey]()  # reservations that cannot be met as planned
        self.late = set[GangKey]()  # claims that wait for pods that should have gone
        self.dropped = False  # a reservation ended, so others may fit
        self.withheld = WithheldCapacity(scheduler.state.snapshot)
        # New after each change of a pod.
        self.running = RunningPods(scheduler.state, scheduler.state.now)
        self._state, self._pending = scheduler.state, scheduler.state.pending
        self._policy, self._context = scheduler.policy, scheduler.preemption
        self._queues = scheduler.queues
        self._now = scheduler.state.now
        self._asked: set[tuple[str, bool]] = set()
        self._every: list[Reservation] = []
        self._heads: list[Reservation] = []  # of these

    def begin(self, decisions: list[Decision], *, resumed: bool) -> None:
        """Begins a pass or a slice of one: ends the reservations of gangs that no longer wait, and updates the others
        unless the pass is resumed. The evictions that are due are appended as the state changes. decisions: of this
        cycle."""
        self._now = self._state.now
        self.pods_changed()
        # Evictions of this cycle, also of an attempt that a bug ended: uid, whether a dry run.
        self._asked = {(each.pod, each.trial) for each in decisions if isinstance(each, Evict)}
        self.late.clear()
        for key, held in list(self.by_key.items()):
            if not self._holds(key, held):
                self.drop(key)
                continue
            if resumed:
                continue
            if self.refresh(held):
                decisions += self.evictions(held)
                self._look_for_late_pods(held)
            else:
                self.broken.add(key)
                self.cancel(held)
        self._keep_one_of_rivals()

    def _holds(self, key: GangKey, held: Reservation) -> bool:
        """Returns whether the reservation remains: its gang still waits and may reserve, or its moved pods are still to
        be made again."""
        if held.moved is None:
            waiting = self._pending.waiting.get(key) is held.gang
            return waiting and (held.by_eviction or self.reserves(held.gang))
        held.gang = self._state.gangs.get(key, held.gang)  # made again, with its first new pod
        if not held.moved.awaited(self._state, self._now):
            return False
        self._pending.preemption_retry_at.add(held.moved.until)
        return held.refresh(self._state, self._now)

    def refresh(self, held: Reservation) -> bool:
        """Updates whether the reservation is strict, and what it withholds. Returns whether it can be met."""
        policy, headed_s, most_idle = self._policy, self._now - held.head_since, 0
        if held.by_eviction or headed_s >= self.strict_after_s(held):
            held.become_strict()
        if held.start == inf and headed_s >= policy.reserve_after_s:
            total = int(self._state.snapshot.columns.allocatable[:, 0].sum())
            others = sum(o.idle for o in self.by_key.values() if o is not held)
            times = 1 + max(headed_s - policy.reserve_after_s, 0.0) / FIRST_S
            most_idle = max(int(total * min(policy.reserve_idle * times, 1.0)) - others, 1)
        return held.refresh(self._state, self._now, most_idle)

    def strict_after_s(self, held: Reservation) -> float:
        """Returns how long its gang is the head, in seconds, before the reservation is strict. A reservation that holds
        nothing yet, since no start is known, has nothing to be strict about: it goes wherever fewer GPUs are
        missing."""
        policy = self._policy
        return max(policy.patience_s, policy.reserve_after_s if held.start == inf else 0.0)

    def _look_for_late_pods(self, held: Reservation) -> None:
        """Has a claim planned anew, elsewhere, once pods that it waits for should have gone."""
        if not held.by_eviction or held.moved is not None:
            return
        terminating = [*held.late_pods(self._state, self._policy.max_grace_s)]
        for _, pod in (late := [each for each in terminating if each[0] <= self._now]):
            if not pod.life.late:
                pod.advance(LATE)
                self._queues.in_flight.outdated = True
                if (gang := self._state.gang_of(pod)) is not None:
                    self._pending.changed(gang)
        if late:
            self.late.add(held.gang.key)
        elif terminating:
            self._pending.preemption_retry_at.add(min(at for at, _ in terminating))

    def heads(self) -> list[Reservation]:
        """Returns the reservations that wait until others end, the oldest first."""
        if (every := list(self.by_key.values())) != self._every:
            heads = (each for each in every if not each.by_eviction)
            self._every, self._heads = every, sorted(heads, key=_head_since)
        return self._heads

    def rivals(
        self, gang: Gang, request: PlacementRequest, start: float = 0.0
    ) -> list[Reservation]:
        """Returns the reservations of other gangs that compete with this one: those of its queue, and those with a
        known start, where both gangs could use some of the same nodes. One of all these has a reservation. A second one
        would keep GPUs idle that the first does not need. start: that of the gang."""
        snapshot = self._state.snapshot
        return [
            held
            for held in self.heads()
            if held.gang is not gang
            and (max(held.start, start) < inf or held.queue == gang.queue)
            and compete(snapshot, held.request, request)
        ]

    def _keep_one_of_rivals(self) -> None:
        """Drops the younger of two reservations that compete by now: a gang takes its own along to another queue, and
        labels and starts change."""
        for held in reversed(self.heads()):
            if self.rivals(held.gang, held.request, held.start):
                self.drop(held.gang.key)

    def evictions(self, held: Reservation) -> list[Evict]:
        """Returns the evictions to ask for now. A pod is asked for once a cycle: if its claim is dropped and another
        one takes the same pod, that one gets the answer."""
        found = reclaim.continue_evictions(self._context, held)
        found = [each for each in found if (each.pod, each.trial) not in self._asked]
        self._asked.update((each.pod, each.trial) for each in found)
        return found

    def release(self, gang: Gang) -> None:
        """Drops the reservation of a gang that cannot be tried now. A moved gang is tried once all of its
        pods are made again."""
        own = self.by_key.get(gang.key)
        if own is not None and own.moved is None:
            self.drop(gang.key)

    def drop(self, key: GangKey) -> None:
        held = self.by_key.pop(key)
        self.cancel(held)
        self._pending.claims_over += held.by_eviction
        self.dropped = True
        self._pending.capacity_freed("reservation dropped")

    def cancel(self, held: Reservation) -> None:
        if held.victims:
            self.pods_changed()
        reclaim.cancel(self._context, held)

    def pods_changed(self) -> None:
        self.running = RunningPods(self._state, self._now)

    def reserves(self, gang: Gang) -> bool:
        """Checks that its queue lets its first gang reserve capacity, and that others would not reclaim it. A gang that
        shares time gets its place otherwise."""
        if self._context.time_sharing.shares(gang):
            return False
        queue = self._queues.by_name.get(gang.queue)
        if queue is not None and (not queue.seen.reserves or queue.error):
            return queue.seen.reserves
        if would_be_reclaimed(self._queues, gang):
            self._context.claim_watch.has_unreserved = True
            return False
        return True
