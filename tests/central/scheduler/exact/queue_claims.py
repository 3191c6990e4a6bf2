"""Claims in a small tree of queues, as integer programs over the gangs that run. Shares no code with the scheduler.

Victims leave one after the other, each by one rule, whose conditions are on what its queues use at that moment:

- priority: a gang of the claimant's queue (or of others, by the scheduler's option) with a lower priority
- share: the claimant stays within its fair share, the victim's queue is above its own, and is not left with a smaller
  part of its share than the claimant's queue has
- own: the claimant stays within what it deserves, the victim's queue is above what it deserves
- kept share, kept own: as share and own, and the victim's queue keeps as much
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import ceil
from typing import NamedTuple

from central.model.defaults import ACROSS_NAMESPACES, ACROSS_NONE, ACROSS_QUEUES
from tests.central.scheduler.exact.model import Model, Sum, total
from tests.central.scheduler.exact.shares import Team, Tree
from tests.central.scheduler.exact.space import place

PRIORITY, SHARE, OWN = "priority", "share", "own"
KEPT_SHARE, KEPT_OWN = "kept share", "kept own"
LEGAL = (PRIORITY, SHARE, OWN)
KEEPING = (PRIORITY, KEPT_SHARE, KEPT_OWN)  # no queue falls below its share by it
DESERVED = (OWN,)
NO_SHARE = 1000  # times: all that a queue without a share uses is above it
Harm = tuple[int, ...]


@dataclass(frozen=True)
class Gang:
    """Of equal pods, each on one of the nodes. covered: by the disruption budget of its namespace."""

    name: str
    team: str
    gpus: int  # of each pod
    nodes: tuple[int, ...]
    least: int = 1
    priority: int = 0
    namespace: str = "x"
    covered: bool = False
    is_surplus: bool = False  # above the minimum of its gang, whose other member needs no GPU


@dataclass(frozen=True)
class Claim:
    teams: tuple[Team, ...]  # parents first
    nodes: tuple[int, ...]  # GPUs
    gangs: tuple[Gang, ...]
    team: str
    pods: int  # that want to start
    gpus: int  # of each
    priority: int = 0
    racks: tuple[int, ...] = ()  # of each node; empty: the pods may be anywhere
    across: str = ACROSS_NAMESPACES  # whom priority outranks: as the scheduler's option
    budgets: tuple[tuple[str, int], ...] = ()  # by namespace, the pods that may be evicted
    member: str = ""  # that runs already, of the claimant's gang, whose minimum is 1
    pending: tuple[tuple[str, int], ...] = ()  # queues and GPUs of other gangs

    @property
    def need(self) -> int:
        return self.pods * self.gpus


class Leaver(NamedTuple):
    """What leaves of a gang: all of it, or members above its minimum."""

    gang: Gang
    nodes: tuple[int, ...]

    @property
    def amount(self) -> int:
        return self.gang.gpus * len(self.nodes)


Leavers = tuple[Leaver, ...]


class Judge:
    """Answers about one claim. most: how many gangs may leave in the sets that it looks at."""

    def __init__(self, claim: Claim, most: int) -> None:
        self.claim, self.most = claim, most
        used, pending = Counter[str](), Counter({claim.team: claim.need})
        for gang in claim.gangs:
            used[gang.team] += gang.gpus * len(gang.nodes)
        for team, gpus in claim.pending:
            pending[team] += gpus
        self.tree = Tree(claim.teams, sum(claim.nodes), used, pending)
        self.mine = self.tree.path(claim.team)

    def select(self, rules: Sequence[str], model: Model | None = None) -> "Selection":
        others = [gang for gang in self.claim.gangs if gang.name != self.claim.member]
        return Selection(self, model or Model(), others, rules, self.most)

    def lets_start(self, gone: Leavers) -> bool:
        return self._fixed(gone, ()).is_possible()

    def follows(self, rules: Sequence[str], gone: Leavers) -> bool:
        """Whether the victims let the claimant start and leave by these rules."""
        return self._fixed(gone, rules).is_possible()

    def harm(self, gone: Leavers) -> Harm:
        chosen = self._fixed(gone, ())
        found = chosen.model.least(chosen.harm)
        assert found is not None
        return found

    def _fixed(self, gone: Leavers, rules: Sequence[str]) -> "Selection":
        found = Selection(self, Model(), [one.gang for one in gone], rules, len(gone))
        found.is_exactly(gone)
        return found

    def outranks(self, gang: Gang) -> bool:
        across = self.claim.across
        return (
            gang.priority < self.claim.priority
            and (across != ACROSS_NONE or gang.namespace == "x")
            and (across == ACROSS_QUEUES or gang.team == self.claim.team)
        )

    def rules_of(self, gang: Gang, rules: Sequence[str]) -> tuple[str, ...]:
        """By which of the rules the gang may leave at all."""
        if PRIORITY in rules and self.outranks(gang):
            return (PRIORITY,)
        up, down = self.between(gang)
        if not up or not down or not all(self.tree.team[name].reclaimable for name in down):
            return ()
        found = [rule for rule in rules if rule != PRIORITY]
        if self.claim.member and PRIORITY in rules:  # growth leaves others what is theirs
            found = [KEPT_OWN, *([KEPT_SHARE] if gang.is_surplus else ())]
        if not all(self.tree.own(name) for name in up):
            found = [rule for rule in found if rule not in (OWN, KEPT_OWN)]
        return tuple(found)

    def between(self, gang: Gang) -> tuple[list[str], list[str]]:
        """The queues of the claimant and of the gang below their first common one."""
        theirs = self.tree.path(gang.team)
        up = [name for name in self.mine if name not in theirs]
        return up, [name for name in theirs if name not in self.mine]

    def gives_first(self) -> set[str]:
        """The queues that are furthest above their shares, of those with gangs."""
        others = {gang.team for gang in self.claim.gangs} - {self.claim.team}
        first = min(map(self._standing, others), default=())
        return {name for name in others if self._standing(name) == first}

    def _standing(self, name: str) -> tuple[tuple[int, Fraction], ...]:
        """The least one gives first: lower priority, then the larger part of its share, level by level."""
        down = [each for each in self.tree.path(name) if each not in self.mine]
        tree = self.tree
        return tuple(
            (
                tree.team[each].priority,
                -Fraction(tree.used[each] * (1 if tree.shares[each] else NO_SHARE))
                / max(1, tree.shares[each]),
            )
            for each in reversed(down)
        )


class Selection:
    """A set of victims in a model: it lets the claimant start, and follows the rules. rules: empty for any victims."""

    def __init__(
        self, judge: Judge, model: Model, gangs: Sequence[Gang], rules: Sequence[str], most: int
    ) -> None:
        self.judge, self.model, self.claim, self.tree = judge, model, judge.claim, judge.tree
        self.rules = {gang: judge.rules_of(gang, rules) for gang in gangs}
        self.gangs = [gang for gang in gangs if self.rules[gang] or not rules]
        self.parts = {gang: self._parts(gang) for gang in self.gangs}
        self.whole = {gang: model.binary() for gang in self.gangs}
        self.goes = {gang: model.binary() for gang in self.gangs}
        self.amount = {gang: total(p.values()) * gang.gpus for gang, p in self.parts.items()}
        for gang in self.gangs:
            self._loses(gang)
        self.left = self._left(self.amount)
        self._starts()
        self._keeps_guarantees()
        if rules:
            self._order(min(most, len(self.gangs)))

    def is_possible(self) -> bool:
        return self.model.is_possible()

    def chosen(self) -> Leavers:
        """The victims of the model's last solution."""
        found = []
        for gang in self.gangs:
            counts = {node: self.model.value(part) for node, part in self.parts[gang].items()}
            if any(counts.values()):
                nodes = [node for node, count in counts.items() for _ in range(count)]
                found.append(Leaver(gang, tuple(sorted(nodes))))
        return tuple(found)

    # --- who leaves ----------------------------------------------------------------------------

    def _parts(self, gang: Gang) -> dict[int, Sum]:
        there = Counter(gang.nodes)
        return {node: self.model.integer(0, count) for node, count in sorted(there.items())}

    def _loses(self, gang: Gang) -> None:
        size, leaving = len(gang.nodes), total(self.parts[gang].values())
        spare = min(size - gang.least, size - 1)
        self.model.at_most(leaving - spare, self.whole[gang] * (size - spare))
        self.model.at_most(self.whole[gang] * size, leaving)
        self.model.at_most(leaving, self.goes[gang] * size)
        self.model.at_most(self.goes[gang], leaving)

    def _left(self, amounts: dict[Gang, Sum]) -> dict[str, Sum]:
        """What each queue uses without these amounts."""
        found = {name: Sum(constant=used) for name, used in self.tree.used.items()}
        for gang, amount in amounts.items():
            for name in self.tree.path(gang.team):
                found[name] = found[name] - amount
        return found

    # --- the claimant starts -------------------------------------------------------------------

    def _starts(self) -> None:
        claim, model = self.claim, self.model
        free = {node: Sum(constant=gpus) for node, gpus in enumerate(claim.nodes)}
        for gang in claim.gangs:
            for node in gang.nodes:
                free[node] = free[node] - gang.gpus
        for gang, parts in self.parts.items():
            for node, part in parts.items():
                free[node] = free[node] + part * gang.gpus
        racks = [[n for n, r in enumerate(claim.racks) if r == one] for one in {*claim.racks}]
        by_node = {node: {"gpu": amount} for node, amount in free.items()}
        place(model, by_node, [({"gpu": claim.gpus}, claim.pods)], racks)
        self.free = total(free.values())
        for name in self.judge.mine:
            if (most := self.tree.team[name].capability) is not None:
                model.at_most(self.left[name] + claim.need, most)
        for namespace, allowed in claim.budgets:
            covered = [g for g in self.gangs if g.covered and g.namespace == namespace]
            evicted = total(part for gang in covered for part in self.parts[gang].values())
            model.at_most(evicted, allowed)

    def _keeps_guarantees(self) -> None:
        """The claimant leaves free what others' guarantees need, up to the first of its queues that is guaranteed
        more."""
        model, tree, need = self.model, self.tree, self.claim.need
        if not any(team.guarantee for team in self.claim.teams):
            return
        unused = {
            name: model.integer(0, sum(t.guarantee for t in self.claim.teams)) for name in tree.team
        }
        for name, amount in unused.items():
            model.at_most(tree.team[name].guarantee - self.left[name], amount)
            model.at_most(total(unused[child.name] for child in tree.children(name)), amount)
        withheld, stopped = Sum(), Sum()
        for name in self.judge.mine:
            stops = model.binary()
            model.at_most(self.left[name] + need, tree.team[name].guarantee, stops)
            stopped = stopped + stops
            model.at_most(stopped, 1)
            siblings = [t.name for t in tree.children(tree.team[name].parent) if t.name != name]
            kept = total(unused[each] for each in siblings)
            counted = model.integer(0, max(0, model.limits(kept)[1]))
            model.at_most(kept, counted, 1 - stopped)
            withheld = withheld + counted
        model.at_most(need, self.free - withheld)

    # --- the rules -----------------------------------------------------------------------------

    def _order(self, slots: int) -> None:
        """Each victim leaves at one time, by one rule."""
        model, used = self.model, Sum(constant=1)
        goes = defaultdict[Gang, list[Sum]](list)
        gone = defaultdict[Gang, Sum](Sum)
        left = self._left({})
        for _ in range(slots):
            here = [
                (gang, rule, model.binary()) for gang in self.gangs for rule in self.rules[gang]
            ]
            model.at_most(total(one for *_, one in here), used)
            used = total(one for *_, one in here)
            now = {
                gang: model.integer(0, model.limits(self.amount[gang])[1]) for gang in self.gangs
            }
            for gang, amount in now.items():
                chosen = total(one for other, _, one in here if other is gang)
                goes[gang].append(chosen)
                model.at_most(amount, chosen * model.limits(amount)[1])
                gone[gang] = gone[gang] + amount
            before, left = left, self._left(gone)
            for gang, rule, one in here:
                self._follows(gang, rule, one, before, left)
        for gang in self.gangs:
            model.equal(total(goes[gang]), self.goes[gang])
            model.equal(gone[gang], self.amount[gang])

    def _follows(
        self, gang: Gang, rule: str, one: Sum, before: dict[str, Sum], after: dict[str, Sum]
    ) -> None:
        model, tree, need = self.model, self.tree, self.claim.need
        up, down = self.judge.between(gang)
        for name in down:
            model.at_most(tree.team[name].guarantee, after[name], one)
        if rule == PRIORITY:
            return
        by_share = rule in (SHARE, KEPT_SHARE)
        for name in up:
            most = tree.shares[name] if by_share else min(tree.own(name), tree.shares[name])
            model.at_most(self.left[name] + need, most, one)
        level = min(Fraction(tree.used[name], max(1, tree.shares[name])) for name in up)
        for name in down:
            least = tree.shares[name] if by_share else tree.own(name)
            model.at_most(least + 1, before[name], one)
            if rule in (KEPT_SHARE, KEPT_OWN):
                model.at_most(least, after[name], one)
            elif rule == SHARE:
                model.at_most(min(least, ceil(level * least)), after[name], one)

    # --- compared with other sets --------------------------------------------------------------

    @cached_property
    def harm(self) -> list[Sum]:
        """All run equally long: the highest priority, then by priority gangs below their minimum, GPUs and pods."""
        ranks = sorted({gang.priority for gang in self.claim.gangs}, reverse=True)
        highest = self.model.integer(0, len(ranks))
        kinds = [{rank: Sum() for rank in ranks} for _ in range(3)]
        for gang in self.gangs:
            rank, leaving = gang.priority, total(self.parts[gang].values())
            self.model.at_most(self.goes[gang] * (len(ranks) - ranks.index(rank)), highest)
            for kind, amount in zip(
                kinds, (self.whole[gang], self.amount[gang], leaving), strict=True
            ):
                kind[rank] = kind[rank] + amount
        return [highest, *(kind[rank] for kind in kinds for rank in ranks)]

    def is_exactly(self, gone: Leavers) -> None:
        self.is_within(gone)
        for one in gone:
            if one.gang not in self.parts:
                self.never()
                return
            for node, count in Counter(one.nodes).items():
                self.model.at_most(count, self.parts[one.gang][node])

    def is_within(self, gone: Leavers) -> None:
        """Nothing leaves but these pods."""
        there = {one.gang: Counter(one.nodes) for one in gone}
        for gang, parts in self.parts.items():
            for node, part in parts.items():
                self.model.at_most(part, there.get(gang, Counter[int]())[node])

    def never(self) -> None:
        self.model.at_most(1, self.model.integer(0, 0))

    def only_of(self, teams: Iterable[str]) -> None:
        allowed = {*teams}
        for gang in self.gangs:
            if gang.team not in allowed:
                self.model.at_most(self.goes[gang], 0)

    def not_all(self, gone: Leavers) -> None:
        """Of sets within these: at least one pod stays."""
        leaving = total(part for parts in self.parts.values() for part in parts.values())
        self.model.at_most(leaving + 1, sum(len(one.nodes) for one in gone))

    def is_less_urgent_than(self, chosen: Leavers, team: str) -> None:
        """All it takes of this queue is less urgent than the most urgent of the chosen ones, which would claim its
        place; what it takes of others is as chosen."""
        highest = max((c.gang.priority for c in chosen if c.gang.team == team), default=None)
        amounts = {one.gang: one.amount for one in chosen}
        taken = Sum()
        for gang, goes in self.goes.items():
            if gang.team == team:
                taken = taken + goes
                if highest is None or gang.priority >= highest:
                    self.model.at_most(goes, 0)
            else:
                amount = amounts.get(gang, 0)
                self.model.at_most(goes, amount)
                self.model.equal(self.amount[gang], amount, goes)
        self.model.at_most(1, taken)

    def is_more_urgent_than(self, other: "Selection | Leavers", team: str) -> None:
        """As is_less_urgent_than() the other way round: what the other takes of this queue is less urgent than one of
        these."""
        others = _amounts(other)
        tops = {gang: self.model.binary() for gang in self.gangs if gang.team == team}
        self.model.equal(total(tops.values()), 1)
        for gang, top in tops.items():
            self.model.at_most(top, self.goes[gang])
        taken = Sum()
        for gang, (goes, amount) in others.items():
            if gang.team == team:
                taken = taken + goes
                for mine, top in tops.items():
                    if gang.priority >= mine.priority:
                        self.model.at_most(goes + top, 1)
            elif gang in self.amount:
                self.model.at_most(goes, self.goes[gang])
                self.model.equal(self.amount[gang], amount, goes)
            else:
                self.model.at_most(goes, 0)
        self.model.at_most(1, taken)


def _amounts(of: Selection | Leavers) -> dict[Gang, tuple[Sum, Sum]]:
    """Whether each gang leaves, and how many of its GPUs."""
    if isinstance(of, Selection):
        return {gang: (of.goes[gang], of.amount[gang]) for gang in of.gangs}
    return {one.gang: (Sum(constant=1), Sum(constant=one.amount)) for one in of}


def teams_of(chosen: Leavers) -> Iterator[str]:
    yield from dict.fromkeys(one.gang.team for one in chosen)
