"""Branch and bound over sets of victims: skips sets that cannot be better than the best known."""

from central.scheduler.preemption.harm import MAX_HARM, NO_HARM, Harm, at_least, plus
from central.scheduler.preemption.least_harm import (
    EvictionUnit,
    LeastHarmProblem,
    drop_unneeded,
    total_harm,
)

MAX_WORK = 2**40  # of an unlimited meter


def improve(
    problem: LeastHarmProblem, best: list[EvictionUnit] | None, steps: int
) -> tuple[list[EvictionUnit] | None, int]:
    """The best set of victims that is accepted if `steps` visits suffice, else the best one found; and the steps
    left. Half of the work that is left to the decision is kept for the trial placement."""
    search = _ExactSearch(problem, best, steps)
    search.run()
    if (found := search.best) and problem.accepts(fewer := drop_unneeded(problem, found)):
        found = fewer
    return found, steps - search.visits


class _ExactSearch:
    def __init__(
        self, problem: LeastHarmProblem, best: list[EvictionUnit] | None, steps: int
    ) -> None:
        self.problem, self.visits = problem, 0
        self.best = best if best is not None and problem.accepts(best) else None
        self.harm = total_harm(self.best) if self.best is not None else MAX_HARM
        # A whole gang comes before its single members, which are no choice once it is taken.
        self.units = sorted(
            problem.units, key=lambda unit: (unit.gang, not unit.whole, unit.harm, -unit.rank)
        )
        self.size = sum(len(unit.frees) for unit in self.units)  # a visit adds up as much
        self.most = min(steps, int(min(problem.meter.left, MAX_WORK)) // (2 * max(self.size, 1)))
        self.least = [NO_HARM] * len(self.units)  # of any unit from here on, part by part
        least = MAX_HARM
        for index in reversed(range(len(self.units))):
            harm = self.units[index].harm
            least = harm if least is MAX_HARM else at_least(least, harm)
            self.least[index] = least

    def run(self) -> None:
        self._visit(0, [], NO_HARM)

    def _visit(self, index: int, chosen: list[EvictionUnit], harm: Harm) -> None:
        if self.visits >= self.most or index == len(self.units):
            return
        if plus(harm, self.least[index]) >= self.harm:
            return
        self.visits += 1
        if self.problem.meter.count(self.size):
            self.most = 0
            return
        if not self.problem.is_solved_by(self._rest(index, chosen)):
            return
        unit = self.units[index]
        if self._available(unit, chosen):
            with_it = [*chosen, unit]
            harm_with = plus(harm, unit.harm)
            if harm_with < self.harm:
                if self.problem.is_solved_by(with_it) and self.problem.accepts(with_it):
                    self.best, self.harm = with_it, harm_with
                else:
                    self._visit(index + 1, with_it, harm_with)
        self._visit(index + 1, chosen, harm)

    def _available(self, unit: EvictionUnit, chosen: list[EvictionUnit]) -> bool:
        same = [one for one in chosen if one.gang == unit.gang]
        if any(one.whole for one in same):
            return False
        if not unit.whole and len(same) >= self.problem.surplus[unit.gang]:
            return False
        return not unit.uses or self.problem.within_allowances([*chosen, unit])

    def _rest(self, index: int, chosen: list[EvictionUnit]) -> list[EvictionUnit]:
        whole = {one.gang for one in chosen if one.whole}
        rest = [one for one in self.units[index:] if one.gang not in whole]
        gone = {one.gang for one in rest if one.whole}
        return chosen + [one for one in rest if one.whole or one.gang not in gone]
