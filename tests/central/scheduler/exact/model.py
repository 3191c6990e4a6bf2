"""Integer linear programs, stated as sums of variables and solved exactly by HiGHS. They judge claims, placements and
shrinking in the tests.

Several objectives are compared from left to right: each is minimised, then fixed, before the next. Neighbours whose
values fit into one exact objective together are minimised in one go. Solutions are rounded to integers and checked
against every row, so that no tolerance of the solver decides."""

from collections.abc import Iterable, Mapping, Sequence
from math import gcd

import numpy as np
import pytest

highspy = pytest.importorskip("highspy", reason="HiGHS is the judge (pip install --group dev)")
EXACT = 100_000  # combined values of an objective; far below the solver's tolerances


class Sum:
    """A linear expression of variables, with integers as coefficients."""

    __slots__ = ("constant", "terms")

    def __init__(self, terms: Mapping[int, int] | None = None, constant: int = 0) -> None:
        self.terms = dict(terms or {})
        self.constant = constant

    def __add__(self, other: "Sum | int") -> "Sum":
        if isinstance(other, int):
            return Sum(self.terms, self.constant + other)
        found = Sum(self.terms, self.constant + other.constant)
        for variable, factor in other.terms.items():
            found.terms[variable] = found.terms.get(variable, 0) + factor
        return found

    __radd__ = __add__

    def __mul__(self, factor: int) -> "Sum":
        return Sum({v: f * factor for v, f in self.terms.items()}, self.constant * factor)

    __rmul__ = __mul__

    def __neg__(self) -> "Sum":
        return self * -1

    def __sub__(self, other: "Sum | int") -> "Sum":
        return self + -other

    def __rsub__(self, other: int) -> "Sum":
        return -self + other


def total(parts: Iterable[Sum | int]) -> Sum:
    found = Sum()
    for part in parts:
        found = found + part
    return found


class Model:
    """Variables, rows, and the least values of objectives."""

    def __init__(self) -> None:
        self._bounds: list[tuple[int, int]] = []
        self._rows: list[Sum] = []  # each at most 0
        self._solution: list[int] = []

    def integer(self, low: int, high: int) -> Sum:
        self._bounds.append((low, high))
        return Sum({len(self._bounds) - 1: 1})

    def binary(self) -> Sum:
        return self.integer(0, 1)

    def at_most(self, left: Sum | int, right: Sum | int, *when: Sum) -> None:
        """The row holds where all of `when` are 1."""
        row = Sum() + left - right
        slack = max(0, self.limits(row)[1])
        if slack:
            self._rows.append(total([row, *((one - 1) * slack for one in when)]))

    def equal(self, left: Sum | int, right: Sum | int, *when: Sum) -> None:
        self.at_most(left, right, *when)
        self.at_most(right, left, *when)

    def limits(self, of: Sum) -> tuple[int, int]:
        """The least and the largest value that the bounds of the variables allow."""
        low = high = of.constant
        for variable, factor in of.terms.items():
            ends = [factor * bound for bound in self._bounds[variable]]
            low, high = low + min(ends), high + max(ends)
        return low, high

    def value(self, of: Sum) -> int:
        """In the last solution."""
        return of.constant + sum(f * self._solution[v] for v, f in of.terms.items())

    def is_possible(self, *given: Sum) -> bool:
        return self.least((), *given) is not None

    def least(self, levels: Sequence[Sum], *given: Sum) -> tuple[int, ...] | None:
        """The least values, compared from left to right; None: there is no solution. given: further rows, each at most
        0."""
        rows = [*self._rows, *given]
        if any(self.limits(row)[0] > 0 for row in rows):
            return None
        solver = _Solver(self._bounds, rows)
        for objective in self._combined(levels):
            found = solver.least(objective)
            if found is None:
                return None
            self._solution = found
        return tuple(map(self.value, levels))

    def _combined(self, levels: Sequence[Sum]) -> list[Sum]:
        """Objectives from zero on without common factors, neighbours together while they stay exact."""
        found, size = [Sum()], 1
        for level in levels:
            factor = gcd(*level.terms.values())
            if not factor:
                continue
            scaled = Sum({v: f // factor for v, f in level.terms.items() if f})
            low, high = self.limits(scaled)
            span = high - low + 1
            if size * span > EXACT:
                found, size = [*found, Sum()], 1
            found[-1] = found[-1] * span + (scaled - low)
            size *= span
        return found


class _Solver:
    """One program in HiGHS, to which each objective that is reached adds a row."""

    def __init__(self, bounds: Sequence[tuple[int, int]], rows: Sequence[Sum]) -> None:
        self.bounds = bounds
        self.rows = list[Sum]()
        self.solver = solver = highspy.Highs()
        for option, value in (
            ("output_flag", False),
            ("threads", 1),
            ("mip_rel_gap", 0.0),
            ("mip_abs_gap", 0.5),  # all objectives are integers
        ):
            solver.setOptionValue(option, value)
        count = len(bounds)
        ends = np.array(bounds, dtype=np.float64).reshape(count, 2)
        solver.addVars(count, ends[:, 0].copy(), ends[:, 1].copy())
        kinds = np.full(count, highspy.HighsVarType.kInteger)
        solver.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)
        for row in rows:
            self._add(row)

    def _add(self, row: Sum) -> None:
        self.rows.append(row)
        variables = np.fromiter(row.terms.keys(), dtype=np.int32)
        factors = np.fromiter(row.terms.values(), dtype=np.float64)
        self.solver.addRow(-highspy.kHighsInf, -row.constant, len(variables), variables, factors)

    def least(self, objective: Sum) -> list[int] | None:
        count = len(self.bounds)
        costs = np.array([objective.terms.get(v, 0) for v in range(count)], dtype=np.float64)
        self.solver.changeColsCost(count, np.arange(count, dtype=np.int32), costs)
        self.solver.run()
        status = self.solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        assert status == highspy.HighsModelStatus.kOptimal or not count, status
        found = [round(value) for value in self.solver.getSolution().col_value]
        reached = sum(f * found[v] for v, f in objective.terms.items())
        self._add(Sum(objective.terms, -reached))
        for row in self.rows:
            assert row.constant + sum(f * found[v] for v, f in row.terms.items()) <= 0, "inexact"
        return found
