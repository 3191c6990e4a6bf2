"""Who may claim what in a small tree of queues, by trying every set of victims. Shares no code with the scheduler."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, permutations

from central.scheduler.queues.fair_share import Bounds
from tests.central.scheduler.queues.test_fair_share import by_breakpoints


@dataclass(frozen=True)
class Team:
    """A queue. Amounts are GPUs; capability None: no limit."""

    name: str
    parent: str = ""
    weight: int = 1
    priority: int = 0
    capability: int | None = None
    deserved: int | None = None
    guarantee: int = 0
    reclaimable: bool = True


@dataclass(frozen=True)
class Running:
    name: str
    team: str
    node: int
    gpus: int
    priority: int = 0
    is_surplus: bool = False  # above the minimum of its gang, whose other member needs no GPU


@dataclass(frozen=True)
class Case:
    teams: tuple[Team, ...]  # parents first
    nodes: tuple[int, ...]  # GPUs
    running: tuple[Running, ...]
    team: str
    gpus: int
    priority: int = 0
    member: str = ""  # that runs already, of the claimant's gang, whose minimum is 1


class Oracle:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.team = {team.name: team for team in case.teams}
        self.used = {name: self._sum(name, case.running) for name in self.team}
        self.shares = self._shares()

    def sets(self, most: int) -> Iterator[tuple[Running, ...]]:
        """Every legal set of victims that lets the claimant start, the smaller ones first."""
        others = [one for one in self.case.running if one.name != self.case.member]
        for size in range(1, most + 1):
            for chosen in combinations(others, size):
                if self.fits(chosen) and self.is_legal(chosen):
                    yield chosen

    def fits(self, gone: Sequence[Running]) -> bool:
        left = [one for one in self.case.running if one not in gone]
        fits = any(
            gpus - sum(one.gpus for one in left if one.node == node) >= self.case.gpus
            for node, gpus in enumerate(self.case.nodes)
        )
        return fits and not self.over_capability(gone) and not self.into_guarantees(gone)

    def into_guarantees(self, gone: Sequence[Running]) -> bool:
        """Whether the claimant takes what is kept free for others' guarantees."""
        withheld = 0
        for name in self.path(self.case.team):
            if self._will_use(name, gone) <= self.team[name].guarantee:
                break
            for other in self._children(self.team[name].parent):
                if other.name != name:
                    withheld += self._unused(other.name, gone)
        left = sum(one.gpus for one in self.case.running) - sum(one.gpus for one in gone)
        free = sum(self.case.nodes) - left
        return withheld > 0 and self.case.gpus > free - withheld

    def _unused(self, name: str, gone: Sequence[Running]) -> int:
        own = self.team[name].guarantee - self.used[name] + self._sum(name, gone)
        return max(0, own, sum(self._unused(child.name, gone) for child in self._children(name)))

    def over_capability(self, gone: Sequence[Running]) -> bool:
        return any(
            (most := self.team[name].capability) is not None
            and self.used[name] - self._sum(name, gone) + self.case.gpus > most
            for name in self.path(self.case.team)
        )

    def is_legal(self, gone: Sequence[Running]) -> bool:
        return any(self._in_this_order(order, gone) for order in permutations(gone))

    def by_priority(self, victim: Running) -> bool:
        return victim.team == self.case.team and victim.priority < self.case.priority

    def path(self, name: str) -> list[str]:
        found = [name]
        while parent := self.team[found[-1]].parent:
            found.append(parent)
        return found

    def _in_this_order(self, order: Sequence[Running], gone: Sequence[Running]) -> bool:
        return all(self._may_go(victim, order[:index], gone) for index, victim in enumerate(order))

    def _may_go(self, victim: Running, before: Sequence[Running], gone: Sequence[Running]) -> bool:
        mine, theirs = self.path(self.case.team), self.path(victim.team)
        if victim.team == self.case.team:
            return self.by_priority(victim)
        up = [name for name in mine if name not in theirs]
        down = [name for name in theirs if name not in mine]
        if not up or not down or not self._is_reclaimable(victim, down, before):
            return False
        if (
            self.case.member
        ):  # growth leaves others what they deserve, and by fair share their minima
            after = {n: self.used[n] - self._sum(n, before) - victim.gpus for n in down}
            by_own = self._by_own(up, down, before, gone)
            if by_own and all(after[name] >= self.own(name) for name in down):
                return True
            by_share = victim.is_surplus and self._by_share(up, down, before, gone)
            return by_share and all(after[name] >= self.shares[name] for name in down)
        by_share = self._by_share(up, down, before, gone)
        if by_share and not self.harms_more_than_it_gains(victim, up, down, before):
            return True
        return self._by_own(up, down, before, gone)

    def _is_reclaimable(
        self, victim: Running, down: Sequence[str], before: Sequence[Running]
    ) -> bool:
        return all(
            self.team[name].reclaimable
            and self.used[name] - self._sum(name, before) - victim.gpus >= self.team[name].guarantee
            for name in down
        )

    def takes_own(self, gone: Sequence[Running]) -> bool:
        """Whether less urgent gangs of the claimant's team go. They come back, and claim."""
        return any(victim.team == self.case.team for victim in gone)

    def is_deserved(self, gone: Sequence[Running]) -> bool:
        """Whether the claimant's team may take all of it from others as what it deserves."""
        return any(self._is_deserved_in_order(order, gone) for order in permutations(gone))

    def _is_deserved_in_order(self, order: Sequence[Running], gone: Sequence[Running]) -> bool:
        mine = self.path(self.case.team)
        for index, victim in enumerate(order):
            theirs, before = self.path(victim.team), order[:index]
            up = [name for name in mine if name not in theirs]
            down = [name for name in theirs if name not in mine]
            if not up or not down or not self._is_reclaimable(victim, down, before):
                return False
            if not self._by_own(up, down, before, gone):
                return False
        return True

    def keeps_shares(self, gone: Sequence[Running]) -> bool:
        """Whether no other queue is left below its share, or below its own amount where that is the reason."""
        return any(self._keeps_in_order(order, gone) for order in permutations(gone))

    def _keeps_in_order(self, order: Sequence[Running], gone: Sequence[Running]) -> bool:
        for index, victim in enumerate(order):
            before = order[:index]
            if not self._may_go(victim, before, gone):
                return False
            mine, theirs = self.path(self.case.team), self.path(victim.team)
            if self.by_priority(victim):
                continue
            up = [name for name in mine if name not in theirs]
            down = [name for name in theirs if name not in mine]
            left = {n: self.used[n] - self._sum(n, before) - victim.gpus for n in down}
            if not (
                self._by_share(up, down, before, gone)
                and all(left[name] >= self.shares[name] for name in down)
            ) and not (
                self._by_own(up, down, before, gone)
                and all(left[name] >= self.own(name) for name in down)
            ):
                return False
        return True

    def is_less_urgent(self, gone: Sequence[Running], chosen: Sequence[Running]) -> bool:
        """Whether both take the same of all other queues but one, of which these gangs are all less urgent than the
        most urgent of the chosen ones: that one comes back in their place."""
        for team in {victim.team for victim in chosen} - {self.case.team}:
            highest = max(victim.priority for victim in chosen if victim.team == team)
            if any(victim.team == team for victim in gone) and all(
                victim.priority < highest if victim.team == team else victim in chosen
                for victim in gone
            ):
                return True
        return False

    def _by_share(
        self,
        up: Sequence[str],
        down: Sequence[str],
        before: Sequence[Running],
        gone: Sequence[Running],
    ) -> bool:
        return all(self._will_use(name, gone) <= self.shares[name] for name in up) and all(
            self.used[name] - self._sum(name, before) > self.shares[name] for name in down
        )

    def harms_more_than_it_gains(
        self, victim: Running, up: Sequence[str], down: Sequence[str], before: Sequence[Running]
    ) -> bool:
        """Whether a queue is left with less of its share than the claimant's queues have now."""
        level = min(Fraction(self.used[name], max(1, self.shares[name])) for name in up)
        return any(
            (left := self.used[name] - self._sum(name, before) - victim.gpus) < self.shares[name]
            and Fraction(left, self.shares[name]) < level
            for name in down
        )

    def _by_own(
        self,
        up: Sequence[str],
        down: Sequence[str],
        before: Sequence[Running],
        gone: Sequence[Running],
    ) -> bool:
        return all(
            self.own(name) > 0
            and self._will_use(name, gone) <= min(self.own(name), self.shares[name])
            for name in up
        ) and all(self.used[name] - self._sum(name, before) > self.own(name) for name in down)

    def _will_use(self, name: str, gone: Sequence[Running]) -> int:
        return self.used[name] - self._sum(name, gone) + self.case.gpus

    def own(self, name: str) -> int:
        return max(self._deserved(name), self._guarantee(name))

    def _deserved(self, name: str) -> int:
        deserved = self.team[name].deserved
        if deserved is None:
            return sum(self._deserved(child.name) for child in self._children(name))
        return deserved

    def _guarantee(self, name: str) -> int:
        below = sum(self._guarantee(child.name) for child in self._children(name))
        return max(self.team[name].guarantee, below)

    def _children(self, name: str) -> list[Team]:
        return sorted(
            (team for team in self.case.teams if team.parent == name), key=lambda team: team.name
        )

    def _sum(self, name: str, gangs: Sequence[Running]) -> int:
        return sum(one.gpus for one in gangs if name in self.path(one.team))

    # --- fair shares: by breakpoints of the water level, then by largest remainder -----------------

    def _shares(self) -> dict[str, int]:
        shares: dict[str, int] = {}
        total = min(
            sum(self.case.nodes), sum(self._demand(each.name) for each in self._children(""))
        )
        self._divide("", total, shares)
        return shares

    def _demand(self, name: str) -> int:
        children = self._children(name)
        own = self.used[name] - sum(self.used[child.name] for child in children)
        own += self.case.gpus * (name == self.case.team)
        demand = own + sum(self._demand(child.name) for child in children)
        most = self.team[name].capability
        return demand if most is None else min(demand, most)

    def _divide(self, parent: str, total: int, shares: dict[str, int]) -> None:
        teams = self._children(parent)
        demands = [self._demand(team.name) for team in teams]
        exact = self._exact(total, teams, demands)
        sure = [
            min(
                share,
                Fraction(max(min(self._guarantee(t.name), d), min(self._deserved(t.name), d))),
            )
            for share, t, d in zip(exact, teams, demands, strict=True)
        ]
        whole = [
            d if share == d else max(int(share), int(least))
            for share, d, least in zip(exact, demands, sure, strict=True)
        ]
        remainders = [share - part for share, part in zip(exact, whole, strict=True)]
        for i in sorted(
            range(len(teams)),
            key=lambda i: (-remainders[i], -teams[i].priority, -self.used[teams[i].name], i),
        )[: int(sum(exact)) - sum(whole)]:
            whole[i] += 1
        for team, share in zip(teams, whole, strict=True):
            shares[team.name] = share
            self._divide(team.name, share, shares)

    def _exact(self, total: int, teams: Sequence[Team], demands: Sequence[int]) -> list[Fraction]:
        if sum(demands) <= total:
            return [Fraction(demand) for demand in demands]
        low = [min(self._guarantee(t.name), d) for t, d in zip(teams, demands, strict=True)]
        if sum(low) > total:
            return [Fraction(part * total, sum(low)) for part in low]
        deserved = [self._deserved(team.name) for team in teams]
        base = [max(g, min(o, d)) for g, o, d in zip(low, deserved, demands, strict=True)]
        if sum(base) >= total:
            return _pour(total, list(zip(deserved, low, base, [0] * len(teams), strict=True)))
        shares = [Fraction(part) for part in base]
        for priority in sorted({team.priority for team in teams}, reverse=True):
            peers = [i for i, team in enumerate(teams) if team.priority == priority]
            water = total - sum(shares) + sum(base[i] for i in peers)
            vessels = [
                (teams[i].weight, base[i], demands[i], min(deserved[i], demands[i])) for i in peers
            ]
            for i, share in zip(peers, _pour(water, vessels), strict=True):
                shares[i] = share
        return shares


def _pour(total: Fraction | int, vessels: Sequence[tuple[int, int, int, int]]) -> list[Fraction]:
    """width, low, high, base of each. Vessels without width stay low."""
    wide = [vessel for vessel in vessels if vessel[0]]
    still = sum(low for width, low, _, _ in vessels if not width)
    filled = iter(by_breakpoints(total - still, [Bounds(*v) for v in wide]) if wide else ())  # type: ignore[arg-type]
    return [Fraction(next(filled)) if vessel[0] else Fraction(vessel[1]) for vessel in vessels]
