"""Decides the sizes of elastic gangs, once in a scheduling cycle, after its placements.

1. Needs: what pending gangs lack comes from surplus, at once and in one plan (needs.py).
2. Members that wait for a seat in vain are taken back.
3. Gain: free seats, and those of gangs with more than their share, are divided by the objective (pools.py), where
   a change is worth what it costs and the gang's history allows it.

Nothing is done for gain while a need waits, while pods are leaving, or while an earlier change is under way. If
nothing changed since the last decision there is no cost.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import inf

from central.scheduler.elastic import asking, gathering, needs, pools
from central.scheduler.elastic.elastic_gang import (
    ASK,
    LEAVE_FOR_NEEDS_S,
    NEED,
    NO_SEAT,
    NO_START,
    PLACE,
    ROOM,
    SHARE,
    ElasticGang,
    Resize,
    with_more,
)
from central.scheduler.elastic.granted_seats import within_seats
from central.scheduler.elastic.model_choice import ModelChoices
from central.scheduler.elastic.needs import Need
from central.scheduler.elastic.remaining_work import RemainingWork
from central.scheduler.elastic.resize_history import ResizeHistory
from central.scheduler.elastic.unready import UnreadyMembers
from central.scheduler.elastic.who_leaves import down_to, who_leaves
from central.scheduler.inventory.pods import Pod, start_leaving
from central.scheduler.placement.placement_attempts import required_level
from central.scheduler.preemption.preemption_request import PreemptionContext, PreemptionPlan
from central.scheduler.reservation.reservation import Reservation
from central.scheduler.reservation.reserved_place import ReservedPlace
from central.scheduler.state.gangs import Gang, GangKey

SETTLE_S = 10.0  # how long a seat must have been free before it is given away while others wait
DIRECTIONS = {ROOM: "grow", PLACE: "move"}  # of changes by cause; by all others Jobs shrink
PATIENCE_S = 30.0  # how long a member waits for a seat, and growth for a need


class Autoscaler:
    """latest: queue, cause and direction ("grow", "shrink", "move") of each change in the last decision that had any.
    It is a new object each time."""

    def __init__(self, headroom: float = 0.0) -> None:
        """headroom: share of each pool's capacity that surplus leaves free."""
        self.headroom = headroom
        self.latest: Sequence[tuple[str, str, str]] = ()
        self.leaving: list[Pod] = []  # what the decision of this cycle lets go
        self.histories: dict[GangKey, ResizeHistory] = {}
        self.models = ModelChoices(headroom)
        self.unready = UnreadyMembers()
        self.remaining = RemainingWork()
        self.needs: dict[GangKey, float] = {}  # gangs that members leave for, since when
        self.due_at: float | None = None
        self._donors: list[ElasticGang] = []
        self._reserving: list[tuple[Need, PreemptionPlan]] = []
        self._in_vain: dict[GangKey, int] = {}  # capacity epoch in which surplus did not suffice
        self._pending_since: dict[GangKey, float] = {}
        self._free_since: float | None = None
        self._gathering: GangKey | None = None  # for which others have just left a node
        self._changed_at = -inf  # the last change of any size
        self._stamp: object = None

    @property
    def has_donors(self) -> bool:
        """Returns whether members of elastic gangs may leave for others."""
        return bool(self._donors)

    def serves(self, context: PreemptionContext, gang: Gang) -> bool:
        """Returns whether the gang, which does not fit, is left to the plan at the end of this cycle."""
        if not self._donors or self._in_vain.get(gang.key) == context.state.pending.epoch:
            return False
        if not gang.preempts:
            return False
        return any(needs.may_take(context, gang, donor) for donor in self._donors)

    def manages(self, gang: Gang) -> bool:
        """Returns whether the gang's size is decided here, once it has started."""
        return gang.key in self.histories

    def decide(
        self,
        context: PreemptionContext,
        gangs: Sequence[ElasticGang],
        wanting: Sequence[Need],
        now: float,
    ) -> list[Resize]:
        """gangs: all elastic ones. wanting: pending gangs that were left to this plan."""
        self.leaving = []
        self._forget(gangs, now)
        gangs = [self.unready.bounded(gang) for gang in gangs]
        self._look_for_donors(context, gangs)
        self.remaining.look(gangs, now)
        if not gangs:
            return []
        stamp = self._stamp_of(context, gangs, wanting)
        if stamp == self._stamp and (self.due_at is None or now < self.due_at):
            return []
        self._stamp, self.due_at = stamp, None
        for gang in gangs:
            if gang.key not in self.histories and gang.started:
                self.histories[gang.key] = ResizeHistory(now)
        found = self._resizes(context, gangs, wanting, now)
        self._carry_out(context, found.values(), now)
        return list(found.values())

    def _resizes(
        self,
        context: PreemptionContext,
        gangs: Sequence[ElasticGang],
        wanting: Sequence[Need],
        now: float,
    ) -> dict[GangKey, Resize]:
        """Returns the changes by gang: for needs first, then to take seats back. If there are none and no need waits,
        for gain, or else to ask for nodes."""
        needed = self._for_needs(context, gangs, wanting, now)
        found = {resize.key: resize for resize in needed}
        rest = [gang for gang in gangs if gang.key not in found]
        found |= {resize.key: resize for resize in self._without_unready(context, rest, now)}
        rest = [gang for gang in rest if gang.key not in found]
        found |= {resize.key: resize for resize in self._take_back(rest, bool(wanting), now)}
        if not found and not self._needs_wait(now):
            found |= {resize.key: resize for resize in self._for_gain(context, gangs, now)}
            asked = [] if found else asking.resizes(context, gangs)
            found |= {resize.key: resize for resize in asked}
        return found

    def _look_for_donors(self, context: PreemptionContext, gangs: Sequence[ElasticGang]) -> None:
        """Finds the gangs with surplus. Where none was known before, as in the first cycle, gangs that do not fit were
        refused without this plan, and are tried again."""
        first = not self._donors
        self._donors = [gang for gang in gangs if gang.spare]
        if first and self._donors and context.state.pending.waiting:
            context.state.pending.capacity_freed("elastic surplus found")
            context.state.pending.preemption_retry_at.add(context.state.now)

    def _carry_out(self, context: PreemptionContext, found: Iterable[Resize], now: float) -> None:
        """Members that leave count as leaving from now on, and what they free is kept for the needs."""
        latest = []
        self.leaving = [pod for resize in found for pod in resize.leaving]
        for resize in found:
            start_leaving(resize.leaving)
            gang = context.state.gangs[resize.key]
            if resize.cause != ASK:  # running members stay as they are
                self._changed_at = now
                latest.append((gang.queue, resize.cause, DIRECTIONS.get(resize.cause, "shrink")))
            gang.invalidate_counts()
            context.state.pending.changed(gang)
        if latest:
            self.latest = latest
        for need, plan in self._reserving:
            place = ReservedPlace.on(context.state.snapshot, plan.taken)
            held = Reservation.by_evictions(need.gang, need.request, place, now)
            held.refresh(context.state, now)
            context.reservations[need.gang.key] = held
            if context.queues.enabled:
                context.queues.add_claim(need.gang, need.request.groups)
        self._reserving = []

    def _forget(self, gangs: Sequence[ElasticGang], now: float) -> None:
        keys = {gang.key for gang in gangs}
        self.unready.forget(keys, now)
        for known in (self.histories, self._pending_since):
            for key in [key for key in known if key not in keys]:
                del known[key]

    def _stamp_of(
        self, context: PreemptionContext, gangs: Sequence[ElasticGang], wanting: Sequence[Need]
    ) -> object:
        pending = context.state.pending
        sizes = tuple(
            (
                gang.key,
                gang.members,
                len(gang.placed),
                gang.settled,
                len(gang.unready),
                gang.task.most,
                gang.task.speeds,
            )
            for gang in gangs
        )
        waiting = tuple(pending.waiting)
        # Pods that start take of the headroom, and change nothing else that counts here.
        free = context.state.snapshot.columns.free.sum(axis=0).tobytes() if self.headroom else b""
        return (pending.epoch, sizes, tuple(need.gang.key for need in wanting), waiting, free)

    def due(self) -> list[float]:
        """Returns when the next decision is due without a change; empty: none is."""
        return [] if self.due_at is None else [self.due_at]

    def _due(self, at: float) -> None:
        if at < inf:
            self.due_at = at if self.due_at is None else min(self.due_at, at)

    # --- needs -----------------------------------------------------------------------

    def _for_needs(
        self,
        context: PreemptionContext,
        gangs: Sequence[ElasticGang],
        wanting: Sequence[Need],
        now: float,
    ) -> Iterable[Resize]:
        self.needs = {need.gang.key: self.needs.get(need.gang.key, now) for need in wanting}
        if not wanting:
            return
        donors = [gang for gang in gangs if gang.settled and gang.spare]
        plan = needs.plan(context, donors, wanting, now)
        pending = context.state.pending
        for gang in plan.unserved:
            self.needs.pop(gang.key, None)
            self._in_vain[gang.key] = pending.epoch
            gang.attempt.refused_at = -1
            pending.retrying[gang.key] = gang  # the next cycle preempts for it
            self._due(now)
        self._reserving = plan.plans
        goals = self._goals_with(context, gangs, wanting, plan)
        alike = all(need.is_single for need in wanting)
        for index, chosen in sorted(plan.leaving.items()):
            donor = donors[index]
            pods = donor.with_higher(chosen)
            goal = goals.get(donor.key, len(donor.placed) - len(pods))
            leaving = down_to(context, donor, pods, goal, now, alike=alike)
            going = self._whole_steps(context, donor, leaving, now)
            why = context.state.public(f"room for {plan.for_whom[index]}", donor.gang.namespace)
            shrunk = self._shrunk(donor, going, why, NEED)
            yield replace(shrunk, leave_s=LEAVE_FOR_NEEDS_S)

    def _goals_with(
        self,
        context: PreemptionContext,
        gangs: Sequence[ElasticGang],
        wanting: Sequence[Need],
        plan: needs.NeedsPlan,
    ) -> Mapping[GangKey, int]:
        """Shares beside elastic gangs that start now. Who shrinks for their least sizes anyway shrinks to its share at
        once, which costs it nothing more; what this frees is theirs."""
        unserved = {gang.key for gang in plan.unserved}
        served = {need.gang.key: need for need in wanting if need.gang.key not in unserved}
        coming = [gang for gang in gangs if gang.key in served and not gang.started]
        goals: dict[GangKey, int] = {}
        for spec in {served[gang.key].request.groups[0][0] for gang in coming}:
            newcomers = [
                gang
                for gang in coming
                if [each for each, _ in served[gang.key].request.groups] == [spec]
                and not required_level(context.state, gang.gang)
            ]
            if newcomers:
                pool = pools.pool_with(context, gangs, newcomers, spec)
                pools.count_seats(context, pool, self.headroom)
                sizes = pools.targets(context, pool)
                goals |= {gang.key: size for gang, size in zip(pool.gangs, sizes, strict=True)}
        return goals

    def _whole_steps(
        self, context: PreemptionContext, donor: ElasticGang, pods: Sequence[Pod], now: float
    ) -> list[Pod]:
        """Returns these members, and as many more as whole steps need."""
        goal = donor.allowed(len(donor.placed) - len(pods))
        return down_to(context, donor, pods, goal, now, alike=False)

    @staticmethod
    def _shrunk(donor: ElasticGang, going: Sequence[Pod], why: str, cause: str) -> Resize:
        """Returns the change by which the gang loses these members, and those that have no seat."""
        gone = {donor.number(pod) for pod in going}
        kept = sorted(donor.placed.keys() - gone)
        return Resize(donor.key, tuple(kept), why, cause, tuple(going))

    def _needs_wait(self, now: float) -> bool:
        waiting = [since for since in self.needs.values() if now - since < PATIENCE_S]
        if waiting:
            self._due(min(waiting) + PATIENCE_S)
        return bool(waiting)

    # --- members without a seat --------------------------------------------------------

    def _take_back(
        self, gangs: Sequence[ElasticGang], others_wait: bool, now: float
    ) -> Iterable[Resize]:
        for gang in gangs:
            if not (gang.waits and gang.settled and gang.started):
                self._pending_since.pop(gang.key, None)
                continue
            since = self._pending_since.setdefault(gang.key, now)
            if not others_wait and now - since < PATIENCE_S:
                self._due(since + PATIENCE_S)
                continue
            kept = sorted(gang.placed)[: gang.allowed(len(gang.placed))]
            del self._pending_since[gang.key]
            if len(kept) == len(gang.placed):
                yield Resize(gang.key, tuple(kept), "no seat for more members", NO_SEAT)

    # --- members that do not start -----------------------------------------------------

    def _without_unready(
        self, context: PreemptionContext, gangs: Sequence[ElasticGang], now: float
    ) -> Iterable[Resize]:
        for gang in gangs:
            late = self.unready.late(gang, now) if gang.started else []
            if late and gang.settled:
                going = self._whole_steps(context, gang, gang.with_higher(late), now)
                why = self.unready.give_back(gang, going, now)
                self.histories[gang.key].record(gang, now)  # the next try is a hold later
                yield self._shrunk(gang, going, why, NO_START)
        for at in self.unready.due():
            if at > now:
                self._due(at)

    # --- gain ------------------------------------------------------------------------

    def _for_gain(
        self, context: PreemptionContext, gangs: Sequence[ElasticGang], now: float
    ) -> list[Resize]:
        started = [gang for gang in gangs if gang.started]
        if not all(gang.settled and not gang.waits for gang in started):
            return []  # a change is under way; its end is a new decision
        found: list[Resize] = []
        free = 0
        candidates = list(pools.pools_of(context, started))
        if len(candidates) > 1:
            candidates.sort(key=lambda pool: min(gang.level for gang in pool.gangs))
        for pool in candidates:
            if found:
                self._due(now)  # what one pool takes changes what is free for the next
                break
            found = self._divide(context, pool, now)
            free += pool.free
        if not free:
            self._free_since = None
        return found

    def _divide(self, context: PreemptionContext, pool: pools.Pool, now: float) -> list[Resize]:
        """Moves the gangs that are ready towards the sizes that are best for all of them. So a gang that waits
        for its hold finds its share when it is ready, and nobody changes twice."""
        goals = pools.share(context, pool, self.headroom)
        if not goals:
            return []
        if gathered := self._gathered(context, pool, now):
            return gathered
        away = [gang for gang in pool.gangs if goals[gang] != len(gang.placed)]
        ready = self._ready(away, now)
        goals |= {gang: pools.faster(context, pool, gang, goals[gang]) for gang in ready}
        sizes = within_seats(goals, ready, pool.free, more_follows=len(ready) < len(away))
        changed = [gang for gang in ready if sizes[gang] != len(gang.placed)]
        restores = pool.free < 0 and bool(changed)  # the headroom, which services have used
        if not restores and not any(sizes[gang] > len(gang.placed) for gang in changed):
            return []
        if not self._settled(context, pool, now):
            return []
        if not restores and not self._worth_it(changed, sizes, now):
            return []
        return [
            self._resized(context, gang, sizes[gang], now)
            for gang in changed
            if not len(gang.placed) < sizes[gang] <= gang.asked  # whose pods exist
        ]

    def _gathered(self, context: PreemptionContext, pool: pools.Pool, now: float) -> list[Resize]:
        """The changes that bring a gang onto one node, or those that free seats for it there. A gang for which seats
        were freed goes first, before any gang grows."""
        known = gathering.candidates(context, pool)
        if not known or not self._settled(context, pool, now):
            return []  # members that leave a node have not left yet
        for gang in known:
            if gang.key == self._gathering and not self.histories[gang.key].may_arrive(now):
                self._gathering = None
        follows = [gang for gang in known if gang.key == self._gathering]
        # Who gives seats pays for that, and for growing again at once.
        may_give = partial(self._may_change, now=now, changes=2)
        found = gathering.best(context, pool, follows or self._ready(known, now), may_give)
        if follows and (found is None or not found.is_ready):
            self._gathering = found = None  # another gang took the seats
        if found is None:
            return []
        gang = found.gang
        if follows:
            self.histories[gang.key].record_arrival(now)
        else:
            self.histories[gang.key].record(gang, now)
        self._gathering = None if found.is_ready else gang.key
        if not found.is_ready:
            for giver in found.leaving:
                self.histories[giver.key].record_gift(giver, now)
            why = f"room for {gang.gang.name} on one node"
            return [self._shrunk(giver, pods, why, NEED) for giver, pods in found.leaving.items()]
        moved = self._shrunk(gang, found.leaving[gang], "faster on one node", PLACE)
        members = with_more(moved.members, gang.used, len(moved.leaving), gang.task.most)
        return [replace(moved, members=tuple(sorted(members)))]

    def _ready(self, gangs: Iterable[ElasticGang], now: float) -> list[ElasticGang]:
        """Returns the gangs that do not end soon, whose history allows a change now, and whose last change is over: all
        of their members start."""
        # The end of either is a new decision; a gang that ends soon would have little of another size.
        settled = (gang for gang in gangs if not gang.unready and not self._ends_soon(gang))
        return [gang for gang in settled if self._may_change(gang, now)]

    def _may_change(self, gang: ElasticGang, now: float, changes: int = 1) -> bool:
        """Returns whether its history allows so many changes now. Notes when it will."""
        if (at := self.histories[gang.key].allowed_at(gang, now, changes)) > now:
            self._due(at)
        return at <= now

    def _ends_soon(self, gang: ElasticGang) -> bool:
        return self.remaining.ends_in_s(gang, len(gang.placed)) <= 2 * gang.cost_s

    def _settled(self, context: PreemptionContext, pool: pools.Pool, now: float) -> bool:
        """Returns whether the free seats are nobody else's: no pods leave there, and if others wait, the seats have
        been free for a while."""
        if context.state.some_pod_leaves():
            return False  # their end is a new decision
        own = {gang.key for gang in pool.gangs}
        others = [key for key in context.state.pending.waiting if key not in own]
        if not others or not pool.free:
            return True
        if self._free_since is None:
            self._free_since = now
        self._due(self._free_since + SETTLE_S)
        return now - self._free_since >= SETTLE_S

    def _worth_it(
        self, changed: Sequence[ElasticGang], sizes: Mapping[ElasticGang, int], now: float
    ) -> bool:
        """Returns whether the members that come do more work, until the next change or the end of the job, than all
        changes cost. The next change is expected after as long as nothing has changed until now, at least after the
        hold."""
        quiet_s = now - self._changed_at
        gain = loss = more = 0.0
        for gang in changed:
            coming = max(0, sizes[gang] - len(gang.placed))
            ends_in_s = self.remaining.ends_in_s(gang, sizes[gang])
            gain += coming * min(max(gang.hold_s, quiet_s), ends_in_s)
            more += coming
            loss += gang.cost_s * len(gang.placed)
        if gain <= loss:
            self._due(now + max(loss / more - quiet_s, 1.0))
        return gain > loss

    def _resized(
        self, context: PreemptionContext, gang: ElasticGang, goal: int, now: float
    ) -> Resize:
        self.histories[gang.key].record(gang, now)
        size, most = len(gang.placed), gang.task.most
        if goal < size:
            going = who_leaves(context, gang, list(gang.placed.values()), size - goal, now)
            return self._shrunk(gang, going, "its share is smaller", SHARE)
        members = with_more(gang.members, gang.used, max(0, goal - max(size, gang.asked)), most)
        return Resize(gang.key, tuple(sorted(members)), "there is room for more", ROOM)
