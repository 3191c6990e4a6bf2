"""The choice of running gangs to evict so that enough pods fit in a domain, with the least harm.

Harm is compared as harm.py says. Members above a gang's minimum are units of their own; the rest of a
gang is evicted whole or not at all. No disruption budget is overspent. Quota that queues lack is one more row, QUOTA,
so that it is freed together with capacity. This module makes a good choice,
from which no unit can be left out. exact_search.py finds the best one where the domain is small enough.

Design: docs/design/evictions.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from heapq import heappop, heappush

from central.scheduler.preemption.harm import NO_HARM, Harm, plus
from central.scheduler.work_meter import WorkMeter

Vector = tuple[int, ...]
Allowance = tuple[str, str]  # a disruption budget by namespace and name, or a task's surplus
QUOTA = -1  # the row of what queues lack
UNIT_WORK = 16  # to weigh one unit of a row, for each row on which it frees something
_PRECISION = 1 << 20  # of harm for each pod or amount, which is compared in integers


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
    meter: WorkMeter = field(default_factory=WorkMeter)
    lacking: Vector = ()  # quota that the units must free together
    # What else the best set must meet.
    accepts: Callable[[list[EvictionUnit]], bool] = lambda _: True
    by_row: dict[int, list[EvictionUnit]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_row = {}
        for unit in self.units:
            for row in unit.frees:
                self.by_row.setdefault(row, []).append(unit)

    def without_useless(self) -> "LeastHarmProblem":
        """The problem without units that free nothing but what their rows have enough of."""
        scarce = {
            row: [
                have < enough
                for have, enough in zip(self.free[row], self._enough(row), strict=True)
            ]
            for row in self.by_row
        }
        useful = [unit for unit in self.units if _frees_any(unit, scarce)]
        return self if len(useful) == len(self.units) else replace(self, units=useful)

    def _enough(self, row: int) -> Vector:
        """Returns the amounts that pods on the row can use if all of its units go; of QUOTA, those that are lacking."""
        if row == QUOTA:
            return self.lacking
        freed = [unit.frees[row] for unit in self.by_row.get(row, ())]
        most = self.capacity(
            row, [sum(amounts) for amounts in zip(self.free[row], *freed, strict=True)]
        )
        return tuple(ask * most for ask in self.request)

    def capacity(self, row: int, free: Sequence[int]) -> int:
        """Returns how many pods fit on the row; of quota, whether it suffices."""
        if row == QUOTA:
            return int(all(map(int.__ge__, free, self.lacking)))
        return max(0, min(have // ask for have, ask in zip(free, self.request, strict=True)))

    def within_allowances(self, chosen: Iterable[EvictionUnit]) -> bool:
        """Returns whether the evictions of the chosen units overspend no allowance."""
        used: Counter[Allowance] = Counter()
        for unit in chosen:
            if unit.uses:
                used.update(unit.uses)
        return all(count <= self.allowed[budget] for budget, count in used.items())

    def is_solved_by(self, chosen: Iterable[EvictionUnit]) -> bool:
        """Returns whether the pods fit without the chosen units, and quota suffices."""
        freed: dict[int, Vector] = {}
        for unit in chosen:
            for row, amounts in unit.frees.items():
                freed[row] = _plus(freed[row], amounts) if row in freed else amounts
        if self.lacking and not self.capacity(QUOTA, freed.pop(QUOTA, self.free[QUOTA])):
            return False
        return self.missing <= sum(
            self.capacity(row, _plus(self.free[row], amounts)) - self.capacity(row, self.free[row])
            for row, amounts in freed.items()
        )


def _frees_any(unit: EvictionUnit, scarce: Mapping[int, Sequence[bool]]) -> bool:
    """Returns whether the unit frees something scarce. Asked of every unit, so without a generator."""
    for row, amounts in unit.frees.items():
        for amount, is_scarce in zip(amounts, scarce[row], strict=True):
            if is_scarce and amount > 0:
                return True
    return False


def total_harm(units: Iterable[EvictionUnit]) -> Harm:
    return reduce(plus, (unit.harm for unit in units), NO_HARM)


def choose_victims(problem: LeastHarmProblem) -> list[EvictionUnit] | None:
    """A good choice from which no unit can be left out. None: none was found; with allowances there
    may still be one."""
    answers = [_greedy(problem, key) for key in (_by_harm, _by_harm_per_size)]
    found = [drop_unneeded(problem, answer) for answer in answers if answer is not None]
    return min(found, key=total_harm, default=None)


def _plus(a: Sequence[int], b: Sequence[int]) -> Vector:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _each(harm: Harm, size: int) -> Vector:
    """The harm for each of that many pods or amounts. A priority is not divided."""
    return harm[0], *(part * _PRECISION // size for part in harm[1:])


def _by_harm(unit: EvictionUnit, row: int) -> Vector:
    return (*unit.harm, -unit.rank)


def _by_harm_per_size(unit: EvictionUnit, row: int) -> Vector:
    return (*_each(unit.harm, max(unit.frees[row][0], 1)), -unit.rank)


UnitOrder = Callable[[EvictionUnit, int], Vector]


class _PickedUnits:
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
        """Returns whether the allowances last for these units too."""
        if not any(unit.uses for unit in units):
            return True
        whole = {unit.gang for unit in units if unit.whole}
        kept = [one for one in self.chosen if one.whole or one.gang not in whole]
        return self.problem.within_allowances([*kept, *units])

    def can_take(self, units: Sequence[EvictionUnit]) -> bool:
        """Returns whether all these units can still be added together."""
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


RowChoice = tuple[Vector, list[EvictionUnit]]


def _greedy(problem: LeastHarmProblem, key: UnitOrder) -> list[EvictionUnit] | None:
    """Takes units that free the quota, then repeatedly those on the row that fits more pods for the least harm each.

    The key is the order in which units of a row are considered. No single order is good:

    - by harm, small gangs come first. Pods request 4 GPUs; four gangs of 1 GPU have lost 10 GPU-s
      each, one gang of 4 GPUs 50. The four small gangs are evicted: harm (4, 40, 4).
    - by harm per size, large gangs come first: harm (1, 50, 1), which is less. But if one pod of 1
      GPU is missing, this order evicts the large gang, where a small one would do: (1, 10, 1).

    So choose_victims() tries both and keeps the better answer.
    """
    return _Greedy(problem, key).choose()


class _Greedy:
    def __init__(self, problem: LeastHarmProblem, key: UnitOrder) -> None:
        self.problem, self._key = problem, key
        self._taken = _PickedUnits(problem)
        self._missing = problem.missing
        self._version: Counter[int] = Counter()  # by row
        self._heap: list[tuple[Vector, int, int, list[EvictionUnit]]] = []
        # rows; the last one is next
        self._to_weigh = sorted(problem.by_row.keys() - {QUOTA}, reverse=True)

    def choose(self) -> list[EvictionUnit] | None:
        if self.problem.lacking and not self._free_quota():
            return None
        while self._missing > 0:
            self._weigh()
            if not self._heap:
                return None
            _, row, asked_at, units = heappop(self._heap)
            if asked_at == self._version[row] and self._taken.can_take(units):
                self._take(units)
            else:
                self._to_weigh.append(row)
        return list(self._taken.chosen)

    def _free_quota(self) -> bool:
        problem, taken = self.problem, self._taken
        while not problem.capacity(QUOTA, taken.free[QUOTA]):
            choice = _best_on_row(taken, QUOTA, self._key, 1) if QUOTA in problem.by_row else None
            if choice is None:
                return False
            self._take(choice[1])
        return True

    def _weigh(self) -> None:
        while self._to_weigh:
            row = self._to_weigh[-1]
            choice = _best_on_row(self._taken, row, self._key, self._missing)
            self._to_weigh.pop()
            if choice is not None:
                heappush(self._heap, (choice[0], row, self._version[row], choice[1]))

    def _take(self, units: Sequence[EvictionUnit]) -> None:
        problem, taken = self.problem, self._taken
        touched: set[int] = set()
        for unit in units:
            rows = unit.frees.keys() - {QUOTA}
            before = sum(problem.capacity(row, taken.free[row]) for row in rows)
            taken.take(unit)
            after = sum(problem.capacity(row, taken.free[row]) for row in rows)
            self._missing -= after - before
            touched |= rows
        self._version.update(touched)
        self._to_weigh = sorted(touched.union(self._to_weigh), reverse=True)


def _best_on_row(taken: _PickedUnits, row: int, key: UnitOrder, missing: int) -> RowChoice | None:
    """The units on the row that fit more pods there for the least harm for each pod."""
    problem = taken.problem
    problem.meter.spend(UNIT_WORK * sum(len(unit.frees) for unit in problem.by_row[row]))
    free, start = taken.free[row], problem.capacity(row, taken.free[row])
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
        alone, rest = list[EvictionUnit](), picked
        if unit.whole and singles[unit.gang]:
            alone = [one for one in picked if one.gang == unit.gang]
            rest = [one for one in picked if one.gang != unit.gang]
        if problem.allowed and not taken.within_allowances([*rest, unit]):
            continue
        for single in alone:  # members that the whole gang includes
            free = _plus(free, [-amount for amount in single.frees[row]])
        singles[unit.gang] += not unit.whole
        picked = [*rest, unit]
        free = _plus(free, unit.frees[row])
        gained = problem.capacity(row, free) - start
        if gained <= 0:
            continue
        needed = _without_unneeded(
            problem, taken.free[row], row, picked, start + min(gained, missing)
        )
        gained += sum(_added_elsewhere(taken, one, row) for one in needed if len(one.frees) > 1)
        pods = min(gained, missing)
        score = (*_each(total_harm(needed), pods), -sum(one.rank for one in needed))
        if best is None or score < best[0]:
            best = (score, needed)
        if gained >= missing:
            break
    return best


def _without_unneeded(
    problem: LeastHarmProblem, free: Vector, row: int, picked: Sequence[EvictionUnit], pods: int
) -> list[EvictionUnit]:
    """Leaves out picked units that are not needed for that many pods on the row, most harm first."""
    kept = list(picked)
    for unit in picked:
        free = _plus(free, unit.frees[row])
    for unit in sorted(picked, key=lambda unit: unit.harm, reverse=True):
        without = _plus(free, [-amount for amount in unit.frees[row]])
        if problem.capacity(row, without) >= pods:
            free = without
            kept.remove(unit)
    return kept


def _added_elsewhere(taken: _PickedUnits, unit: EvictionUnit, row: int) -> int:
    problem = taken.problem
    return sum(
        problem.capacity(other, _plus(taken.free[other], amounts))
        - problem.capacity(other, taken.free[other])
        for other, amounts in unit.frees.items()
        if other not in (row, QUOTA)
    )


def drop_unneeded(problem: LeastHarmProblem, chosen: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """Leaves out units that are not needed, most harm first."""
    kept = list(chosen)
    freed: dict[int, Vector] = {}
    for unit in kept:
        for row, amounts in unit.frees.items():
            freed[row] = _plus(freed.get(row, problem.free[row]), amounts)
    added = sum(_added(problem, row, free) for row, free in freed.items())
    for unit in sorted(chosen, key=lambda unit: unit.harm, reverse=True):
        without = {
            row: _plus(freed[row], [-amount for amount in amounts])
            for row, amounts in unit.frees.items()
        }
        if QUOTA in without and not problem.capacity(QUOTA, without[QUOTA]):
            continue
        less = sum(
            _added(problem, row, freed[row]) - _added(problem, row, free)
            for row, free in without.items()
        )
        if added - less >= problem.missing:
            added -= less
            freed |= without
            kept.remove(unit)
    return kept


def _added(problem: LeastHarmProblem, row: int, free: Vector) -> int:
    """Returns how many more pods fit on the row."""
    return (
        problem.capacity(row, free) - problem.capacity(row, problem.free[row])
        if row != QUOTA
        else 0
    )
