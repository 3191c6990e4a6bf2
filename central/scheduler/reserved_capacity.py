"""Who may take which room, while the line is walked: reserved room is taken out of the snapshot for
those who must leave it alone, and put back for those who need not."""

from collections.abc import Iterator, Sequence
from math import inf

import numpy as np

from central.model.arrays import Ints
from central.model.decisions import Evict
from central.scheduler.placement import PlacementRequest
from central.scheduler.preemption import defragment, reclaim
from central.scheduler.preemption.preemption_request import PreemptionRequest
from central.scheduler.reservation import reservation
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.scheduler import Scheduler
from central.scheduler.state.gangs import Gang, GangKey

REPLAN_S = 10.0  # a better place for the head is looked for this often
CLAIM_AGAIN_S = 2.0  # after a "no": it costs a look at every gang there is
MAX_HEADS = 8  # queues whose heads have a reservation


class ReservedCapacity:
    """For one walk along the line; close() at its end."""

    def __init__(self, scheduler: Scheduler, now: float) -> None:
        self._scheduler = scheduler
        self._state = scheduler.state
        self._pending = scheduler.state.pending
        self._reservations = scheduler.reservations
        self._context = scheduler.preemption
        self._patience_s = scheduler.policy.patience_s
        self._now = now
        self.dropped = False  # room that was kept is not any more
        self.evictions: list[Evict] = []  # of those who were asked first and agreed
        self._passed: set[GangKey] = set()
        self._refused: dict[
            tuple[str, int, PlacementRequest], str
        ] = {}  # for whom nobody can be evicted
        self._shelved: frozenset[str] = frozenset()  # volumes that are kept now
        self._lending: list[Reservation] = []  # whose volumes alone are
        self._held: dict[GangKey, tuple[Reservation, list[int]]] = {}
        self._broken: set[GangKey] = set()
        self._pending.end_preemption_backoff(now)
        for key, kept in list(self._reservations.items()):
            if self._pending.waiting.get(key) is not kept.gang:
                self.drop(key)
                continue
            kept.firm = kept.made or now - kept.since >= self._patience_s
            if kept.refresh(self._state, now):
                self.evictions += reclaim.go_on(self._context, kept)
            else:
                self._broken.add(key)
                reclaim.call_off(self._context, kept)
        self._one_head_each()

    def _one_head_each(self) -> None:
        """Queues that were two are one when they are deleted, and may have a head each: the one
        that heads it for longer stays."""
        heads = [kept for kept in self._reservations.values() if not kept.made]
        seen: set[str] = set()
        for kept in sorted(heads, key=lambda kept: kept.since):
            if kept.queue in seen:
                self.drop(kept.gang.key)
            seen.add(kept.queue)

    def views_for(self, gang: Gang) -> Iterator[frozenset[object]]:
        """The snapshot as the gang may use it; then, for one that ends in time, as it may be used
        until then. Ask for the next one only if the first did not do."""
        binding = [kept for kept in self._reservations.values() if self._binds(kept, gang)]
        self._switch(binding)
        yield frozenset(binding)
        end = self._now + _lasts(gang)
        strict = [kept for kept in binding if kept.firm or kept.start == inf or end > kept.start]
        if len(strict) < len(binding):
            rest = [kept for kept in binding if kept not in strict]
            self._switch(strict, rest)
            yield frozenset((*strict, *((kept, "volumes") for kept in rest if kept.shelved)))

    def on_bound(self, gang: Gang) -> None:
        """The gang took room: what is kept of it for others is less if they are allowed that."""
        gang.preemption.head_since = None
        if gang.key in self._reservations:
            self.drop(gang.key)
        for kept in self._reservations.values():
            if kept.gang.key not in self._held:
                kept.refresh(self._state, self._now)

    def on_refused(self, gang: Gang, want: PlacementRequest) -> list[Evict]:
        """The gang's minimum waits for room. Room is made for it if others may be evicted for that;
        else, if it is the first of its queue that waits, room is kept for it."""
        key = gang.key
        mine = self._reservations.get(key)
        if mine is not None and mine.made and key not in self._broken and mine.want == want:
            return []  # those who make room for it are leaving
        if (evictions := self._make_room(gang, want)) is not None:
            return evictions
        if mine is not None and mine.made:  # those who left did not make the room after all
            self.drop(key)
            mine = None
        if mine is None:
            head = self._head(gang)
            ahead = head is None or (
                head.gang.key not in self._passed
                and not (head.firm and head.gang.priority >= gang.priority)
            )
            if ahead and len(self._reservations) < MAX_HEADS:
                self._reserve(gang, want, instead=head)
        elif key in self._broken or mine.want != want:
            self._reserve(gang, want, instead=mine)
        elif not mine.firm and self._now - mine.planned_at >= REPLAN_S:
            mine.planned_at = self._now
            self._reserve(gang, want, instead=mine, before=mine.start)
        return []

    def annotate(self, gang: Gang) -> None:
        """Says what the room that is kept means for a gang that was refused."""
        if mine := self._reservations.get(gang.key):
            gang.attempt.reason += f"; {mine.sentence(self._now)}"
        elif self._held or self._lending:
            names = sorted({kept.gang.display_name for kept in (*self._lending, *self._keeping())})
            gang.attempt.reason += f"; not counting the room that is kept for {', '.join(names)}"
        if gang.preemption.blocked_by:
            gang.attempt.reason += f"; {gang.preemption.blocked_by}"

    def must_look(self, gang: Gang) -> bool:
        """Its reservation must be looked at though nothing was gained."""
        return gang.key in self._broken

    def on_passed(self, gang: Gang) -> None:
        self._passed.add(gang.key)

    def release(self, gang: Gang) -> None:
        """The gang can't be tried at all now: it keeps no capacity."""
        if gang.key in self._reservations:
            self.drop(gang.key)

    def drop(self, key: GangKey) -> None:
        reclaim.call_off(self._context, self._reservations.pop(key))
        self.dropped = True
        self._pending.capacity_freed("reservation dropped")

    def close(self) -> None:
        self._switch([])

    def _binds(self, kept: Reservation, gang: Gang) -> bool:
        if kept.gang is gang:
            return False
        mine = self._reservations.get(gang.key)
        if mine is not None and mine.made and not kept.made and _yields(kept, mine):
            return False
        if kept.made and kept.queue != gang.queue:
            return True  # priorities count inside a queue
        if kept.firm and gang.priority <= kept.gang.priority:
            return True
        return kept.gang.key in self._passed and gang.priority <= kept.gang.priority

    def _switch(self, binding: list[Reservation], shelved: Sequence[Reservation] = ()) -> None:
        """Each hold is put back before another is taken: they may overlap. shelved: whose volumes alone
        are kept; who gets a volume has it still when it has ended."""
        snapshot = self._state.snapshot
        free = snapshot.pod_counts.volumes.free
        free.release_all(self._shelved)
        self._lending = [kept for kept in shelved if kept.shelved]
        names = [kept.shelved for kept in (*binding, *shelved)]
        self._shelved = free.reserve_available(frozenset().union(*names))
        if self._keeping() == binding:
            return
        for kept, masks in reversed(self._held.values()):
            kept.release(snapshot, masks)
        self._held = {kept.gang.key: (kept, kept.hold(snapshot)) for kept in binding}

    def _keeping(self) -> list[Reservation]:
        return [kept for kept, _ in self._held.values()]

    def _head(self, gang: Gang) -> Reservation | None:
        queue = gang.queue
        return next(
            (kept for kept in self._reservations.values() if not kept.made and kept.queue == queue),
            None,
        )

    def _make_room(self, gang: Gang, want: PlacementRequest) -> list[Evict] | None:
        """Evicts whoever must go so that all of the gang fits, and keeps that room for it; None:
        nobody can be evicted to that end."""
        key = gang.key
        asked = (gang.queue, gang.priority, want)
        preempts = gang.priority > self._pending.lowest_priority or self._scheduler.queues.enabled
        if not preempts and not self._state.any_movable:
            return None
        if not all(pod.seen.preempts for pod in gang.waiting()):
            return None
        if asked in self._refused:
            gang.preemption.blocked_by = self._refused[asked]
            return None
        if self._now < gang.preemption.not_before:
            if gang.preemption.not_before < self._now + CLAIM_AGAIN_S:  # not in this very turn
                self._pending.preemption_retry_at.add(gang.preemption.not_before)
            return None
        mine = self._reservations.get(key)
        if mine is not None:
            reclaim.call_off(self._context, mine)
            self._switch([kept for kept, _ in self._held.values() if kept is not mine])
        others = [
            kept.rows for kept in self._reservations.values() if kept.made and kept is not mine
        ]
        apart: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *others])
        claim = PreemptionRequest(gang, want, self._now, apart)
        plan = reclaim.plan(self._context, claim) if preempts else None
        if plan is None and self._state.any_movable:
            plan = defragment.plan(self._context, claim)
            self._pending.preemption_retry_at.update(
                defragment.later(self._context, self._now) if plan is None else ()
            )
        if plan is None:
            self._refused[asked] = gang.preemption.blocked_by = reclaim.spared(
                self._context, gang, want, self._now, apart
            )
            gang.preemption.not_before = self._now + CLAIM_AGAIN_S
            return None
        gang.preemption.blocked_by = ""
        if mine is not None:
            self.drop(key)
        self._broken.discard(key)
        self._reservations[key] = kept = reclaim.begin(self._context, gang, want, plan, self._now)
        return reclaim.go_on(self._context, kept)

    def _reserve(
        self,
        gang: Gang,
        want: PlacementRequest,
        instead: Reservation | None,
        before: float | None = None,
    ) -> None:
        if instead is not None:
            self._switch([kept for kept, _ in self._held.values() if kept is not instead])
        others = [kept.rows for kept in self._reservations.values() if kept is not instead]
        apart: Ints = np.concatenate([np.zeros(0, dtype=np.int64), *others])
        found = reservation.plan(self._state, gang, want, self._now, apart)
        if before is not None and (found is None or found.start >= before):
            return
        if instead is not None:
            self.drop(instead.gang.key)
        self._broken.discard(gang.key)
        if found is None:
            return
        if gang.preemption.head_since is None:
            gang.preemption.head_since = self._now
        found.since = gang.preemption.head_since
        found.firm = self._now - found.since >= self._patience_s
        found.refresh(self._state, self._now)
        self._reservations[gang.key] = found


def _yields(kept: Reservation, made: Reservation) -> bool:
    """Room that was made for a gang binds these: bound by each other, both would wait for ever."""
    return kept.queue != made.queue or kept.gang.priority <= made.gang.priority


def _lasts(gang: Gang) -> float:
    """How long the gang's waiting pods run; inf: nobody knows."""
    told = [pod.seen.runs_for_s for pod in gang.waiting()]
    return max((inf if one is None else one for one in told), default=inf)
