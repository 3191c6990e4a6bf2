"""Fair shares of a small tree of queues in whole GPUs: by breakpoints of the water level, then by largest remainder.
Written apart from the scheduler."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

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


class Tree:
    """used, pending: GPUs of the gangs of each team itself."""

    def __init__(
        self, teams: Sequence[Team], gpus: int, used: Mapping[str, int], pending: Mapping[str, int]
    ) -> None:
        self.team = {team.name: team for team in teams}
        self.pending = pending
        self.used = {
            name: sum(own for other, own in used.items() if name in self.path(other))
            for name in self.team
        }
        self.shares: dict[str, int] = {}
        wanted = sum(self._demand(team.name) for team in self.children(""))
        self._divide("", min(gpus, wanted))

    def path(self, name: str) -> list[str]:
        found = [name]
        while parent := self.team[found[-1]].parent:
            found.append(parent)
        return found

    def children(self, name: str) -> list[Team]:
        found = [team for team in self.team.values() if team.parent == name]
        return sorted(found, key=lambda team: team.name)

    def own(self, name: str) -> int:
        """What the team deserves, at least what is guaranteed to it."""
        return max(self._deserved(name), self._guarantee(name))

    def _deserved(self, name: str) -> int:
        deserved = self.team[name].deserved
        if deserved is None:
            return sum(self._deserved(child.name) for child in self.children(name))
        return deserved

    def _guarantee(self, name: str) -> int:
        below = sum(self._guarantee(child.name) for child in self.children(name))
        return max(self.team[name].guarantee, below)

    def _demand(self, name: str) -> int:
        children = self.children(name)
        own = self.used[name] - sum(self.used[child.name] for child in children)
        demand = own + self.pending.get(name, 0) + sum(self._demand(c.name) for c in children)
        most = self.team[name].capability
        return demand if most is None else min(demand, most)

    def _divide(self, parent: str, total: int) -> None:
        teams = self.children(parent)
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
            self.shares[team.name] = share
            self._divide(team.name, share)

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
        vessels = [
            (team.weight, least, demand, min(own, demand))
            for team, least, demand, own in zip(teams, base, demands, deserved, strict=True)
        ]
        return _pour(total, vessels)


def _pour(total: Fraction | int, vessels: Sequence[tuple[int, int, int, int]]) -> list[Fraction]:
    """width, low, high, base of each. Vessels without width stay low."""
    wide = [vessel for vessel in vessels if vessel[0]]
    still = sum(low for width, low, _, _ in vessels if not width)
    filled = iter(by_breakpoints(total - still, [Bounds(*v) for v in wide]) if wide else ())  # type: ignore[arg-type]
    return [Fraction(next(filled)) if vessel[0] else Fraction(vessel[1]) for vessel in vessels]
