"""Rules by which a pending gang may take capacity from other queues, with all victims counted together.

Two rules give a queue a right to what others use. They compare siblings, below the queue that both have in common,
and then each level down to the leaf.

    fair share  the claimant's queue stays within its fair share, the other one is above its own
    deserved    the claimant's queue stays within its deserved amount or guarantee, the other one is above its own:
                so a queue gets what it deserves also where all demand fits and only the pieces are too small

With --usage-half-life the first one applies to surplus members of elastic gangs, to queues of lower strictPriority,
and to a gang that has been first for a day: what others have received orders them, and nobody is evicted for it
as long as something ends.

In both the other queue must be reclaimable and keep its guarantee. It may give a gang as long as it is above its
share before that. Gangs that leave it at its share or above go first (keeps_shares). Where only larger ones help, the
fair share rule weighs harm against gain: no queue ends up with less of its share than the claimant's queue has before.
A member above a minimum takes by fair share only others above their minima.

A gang that started from a reservation gives nothing by the fair share rule (its queue could not start it otherwise)
until its queue has received a day of the whole cluster more than the claimant's.

All usage is net: without what victims free, with what claims in flight will take. So claims of one queue need not
wait for each other, and what a gang takes inside its department leaves the department's share as it is, for what it
takes from another one.

Queues do not take turns: a queue that has claimed is within its fair share, so it gives nothing by the first rule; by
the second it gives to one that is within what it deserves, which then gives nothing by either.

Design: docs/design/reclaim.md
"""

from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from heapq import heappop, heappush
from itertools import groupby, pairwise
from operator import itemgetter
from typing import NamedTuple

from central.model.resources import Sums, add
from central.scheduler.queues.entitlement import fair_shares, own_amount
from central.scheduler.queues.queue_tree import Queues, sums_of
from central.scheduler.queues.queue_tree_node import Queue
from central.scheduler.queues.shortfall import Shortfall
from central.scheduler.state.gangs import Gang

FAIR_SHARE, DESERVED = "share", "deserved"
RULES = (FAIR_SHARE, DESERVED)
FIRST_S = 86400.0  # as the first in line, until a gang may reclaim the fair share of its queue
_Rank = tuple[tuple[int, int, float], ...]  # of a queue that gives, level by level
TURN_S = 86400.0  # of the whole cluster: so much more a queue may receive by gangs that started from a reservation


class Loss(NamedTuple):
    """The amounts that a gang gives as a victim of one claim. by_priority: it may be evicted whatever its queue
    uses."""

    gang: Gang
    queue: Queue
    amounts: Sums
    by_priority: bool
    pods: int = 0
    keeps_minimum: bool = False  # only members above its minimum go


class Verdict(NamedTuple):
    """The objections to a set of victims; without any, the set may be evicted."""

    too_many: Sequence[Gang] = ()  # their queues give enough without them
    # That much must come from inside these queues, which it does not.
    short: Sequence[Shortfall] = ()
    instead: Sequence[Shortfall] = ()  # as short; then what is too many may go by what is deserved


def waits_by_order(queues: Queues, gang: Gang) -> bool:
    """Returns whether order alone gives the gang the fair share of its queue: past use counts, and the gang has not
    been first of those that compete for its nodes for FIRST_S."""
    since = gang.preemption.head_since
    return bool(queues.half_life_s) and (since is None or queues.now < since + FIRST_S)


def reclaims_since(queues: Queues, claimant: Gang, victim: Gang) -> str:
    """Returns what lets the claimant's queue reclaim from the victim's, for people."""
    if waits_by_order(queues, claimant) and claimant.account is not None:
        own = queues.by_name[claimant.queue]
        siblings = own.siblings(queues.by_name[victim.queue])
        if siblings and siblings[0].seen.strict_priority > siblings[1].seen.strict_priority:
            return "has a higher strictPriority"
        if any(
            own_amount(queues, above, name)
            for above in own.path
            for name in claimant.account.demand
        ):
            return "is below what it deserves"
    return "is below its fair share"


class Claim:
    def __init__(
        self,
        queues: Queues,
        claimant: Gang,
        need: Sums,
        own_less_urgent: Sums,
        *,
        growth: bool = False,
        of_surplus: bool = False,
    ) -> None:
        """need: the requests of the pods that are to start. own_less_urgent: what gangs of the claimant's queue use
        that it may evict by priority. growth: above the gang's minimum. of_surplus: of elastic gangs, which is shared
        by weight whatever the resource."""
        assert claimant.account is not None
        self._queues = queues
        self.queue = queues.by_name[claimant.account.queue]
        counts = queues.is_shared if of_surplus else queues.is_claimed
        self._need = {name: amount for name, amount in need.items() if counts(name)}
        self.only_by_order = waits_by_order(queues, claimant) and not of_surplus
        self._own_less_urgent = own_less_urgent
        self.growth = growth
        self.keeps_shares = False  # a victim may not take its queue below its share
        self.kept_a_share = False  # a victim was refused for that
        self.only_deserved = False  # the fair share rule does not apply
        in_flight, by_name = queues.in_flight, queues.by_name
        self._leaving = in_flight.leaving(by_name)
        self._gained = in_flight.needs_of_others(claimant, by_name)
        self._lost: dict[Queue, Sums] = {}  # by the victims that are judged
        # Nothing but _lost changes while a claim is judged, and thousands of victims ask for the rest.
        self._giving: dict[Queue, Sequence[str]] = {}
        self._entitling: dict[int, Sequence[str]] = {}
        self._guarantees: dict[Queue, list[tuple[Queue, str, int]]] = {}
        self._indices: dict[Queue, int] = {}
        self._downs: dict[Queue, Sequence[Queue]] = {}
        self._terms: dict[tuple[str, Queue], list[tuple[str, int, int]]] = {}
        self._furthest: list[list[Queue]] = []  # those that furthest_above() has found
        self._further: Iterator[list[Queue]] | None = None

    # --- before victims are chosen -------------------------------------------------------------

    def gives(self, queue: Queue) -> bool:
        """Returns whether the queue may give something. The amount that the gang takes inside its own department is not
        known yet, so it is taken to be the most possible; judge() decides."""
        return bool(self._giving_rules(queue))

    def _giving_rules(self, queue: Queue) -> Sequence[str]:
        """The rules by which the queue, and each above it below the level in common, may give something."""
        if (found := self._giving.get(queue)) is None:
            found = self._giving[queue] = self._find_giving_rules(queue)
        return found

    def _find_giving_rules(self, queue: Queue) -> Sequence[str]:
        index = self._index(queue)
        if not index or not (down := self._down(queue, index)) or not queue.seen.reclaimable:
            return ()
        rules = self._giving_rules(down[1]) if len(down) > 1 else self._rules_of(queue, index)
        entitling = self._entitling_rules(index) if rules else ()
        return [rule for rule in rules if rule in entitling and self._is_above(rule, queue, index)]

    def _entitling_rules(self, index: int) -> Sequence[str]:
        """The rules by which the claimant may take anything at this level of its path."""
        if (found := self._entitling.get(index)) is None:
            up, compares = self.queue.path[:index], self._rule_resources
            found = [r for r in RULES if compares(r, index) and self._may_be_entitled(r, up)]
            self._entitling[index] = found
        return found

    def _rules_of(self, giver: Queue, index: int) -> Sequence[str]:
        """Returns the rules by which the queue may give anything."""
        own, other = self._siblings(giver, index)
        by_share = not self.only_by_order or own.seen.strict_priority > other.seen.strict_priority
        return RULES if by_share or self._deserves_too_much(other) else (DESERVED,)

    def _deserves_too_much(self, queue: Queue) -> bool:
        """Returns whether the queue's own amount exceeds its fair share of a resource, as where deserved amounts beside
        it exceed the capacity, so that each is worth its fair share of that."""
        return any(self._own(queue, r) > self._share(queue, r) for r in self._need)

    @property
    def resources(self) -> Sequence[str]:
        """The resources that are compared, by name."""
        return list(self._need)

    def limit(self, queue: Queue, resource: str) -> int:
        """Returns how much the claimant's queue, or one above it, may use by fair share."""
        return self._limit(FAIR_SHARE, queue, resource)

    def above_limits(self) -> list[Shortfall]:
        """Returns by how much the claimant's queue and those above it would exceed their fair shares; empty: none
        would."""
        return self._short(FAIR_SHARE, self.queue.path[:-1])

    def exceeds_own(self) -> bool:
        """Returns whether the claimant's queue, or one above it, would use more than it deserves; where it has no
        deserved amount, more than its fair share."""
        return any(
            self.would_use(queue, resource) > self._limit(DESERVED, queue, resource)
            for queue in self.queue.path[:-1]
            for resource in self._need
        )

    def above_shares(self) -> list[Queue]:
        """Returns the queues beside the claimant's path that use more than their share, reclaimable or not."""
        return [
            child
            for inner, outer in pairwise(self.queue.path)
            for child in outer.children
            if child is not inner and self._is_above(FAIR_SHARE, child, 0)
        ]

    def may_give(self, victim: Gang, *, only_whole: bool = True) -> bool:
        """Returns whether the victim's queue may give the victim, or some of its surplus, as the first of all victims.
        only_whole: the victim has no surplus."""
        if victim.account is None:
            return False
        queue, amounts = self._queues.by_name[victim.account.queue], self._queues.staying(victim)
        if not self.gives(queue) or not only_whole:
            return self.gives(queue)
        index = self._index(queue)
        return self.keeps_guarantee(queue, amounts) and any(
            self._gives_down(rule, queue, index, amounts)
            for rule in self._whole_rules(victim, queue)
        )

    def _whole_rules(self, victim: Gang, giver: Queue) -> Sequence[str]:
        """The rules by which the victim gives its minimum."""
        only_deserved = self.growth or self.only_deserved or self._is_on_turn(victim, giver)
        return (DESERVED,) if only_deserved else RULES

    def _is_on_turn(self, victim: Gang, giver: Queue) -> bool:
        """Returns whether the victim started from a reservation, and its queue has not received TURN_S more than the
        claimant's."""
        if not victim.preemption.started_by_reservation:
            return False
        own, other = self._siblings(giver, self._index(giver))
        more_s = self._queues.received(other) - self._queues.received(own)
        return more_s * own.seen.weight < TURN_S

    def keeps_guarantee(self, queue: Queue, amounts: Sums) -> bool:
        """Returns whether the queue, and each above it that the claimant is not in, keeps its guarantee without the
        amounts."""
        if (guarantees := self._guarantees.get(queue)) is None:
            guarantees = self._guarantees[queue] = [
                (above, resource, least)
                for above in queue.path
                if above not in self.queue.path
                for resource, least in above.guarantee.items()
            ]
        return all(
            not amounts.get(resource) or self._used(above, resource) - amounts[resource] >= least
            for above, resource, least in guarantees
        )

    def furthest_above(self) -> Iterator[list[Queue]]:
        """The queues that may give something in the order in which they give: lower strict priority first, then lower
        priority, then the one whose use is the largest part of its share, level by level from the queue in common.
        Queues that are equal in this stand together, by name. Queues are looked into only as far as it is asked, and
        once for all who ask."""
        if self._further is None:
            equals = groupby(self._in_order(), key=itemgetter(0))
            self._further = ([queue for _, _, queue in group] for _, group in equals)
        yield from self._furthest
        for queues in self._further:
            self._furthest.append(queues)
            yield queues

    def _in_order(self) -> Iterator[tuple[_Rank, str, Queue]]:
        heap: list[tuple[_Rank, str, Queue]] = []

        def add(queues: Iterable[Queue], above: _Rank) -> None:
            for queue in queues:
                if self._giving_rules(queue):
                    seen, times = queue.seen, self._times_its_share(queue)
                    rank = (*above, (seen.strict_priority, seen.priority, -times))
                    heappush(heap, (rank, queue.name, queue))

        for inner, outer in pairwise(self.queue.path if not self.queue.error else ()):
            add((child for child in outer.children if child is not inner), ())
        while heap:
            rank, name, queue = heappop(heap)
            if queue.gangs:
                yield rank, name, queue
            add(queue.children, rank)

    def _times_its_share(self, queue: Queue) -> float:
        """Returns the queue's use divided by its share, of the resource where that is most."""
        terms = self._terms_of(FAIR_SHARE, queue, 0)
        return max([self._used(queue, name) / max(1, share) for name, _, share in terms])

    # --- after victims were chosen -------------------------------------------------------------

    def judge(self, losses: Sequence[Loss]) -> Verdict:
        """Returns the objections to evicting all of them together. Victims by priority go first, then the smaller ones,
        because a queue may give a gang only while it is above its share."""
        by_queue: dict[Queue, Sums] = {}
        for loss in losses:
            add(by_queue.setdefault(loss.queue, {}), loss.amounts, 1)
        for queue, amounts in by_queue.items():
            self._lose(queue, amounts)
        rules, unentitled = self._rules_by_level(losses)
        self._lost = {}
        short = self._short(FAIR_SHARE, unentitled) if unentitled else ()
        too_many: list[Gang] = []
        for loss in sorted(losses, key=lambda loss: (not loss.by_priority, self._size(loss))):
            if self._is_allowed(loss, rules):
                self._lose(loss.queue, loss.amounts)
            else:
                too_many.append(loss.gang)
        self._lost = {}
        if short:
            return Verdict((), short)
        return Verdict(too_many, (), self._short_of_deserved(too_many, rules))

    def _short_of_deserved(
        self, too_many: Sequence[Gang], rules: dict[int, list[str]]
    ) -> Sequence[Shortfall]:
        """Returns what must come from inside the claimant's queues so that the rule of deserved amounts applies to the
        first of the victims that other queues may not give. Victims to which it applies already, or never does, are
        skipped; empty: all are."""
        for gang in too_many:
            assert gang.account is not None
            index = self._index(self._queues.by_name[gang.account.queue])
            if DESERVED not in rules.get(index, RULES) and self._rule_resources(DESERVED, index):
                return self._short(DESERVED, self.queue.path[:index])
        return ()

    def _rules_by_level(
        self, losses: Sequence[Loss]
    ) -> tuple[dict[int, list[str]], Sequence[Queue]]:
        """Returns the rules by which the claimant is entitled, by the level in common, and the claimant's queues below
        the first level that has none; empty: each level has one."""
        rules: dict[int, list[str]] = {}
        levels: dict[int, dict[str, None]] = {}
        for loss in losses:
            if not loss.by_priority:
                index = self._index(loss.queue)
                levels.setdefault(index, {}).update(
                    dict.fromkeys(self._rules_of(loss.queue, index))
                )
        for index in sorted(levels):
            up = self.queue.path[:index]
            possible = (DESERVED,) if self.only_deserved else levels[index]
            rules[index] = [rule for rule in possible if not self._short(rule, up)]
            if not rules[index]:
                return rules, up
        return rules, ()

    def _is_allowed(self, loss: Loss, rules: dict[int, list[str]]) -> bool:
        if loss.by_priority:
            return loss.queue is self.queue or self.keeps_guarantee(loss.queue, loss.amounts)
        index, whole = self._index(loss.queue), self._whole_rules(loss.gang, loss.queue)
        return self.keeps_guarantee(loss.queue, loss.amounts) and any(
            self._gives_down(rule, loss.queue, index, loss.amounts)
            for rule in rules.get(index, ())
            if rule in self._rules_of(loss.queue, index) and (loss.keeps_minimum or rule in whole)
        )

    def _gives_down(self, rule: str, giver: Queue, index: int, amounts: Sums) -> bool:
        """Returns whether the queue, and each above it below the level in common, may give that much by the rule."""
        return all(
            queue.seen.reclaimable and self._may_lose(rule, queue, index, amounts)
            for queue in self._down(giver, index)
        )

    def _down(self, giver: Queue, index: int) -> Sequence[Queue]:
        """The queue and those above it, below the level in common."""
        if (down := self._downs.get(giver)) is None:
            down = self._downs[giver] = giver.path[: giver.path.index(self.queue.path[index])]
        return down

    def _siblings(self, giver: Queue, index: int) -> tuple[Queue, Queue]:
        """Returns the claimant's queue and the giver, or the queues above them, directly below the level in common."""
        return self.queue.path[index - 1], self._down(giver, index)[-1]

    def _index(self, queue: Queue) -> int:
        """Returns where the level in common stands in the claimant's path; 0: there is none, or it is its queue."""
        if (found := self._indices.get(queue)) is None:
            if queue in self.queue.path:
                found = self.queue.path.index(queue)
            else:  # as of the queue above
                found = self._index(queue.parent) if queue.parent is not None else 0
            self._indices[queue] = found
        return found

    def _size(self, loss: Loss) -> tuple[int, ...]:
        return tuple(loss.amounts.get(resource, 0) for resource in self._need)

    def _lose(self, queue: Queue, amounts: Sums) -> None:
        for above in queue.path:
            add(self._lost.setdefault(above, {}), amounts, 1)

    # --- the two rules -------------------------------------------------------------------------

    def _used(self, queue: Queue, resource: str) -> int:
        """Returns what the queue uses, without what victims free."""
        return queue.used.get(resource, 0) - self._frees(queue, resource)

    def _frees(self, queue: Queue, resource: str) -> int:
        leaving, lost = self._leaving.get(queue), self._lost.get(queue)
        freed = leaving.get(resource, 0) if leaving else 0
        return freed + lost.get(resource, 0) if lost else freed

    def _share(self, queue: Queue, resource: str) -> int:
        return fair_shares(self._queues, resource).get(queue.name, 0)

    def _own(self, queue: Queue, resource: str) -> int:
        return own_amount(self._queues, queue, resource)

    def _limit(self, rule: str, queue: Queue, resource: str) -> int:
        """Returns how much the claimant's queue may use by the rule."""
        share = self._share(queue, resource)
        own = self._own(queue, resource) if rule == DESERVED else 0
        return min(own, share) if own else share

    def _rule_resources(self, rule: str, index: int) -> list[str]:
        """The resources that the rule compares, for a claim at this level."""
        up = self.queue.path[: index if rule == DESERVED else 0]
        return [r for r in self._need if all(self._own(queue, r) for queue in up)]

    def _short(self, rule: str, up: Sequence[Queue]) -> list[Shortfall]:
        """Returns by how much the queues would exceed their limit. Where the rule compares nothing: the whole need, of
        the first queue."""
        if not self._rule_resources(rule, len(up)):
            return [Shortfall(up[0], self._need)]
        found = []
        for queue in up:
            above = {
                resource: over
                for resource in self._need
                if (over := self.would_use(queue, resource) - self._limit(rule, queue, resource))
                > 0
            }
            if above:
                found.append(Shortfall(queue, above))
        return found

    def _will_use(self, queue: Queue, resource: str) -> int:
        """Returns what the queue uses without victims, with what claims in flight will take."""
        return self._used(queue, resource) + self._gained.get(queue, {}).get(resource, 0)

    def would_use(self, queue: Queue, resource: str) -> int:
        """Returns what the claimant's queue, or one above it, would use with the gang."""
        return self._will_use(queue, resource) + self._need[resource]

    def _may_be_entitled(self, rule: str, up: Sequence[Queue]) -> bool:
        return all(
            amount <= self._relief(short.queue, resource)
            for short in self._short(rule, up)
            for resource, amount in short.amounts.items()
        )

    def _relief(self, queue: Queue, resource: str) -> int:
        """The most that the gang may take inside the queue: by its priority in its own, else of those above their
        shares."""
        inside = (giver for giver in queue if giver.gangs and self.gives(giver))
        own = self._own_less_urgent.get(resource, 0)
        return own + sum(self._used(giver, resource) for giver in inside)

    def _kept(self, rule: str, queue: Queue, resource: str) -> int:
        """Returns how much the rule lets another queue keep."""
        return (self._share if rule == FAIR_SHARE else self._own)(queue, resource)

    def _is_above(self, rule: str, queue: Queue, index: int) -> bool:
        terms = self._terms_of(rule, queue, index)
        return any(will_use - self._frees(queue, name) > kept for name, will_use, kept in terms)

    def _may_lose(self, rule: str, queue: Queue, index: int, amounts: Sums) -> bool:
        """Returns whether the queue uses more than the rule lets it keep, of a resource that the victim (amounts)
        frees, and not too little without the victim. Sets kept_a_share where keeps_shares refuses that."""
        for resource, will_use, kept in self._terms_of(rule, queue, index):
            used, amount = will_use - self._frees(queue, resource), amounts.get(resource, 0)
            if not amount or used <= kept:
                continue
            if used - amount >= kept:
                return True
            if self.keeps_shares:
                self.kept_a_share = True
            elif rule == DESERVED or used - amount >= kept * self._level(index, resource):
                return True
        return False

    def _terms_of(self, rule: str, queue: Queue, index: int) -> list[tuple[str, int, int]]:
        """Each resource that the rule compares, with what the queue will use if it loses nothing, and what it may
        keep."""
        if (terms := self._terms.get((rule, queue))) is None:
            gained = self._gained.get(queue, {})
            terms = self._terms[rule, queue] = [
                (
                    resource,
                    queue.used.get(resource, 0) + gained.get(resource, 0),
                    self._kept(rule, queue, resource),
                )
                for resource in self._rule_resources(rule, index)
            ]
        return terms

    def _level(self, index: int, resource: str) -> Fraction:
        """The least part of its share that one of the claimant's queues below this level uses before the claim."""
        levels = []
        for queue in self.queue.path[:index]:
            lost = self._leaving.get(queue, {}).get(resource, 0)
            gained = self._gained.get(queue, {}).get(resource, 0)
            used = queue.used.get(resource, 0) - lost + gained
            levels.append(Fraction(used, max(1, self._share(queue, resource))))
        return min(levels)


def exceeds_share(queues: Queues, gang: Gang, need: Sums) -> bool:
    """Returns whether the gang's queue would use more than its fair share. Then others give it nothing, unless it
    evicts gangs of its own as well."""
    queue = queues.by_name[gang.queue]
    leaving = queues.in_flight.leaving(queues.by_name).get(queue, {})
    for resource, amount in need.items():
        if queues.is_claimed(resource):
            will_use = queue.used.get(resource, 0) - leaving.get(resource, 0) + amount
            if will_use > fair_shares(queues, resource).get(queue.name, 0):
                return True
    return False


def may_take_whole(queues: Queues, claimant: Gang, victim: Gang, *, by_priority: bool) -> bool:
    """Returns whether the claimant's minimum entitles it to all of the victim. by_priority: down to the guarantees."""
    if claimant.account is None or victim.account is None or not queues.enabled:
        return False
    mine, theirs = (
        queues.by_name[gang.account.queue] for gang in (claimant, victim) if gang.account
    )
    if mine is theirs or mine.error or theirs.error:
        return False
    key = ("claim", *claimant.key, claimant.missing())
    claim = queues.cache.get(key)
    if claim is None:
        pods = claimant.counts.waiting[: max(1, claimant.missing())]
        need = queues.currency.counted(sums_of(pods))
        claim = queues.cache[key] = Claim(queues, claimant, need, {}, of_surplus=True)
    loss = Loss(victim, theirs, queues.staying(victim), by_priority)
    return not any(claim.judge([loss]))
