"""The best victims where each of them makes room for exactly one pod, whoever else goes: the least harmful ones.

That is the common case: pods of one kind on full nodes. It is decided by sorting, without any search.

Design: docs/design/0019-preemption.md
"""

from collections.abc import Sequence
from heapq import nsmallest

from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem


def best(problem: LeastHarmProblem) -> list[EvictionUnit] | None:
    """The best choice. None: the units depend on each other, or they are not enough."""
    if problem.allowed or len({unit.gang for unit in problem.units}) < len(problem.units):
        return None
    useful: list[EvictionUnit] = []
    for row, units in problem.by_row.items():
        if any(len(unit.frees) > 1 for unit in units):
            return None
        gains = _gains(problem, row, units)
        if gains is None:
            return None
        useful += [unit for unit, gain in zip(units, gains, strict=True) if gain]
    if len(useful) < problem.missing:
        return None
    return nsmallest(problem.missing, useful, key=lambda unit: (unit.harm, -unit.rank))


def _gains(problem: LeastHarmProblem, row: int, units: Sequence[EvictionUnit]) -> list[int] | None:
    """How many pods, 0 or 1, each unit makes room for. None: that depends on the others.

    One resource limits the row, with all units gone as well as now, and now none of it is left over. What pods fit is
    a sum rounded down, so a set makes room for at least as many as its units do one by one. If all units together
    make room for no more than that, no set does."""
    free, request = problem.free[row], problem.request
    without = [
        sum(amounts) for amounts in zip(free, *(unit.frees[row] for unit in units), strict=True)
    ]
    most = problem.capacity(without)
    limiting = [
        index
        for index, (have, ask) in enumerate(zip(free, request, strict=True))
        if have // ask < most
    ]
    if len(limiting) > 1:
        return None
    start = problem.capacity(free)
    if not limiting:
        return [0] * len(units) if most == start else None
    index = limiting[0]
    have, ask = free[index], request[index]
    if have > 0 and have % ask and any(unit.frees[row][index] % ask for unit in units):
        return None  # what is left over is room for the first of them only
    gains = [max(0, (have + unit.frees[row][index]) // ask) - start for unit in units]
    return gains if max(gains) <= 1 and start + sum(gains) == most else None
