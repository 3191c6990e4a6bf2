"""Which of the gangs that run must go so that enough pods fit in a domain: those whose leaving does
the least harm. Harm is compared in this order: gangs broken, GPU-seconds of work lost, pods.

A gang's members above its minimum are units of their own; the rest of it goes whole or not at all.
The answer is the best there is where a search of all choices ends within its budget; beyond that it
is one that no unit can be left out of.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

Harm = tuple[int, int, int]  # gangs broken, GPU-seconds lost, pods
Amounts = tuple[int, ...]
NONE: Harm = (0, 0, 0)


@dataclass(slots=True, eq=False)
class Unit:
    gang: int
    whole: bool
    harm: Harm
    frees: dict[int, Amounts]  # by row
    pod: int = -1  # which, where it is one member
    rank: int = 0  # of equals, the last rank goes first


@dataclass(slots=True)
class Problem:
    """Rows with what is free there now, in the resources that one pod asks for."""

    free: Mapping[int, Amounts]
    asks: Amounts
    missing: int  # pods that have no room yet
    units: Sequence[Unit]
    surplus: Mapping[int, int]  # by gang: members that may go without breaking it
    by_row: dict[int, list[Unit]] = field(init=False)

    def __post_init__(self) -> None:
        self.by_row = {}
        for unit in self.units:
            for row in unit.frees:
                self.by_row.setdefault(row, []).append(unit)

    def cap(self, free: Sequence[int]) -> int:
        return max(0, min(have // ask for have, ask in zip(free, self.asks, strict=True)))

    def seats(self, chosen: Iterable[Unit]) -> int:
        """How many more pods fit when these are gone."""
        freed: dict[int, Amounts] = {}
        for unit in chosen:
            for row, amounts in unit.frees.items():
                freed[row] = _plus(freed[row], amounts) if row in freed else amounts
        return sum(
            self.cap(_plus(self.free[row], amounts)) - self.cap(self.free[row])
            for row, amounts in freed.items()
        )


def total(units: Iterable[Unit]) -> Harm:
    broken = lost = pods = 0
    for unit in units:
        broken, lost, pods = broken + unit.harm[0], lost + unit.harm[1], pods + unit.harm[2]
    return broken, lost, pods


def choose(problem: Problem) -> list[Unit] | None:
    """A good choice that nothing can be left out of; None: there is none."""
    answers = [_greedy(problem, key) for key in (_by_harm, _by_harm_per_seat)]
    found = [_minimal(problem, answer) for answer in answers if answer is not None]
    return min(found, key=total, default=None)


def improve(problem: Problem, best: list[Unit], budget: int) -> tuple[list[Unit], int]:
    """The best choice there is if the budget (of choices looked at) suffices; and what is left of it."""
    search = _Search(problem, best, budget)
    search.run()
    return _minimal(problem, search.best), search.budget


def _plus(a: Sequence[int], b: Sequence[int]) -> Amounts:
    return tuple(x + y for x, y in zip(a, b, strict=True))


def _by_harm(unit: Unit, row: int) -> tuple[float, ...]:
    return (*unit.harm, -unit.rank)


def _by_harm_per_seat(unit: Unit, row: int) -> tuple[float, ...]:
    size = max(unit.frees[row][0], 1)
    return (*(part / size for part in unit.harm), -unit.rank)


Key = Callable[[Unit, int], tuple[float, ...]]


class _State:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.free = dict(problem.free)
        self.chosen: dict[Unit, None] = {}
        self.whole: set[int] = set()
        self.singles: Counter[int] = Counter()

    def open(self, unit: Unit) -> bool:
        if unit in self.chosen or unit.gang in self.whole:
            return False
        return unit.whole or self.singles[unit.gang] < self.problem.surplus[unit.gang]

    def may(self, units: Sequence[Unit]) -> bool:
        """Whether all of them may still be chosen together."""
        singles = Counter(unit.gang for unit in units if not unit.whole)
        return all(map(self.open, units)) and all(
            count + self.singles[gang] <= self.problem.surplus[gang]
            for gang, count in singles.items()
        )

    def _singles_of(self, gang: int) -> list[Unit]:
        return [one for one in self.chosen if one.gang == gang] if self.singles[gang] else []

    def take(self, unit: Unit) -> None:
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


Offer = tuple[tuple[float, ...], list[Unit]]


def _greedy(problem: Problem, key: Key) -> list[Unit] | None:
    """Row by row, whichever gives its next pods for the least harm each."""
    state = _State(problem)
    missing = problem.missing
    version: Counter[int] = Counter()
    heap: list[tuple[tuple[float, ...], int, int, list[Unit]]] = [
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
    picked: list[Unit] = []
    best: Offer | None = None
    for unit in sorted(
        (unit for unit in problem.by_row[row] if state.open(unit)), key=lambda unit: key(unit, row)
    ):
        if unit.whole:
            for single in [one for one in picked if one.gang == unit.gang]:
                picked.remove(single)
                free = _plus(free, [-amount for amount in single.frees[row]])
        elif (
            any(one.whole and one.gang == unit.gang for one in picked)
            or singles[unit.gang] + state.singles[unit.gang] >= problem.surplus[unit.gang]
        ):
            continue
        else:
            singles[unit.gang] += 1
        picked.append(unit)
        free = _plus(free, unit.frees[row])
        gained = problem.cap(free) - start
        if gained <= 0:
            continue
        needed = _needed(problem, state.free[row], row, picked, start + min(gained, missing))
        gained += sum(_elsewhere(state, one, row) for one in needed if len(one.frees) > 1)
        harm = (part / min(gained, missing) for part in total(needed))
        score = (*harm, -sum(one.rank for one in needed))
        if best is None or score < best[0]:
            best = (score, needed)
        if gained >= missing:
            break
    return best


def _needed(
    problem: Problem, free: Amounts, row: int, picked: Sequence[Unit], seats: int
) -> list[Unit]:
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


def _elsewhere(state: _State, unit: Unit, row: int) -> int:
    problem = state.problem
    return sum(
        problem.cap(_plus(state.free[other], amounts)) - problem.cap(state.free[other])
        for other, amounts in unit.frees.items()
        if other != row
    )


def _minimal(problem: Problem, chosen: Sequence[Unit]) -> list[Unit]:
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


class _Search:
    """All choices, as far as they can still be better than the best one known."""

    def __init__(self, problem: Problem, best: list[Unit], budget: int) -> None:
        self.problem, self.best, self.budget = problem, best, budget
        self.harm = total(best)
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

    def _look(self, index: int, chosen: list[Unit], harm: Harm) -> None:
        if self.budget <= 0 or index == len(self.units):
            return
        if _sum(harm, self.least[index]) >= self.harm:
            return
        self.budget -= 1
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

    def _open(self, unit: Unit, chosen: list[Unit]) -> bool:
        same = [one for one in chosen if one.gang == unit.gang]
        if any(one.whole for one in same):
            return False
        return unit.whole or len(same) < self.problem.surplus[unit.gang]

    def _all(self, index: int, chosen: list[Unit]) -> list[Unit]:
        whole = {one.gang for one in chosen if one.whole}
        rest = [one for one in self.units[index:] if one.gang not in whole]
        gone = {one.gang for one in rest if one.whole}
        return chosen + [one for one in rest if one.whole or one.gang not in gone]


def _sum(a: Harm, b: Harm) -> Harm:
    return a[0] + b[0], a[1] + b[1], a[2] + b[2]
