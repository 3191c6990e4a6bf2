"""All choices of who goes, as far as they can still be better than the best one known."""

from central.scheduler.preemption.least_harm import (
    MOST,
    NONE,
    EvictionUnit,
    Harm,
    LeastHarmProblem,
    minimal,
    total,
)


def improve(
    problem: LeastHarmProblem, best: list[EvictionUnit] | None, looks: int
) -> tuple[list[EvictionUnit] | None, int]:
    """The best choice there is if so many looks at choices suffice; and how many are left."""
    search = _Search(problem, best, looks)
    search.run()
    return search.best and minimal(problem, search.best), search.looks


class _Search:
    def __init__(
        self, problem: LeastHarmProblem, best: list[EvictionUnit] | None, looks: int
    ) -> None:
        self.problem, self.best, self.looks = problem, best, looks
        self.harm = total(best) if best is not None else MOST
        # A gang whole comes before its members alone: once it is taken, they are no choice.
        self.units = sorted(problem.units, key=lambda unit: (unit.gang, not unit.whole, unit.harm))
        self.least = [(0, 0, 0)] * len(self.units)
        least: Harm | None = None
        for index in reversed(range(len(self.units))):
            harm = self.units[index].harm
            least = harm if least is None else min(least, harm)
            self.least[index] = least

    def run(self) -> None:
        self._look(0, [], NONE)

    def _look(self, index: int, chosen: list[EvictionUnit], harm: Harm) -> None:
        if self.looks <= 0 or index == len(self.units):
            return
        if _sum(harm, self.least[index]) >= self.harm:
            return
        self.looks -= 1
        if self.problem.seats(self._all(index, chosen)) < self.problem.missing:
            return
        unit = self.units[index]
        if self._open(unit, chosen):
            with_it = [*chosen, unit]
            more = _sum(harm, unit.harm)
            if more < self.harm:
                if self.problem.seats(with_it) >= self.problem.missing:
                    self.best, self.harm = with_it, more
                else:
                    self._look(index + 1, with_it, more)
        self._look(index + 1, chosen, harm)

    def _open(self, unit: EvictionUnit, chosen: list[EvictionUnit]) -> bool:
        same = [one for one in chosen if one.gang == unit.gang]
        if any(one.whole for one in same):
            return False
        if not unit.whole and len(same) >= self.problem.surplus[unit.gang]:
            return False
        return not unit.spends or self.problem.affords([*chosen, unit])

    def _all(self, index: int, chosen: list[EvictionUnit]) -> list[EvictionUnit]:
        whole = {one.gang for one in chosen if one.whole}
        rest = [one for one in self.units[index:] if one.gang not in whole]
        gone = {one.gang for one in rest if one.whole}
        return chosen + [one for one in rest if one.whole or one.gang not in gone]


def _sum(a: Harm, b: Harm) -> Harm:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
