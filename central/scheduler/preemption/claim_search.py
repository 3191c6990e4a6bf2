"""The victims of a gang among queues: by its priority in its own queue, by entitlement from others, with quota and
capacity freed together.

Which queue gives is decided before harm: of those above their shares the one that is furthest above (queue_claims.py),
and all that are equally far. A queue whose victims are not enough is joined by the next ones.

Design: docs/design/reclaim.md
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from math import inf

from central.model.defaults import ACROSS_NONE
from central.model.resources import Sums, requested
from central.scheduler.inventory.pods import Pod
from central.scheduler.preemption import eviction_rules, preemption_plan, surplus_members
from central.scheduler.preemption.eviction_rules import (
    ENTITLEMENT,
    PRIORITY,
    TURN,
    Claimant,
    may_evict,
)
from central.scheduler.preemption.harm import Harm, HarmScale, rank
from central.scheduler.preemption.preemption_request import (
    PreemptionContext,
    PreemptionPlan,
    PreemptionRequest,
    outranks,
)
from central.scheduler.preemption.victims_left import MayGive, VictimsLeft
from central.scheduler.queues.queue_claims import Claim, Loss
from central.scheduler.queues.queue_tree import sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.state.gangs import Gang, GangKey
from central.scheduler.work_meter import WorkLimitReached

TRIED = 10  # choices of victims, until no queue gives more than it may
# Of them, those that only leave out what was too much; then what is left of a queue is fixed.
SKIPPING = 4


class ClaimSearch:
    def __init__(
        self,
        context: PreemptionContext,
        request: PreemptionRequest,
        shortfalls: Sequence[Shortfall] = (),
    ) -> None:
        """shortfalls: quota that the gang lacks, the queue nearest to it first"""
        self._context, self._request, self._shortfalls = context, request, list(shortfalls)
        self._gang, self._queues = request.gang, context.queues
        assert self._gang.account is not None
        self._queue = self._queues.by_name[self._gang.account.queue]
        need = self._queues.currency.counted(requested(request.placement.groups))
        self._claim = Claim(
            self._queues, self._gang, need, self._own_less_urgent(), growth=request.growth
        )
        self._claimant = Claimant(context, self._gang, request.now, self._claim)
        self._suspended: dict[GangKey, Gang] = {}  # that go because they share time with the gang
        self._known_losses: tuple[Sequence[Pod], list[Loss]] = (), []  # of the latest victims

    def _own_less_urgent(self) -> Sums:
        """Returns the usage of the gangs in the claimant's queue that it may evict by priority."""
        gang = self._gang
        only_in = gang.namespace if self._context.across == ACROSS_NONE else None
        return self._queue.usage_by_priority.below(gang.priority, only_in)

    def _outranks(self, other: Gang) -> bool:
        by_rank = outranks(self._context.across, self._gang, other)
        return by_rank and self._request.marks_hold(other)

    @property
    def suspends(self) -> bool:
        """Returns whether the plan that was found suspends gangs that share time."""
        return bool(self._suspended)

    def instead_of_own(self, found: PreemptionPlan) -> PreemptionPlan:
        """found: a plan that frees quota in another way. The same, unless it takes less urgent work of the claimant's
        queue, and what that queue deserves can be taken from others in this way."""
        return found if self._request.growth else _refined(found, self._instead_of_own)

    def plan(self) -> PreemptionPlan | None:
        found = self._by_rank_or_share()
        if found is None and eviction_rules.applies(TURN, self._claimant):
            found = self._in_its_turn()
        return found

    def _in_its_turn(self) -> PreemptionPlan | None:
        """Returns a plan that suspends the fewest gangs that share time with the claimant, of 1, 2, 4 and so on; None:
        there is none now. Then notes in turn_by when there will be enough, if ever."""
        now = self._request.now
        equals = self._context.time_sharing.may_be_suspended(self._gang)
        candidates = [each for each in equals if may_evict(TURN, self._claimant, each[0])]
        self._gang.preemption.turn_by = None
        may_go = [gang for gang, at in candidates if at <= now]
        added, tried = map(_has_pod_that_stays, may_go), 0
        for count in _twice_as_many(len(may_go)):
            more = any([*islice(added, count - tried)])
            if (more or not tried) and (found := self._suspending(may_go[:count])):
                return found
            tried = count
        others = (gang for gang, at in candidates if at > now)
        if may_go and not any(map(_has_pod_that_stays, others)):
            return None
        if later := self._suspending([gang for gang, _ in candidates]):
            going = {gang.key for gang, _ in self._by_gang(later.victims)}
            ends = [at for gang, at in candidates if gang.key in going]
            self._gang.preemption.turn_by = max(ends, default=now)
        return None

    def _suspending(self, gangs: Collection[Gang]) -> PreemptionPlan | None:
        self._suspended = {gang.key: gang for gang in gangs}
        return self._search(self._by_priority) if gangs else None

    def _by_rank_or_share(self) -> PreemptionPlan | None:
        if not any(
            eviction_rules.applies(name, self._claimant) for name in (PRIORITY, ENTITLEMENT)
        ):
            return None
        for keeps_shares in (True,) if self._request.growth else (True, False):
            self._claim.keeps_shares, self._claim.kept_a_share = keeps_shares, False
            found = self._from_furthest(self._may_give)
            if found is not None or not self._claim.kept_a_share:
                break
        if found is None or not self._claim.kept_a_share or self._request.growth:
            return found
        # Replaces victims that would evict others on their return, where these may be evicted themselves.
        found = _refined(found, self._instead_of_own)
        return _refined(found, self._instead_of_more_urgent)

    def _instead_of_own(self, found: PreemptionPlan) -> PreemptionPlan:
        """Takes what the queue deserves from others before less urgent work of its own, which would take it from them
        on its return."""
        own = [pod for pod in found.victims if self._is_own(pod)]
        if not own or not all(pod.seen.preempts for pod in own):
            return found
        claim = self._claim
        claim.keeps_shares, claim.only_deserved = False, True
        try:
            return self._from_furthest(self._by_entitlement) or found
        finally:
            claim.only_deserved = False

    def _instead_of_more_urgent(self, found: PreemptionPlan) -> PreemptionPlan:
        """Less urgent gangs of a queue go before more urgent ones, though these alone would leave it at its share: who
        is more urgent comes back in the place of the others."""
        self._claim.keeps_shares = False
        for queue in dict.fromkeys(
            loss.queue for loss in self._losses(found.victims) if not loss.by_priority
        ):
            highest = self._highest_that_preempts(queue, found)
            if queue.usage_by_priority.lowest() < highest:
                found = self._less_urgent_of(queue, highest, found) or found
        return found

    def _highest_that_preempts(self, queue: Queue, found: PreemptionPlan) -> float:
        """The highest priority of the victims of the queue that evict others when they come back."""
        by_gang = self._by_gang(found.victims)
        return max(
            (
                gang.priority
                for gang, pods in by_gang
                if self._queue_of(gang) is queue and all(pod.seen.preempts for pod in pods)
            ),
            default=-inf,
        )

    def _less_urgent_of(
        self, queue: Queue, highest: float, found: PreemptionPlan
    ) -> PreemptionPlan | None:
        """A plan in which only gangs below that priority go of the queue, and of others only those of the plan
        found."""

        others: dict[str, set[GangKey]] = {}
        for loss in self._losses(found.victims):
            if loss.queue is not queue:
                others.setdefault(loss.queue.name, set()).add(loss.gang.key)

        def may_give(victim: Gang) -> bool:
            if self._queue_of(victim) is not queue:
                return victim.queue in others and self._may_give(victim)
            return victim.priority < highest and self._by_entitlement(victim)

        choice = VictimsLeft(may_give, self._shortfalls, self._suspended, fixed=others)
        return self._from(choice)

    def _is_own(self, pod: Pod) -> bool:
        gang = self._context.state.gang_of(pod)
        return gang is not None and self._queue_of(gang) is self._queue

    def _may_give(self, victim: Gang) -> bool:
        return self._by_priority(victim) or self._by_entitlement(victim)

    def _by_priority(self, victim: Gang) -> bool:
        return self._request.marks_hold(victim) and may_evict(PRIORITY, self._claimant, victim)

    def _by_entitlement(self, victim: Gang) -> bool:
        return may_evict(ENTITLEMENT, self._claimant, victim)

    def _from_furthest(self, may_give: MayGive) -> PreemptionPlan | None:
        """The plan with the fewest queues, those that are furthest above their shares: one is tried first; then twice
        as many, if there is a plan with all."""
        order = self._claim.furthest_above()
        first = next(order, [])
        if first and (found := self._reclaimed_from(first)) is not None:
            return found
        if (found := self._search(may_give)) is None:
            return None
        return _refined(found, partial(self._of_fewer, [first, *order]))

    def _of_fewer(self, order: Sequence[Sequence[Queue]], found: PreemptionPlan) -> PreemptionPlan:
        """order: the queues that give, which are many, with the first of them not enough."""
        losses = self._losses(found.victims)
        giving = {loss.queue for loss in losses if not loss.by_priority}
        all_reclaimed = not any(loss.by_priority for loss in losses)
        count = 1
        while count < len(order):
            count = min(2 * count, len(order))
            first = {queue for equals in order[:count] for queue in equals}
            if all_reclaimed and giving <= first and count == len(order):
                break
            if (fewer := self._reclaimed_from(first)) is not None:
                return fewer
        return found

    def _reclaimed_from(self, queues: Collection[Queue]) -> PreemptionPlan | None:
        names = frozenset(queue.name for queue in queues)
        return self._from(VictimsLeft(self._by_entitlement, self._shortfalls, {}, names))

    def _queue_of(self, victim: Gang) -> Queue | None:
        return self._queues.by_name[victim.account.queue] if victim.account is not None else None

    # --- one choice of victims -----------------------------------------------------------------

    def _search(self, may_give: MayGive) -> PreemptionPlan | None:
        """Victims that free capacity and quota together, and that their queues may give."""
        return self._from(VictimsLeft(may_give, self._shortfalls, self._suspended))

    def _from(self, choice: VictimsLeft) -> PreemptionPlan | None:
        """The least harmful victims; where their queues may not give them, the best set that these may give. Among many
        candidates the larger ones of a queue that gives too much are left out."""
        for attempt in range(TRIED):
            found = self._victims(choice)
            if found is None:
                return None
            losses = self._losses(found.victims)
            if not any(verdict := self._claim.judge(losses)):
                return found
            if not attempt and (exact := self._victims(choice, exact=True)):
                return exact
            inside = verdict.short or verdict.instead
            if inside and choice.shortfalls is self._shortfalls:
                other = choice.with_shortfalls([*self._shortfalls, *inside])
                if found := self._from(other):
                    return found
            if verdict.short:
                return None  # what is inside its departments does not suffice
            choice.leave_out(verdict.too_many, losses, fixes=attempt >= SKIPPING)
        return None

    def _may_all_go(self, pods: Sequence[Pod]) -> bool:
        return not any(self._claim.judge(self._losses(pods)))

    def _victims(self, choice: VictimsLeft, *, exact: bool = False) -> PreemptionPlan | None:
        alike = not (choice.skipped or choice.fixed)
        allows = choice.may_give if alike else choice.allows
        narrowed = replace(
            self._request,
            spared=self._request.spared | choice.spared,
            may_evict=lambda _, victim: allows(victim),
            by_group=alike,
            among=choice.among,
            suspended=tuple(self._suspended.values()) if alike else (),
            quota=choice.shortfalls,
            accepts=self._may_all_go if exact else self._request.accepts,
        )
        return preemption_plan.find_victims(self._context, narrowed)

    def _losses(self, pods: Sequence[Pod]) -> list[Loss]:
        """The least harmful first: of a queue that gives too much, those go if they are equally large."""
        if pods is not self._known_losses[0]:
            by_gang = self._by_gang(pods)
            ranks, most_s = {rank(gang) for gang, _ in by_gang}, self._context.max_grace_s
            scale = HarmScale(ranks, self._request.now, most_s)
            ordered = sorted(by_gang, key=lambda each: _harm(scale, *each))
            self._known_losses = pods, [self._loss(gang, mine) for gang, mine in ordered]
        return self._known_losses[1]

    def _by_gang(self, pods: Sequence[Pod]) -> Collection[tuple[Gang, list[Pod]]]:
        by_gang: dict[GangKey, tuple[Gang, list[Pod]]] = {}
        for pod in pods:
            if (gang := self._context.state.gang_of(pod)) is not None:
                by_gang.setdefault(gang.key, (gang, []))[1].append(pod)
        return by_gang.values()

    def _loss(self, gang: Gang, pods: Collection[Pod]) -> Loss:
        assert gang.account is not None
        amounts = self._queues.staying(gang)
        if len(pods) < len(gang.members):
            amounts = self._queues.currency.counted(sums_of(pods))
        queue = self._queues.by_name[gang.account.queue]
        keeps_minimum = _keeps_minimum(gang, pods)
        by_rank = self._outranks(gang) or gang.key in self._suspended
        return Loss(gang, queue, amounts, by_rank, len(pods), keeps_minimum)


def _refined(
    found: PreemptionPlan, better: Callable[[PreemptionPlan], PreemptionPlan]
) -> PreemptionPlan:
    """The better plan, or the one that was found if the work limit ends the search for it."""
    try:
        return better(found)
    except WorkLimitReached:
        return found


def _twice_as_many(most: int) -> Iterator[int]:
    """1, 2, 4 and so on, and all."""
    count = 1
    while count < most:
        yield count
        count *= 2
    if most:
        yield most


def _has_pod_that_stays(gang: Gang) -> bool:
    return any(not pod.leaving for pod in gang.counts.placed)


def _keeps_minimum(gang: Gang, going: Collection[Pod]) -> bool:
    return len(going) <= surplus_members.surplus_count(gang, gang.counts.placed)


def _harm(scale: HarmScale, gang: Gang, pods: Sequence[Pod]) -> Harm:
    breaks, urgency = not _keeps_minimum(gang, pods), sum(surplus_members.urgencies(gang, pods))
    return scale.of(rank(gang), pods, breaks=breaks, urgency=urgency)
