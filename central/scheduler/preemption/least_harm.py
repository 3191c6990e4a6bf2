"""Which running gangs to evict so that enough pods fit in a domain, with the least harm.

Harm is compared as (gangs broken, GPU-seconds of work lost, pods). Members above a gang's minimum
are units of their own; the rest of a gang is evicted whole or not at all. No disruption budget is
overspent. This module makes a good choice, from which no unit can be left out. exact_search.py
finds the best one where the domain is small enough.

Design: docs/design/0019-preemption.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

Harm = tuple[int, int, int]  # gangs broken, GPU-seconds lost, pods
Vector = tuple[int, ...]
Allowance = tuple[str, str]  # a disruption budget by namespace and name, or a task's surplus
NO_HARM: Harm = (0, 0, 0)
MAX_HARM: Harm = (2**62, 0, 0)


@dataclass(slots=True, eq=False)
class EvictionUnit:
    gang: int
    whole: bool
    harm: Harm
    frees: dict[int, Vector]  # by row
    pod: int = -1  # its index, if the unit is a single member
    rank: int = 0  # of equal members the one with the highest rank is evicted
    uses: Mapping[Allowance, int] = field(default_factory=dict)


@dataclass(slots=True)
class LeastHarmProblem:
    """Amounts are those of the resources that one pending pod requests, in the order of request."""

    free: Mapping[int, Vector]
    request: Vector
    missing: int  # pods that do not fit yet
    units: Sequence[EvictionUnit]
    surplus: Mapping[int, int]  # by gang: members above its minimum
    allowed: Mapping[Allowance, int] = field(default_factory=dict)
    by_row: dict[int, list[EvictionUnit]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_row = {}
        for unit in self.units:
            for row in unit.frees:
                self.by_row.setdefault(row, []).append(unit)

    def capacity(self, free: Sequence[int]) -> int:
        return max(0, min(have // ask for have, ask in zip(free, self.request, strict=True)))

    def within_allowances(self, chosen: Iterable[EvictionUnit]) -> bool:
        """Whether the evictions of the chosen units overspend no allowance."""
        used: Counter[Allowance] = Counter()
        for unit in chosen:
            if unit.uses:
                used.update(unit.uses)
        return all(count <= self.allowed[budget] for budget, count in used.items())

    def added_pods(self, chosen: Iterable[EvictionUnit]) -> int:
        """How many more pods fit without the chosen units."""
        freed: dict[int, Vector] = {}
        for unit in chosen:
            for row, amounts in unit.frees.items():
                freed[row] = _plus(freed[row], amounts) if row in freed else amounts
        return sum(
            self.capacity(_plus(self.free[row], amounts)) - self.capacity(self.free[row])
            for row, amounts in freed.items()
        )


def total_harm(units: Iterable[EvictionUnit]) -> Harm:
    broken = lost = pods = 0
    for unit in units:
        broken, lost, pods = broken + unit.harm[0], lost + unit.harm[1], pods + unit.harm[2]
    return broken, lost, pods


def choose_victims(problem: LeastHarmProblem) -> list[EvictionUnit] | None:
    """A good choice from which no unit can be left out. None: none was found; with allowances there
    may still be one."""
    keys = (_by_harm, _by_harm_per_size, *((_by_allowances,) if problem.allowed else ()))
    answers = [_greedy(problem, key) for key in keys]
    found = [drop_unneeded(problem, answer) for answer in answers if answer is not None]
    return min(found, key=total_harm, default=None)


def _plus(a: Sequence[int], b: Sequence[int]) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _by_harm(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    return (*unit.harm, -unit.rank)


def _by_harm_per_size(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    size = max(unit.frees[row][0], 1)
    return (*(part / size for part in unit.harm), -unit.rank)


def _by_allowances(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    return (sum(unit.uses.values()), *unit.harm, -unit.rank)


UnitOrder = Callable[[EvictionUnit, int], tuple[float, ...]]


class _Choice:
    def __init__(self, problem: LeastHarmProblem) -> None:
        self.problem = problem
        self.free = dict(problem.free)
        self.chosen: dict[EvictionUnit, None] = {}
        self.whole: set[int] = set()
        self.singles: Counter[int] = Counter()

    def available(self, unit: EvictionUnit) -> bool:
        if unit in self.chosen or unit.gang in self.whole:
            return False
        if not unit.whole and self.singles[unit.gang] >= self.problem.surplus[unit.gang]:
            return False
        return self.within_allowances([unit])

    def within_allowances(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether the allowances last for these units too."""
        if not any(unit.uses for unit in units):
            return True
        whole = {unit.gang for unit in units if unit.whole}
        kept = [one for one in self.chosen if one.whole or one.gang not in whole]
        return self.problem.within_allowances([*kept, *units])

    def can_take(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether all these units can still be added together."""
        singles = Counter(unit.gang for unit in units if not unit.whole)
        return (
            all(map(self.available, units))
            and all(
                count + self.singles[gang] <= self.problem.surplus[gang]
                for gang, count in singles.items()
            )
            and self.within_allowances(units)
        )

    def _singles_of(self, gang: int) -> list[EvictionUnit]:
        return [one for one in self.chosen if one.gang == gang] if self.singles[gang] else []

    def take(self, unit: EvictionUnit) -> None:
        if unit.whole:  # replaces its members that were chosen singly
            for single in self._singles_of(unit.gang):
                del self.chosen[single]
                for row, amounts in single.frees.items():
                    self.free[row] = _plus(self.free[row], [-amount for amount in amounts])
            self.whole.add(unit.gang)
        else:
            self.singles[unit.gang] += 1
        self.chosen[unit] = None
        for row, amounts in unit.frees.items():
            self.free[row] = _plus(self.free[row], amounts)


RowChoice = tuple[tuple[float, ...], list[EvictionUnit]]


def _greedy(problem: LeastHarmProblem, key: UnitOrder) -> list[EvictionUnit] | None:
    """Repeatedly takes units on the row that fits more pods for the least harm each.

    The key is the order in which units of a row are considered. No single order is good:

    - by harm, small gangs come first. Pods request 4 GPUs; four gangs of 1 GPU have lost 10 GPU-s
      each, one gang of 4 GPUs 50. The four small gangs are evicted: harm (4, 40, 4).
    - by harm per size, large gangs come first: harm (1, 50, 1), which is less. But if one pod of 1
    GPU
      is missing, this order evicts the large gang, where a small one would do: (1, 10, 1).

    So choose_victims() tries both and keeps the better answer. With allowances it also tries the
    units that use least of them, because the other orders may get stuck.
    """
    taken = _Choice(problem)
    missing = problem.missing
    version: Counter[int] = Counter()
    heap: list[tuple[tuple[float, ...], int, int, list[EvictionUnit]]] = [
        (choice[0], row, 0, choice[1])
        for row in sorted(problem.by_row)
        if (choice := _best_on_row(taken, row, key, missing)) is not None
    ]
    heapify(heap)
    while missing > 0:
        if not heap:
            return None
        _, row, asked_at, units = heappop(heap)
        if asked_at != version[row] or not taken.can_take(units):
            if (choice := _best_on_row(taken, row, key, missing)) is not None:
                heappush(heap, (choice[0], row, version[row], choice[1]))
            continue
        touched: set[int] = set()
        for unit in units:
            if unit in taken.chosen or unit.gang in taken.whole:
                continue
            before = sum(problem.capacity(taken.free[other]) for other in unit.frees)
            taken.take(unit)
            missing -= sum(problem.capacity(taken.free[other]) for other in unit.frees) - before
            touched |= unit.frees.keys()
        for other in sorted(touched):
            version[other] += 1
            if (choice := _best_on_row(taken, other, key, max(missing, 1))) is not None:
                heappush(heap, (choice[0], other, version[other], choice[1]))
    return list(taken.chosen)


def _best_on_row(taken: _Choice, row: int, key: UnitOrder, missing: int) -> RowChoice | None:
    """The units on the row that fit more pods there for the least harm for each pod."""
    problem = taken.problem
    free, start = taken.free[row], problem.capacity(taken.free[row])
    singles: Counter[int] = Counter()
    picked: list[EvictionUnit] = []
    best: RowChoice | None = None
    for unit in sorted(
        (unit for unit in problem.by_row[row] if taken.available(unit)),
        key=lambda unit: key(unit, row),
    ):
        if not unit.whole and (
            any(one.whole and one.gang == unit.gang for one in picked)
            or singles[unit.gang] + taken.singles[unit.gang] >= problem.surplus[unit.gang]
        ):
            continue
        alone = [one for one in picked if unit.whole and one.gang == unit.gang]
        rest = [one for one in picked if one not in alone]
        if not taken.within_allowances([*rest, unit]):
            continue
        for single in alone:  # members that the whole gang includes
            free = _plus(free, [-amount for amount in single.frees[row]])
        singles[unit.gang] += not unit.whole
        picked = [*rest, unit]
        free = _plus(free, unit.frees[row])
        gained = problem.capacity(free) - start
        if gained <= 0:
            continue
        needed = _without_unneeded(
            problem, taken.free[row], row, picked, start + min(gained, missing)
        )
        gained += sum(_added_elsewhere(taken, one, row) for one in needed if len(one.frees) > 1)
        harm = (part / min(gained, missing) for part in total_harm(needed))
        score = (*harm, -sum(one.rank for one in needed))
        if key is _by_allowances:
            score = (sum(key(one, row)[0] for one in needed) / min(gained, missing), *score)
        if best is None or score < best[0]:
            best = (score, needed)
        if gained >= missing:
            break
    return best


def _without_unneeded(
    problem: LeastHarmProblem, free: Vector, row: int, picked: Sequence[EvictionUnit], pods: int
) -> list[EvictionUnit]:
    """Leaves out picked units that are not needed for so many pods on the row, most harm first."""
    kept = list(picked)
    for unit in picked:
        free = _plus(free, unit.frees[row])
    for unit in sorted(picked, key=lambda unit: unit.harm, reverse=True):
        without = _plus(free, [-amount for amount in unit.frees[row]])
        if problem.capacity(without) >= pods:
            free = without
            kept.remove(unit)
    return kept


def _added_elsewhere(taken: _Choice, unit: EvictionUnit, row: int) -> int:
    problem = taken.problem
    return sum(
        problem.capacity(_plus(taken.free[other], amounts)) - problem.capacity(taken.free[other])
        for other, amounts in unit.frees.items()
        if other != row
    )


def drop_unneeded(problem: LeastHarmProblem, chosen: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """Leaves out units that are not needed, most harm first."""
    kept = list(chosen)
    freed: dict[int, Vector] = {}
    for unit in kept:
        for row, amounts in unit.frees.items():
            freed[row] = _plus(freed.get(row, problem.free[row]), amounts)
    added = sum(
        problem.capacity(free) - problem.capacity(problem.free[row]) for row, free in freed.items()
    )
    for unit in sorted(chosen, key=lambda unit: unit.harm, reverse=True):
        without = {
            row: _plus(freed[row], [-amount for amount in amounts])
            for row, amounts in unit.frees.items()
        }
        less = sum(
            problem.capacity(freed[row]) - problem.capacity(free) for row, free in without.items()
        )
        if added - less >= problem.missing:
            added -= less
            freed |= without
            kept.remove(unit)
    return kept
