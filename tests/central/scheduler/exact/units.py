"""The least harm of the units of one LeastHarmProblem, as an integer program."""

from collections import defaultdict
from collections.abc import Iterable

from central.scheduler.preemption.harm import Harm
from central.scheduler.preemption.least_harm import QUOTA, EvictionUnit, LeastHarmProblem
from tests.central.scheduler.exact.model import Model, Sum, total

BITS = (56, 72, 32)  # of gangs broken, work and pods at one priority


def least(problem: LeastHarmProblem) -> tuple[int, ...] | None:
    """Comparable with levels_of(); None: no set of units frees enough."""
    model = Model()
    goes = [model.binary() for _ in problem.units]
    whole, singles = defaultdict[int, list[Sum]](list), defaultdict[int, list[Sum]](list)
    for unit, one in zip(problem.units, goes, strict=True):
        (whole if unit.whole else singles)[unit.gang].append(one)
    for parts in whole.values():
        model.at_most(total(parts), 1)
    for gang, members in singles.items():
        model.at_most(total(members), problem.surplus[gang])
        for one in members:
            model.at_most(one + total(whole[gang]), 1)
    for budget, allowed in problem.allowed.items():
        uses = (
            one * unit.uses.get(budget, 0) for unit, one in zip(problem.units, goes, strict=True)
        )
        model.at_most(total(uses), allowed)
    _frees_enough(model, problem, goes)
    return model.least(_levels(model, problem.units, goes))


def _frees_enough(model: Model, problem: LeastHarmProblem, goes: list[Sum]) -> None:
    added = Sum()
    for row, free in problem.free.items():
        after = [Sum(constant=amount) for amount in free]
        for unit, one in zip(problem.units, goes, strict=True):
            for index, freed in enumerate(unit.frees.get(row, ())):
                after[index] += one * freed
        if row == QUOTA:
            for amount, lack in zip(after, problem.lacking, strict=True):
                model.at_most(lack, amount)
            continue
        most = min(model.limits(a)[1] // ask for a, ask in zip(after, problem.request, strict=True))
        pods, is_used = model.integer(0, max(0, most)), model.binary()
        model.at_most(pods, is_used * max(0, most))
        for amount, ask in zip(after, problem.request, strict=True):
            model.at_most(pods * ask, amount, is_used)
        added += pods - problem.capacity(row, free)
    model.at_most(problem.missing, added)


def _levels(model: Model, units: Iterable[EvictionUnit], goes: list[Sum]) -> list[Sum]:
    digits = [levels_of(unit.harm) for unit in units]
    highest = model.integer(0, max((each[0] for each in digits), default=0))
    for one, each in zip(goes, digits, strict=True):
        model.at_most(one * each[0], highest)
    rest = zip(*(each[1:] for each in digits), strict=True)
    sums = [total(one * n for one, n in zip(goes, level, strict=True)) for level in rest]
    return [highest, *sums]


def levels_of(harm: Harm) -> tuple[int, ...]:
    """The parts that are packed by priority one by one, the highest priority first. Three priorities."""
    found = [harm[0]]
    for packed, bits in zip(harm[1:4], BITS, strict=True):
        found += [packed >> bits * rank & (1 << bits) - 1 for rank in (2, 1, 0)]
    return *found, *harm[4:]
