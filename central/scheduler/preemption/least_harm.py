"""Which of the gangs that run must go so that enough pods fit in a domain: those whose leaving does
the least harm. Harm is compared in this order: gangs broken, GPU-seconds of work lost, pods.

A gang's members above its minimum are units of their own; the rest of it goes whole or not at all.
Whoever a disruption budget covers spends of it, and no budget is overspent. The answer is the best there is where a search of all choices ends within its budget; beyond that it
is one that no unit can be left out of.

Design: docs/design/0019-preemption.md
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

Harm = tuple[int, int, int]  # gangs broken, GPU-seconds lost, pods
Amounts = tuple[int, ...]
Allowance = tuple[str, str]  # a disruption budget's namespace and name; or what a role can spare
NONE: Harm = (0, 0, 0)
MOST: Harm = (2**62, 0, 0)


@dataclass(slots=True, eq=False)
class EvictionUnit:
    gang: int
    whole: bool
    harm: Harm
    frees: dict[int, Amounts]  # by row
    pod: int = -1  # which, where it is one member
    rank: int = 0  # of equals, the last rank goes first
    spends: Mapping[Allowance, int] = field(default_factory=dict)


@dataclass(slots=True)
class LeastHarmProblem:
    """Rows with what is free there now, in the resources that one pod asks for."""

    free: Mapping[int, Amounts]
    asks: Amounts
    missing: int  # pods that have no room yet
    units: Sequence[EvictionUnit]
    surplus: Mapping[int, int]  # by gang: members that may go without breaking it
    allowed: Mapping[Allowance, int] = field(default_factory=dict)
    by_row: dict[int, list[EvictionUnit]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_row = {}
        for unit in self.units:
            for row in unit.frees:
                self.by_row.setdefault(row, []).append(unit)

    def cap(self, free: Sequence[int]) -> int:
        return max(0, min(have // ask for have, ask in zip(free, self.asks, strict=True)))

    def affords(self, chosen: Iterable[EvictionUnit]) -> bool:
        """Whether no budget is overspent when these go."""
        spent: Counter[Allowance] = Counter()
        for unit in chosen:
            if unit.spends:
                spent.update(unit.spends)
        return all(count <= self.allowed[budget] for budget, count in spent.items())

    def seats(self, chosen: Iterable[EvictionUnit]) -> int:
        """How many more pods fit when these are gone."""
        freed: dict[int, Amounts] = {}
        for unit in chosen:
            for row, amounts in unit.frees.items():
                freed[row] = _plus(freed[row], amounts) if row in freed else amounts
        return sum(
            self.cap(_plus(self.free[row], amounts)) - self.cap(self.free[row])
            for row, amounts in freed.items()
        )


def total(units: Iterable[EvictionUnit]) -> Harm:
    broken = lost = pods = 0
    for unit in units:
        broken, lost, pods = broken + unit.harm[0], lost + unit.harm[1], pods + unit.harm[2]
    return broken, lost, pods


def choose(problem: LeastHarmProblem) -> list[EvictionUnit] | None:
    """A good choice that nothing can be left out of; None: none was found, which is certain only
    where no budget is in the way."""
    keys = (_by_harm, _by_harm_per_seat, *((_by_budgets,) if problem.allowed else ()))
    answers = [_greedy(problem, key) for key in keys]
    found = [minimal(problem, answer) for answer in answers if answer is not None]
    return min(found, key=total, default=None)


def _plus(a: Sequence[int], b: Sequence[int]) -> Amounts:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _by_harm(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    return (*unit.harm, -unit.rank)


def _by_harm_per_seat(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    size = max(unit.frees[row][0], 1)
    return (*(part / size for part in unit.harm), -unit.rank)


def _by_budgets(unit: EvictionUnit, row: int) -> tuple[float, ...]:
    return (sum(unit.spends.values()), *unit.harm, -unit.rank)


Key = Callable[[EvictionUnit, int], tuple[float, ...]]


class _State:
    def __init__(self, problem: LeastHarmProblem) -> None:
        self.problem = problem
        self.free = dict(problem.free)
        self.chosen: dict[EvictionUnit, None] = {}
        self.whole: set[int] = set()
        self.singles: Counter[int] = Counter()

    def open(self, unit: EvictionUnit) -> bool:
        if unit in self.chosen or unit.gang in self.whole:
            return False
        if not unit.whole and self.singles[unit.gang] >= self.problem.surplus[unit.gang]:
            return False
        return self.affords([unit])

    def affords(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether the budgets last for them, too."""
        if not any(unit.spends for unit in units):
            return True
        whole = {unit.gang for unit in units if unit.whole}
        kept = [one for one in self.chosen if one.whole or one.gang not in whole]
        return self.problem.affords([*kept, *units])

    def may(self, units: Sequence[EvictionUnit]) -> bool:
        """Whether all of them may still be chosen together."""
        singles = Counter(unit.gang for unit in units if not unit.whole)
        return (
            all(map(self.open, units))
            and all(
                count + self.singles[gang] <= self.problem.surplus[gang]
                for gang, count in singles.items()
            )
            and self.affords(units)
        )

    def _singles_of(self, gang: int) -> list[EvictionUnit]:
        return [one for one in self.chosen if one.gang == gang] if self.singles[gang] else []

    def take(self, unit: EvictionUnit) -> None:
        if unit.whole:  # those of its members that were to go alone go with it
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


Offer = tuple[tuple[float, ...], list[EvictionUnit]]


def _greedy(problem: LeastHarmProblem, key: Key) -> list[EvictionUnit] | None:
    """Row by row, whichever gives its next pods for the least harm each."""
    state = _State(problem)
    missing = problem.missing
    version: Counter[int] = Counter()
    heap: list[tuple[tuple[float, ...], int, int, list[EvictionUnit]]] = [
        (offer[0], row, 0, offer[1])
        for row in sorted(problem.by_row)
        if (offer := _offer(state, row, key, missing)) is not None
    ]
    heapify(heap)
    while missing > 0:
        if not heap:
            return None
        _, row, asked_at, units = heappop(heap)
        if asked_at != version[row] or not state.may(units):
            if (offer := _offer(state, row, key, missing)) is not None:
                heappush(heap, (offer[0], row, version[row], offer[1]))
            continue
        touched: set[int] = set()
        for unit in units:
            if unit in state.chosen or unit.gang in state.whole:
                continue
            before = sum(problem.cap(state.free[other]) for other in unit.frees)
            state.take(unit)
            missing -= sum(problem.cap(state.free[other]) for other in unit.frees) - before
            touched |= unit.frees.keys()
        for other in sorted(touched):
            version[other] += 1
            if (offer := _offer(state, other, key, max(missing, 1))) is not None:
                heappush(heap, (offer[0], other, version[other], offer[1]))
    return list(state.chosen)


def _offer(state: _State, row: int, key: Key, missing: int) -> Offer | None:
    """The units on the row whose leaving gives pods there for the least harm each."""
    problem = state.problem
    free, start = state.free[row], problem.cap(state.free[row])
    singles: Counter[int] = Counter()
    picked: list[EvictionUnit] = []
    best: Offer | None = None
    for unit in sorted(
        (unit for unit in problem.by_row[row] if state.open(unit)), key=lambda unit: key(unit, row)
    ):
        if not unit.whole and (
            any(one.whole and one.gang == unit.gang for one in picked)
            or singles[unit.gang] + state.singles[unit.gang] >= problem.surplus[unit.gang]
        ):
            continue
        alone = [one for one in picked if unit.whole and one.gang == unit.gang]
        rest = [one for one in picked if one not in alone]
        if not state.affords([*rest, unit]):
            continue
        for single in alone:  # they go with the whole
            free = _plus(free, [-amount for amount in single.frees[row]])
        singles[unit.gang] += not unit.whole
        picked = [*rest, unit]
        free = _plus(free, unit.frees[row])
        gained = problem.cap(free) - start
        if gained <= 0:
            continue
        needed = _needed(problem, state.free[row], row, picked, start + min(gained, missing))
        gained += sum(_elsewhere(state, one, row) for one in needed if len(one.frees) > 1)
        harm = (part / min(gained, missing) for part in total(needed))
        score = (*harm, -sum(one.rank for one in needed))
        if key is _by_budgets:
            score = (sum(key(one, row)[0] for one in needed) / min(gained, missing), *score)
        if best is None or score < best[0]:
            best = (score, needed)
        if gained >= missing:
            break
    return best


def _needed(
    problem: LeastHarmProblem, free: Amounts, row: int, picked: Sequence[EvictionUnit], seats: int
) -> list[EvictionUnit]:
    """Those picked without whom the row would not have the seats."""
    kept = list(picked)
    for unit in picked:
        free = _plus(free, unit.frees[row])
    for unit in sorted(picked, key=lambda unit: unit.harm, reverse=True):
        without = _plus(free, [-amount for amount in unit.frees[row]])
        if problem.cap(without) >= seats:
            free = without
            kept.remove(unit)
    return kept


def _elsewhere(state: _State, unit: EvictionUnit, row: int) -> int:
    problem = state.problem
    return sum(
        problem.cap(_plus(state.free[other], amounts)) - problem.cap(state.free[other])
        for other, amounts in unit.frees.items()
        if other != row
    )


def minimal(problem: LeastHarmProblem, chosen: Sequence[EvictionUnit]) -> list[EvictionUnit]:
    """Leaves out whoever need not go, the most harm first."""
    kept = list(chosen)
    freed: dict[int, Amounts] = {}
    for unit in kept:
        for row, amounts in unit.frees.items():
            freed[row] = _plus(freed.get(row, problem.free[row]), amounts)
    seats = sum(problem.cap(free) - problem.cap(problem.free[row]) for row, free in freed.items())
    for unit in sorted(chosen, key=lambda unit: unit.harm, reverse=True):
        without = {
            row: _plus(freed[row], [-amount for amount in amounts])
            for row, amounts in unit.frees.items()
        }
        less = sum(problem.cap(freed[row]) - problem.cap(free) for row, free in without.items())
        if seats - less >= problem.missing:
            seats -= less
            freed |= without
            kept.remove(unit)
    return kept
