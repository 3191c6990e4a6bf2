"""Claims among gangs with several pods, some of them above a minimum, with disruption budgets and domains: by trying every
set of victims. Shares no code with the scheduler."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import NamedTuple

from tests.central.scheduler.queues.claim_oracle import Case, Oracle, Running, Team

NO_SHARE = 1000  # times: all that a queue without a share uses is above it
Harm = tuple[object, ...]


@dataclass(frozen=True)
class Gang:
    """Of equal pods, each on one of the nodes. covered: by the disruption budget of its namespace."""

    name: str
    team: str
    gpus: int  # of each pod
    nodes: tuple[int, ...]
    least: int
    priority: int = 0
    namespace: str = "x"
    covered: bool = False


@dataclass(frozen=True)
class GangCase:
    teams: tuple[Team, ...]  # parents first
    nodes: tuple[int, ...]  # GPUs
    racks: tuple[int, ...]  # of each node
    gangs: tuple[Gang, ...]
    team: str
    pods: int  # that want to start
    gpus: int  # of each
    priority: int
    in_one_rack: bool
    across: str  # whom priority outranks: as the scheduler's option
    budgets: tuple[tuple[str, int], ...]  # by namespace, the pods that may be evicted


class Leaver(NamedTuple):
    """What leaves of a gang: all of it, or members above its minimum."""

    gang: Gang
    nodes: tuple[int, ...]

    @property
    def breaks(self) -> bool:
        return len(self.gang.nodes) - len(self.nodes) < self.gang.least

    @property
    def amount(self) -> Running:
        gang = self.gang
        return Running(gang.name, gang.team, -1, gang.gpus * len(self.nodes), gang.priority)


Leavers = tuple[Leaver, ...]


class GangOracle(Oracle):
    def __init__(self, case: GangCase) -> None:
        self.gangs = case
        self.namespaces = {gang.name: gang.namespace for gang in case.gangs}
        running = tuple(Leaver(gang, gang.nodes).amount for gang in case.gangs)
        need = case.pods * case.gpus
        super().__init__(Case(case.teams, case.nodes, running, case.team, need, case.priority))

    def choices(self, most: int) -> Iterator[Leavers]:
        """Every legal set of victims, of at most so many gangs, that lets the claimant start."""
        for size in range(1, most + 1):
            for gangs in combinations(self.gangs.gangs, size):
                for chosen in product(*map(leavers, gangs)):
                    if self.lets_start(chosen) and self.may_leave(chosen):
                        yield chosen

    def may_leave(self, gone: Leavers) -> bool:
        return self.within_budgets(gone) and self.is_legal(amounts_of(gone))

    def keeps_all_shares(self, gone: Leavers) -> bool:
        return self.keeps_shares(amounts_of(gone))

    def are_less_urgent(self, gone: Leavers, chosen: Leavers) -> bool:
        return self.is_less_urgent(amounts_of(gone), amounts_of(chosen))

    def takes_own_gangs(self, gone: Leavers) -> bool:
        return self.takes_own(amounts_of(gone))

    def are_deserved(self, gone: Leavers) -> bool:
        return self.is_deserved(amounts_of(gone))

    def lets_start(self, gone: Leavers) -> bool:
        amounts = amounts_of(gone)
        return (
            self._has_space(gone)
            and not self.over_capability(amounts)
            and not self.into_guarantees(amounts)
        )

    def _has_space(self, gone: Leavers) -> bool:
        case, free = self.gangs, list(self.gangs.nodes)
        for gang in case.gangs:
            for node in gang.nodes:
                free[node] -= gang.gpus
        for leaver in gone:
            for node in leaver.nodes:
                free[node] += leaver.gang.gpus
        fits = [amount // case.gpus for amount in free]
        if not case.in_one_rack:
            return sum(fits) >= case.pods
        by_rack = Counter[int]()
        for rack, count in zip(case.racks, fits, strict=True):
            by_rack[rack] += count
        return max(by_rack.values()) >= case.pods

    def within_budgets(self, gone: Leavers) -> bool:
        return all(
            sum(len(one.nodes) for one in gone if one.gang.covered and one.gang.namespace == name)
            <= allowed
            for name, allowed in self.gangs.budgets
        )

    def by_priority(self, victim: Running) -> bool:
        across = self.gangs.across
        return (
            victim.priority < self.case.priority
            and (across != "none" or self.namespaces[victim.name] == "x")
            and (across == "queues" or victim.team == self.case.team)
        )

    def _may_go(self, victim: Running, before: Sequence[Running], gone: Sequence[Running]) -> bool:
        if victim.team != self.case.team and self.by_priority(victim):
            mine = self.path(self.case.team)
            return all(
                self.used[name] - self._sum(name, before) - victim.gpus >= self.team[name].guarantee
                for name in self.path(victim.team)
                if name not in mine
            )
        return super()._may_go(victim, before, gone)

    def gives_first(self) -> set[str]:
        """The queues that are furthest above their shares, of those with gangs."""
        others = {gang.team for gang in self.gangs.gangs} - {self.case.team}
        first = min(map(self.standing, others), default=())
        return {name for name in others if self.standing(name) == first}

    def is_reclaimed_from(self, gone: Leavers, teams: set[str]) -> bool:
        """Whether these queues alone give, and none of it by priority."""
        return all(one.gang.team in teams and not self.by_priority(one.amount) for one in gone)

    def standing(self, name: str) -> tuple[tuple[int, Fraction], ...]:
        """The least one gives first: lower priority, then the larger part of its share, level by level."""
        down = [each for each in self.path(name) if each not in self.path(self.case.team)]
        return tuple(
            (self.team[each].priority, -self._times_its_share(each)) for each in reversed(down)
        )

    def _times_its_share(self, name: str) -> Fraction:
        used, share = self.used[name], self.shares[name]
        return Fraction(used, share) if share else Fraction(NO_SHARE * used)

    def harm(self, gone: Leavers) -> Harm:
        """All run equally long: the highest priority, then by priority gangs below their minimum, GPUs and pods."""
        broken, gpus, pods = Counter[int](), Counter[int](), Counter[int]()
        for one in gone:
            broken[one.gang.priority] += one.breaks
            gpus[one.gang.priority] += one.gang.gpus * len(one.nodes)
            pods[one.gang.priority] += len(one.nodes)
        ranks = sorted({gang.priority for gang in self.gangs.gangs}, reverse=True)
        return max(pods), *([kind[each] for each in ranks] for kind in (broken, gpus, pods))


def amounts_of(gone: Leavers) -> list[Running]:
    return [one.amount for one in gone]


def is_part_of(one: Leavers, other: Leavers) -> bool:
    have = {each.gang.name: Counter(each.nodes) for each in other}
    return one != other and all(
        each.gang.name in have and not Counter(each.nodes) - have[each.gang.name] for each in one
    )


def leavers(gang: Gang) -> list[Leaver]:
    surplus = range(1, min(len(gang.nodes) - gang.least, len(gang.nodes) - 1) + 1)
    parts = {each for size in surplus for each in combinations(sorted(gang.nodes), size)}
    return [Leaver(gang, nodes) for nodes in (*sorted(parts), tuple(sorted(gang.nodes)))]
