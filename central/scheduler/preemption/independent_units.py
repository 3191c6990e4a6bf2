"""The best victims where sorting finds them, without any search. Two common cases:

- One pod is missing, and the least harmful unit of all suffices for it by itself. Every other choice has a unit that
  does at least as much harm.
- Each unit frees capacity for exactly one pod, whichever others go: pods of one kind on full nodes.

Design: docs/design/0019-preemption.md
"""

from collections.abc import Sequence

from central.scheduler.preemption.least_harm import EvictionUnit, LeastHarmProblem


def best(problem: LeastHarmProblem) -> list[EvictionUnit] | None:
    """The best choice. None: the units depend on each other, or they are not enough."""
    if problem.allowed:
        return None
    if problem.missing == 1 and (alone := _least_harmful(problem)) is not None:
        return [alone]
    if len({unit.gang for unit in problem.units}) < len(problem.units):
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
    return sorted(useful, key=lambda unit: (unit.harm, -unit.rank))[: problem.missing]


def _least_harmful(problem: LeastHarmProblem) -> EvictionUnit | None:
    """The least harmful unit, of several the one with the highest rank. None: it suffices for no pod by itself."""
    least = min((unit.harm for unit in problem.units), default=None)
    found: list[tuple[int, int, int, EvictionUnit]] = []
    for index, unit in enumerate(problem.units):
        if unit.harm != least:
            continue
        for row, amounts in unit.frees.items():
            free = problem.free[row]
            without = [have + more for have, more in zip(free, amounts, strict=True)]
            if problem.capacity(without) > problem.capacity(free):
                found.append((-unit.rank, row, index, unit))
    return min(found, default=(0, 0, 0, None))[3]


def _gains(problem: LeastHarmProblem, row: int, units: Sequence[EvictionUnit]) -> list[int] | None:
    """For how many pods, 0 or 1, each unit suffices. None: that depends on the others.

    One resource limits the row, with all units gone as well as now, and now none of it is left over. What pods fit is
    a sum rounded down, so a set suffices for at least as many as its units do one by one. If all units together
    suffice for no more than that, no set does."""
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
        return None  # what is left over suffices for the first of them only
    gains = [max(0, (have + unit.frees[row][index]) // ask) - start for unit in units]
    return gains if max(gains) <= 1 and start + sum(gains) == most else None
